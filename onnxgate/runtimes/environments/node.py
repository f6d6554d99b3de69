"""Environments for Node.js. npm verifies packages by their locked integrity hashes, and runs no install scripts."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shlex
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from onnxgate.core.errors import UnavailableError
from onnxgate.core.subprocesses import TIMED_OUT, CommandRunner, CompletedCommand
from onnxgate.project.lock.types import LockedRuntime, NpmPackage, PinnedPackage
from onnxgate.runtimes import protocol
from onnxgate.runtimes.engine_program import EngineProgram
from onnxgate.runtimes.environments import storage
from onnxgate.runtimes.environments.health import check_health, require_versions

MIN_NODE_MAJOR = 18
NODE_VARIABLES = ("NODE_OPTIONS", "NODE_PATH")
"""Environment variables that can make a worker load packages that are not locked."""
REGISTRY_HINT = "check the network connection and npm's `registry` setting"
INSTALL_NODE_HINT = f"install Node.js {MIN_NODE_MAJOR} or newer, with `node` and `npm` on PATH"
FIND_TIMEOUT_S = 30
INSTALL_TIMEOUT_S = 600

_NODE_PROBE = "process.stdout.write(JSON.stringify({path: process.execPath, version: process.versions.node}))"
_NPM_CI = ("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier")
_NPM_ERROR = re.compile(r"^npm (?:error|ERR!)\s+(.+)$", re.MULTILINE)
_NPM_CODE = re.compile(r"^npm (?:error|ERR!)\s+code (\w+)$", re.MULTILINE)
_NPM_PATH = re.compile(r"^npm (?:error|ERR!)\s+(?:path|dest) (.+)$", re.MULTILINE)
_IN_NPM_CACHE = re.compile(r"[/\\]_cacache(?:[/\\].*)?$")
_MACHINE_CODES = ("ENOSPC", "EDQUOT", "EROFS", "EFBIG", "EMFILE", "ENFILE", "ENOMEM", "EIO", "EACCES", "EPERM")
_FAILED_REQUEST = re.compile(r"^(?:\w+: |network )?request to \S+ failed, reason: ")
"""Part of npm's message that differs between packages. It is removed, so that reports can merge equal faults."""
_NPM_NOISE = ("code ", "A complete log", "Log files", "errno ", "syscall ", "path ", "dest ")
_INTEGRITY_ERROR = re.compile(r"EINTEGRITY|integrity checksum failed", re.IGNORECASE)
_NO_REGISTRY_CODES = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ENETUNREACH", "EHOSTUNREACH")
"""Error codes of npm for an unreachable registry. The next request would fail as well."""
_INTERRUPTED_CODES = ("ECONNRESET", "ECONNABORTED", "EPIPE", "ETIMEDOUT", "EIDLETIMEOUT", "ERR_SOCKET_TIMEOUT")


class Node(msgspec.Struct, frozen=True):
    """The Node.js on PATH: the program itself, not a launcher."""

    path: str
    version: str

    @property
    def major(self) -> int:
        """Return the major version, such as 20 for 20.11.1."""
        return int(self.version.partition(".")[0])


def required_npm_packages(runtime: LockedRuntime, packages: Sequence[PinnedPackage]) -> tuple[NpmPackage, ...]:
    """Return the packages that the runtime pins.

    Raises:
        UnavailableError: a package is missing from the lock.
    """
    locked = {f"{package.name}=={package.version}": package for package in packages if isinstance(package, NpmPackage)}
    for pin in runtime.packages:
        if pin not in locked:
            raise UnavailableError(f"the lock has no integrity hash for `{pin}`", hint="run `onnxgate lock --upgrade`")
    return tuple(locked[pin] for pin in runtime.packages)


