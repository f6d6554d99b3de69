"""Where locked environments lie, and which of them may be trusted."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import secrets
import shutil
import stat
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import filelock
import msgspec
import platformdirs

from onnxgate.core.files import replace_atomically

if TYPE_CHECKING:
    from filelock import BaseFileLock


LAYOUT_VERSION = 1
"""Counts changes of what a slot's folder holds; each makes new environments."""

SHARED_CACHE_VARIABLE = "ONNXGATE_KEPT_DIR"


def cache_dir() -> Path:
    """`ONNXGATE_CACHE_DIR`, else the user's cache folder; it need not exist yet."""
    if chosen := os.environ.get("ONNXGATE_CACHE_DIR"):
        return Path(chosen).absolute()

    return platformdirs.user_cache_path("onnxgate", appauthor=False)


def support_dir() -> Path:
    """Where it is kept what builds say that they implement."""
    return cache_dir() / "support"


def inputs_dir() -> Path:
    """Where inputs are kept that show a finding."""
    return cache_dir() / "inputs"


def static_dir() -> Path:
    """Where it is kept what the static stages said of models that did not change."""
    return cache_dir() / "static"


def create_private_folder(folder: Path) -> Path | None:
    """A folder for answers that nobody else can write to, made where it is not there; None where it is another's."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return None
    if not stat.S_ISDIR(status.st_mode):
        return None
    if os.name != "nt" and (status.st_uid != os.geteuid() or status.st_mode & 0o022):
        return None
    return folder


def costs_dir() -> Path:
    """Where it is kept what models cost, one file per content: folders of several machines can be laid together."""
    return (shared_cache_dir() or cache_dir()) / "costs"


def shared_cache_dir() -> Path | None:
    """`ONNXGATE_KEPT_DIR`: what other machines left for this one, of which nothing is believed but by its hash;
    but costs, which only balance."""
    named = os.environ.get(SHARED_CACHE_VARIABLE)
    return Path(named).absolute() if named else None


def results_dir() -> Path:
    """Where results of earlier checks are."""
    return (shared_cache_dir() or cache_dir()) / "results"


class ReadyMarker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What marks an environment as ready; it is written last, at once."""

    layout: int
    key: str
    attempt: str


@dataclass(frozen=True, slots=True)
class EnvironmentSlot:
    """The place of one environment.

    `attempts/<name>/` is one try to build it, made in place; `ready.json` says which try succeeded. A process that was
    killed may leave a child that still writes, but only into a try that nobody will ever trust.
    """

    folder: Path
    key: str
    program: str = ""  # what a finished try has, relative to its folder; "" for an interpreter of Python

    def program_of(self, attempt: Path) -> Path:
        """What a try is there for."""
        return attempt / self.program if self.program else interpreter_of(attempt)

    @property
    def lock(self) -> Path:
        """Held by whoever builds."""
        return self.folder.with_name(f"{self.folder.name}.lock")

    def ready(self) -> Path | None:
        """The program of the environment, where it was finished and still is there."""
        state = self._state()
        if state is None or state.layout != LAYOUT_VERSION or state.key != self.key:
            return None
        program = self.program_of(self._attempts / state.attempt)
        return program if program.exists() else None

    def mark_ready(self, attempt: Path) -> None:
        """Make `attempt` the environment."""
        with replace_atomically(self._ready) as scratch:
            scratch.write_bytes(msgspec.json.encode(ReadyMarker(LAYOUT_VERSION, self.key, attempt.name)))

    def distrust(self) -> None:
        """Have it built anew by whoever needs it next."""
        if self._ready.is_dir() and not self._ready.is_symlink():
            shutil.rmtree(self._ready, ignore_errors=True)
        else:
            self._ready.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove all that is there, as far as no other process still writes."""
        self.distrust()
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextlib.contextmanager
    def attempt(self) -> Iterator[Path]:
        """A path for a new try; nothing is left of it where the try raises."""
        self._attempts.mkdir(parents=True, exist_ok=True)
        path = self._attempts / secrets.token_hex(4)
        try:
            yield path
        except BaseException:
            self.clear()
            raise

    @property
    def _attempts(self) -> Path:
        return self.folder / "attempts"

    @property
    def _ready(self) -> Path:
        return self.folder / "ready.json"

    def _state(self) -> ReadyMarker | None:
        try:
            return msgspec.json.decode(self._ready.read_bytes(), type=ReadyMarker)
        except (OSError, msgspec.MsgspecError):
            return None


def interpreter_of(environment: Path) -> Path:
    """Where an environment of this system has its interpreter."""
    return environment / "Scripts" / "python.exe" if os.name == "nt" else environment / "bin" / "python"


def environment_slot(cache: Path, name: str, identity: Iterable[str], program: str = "") -> EnvironmentSlot:
    """The place of the environment called `name`, which is `identity` and nothing else."""
    words = [f"layout {LAYOUT_VERSION}", sys.platform, platform.machine(), *identity]
    key = hashlib.sha256("\n".join(words).encode()).hexdigest()
    return EnvironmentSlot(cache / "environments" / f"{name}-{key[:12]}", key, program)


class EnvironmentLeases:
    """What this process works with. Safe for several threads."""

    def __init__(self) -> None:
        self._held: dict[Path, BaseFileLock] = {}
        self._lock = threading.Lock()

    def hold(self, environment: Path) -> None:
        """From now on it is in use; where nothing can be written, nobody else can remove it either."""
        with self._lock, contextlib.suppress(OSError):
            if environment in self._held:
                return
            place = lease_folder(environment) / f"{secrets.token_hex(8)}.lock"
            place.parent.mkdir(parents=True, exist_ok=True)
            held = filelock.FileLock(place, thread_local=False)  # it is released by whichever thread ends the gate
            held.acquire(timeout=0)
            self._held[environment] = held

    def forget(self, environment: Path) -> None:
        """It could not be made; nothing of its use is left."""
        with self._lock, contextlib.suppress(OSError, KeyError):
            _release_lease(self._held.pop(environment))
            lease_folder(environment).rmdir()

    def close(self) -> None:
        """Nothing is in use any more; when it was used last is still to be seen."""
        with self._lock:
            for held in self._held.values():
                _release_lease(held)
            self._held.clear()


def _release_lease(held: BaseFileLock) -> None:
    held.release()
    with contextlib.suppress(OSError):
        Path(held.lock_file).unlink(missing_ok=True)


def lease_folder(environment: Path) -> Path:
    """Where the files lie that say so; it changed when the environment was last used."""
    return environment.with_name(f"{environment.name}.uses")


def is_in_use(environment: Path) -> bool:
    """Whether a gate that lives holds it; what those left that do not is removed."""
    folder = lease_folder(environment)
    for place in sorted(folder.glob("*.lock")) if folder.is_dir() else ():
        held = filelock.FileLock(place)
        try:
            held.acquire(timeout=0)
        except filelock.Timeout:
            return True
        held.release()
        with contextlib.suppress(OSError):
            place.unlink(missing_ok=True)
    return False
