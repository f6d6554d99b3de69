"""Locked environments: built by uv, proven sound, and only then trusted."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from onnxgate.config.engines import runs_on_node
from onnxgate.errors import UnavailableError
from onnxgate.lock.types import LockedPackage, LockedRuntime, Pinned
from onnxgate.runtimes import builds, fetching, health, keeping, node, store, uses, wheels
from onnxgate.runtimes.commands import TIMED_OUT, ClosedError, Commands, Ended, last_line
from onnxgate.runtimes.interpreters import find_interpreter
from onnxgate.scratch import scratch_folder

CREATE_TIMEOUT_S = 60
INSTALL_TIMEOUT_S = 600
HEALTH_TIMEOUT_S = 120
LOCK_TIMEOUT_S = 900

_UNREACHABLE = re.compile(r"error sending request|Request failed after|Failed to fetch|operation timed out|dns error")
_NOT_CACHED = re.compile(r"network was disabled|not found in the cache|Network connectivity is disabled")
_CAUSE = re.compile(r"^\s*(?:error|cause|Caused by|×|╰─▶):?\s*(.+)$", re.MULTILINE)

_IDLE: AbstractContextManager[object] = contextlib.nullcontext()
Build = Callable[[Path], None]
"""Makes an environment in a folder that does not exist yet; raises `UnavailableError`."""


class Environments:
    """Makes locked environments below `cache`, once each. Safe for several threads, and for several gates at once.

    Where `kept` is given, they are made of the wheels in it, and those that it lacks are fetched into it.
    """

    def __init__(self, cache: Path, *, offline: bool, kept: Path | None = None) -> None:
        self._cache = cache
        self._offline = offline
        self._commands = Commands()
        self._keeper = keeping.Keeper(kept, self._where) if kept else None
        self._unreachable = ""  # why the index could not be reached; it is not asked a second time
        self._interpreters: dict[str, Path | UnavailableError] = {}
        self._finding = threading.Lock()
        self._uses = uses.Uses()
        self.node = node.Builder(self._commands, offline=offline, kept=kept / keeping.NPM if kept else None)

    def prepare(
        self,
        runtime: LockedRuntime,
        packages: Sequence[Pinned],
        busy: AbstractContextManager[object] = _IDLE,
    ) -> Path:
        """What the runtime's environment is there for, which is built where it is not ready.

        It is an interpreter of Python, or the folder of a package that Node runs. `packages` holds at least those that
        the runtime pins. It is tried within `busy`, which bounds what works at the same time.

        Raises:
            UnavailableError: it cannot be had here, and why.
        """
        try:
            slot, build = self._plan(runtime, packages, busy)
            return self._held(slot, lambda: slot.ready() or self._build_alone(slot, runtime, build))
        except OSError as error:
            raise UnavailableError(
                f"the environment of `{runtime.name}` cannot be stored: {error.strerror or error}",
                hint="`ONNXGATE_CACHE_DIR` names another folder for it",
            ) from error
        except ClosedError as error:
            raise UnavailableError("the gate was ended") from error

    def _held(self, slot: store.Slot, found: Callable[[], Path]) -> Path:
        """What is found there, in use from before anybody looks."""
        self._uses.hold(slot.folder)
        try:
            return found()
        except BaseException:
            self._uses.forget(slot.folder)
            raise

    def find_own(self, path: Path, runtime: LockedRuntime) -> Path:
        """The interpreter of an environment of the user's own, held to what is locked of it.

        Raises:
            UnavailableError: it is not there, or has something else.
        """
        try:
            return builds.prepare(path, runtime, self._commands)
        except ClosedError as error:
            raise UnavailableError("the gate was ended") from error

    def discard(self, runtime: LockedRuntime, packages: Sequence[Pinned]) -> None:
        """Distrust an environment that turned out to be broken; it is built anew when it is needed next."""
        self._plan(runtime, packages)[0].distrust()

    def slot_of(self, runtime: LockedRuntime, packages: Sequence[Pinned]) -> store.Slot:
        """Where the runtime's environment lies, or would lie; nothing is made.

        Raises:
            UnavailableError: it cannot be had on this system, and why.
        """
        return self._plan(runtime, packages)[0]

    def interpreter(self, minor: str) -> Path:
        """The Python of that minor version that environments are made with.

        Raises:
            UnavailableError: there is none.
        """
        return self._interpreter(minor)

    def close(self) -> None:
        """End what is being built, and build no more; what was made is no longer in use."""
        self._commands.close()
        self._uses.close()

    def _plan(
        self, runtime: LockedRuntime, packages: Sequence[Pinned], busy: AbstractContextManager[object] = _IDLE
    ) -> tuple[store.Slot, Build]:
        """Where the environment lies, and what makes it there."""
        if runs_on_node(runtime.engine):
            pins = node.needed(runtime, packages)
            return self.node.slot(self._cache, runtime, pins), lambda attempt: self.node.build(attempt, runtime, pins)
        needed = wheels.needed(runtime, [each for each in packages if isinstance(each, LockedPackage)])
        return self._slot(runtime, needed), lambda attempt: self._make(attempt, runtime, needed, busy)

    def _slot(self, runtime: LockedRuntime, needed: Sequence[LockedPackage]) -> store.Slot:
        name = f"{runtime.engine}-{runtime.release}-py{runtime.python}"
        hashes = [f"{pin.name}=={pin.version} {sha256}" for pin in needed for sha256 in sorted(wheels.fitting(pin))]
        return store.slot(self._cache, name, [runtime.engine, runtime.release, runtime.python, *hashes])

    def _build_alone(self, slot: store.Slot, runtime: LockedRuntime, build: Build) -> Path:
        slot.folder.parent.mkdir(parents=True, exist_ok=True)
        with self._locked(slot, runtime):
            return slot.ready() or _build(slot, build)

    @contextlib.contextmanager
    def _locked(self, slot: store.Slot, runtime: LockedRuntime) -> Iterator[None]:
        """Nobody else builds it meanwhile. Waits for whoever does, but not beyond our own end."""
        import filelock

        lock = filelock.FileLock(slot.lock)
        for _ in range(LOCK_TIMEOUT_S):
            self._commands.stay_open()
            try:
                lock.acquire(timeout=1)
            except filelock.Timeout:
                continue
            try:
                yield
            finally:
                lock.release()
            return
        raise UnavailableError(
            f"another onnxgate has been building the environment of `{runtime.name}` for {LOCK_TIMEOUT_S} s"
        )

    def _make(
        self,
        attempt: Path,
        runtime: LockedRuntime,
        needed: Sequence[LockedPackage],
        busy: AbstractContextManager[object],
    ) -> None:
        base = self._interpreter(runtime.python)
        interpreter = store.interpreter_of(attempt)
        self._create(attempt, base, runtime)
        self._install(interpreter, runtime, needed)
        with busy:
            self._examine(interpreter, runtime, needed)

    def _interpreter(self, minor: str) -> Path:
        with self._finding:
            if minor not in self._interpreters:
                self._interpreters[minor] = self._find(minor)
            found = self._interpreters[minor]
        if isinstance(found, UnavailableError):
            raise UnavailableError(found.message, hint=found.hint)
        return found

    def _find(self, minor: str) -> Path | UnavailableError:
        try:
            return find_interpreter(minor, self._commands, offline=self._offline)
        except UnavailableError as error:
            return error

    def _create(self, attempt: Path, base: Path, runtime: LockedRuntime) -> None:
        venv = ["venv", "--quiet", "--no-project", "--python", str(base), str(attempt)]
        ended = self._commands.uv(venv, timeout_s=CREATE_TIMEOUT_S)
        if ended.status != 0:
            raise UnavailableError(f"uv cannot make an environment for `{runtime.name}`: {_reason(ended)}")

    def _install(self, interpreter: Path, runtime: LockedRuntime, needed: Sequence[LockedPackage]) -> None:
        with scratch_folder() as scratch:
            kept = self._keeper is not None and self._keeper.gather(needed, Path(scratch))
            unreachable = self._unreachable
            # uv's own cache is not hashed again, so what is kept passes it by.
            local = [*_LOCAL, scratch] if kept else []
            offline = ["--offline"] if kept or self._offline or unreachable else []
            ended = self._commands.uv(
                [*_INSTALL, *local, *offline, "--python", str(interpreter)],
                timeout_s=INSTALL_TIMEOUT_S,
                stdin=wheels.requirements(needed),
            )
        if ended.status != 0:
            raise self._not_installed(ended, runtime, unreachable)

    def _where(self, packages: Sequence[LockedPackage]) -> Mapping[str, keeping.Source]:
        """Where missing wheels can be had; nowhere offline, and where the index did not answer already."""
        return {} if self._offline or self._unreachable else fetching.find(self._commands, packages)

    def _not_installed(self, ended: Ended, runtime: LockedRuntime, unreachable: str) -> UnavailableError:
        if self._offline and _NOT_CACHED.search(ended.err):
            return UnavailableError(
                f"`{runtime.name}` is not in uv's cache, and `--offline` was asked for", hint="run it once without"
            )
        if _UNREACHABLE.search(ended.err) or (ended.status == TIMED_OUT and not self._offline):
            unreachable = self._unreachable = unreachable or _reason(ended)
        if unreachable:
            return UnavailableError(
                f"`{runtime.name}` cannot be fetched: no package index answers ({unreachable})", hint=_NETWORK
            )
        return UnavailableError(f"`{runtime.name}` cannot be installed: {_reason(ended)}", hint=_OF_INSTALL)

    def _examine(self, interpreter: Path, runtime: LockedRuntime, needed: Sequence[LockedPackage]) -> None:
        """Raises `UnavailableError` where it does not import, or is not what is locked."""
        expected = {pin.name: pin.version for pin in needed} | {runtime.engine: runtime.release}
        trial = health.arguments(wheels.module_of(runtime.engine), runtime.engine, tuple(expected))
        ended = self._commands.run([str(interpreter), *trial], timeout_s=HEALTH_TIMEOUT_S)
        if ended.status != 0:
            raise UnavailableError(f"`{runtime.name}` does not work here: {last_line(ended)}")
        found: Mapping[str, str] = json.loads(ended.out.splitlines()[-1])
        if wrong := sorted(f"{name} {found[name]}" for name in expected if found[name] != expected[name]):
            raise UnavailableError(f"`{runtime.name}` was installed with {', '.join(wrong)}, which is not locked")


_NETWORK = "check the network, or name your index in `UV_DEFAULT_INDEX`"
_OF_INSTALL = "see that the index gives what is locked, and that there is room for it"
_INSTALL = (
    *("pip", "install", "--quiet", "--no-deps", "--require-hashes"),
    *("--only-binary", ":all:", "--requirement", "-"),
)
_LOCAL = ("--no-index", "--no-cache", "--find-links")


def _build(slot: store.Slot, build: Build) -> Path:
    slot.clear()
    with slot.attempt() as attempt:
        build(attempt)
        slot.mark_ready(attempt)
    return slot.program_of(attempt)


def _reason(ended: Ended) -> str:
    """uv's innermost cause, in one line."""
    causes = _CAUSE.findall(ended.err)
    return causes[-1].strip() if causes else last_line(ended)