class NodeBuilder:
    """Builds environments with `node` and `npm` on PATH. Thread-safe.

    `npm_cache` is untrusted: npm verifies each package, and downloads packages that do not match.
    """

    def __init__(self, commands: CommandRunner, *, offline: bool, npm_cache: Path | None = None) -> None:
        self._commands = commands
        self._offline = offline
        self._npm_cache = npm_cache
        self._unreachable = ""  # why the npm registry could not be reached; it is not contacted again
        self._node: Node | UnavailableError | None = None
        self._node_lock = threading.Lock()

    def node(self) -> Node:
        """Return the Node.js on PATH.

        Raises:
            UnavailableError: Node.js is not installed or too old.
        """
        with self._node_lock:
            self._node = self._node or _find_node(self._commands)
        if isinstance(self._node, UnavailableError):
            raise UnavailableError(self._node.message, hint=self._node.hint)
        return self._node

    def program(self, engine: str, package: Path, worker: Path = protocol.WORKER_FOLDER) -> EngineProgram:
        """Return the program of one environment, which reads the environment and the Node.js installation."""
        node = Path(os.path.realpath(self.node().path))
        argv = (self.node().path, str(worker / "web" / "main.mjs"), str(package), str(os.getpid()))
        reads = (package.parent, node, node.parent.parent / "lib")
        return EngineProgram(engine, argv, frozenset(map(str, reads)), worker=worker)

    def slot(self, cache: Path, runtime: LockedRuntime, packages: Sequence[NpmPackage]) -> storage.EnvironmentSlot:
        """Return the place of the environment in the cache."""
        major = self.node().major
        name = f"{runtime.engine}-{runtime.release}-node{major}"
        pins = [f"{package.name}=={package.version} {package.integrity}" for package in packages]
        identity = [runtime.engine, runtime.release, f"node {major}", *pins]
        return storage.environment_slot(cache, name, identity, f"node_modules/{runtime.engine}")

    def build(self, attempt: Path, runtime: LockedRuntime, packages: Sequence[NpmPackage]) -> None:
        """Install the packages in a new folder and test them.

        Raises:
            UnavailableError: the installation or the test fails, or the versions do not match the lock.
            OSError: a machine fault, such as a full disk.
        """
        attempt.mkdir(parents=True)
        for name, manifest in _npm_manifests(packages).items():
            (attempt / name).write_text(json.dumps(manifest, indent=2), encoding="utf-8", newline="\n")
        self._install(attempt, runtime)
        modules = attempt / "node_modules"
        require_versions(runtime, _read_versions(modules), {package.name: package.version for package in packages})
        check_health(runtime, self.program(runtime.engine, modules / runtime.engine), self._commands)

    def _install(self, attempt: Path, runtime: LockedRuntime) -> None:
        npm = shutil.which("npm")
        if npm is None:
            raise UnavailableError("`npm` was not found on PATH", hint=INSTALL_NODE_HINT)
        offline = ["--offline"] if self._offline or self._unreachable else []
        cache = ["--cache", str(self._npm_cache), "--prefer-offline"] if self._npm_cache else []
        command = [npm, *_NPM_CI, *cache, *offline, "--prefix", str(attempt)]
        self._commands.executed.append(shlex.join(["npm", *command[1:]]))
        ended = self._commands.run(command, timeout_s=INSTALL_TIMEOUT_S)
        if ended.status != 0:
            code = next(iter(_NPM_CODE.findall(ended.err)), "")
            if code in _MACHINE_CODES:
                number = getattr(errno, code)
                path = next(iter(_NPM_PATH.findall(ended.err)), str(attempt))
                raise OSError(number, os.strerror(number), _IN_NPM_CACHE.sub("", path))
            raise self._not_installed(ended, runtime, code)

    def _not_installed(self, ended: CompletedCommand, runtime: LockedRuntime, code: str) -> UnavailableError:
        lines = (line.strip() for line in _NPM_ERROR.findall(ended.err))
        reason = next((line for line in lines if not line.startswith(_NPM_NOISE)), ended.last_error_line)
        if _INTEGRITY_ERROR.search(ended.err):
            return UnavailableError(
                f"`{runtime.name}` does not match the lock: {reason}",
                hint="check that npm's `registry` setting selects a registry with the original packages",
            )
        if self._offline and code == "ENOTCACHED":
            return UnavailableError(
                "some packages are not in npm's cache, and `--offline` prevents their download",
                hint="to download the packages, run the command once without `--offline`",
            )
        reason = _FAILED_REQUEST.sub("", reason)
        if code in _NO_REGISTRY_CODES:
            self._unreachable = self._unreachable or reason
        not_cached = code == "ENOTCACHED" and bool(self._unreachable)
        if not_cached:
            reason = self._unreachable
        if not_cached or code in (*_NO_REGISTRY_CODES, *_INTERRUPTED_CODES) or ended.status == TIMED_OUT:
            return UnavailableError(
                f"packages cannot be downloaded: the npm registry is unreachable ({reason})",
                hint=REGISTRY_HINT,
            )
        return UnavailableError(f"`{runtime.name}` cannot be installed: {reason}")


def _read_versions(modules: Path) -> dict[str, str]:
    """Return the version of each package in a `node_modules` folder."""
    versions = {}
    for manifest in (*modules.glob("*/package.json"), *modules.glob("@*/*/package.json")):
        with contextlib.suppress(msgspec.MsgspecError, RecursionError):
            package = msgspec.json.decode(manifest.read_bytes(), type=_Manifest)
            versions[manifest.parent.relative_to(modules).as_posix()] = package.version
    return versions


class _Manifest(msgspec.Struct, frozen=True):
    version: str


def _find_node(commands: CommandRunner) -> Node | UnavailableError:
    program = shutil.which("node")
    if program is None:
        return UnavailableError("`node` was not found on PATH", hint=INSTALL_NODE_HINT)
    ended = commands.run([program, "-e", _NODE_PROBE], timeout_s=FIND_TIMEOUT_S)
    try:
        node = msgspec.json.decode(ended.out, type=Node)
    except msgspec.MsgspecError:
        return UnavailableError(f"`node` did not report its version: {ended.last_error_line}", hint=INSTALL_NODE_HINT)
    if node.major < MIN_NODE_MAJOR:
        return UnavailableError(f"`node` is version {node.version}, which is too old", hint=INSTALL_NODE_HINT)
    return node


def _npm_manifests(packages: Sequence[NpmPackage]) -> dict[str, object]:
    """Return the content of each file that `npm ci` reads, with exact pins and their integrity hashes."""
    root = {"name": "onnxgate", "version": "1.0.0", "private": True}
    root |= {"dependencies": {package.name: package.version for package in packages}}
    pinned = {
        f"node_modules/{package.name}": {"version": package.version, "integrity": package.integrity}
        for package in packages
    }
    lock = {"name": "onnxgate", "version": "1.0.0", "lockfileVersion": 3, "packages": {"": root, **pinned}}
    return {"package.json": root, "package-lock.json": lock}
