"""Environments under Node: npm installs what is locked, by integrity, and runs nothing of it on the way."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from onnxgate.errors import UnavailableError
from onnxgate.lock.types import LockedRuntime, NpmPackage, Pinned
from onnxgate.runtimes import decode, store
from onnxgate.runtimes.commands import TIMED_OUT, Commands, Ended, last_line
from onnxgate.runtimes.jobs import Completed, Probe, ProbeResult, Unavailable

OLDEST = 18
UNWANTED = ("NODE_OPTIONS", "NODE_PATH")
"""They would have a worker load what is not locked."""
GET_NODE = f"install Node {OLDEST} or newer, so that `node` and `npm` are on PATH"
WORKER = Path(__file__).resolve().parent / "worker" / "web" / "main.mjs"
FIND_TIMEOUT_S = 30
INSTALL_TIMEOUT_S = 600
HEALTH_TIMEOUT_S = 120

_ASK = "process.stdout.write(JSON.stringify({path: process.execPath, version: process.versions.node}))"
_CI = ("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier")
_SAID = re.compile(r"^npm (?:error|ERR!)\s+(.+)$", re.MULTILINE)
_ASIDE = ("code ", "A complete log", "Log files", "errno ", "syscall ")
_NOT_THE_LOCKED = re.compile(r"EINTEGRITY|integrity checksum failed", re.IGNORECASE)
_UNREACHABLE = re.compile(r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ERR_SOCKET_TIMEOUT|network")


class Node(msgspec.Struct, frozen=True):
    """The Node that is on PATH: the program itself, and not what starts it."""

    path: str
    version: str

    @property
    def major(self) -> int:
        """20 of 20.11.1."""
        return int(self.version.partition(".")[0])


def needed(runtime: LockedRuntime, packages: Sequence[Pinned]) -> tuple[NpmPackage, ...]:
    """The packages that the runtime pins.

    Raises:
        UnavailableError: the lock does not have one.
    """
    known = {f"{each.name}=={each.version}": each for each in packages if isinstance(each, NpmPackage)}
    for pin in runtime.packages:
        if pin not in known:
            raise UnavailableError(f"the lock has no integrity of `{pin}`", hint="run `onnxgate lock --upgrade`")
    return tuple(known[pin] for pin in runtime.packages)


class Builder:
    """Makes environments with the Node and the npm that are on PATH. Safe for several threads.

    `kept` is a cache of npm that others wrote: npm holds each package to its integrity, and fetches anew what has not.
    """

    def __init__(self, commands: Commands, *, offline: bool, kept: Path | None = None) -> None:
        self._commands = commands
        self._offline = offline
        self._kept = kept
        self._found: Node | UnavailableError | None = None
        self._finding = threading.Lock()

    def node(self) -> Node:
        """The Node on PATH.

        Raises:
            UnavailableError: there is none, or one that is too old.
        """
        with self._finding:
            self._found = self._found or _find(self._commands)
        if isinstance(self._found, UnavailableError):
            raise UnavailableError(self._found.message, hint=self._found.hint)
        return self._found

    def argv(self, worker: Path, package: Path) -> list[str]:
        """What starts the worker of one environment."""
        return [self.node().path, str(worker), str(package), str(os.getpid())]

    def reads(self, package: Path) -> list[str]:
        """What Node itself reads of its environment and its own installation."""
        program = Path(os.path.realpath(self.node().path))
        return [str(package.parent), str(program), str(program.parent.parent / "lib")]

    def slot(self, cache: Path, runtime: LockedRuntime, packages: Sequence[NpmPackage]) -> store.Slot:
        """Where the environment lies."""
        major = self.node().major
        identity = [f"{each.name}=={each.version} {each.integrity}" for each in packages]
        program = f"node_modules/{runtime.engine}"
        return store.slot(
            cache,
            f"{runtime.engine}-{runtime.release}-node{major}",
            [runtime.engine, runtime.release, f"node {major}", *identity],
            program,
        )

    def build(self, attempt: Path, runtime: LockedRuntime, packages: Sequence[NpmPackage]) -> None:
        """Install the packages in a new folder, and try them.

        Raises:
            UnavailableError: that fails, or what comes is not what is locked.
        """
        attempt.mkdir(parents=True)
        for name, said in _manifests(packages).items():
            (attempt / name).write_text(json.dumps(said, indent=2), encoding="utf-8", newline="\n")
        self._install(attempt, runtime)
        self._examine(attempt / "node_modules" / runtime.engine, runtime, packages)

    def _install(self, attempt: Path, runtime: LockedRuntime) -> None:
        npm = shutil.which("npm")
        if npm is None:
            raise UnavailableError(f"`{runtime.name}` cannot be installed: npm is not there", hint=GET_NODE)
        offline = ["--offline"] if self._offline else []
        kept = ["--cache", str(self._kept), "--prefer-offline"] if self._kept else []
        ended = self._commands.run([npm, *_CI, *kept, *offline, "--prefix", str(attempt)], timeout_s=INSTALL_TIMEOUT_S)
        if ended.status != 0:
            raise self._not_installed(ended, runtime)

    def _not_installed(self, ended: Ended, runtime: LockedRuntime) -> UnavailableError:
        reason = _reason(ended)
        if _NOT_THE_LOCKED.search(ended.err):
            said = f"`{runtime.name}` is not what is locked: {reason}"
            return UnavailableError(said, hint="see where your npm registry has its packages from")
        if self._offline and "ENOTCACHED" in ended.err:
            said = f"`{runtime.name}` is not in npm's cache, and `--offline` was asked for"
            return UnavailableError(said, hint="run it once without")
        if ended.status == TIMED_OUT or _UNREACHABLE.search(reason):
            return UnavailableError(f"`{runtime.name}` cannot be fetched: no npm registry answers ({reason})")
        return UnavailableError(f"`{runtime.name}` cannot be installed: {reason}")

    def _examine(self, package: Path, runtime: LockedRuntime, packages: Sequence[NpmPackage]) -> None:
        """Raises `UnavailableError` where no tensor comes through it, or it is not what is locked."""
        expected = {each.name: each.version for each in packages}
        found = self._probe(package, runtime, tuple(expected))
        if wrong := sorted(f"{name} {found.get(name)}" for name in expected if found.get(name) != expected[name]):
            raise UnavailableError(f"`{runtime.name}` was installed with {', '.join(wrong)}, which is not locked")

    def _probe(self, package: Path, runtime: LockedRuntime, names: tuple[str, ...]) -> dict[str, str]:
        """The versions that the worker finds, after it computed something."""
        job = {"id": 1, "engine": runtime.engine.replace("-", "_"), "memory_mib": None, "job": Probe(packages=names)}
        request = msgspec.json.encode(job).decode() + "\n"
        ended = self._commands.run(self.argv(WORKER, package), timeout_s=HEALTH_TIMEOUT_S, stdin=request)
        match _reply(ended):
            case Completed(result=ProbeResult(packages=found)):
                return found
            case Unavailable(reason=reason):
                raise UnavailableError(f"`{runtime.name}` does not work here: {reason}")
            case _:
                raise UnavailableError(f"`{runtime.name}` does not work here: {last_line(ended)}")


def _find(commands: Commands) -> Node | UnavailableError:
    program = shutil.which("node")
    if program is None:
        return UnavailableError("there is no `node` on PATH", hint=GET_NODE)
    ended = commands.run([program, "-e", _ASK], timeout_s=FIND_TIMEOUT_S)
    try:
        found = msgspec.json.decode(ended.out, type=Node)
    except msgspec.MsgspecError:
        return UnavailableError(f"`node` does not say which one it is: {last_line(ended)}", hint=GET_NODE)
    if found.major < OLDEST:
        return UnavailableError(f"`node` is {found.version}, which is too old", hint=GET_NODE)
    return found


def _manifests(packages: Sequence[NpmPackage]) -> dict[str, object]:
    """What `npm ci` reads: exact pins, each with its integrity; what else the packages name is left out."""
    root = {"name": "onnxgate", "version": "1.0.0", "private": True}
    root |= {"dependencies": {each.name: each.version for each in packages}}
    pinned = {f"node_modules/{each.name}": {"version": each.version, "integrity": each.integrity} for each in packages}
    lock = {"name": "onnxgate", "version": "1.0.0", "lockfileVersion": 3, "packages": {"": root, **pinned}}
    return {"package.json": root, "package-lock.json": lock}


def _reply(ended: Ended) -> decode.Reply | None:
    lines = ended.out.splitlines()
    try:
        return decode.event(lines[-1].encode(), 1).reply if lines else None
    except decode.NonsenseError:
        return None


def _reason(ended: Ended) -> str:
    """The first thing that npm said of an error."""
    lines = (line.strip() for line in _SAID.findall(ended.err))
    return next((line for line in lines if not line.startswith(_ASIDE)), last_line(ended))
