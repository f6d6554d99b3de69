"""Creation of locked environments with uv, and their health check."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import sysconfig
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import filelock
from packaging.utils import canonicalize_name

from onnxgate.core.errors import UnavailableError
from onnxgate.core.files import open_regular, temporary_folder
from onnxgate.core.machine_faults import (
    ACCESS_HINT,
    LIMIT_HINTS,
    OTHER_FOLDER_HINT,
    SPACE_HINT,
    WRITABLE_HINT,
    MachineFault,
    find_fault_in_text,
    find_machine_fault,
)
from onnxgate.core.subprocesses import TIMED_OUT, CommandRunner, CompletedCommand
from onnxgate.project.engines import runs_on_node
from onnxgate.project.lock.types import LockedPackage, LockedRuntime, PinnedPackage
from onnxgate.runtimes.engine_program import EngineProgram
from onnxgate.runtimes.environments import node, storage, wheels
from onnxgate.runtimes.environments.health import check_health, require_versions
from onnxgate.runtimes.environments.leases import EnvironmentLeases
from onnxgate.runtimes.sandbox import runtime_variables

CREATE_TIMEOUT_S = 60
INSTALL_TIMEOUT_S = 600
COMPILE_TIMEOUT_S = 120
UNUSED_FOLDERS = (
    r"[/\\]site-packages[/\\](?:.*[/\\])?"
    r"(?:tests?|testing|transformers|quantization|onnxruntime[/\\]tools|distutils|f2py)[/\\]"
)
"""Folders whose modules are not compiled: importing an engine does not need them.

Source: for onnxruntime 1.31.1, 0.4 instead of 1.4 s of CPU time; no release in use imports a module of them.
"""
LOCK_TIMEOUT_S = 900

_UNREACHABLE = re.compile(r"error sending request|Request failed after|Failed to fetch|operation timed out|dns error")
_NOT_CACHED = re.compile(r"network was disabled|not found in the cache|Network connectivity is disabled")
_UV_CAUSE = re.compile(r"^\s*(?:error|cause|Caused by|×|╰─▶):?\s*(.+)$", re.MULTILINE)

MAX_HEADER_BYTES = 2**20
"""Bytes of package metadata that are read. The description, which may be longer, is at its end."""
_METADATA_FIELD = re.compile(r"^(Name|Version):[ \t]*(\S+)", re.MULTILINE | re.IGNORECASE)

_NO_SLOT: AbstractContextManager[object] = contextlib.nullcontext()


class Environments:
    """Creates locked environments in `cache`, each only once. Safe to use from several threads and processes.

    With `shared`, wheels are installed from that folder, and missing wheels are downloaded into it.
    """

    def __init__(self, cache: Path, *, offline: bool, shared: Path | None = None) -> None:
        sysconfig.get_config_vars()  # initialized here: in Python 3.11 and older, this is not thread-safe
        self._cache = cache
        self._offline = offline
        self.commands = CommandRunner()
        self.created: set[str] = set()  # names of the runtimes whose environments this object created
        self.changed: set[str] = set()  # those whose previous environment had changed files
        self._wheels = wheels.WheelCache(shared, self._find_downloads) if shared else None
        self._unreachable = ""  # why the package index could not be reached; it is not contacted again
        self._interpreters: dict[str, Path | UnavailableError] = {}
        self._interpreter_lock = threading.Lock()
        self._leases = EnvironmentLeases()
        npm_cache = shared / wheels.NPM_FOLDER if shared else None
        self.node = node.NodeBuilder(self.commands, offline=offline, npm_cache=npm_cache)

    @property
    def folder(self) -> Path:
        """The folder that contains the environments."""
        return self._cache / storage.ENVIRONMENTS

    def prepare(
        self,
        runtime: LockedRuntime,
        packages: Sequence[PinnedPackage],
        busy: AbstractContextManager[object] = _NO_SLOT,
    ) -> Path:
        """Return the program of the runtime's environment; build the environment if it is not ready.

        The program is a Python interpreter, or the folder of a package that Node runs. `packages` contains at least
        the packages that the runtime pins. The context manager `busy` is entered for the health check, to
        limit concurrent work.

        Raises:
            UnavailableError: the environment cannot be created on this machine; the message is the reason.
        """
        try:
            slot, build = self._plan(runtime, packages, busy)
            with self._leases.acquire(slot.folder):
                return slot.ready() or self._build_once(slot, runtime, build)
        except OSError as error:
            if str(error.filename or "").startswith(f"{self.folder}{os.sep}"):  # the same path for all runtimes
                error = OSError(error.errno, error.strerror, str(self.folder))
            fault = find_machine_fault(error, self._cache)
            reason = fault.message if fault else error.strerror or str(error)
            variable = "npm_config_cache" if runs_on_node(runtime.engine) else "UV_CACHE_DIR"
            hint = _cache_hint(fault, self._cache, variable)
            raise UnavailableError(f"{_NOT_CREATED}: {reason}", hint=hint) from error

    def discard(self, runtime: LockedRuntime, packages: Sequence[PinnedPackage]) -> None:
        """Mark a broken environment as not ready, so that it is rebuilt on its next use."""
        self.slot_of(runtime, packages).distrust()

    def slot_of(self, runtime: LockedRuntime, packages: Sequence[PinnedPackage]) -> storage.EnvironmentSlot:
        """Return the place of the runtime's environment in the cache, without creating the environment.

        Raises:
            UnavailableError: the environment is not available on this machine; the message is the reason.
        """
        return self._plan(runtime, packages)[0]

    def interpreter(self, minor: str) -> Path:
        """Return the interpreter for environments of a minor Python version.

        Raises:
            UnavailableError: the interpreter is not installed and cannot be downloaded.
        """
        with self._interpreter_lock:
            if minor not in self._interpreters:
                try:
                    self._interpreters[minor] = find_interpreter(minor, self.commands, offline=self._offline)
                except UnavailableError as error:
                    self._interpreters[minor] = error
            interpreter = self._interpreters[minor]
        if isinstance(interpreter, UnavailableError):
            raise UnavailableError(interpreter.message, hint=interpreter.hint)
        return interpreter

    def close(self) -> None:
        """Kill running builds, reject new builds, and release the environments in use."""
        self.commands.close()
        self._leases.close()

    def _plan(
        self, runtime: LockedRuntime, packages: Sequence[PinnedPackage], busy: AbstractContextManager[object] = _NO_SLOT
    ) -> tuple[storage.EnvironmentSlot, storage.BuildFunction]:
        """Return the place of the environment in the cache, and the function that builds it."""
        if runs_on_node(runtime.engine):
            pins = node.required_npm_packages(runtime, packages)
            return self.node.slot(self._cache, runtime, pins), lambda attempt: self.node.build(attempt, runtime, pins)
        locked = [package for package in packages if isinstance(package, LockedPackage)]
        needed = wheels.required_wheels(runtime, locked)
        name = f"{runtime.engine}-{runtime.release}-py{runtime.python}"
        pairs = [(pin, sorted(wheel.sha256 for wheel in wheels.rank_wheels(pin))) for pin in needed]
        hashes = [f"{pin.name}=={pin.version} {sha256}" for pin, digests in pairs for sha256 in digests]
        identity = [runtime.engine, runtime.release, runtime.python, *hashes]
        slot = storage.environment_slot(self._cache, name, identity)
        return slot, lambda attempt: self._build(attempt, runtime, needed, busy)

    def _build_once(self, slot: storage.EnvironmentSlot, runtime: LockedRuntime, build: storage.BuildFunction) -> Path:
        """Build the environment under a lock that all processes share; stop waiting for the lock on `close`."""
        slot.folder.parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(f"{slot.folder}.lock")
        for _ in range(LOCK_TIMEOUT_S):
            self.commands.require_open()
            try:
                lock.acquire(timeout=1)
            except filelock.Timeout:
                continue
            try:
                if ready := slot.ready():  # another process built it
                    return ready
                if slot.is_marked:
                    self.changed.add(runtime.name)
                program = slot.build(build)
                self.created.add(runtime.name)
                return program
            finally:
                lock.release()
        raise UnavailableError(
            f"another onnxgate process has been building the environment of `{runtime.name}` for {LOCK_TIMEOUT_S} s",
            hint="wait until that process has finished, then run the command again",
        )

    def _build(
        self,
        attempt: Path,
        runtime: LockedRuntime,
        needed: Sequence[LockedPackage],
        busy: AbstractContextManager[object],
    ) -> None:
        base = self.interpreter(runtime.python)
        venv = ["venv", "--quiet", "--no-project", "--python", str(base), str(attempt)]
        ended = wheels.run_uv(self.commands, venv, timeout_s=CREATE_TIMEOUT_S)
        if ended.status != 0:
            raise self._create_uv_error(f"the environment of `{runtime.name}` cannot be created", ended)
        interpreter, packages = storage.interpreter_of(attempt), storage.site_packages_of(attempt)
        self._install(interpreter, packages, runtime, needed)
        expected = {pin.name: pin.version for pin in needed} | {runtime.engine: runtime.release}
        require_versions(runtime, _read_versions(packages), expected)
        with busy:
            self._compile(interpreter, packages)
            check_health(runtime, EngineProgram.of_python(runtime.engine, interpreter), self.commands)

    def _compile(self, interpreter: Path, packages: Path) -> None:
        """Compile the modules of an environment, which its workers cannot change. No code of a package is run."""
        with temporary_folder() as scratch:
            variables = runtime_variables(os.environ, Path(scratch), own=False)
            command = [str(interpreter), "-I", "-S", "-m", "compileall", "-q", "-x", UNUSED_FOLDERS, str(packages)]
            self.commands.run(command, timeout_s=COMPILE_TIMEOUT_S, environment=variables)

    def _install(
        self, interpreter: Path, packages: Path, runtime: LockedRuntime, needed: Sequence[LockedPackage]
    ) -> None:
        """Install packages into one folder, including files that wheels place next to the interpreter.

        A `pyvenv.cfg` or `python._pth` there would select the standard library, which is imported before the sandbox.
        """
        with temporary_folder() as scratch:
            cached = self._wheels is not None and self._wheels.gather(needed, Path(scratch))
            unreachable = self._unreachable
            # With cached wheels, uv's own cache is not used, since uv does not check hashes in it.
            local = ["--no-index", "--no-cache", "--find-links", scratch] if cached else []
            offline = ["--offline"] if cached or self._offline or unreachable else []
            ended = wheels.run_uv(
                self.commands,
                [*_INSTALL_COMMAND, *local, *offline, "--python", str(interpreter), "--target", str(packages)],
                timeout_s=INSTALL_TIMEOUT_S,
                stdin=wheels.render_requirements(needed),
            )
        if ended.status != 0:
            raise self._not_installed(ended, runtime, unreachable)
        if not cached and (damaged := wheels.find_damaged_file(packages)):
            names = " ".join(package.name for package in needed)
            raise UnavailableError(
                f"`{damaged}` of `{runtime.name}` differs from the record of its wheel",
                hint=f"run `uv cache clean {names}`, then run the command again; if the file still differs, the wheel "
                "itself is faulty",
            )

    def _find_downloads(self, packages: Sequence[LockedPackage]) -> wheels.Downloads:
        """Return functions that download missing wheels; empty if offline or if the index is unreachable."""
        return {} if self._offline or self._unreachable else wheels.find_downloads(self.commands, packages)

    def _not_installed(self, ended: CompletedCommand, runtime: LockedRuntime, unreachable: str) -> UnavailableError:
        if self._offline and _NOT_CACHED.search(ended.err):
            return UnavailableError(
                "some packages are not in uv's cache, and `--offline` prevents their download", hint=_OFFLINE_HINT
            )
        if _UNREACHABLE.search(ended.err) or (ended.status == TIMED_OUT and not self._offline):
            unreachable = self._unreachable = unreachable or _uv_error(ended)
        if unreachable:
            return UnavailableError(
                f"packages cannot be downloaded: the package index is unreachable ({unreachable})",
                hint=_NETWORK_HINT,
            )
        return self._create_uv_error(f"`{runtime.name}` cannot be installed", ended, _INSTALL_HINT)

    def _create_uv_error(self, problem: str, ended: CompletedCommand, hint: str | None = None) -> UnavailableError:
        """Return an error with uv's message, or with the machine fault that the message describes."""
        reason = _uv_error(ended)
        fault = find_fault_in_text(f"{reason}\n{ended.err}", self._cache, is_trusted=True)
        if fault is not None:
            return UnavailableError(f"{_NOT_CREATED}: {fault.message}", hint=_cache_hint(fault, self._cache))
        return UnavailableError(f"{problem}: {reason}", hint=hint)


def _read_versions(packages: Path) -> dict[str, str]:
    """Return the version of each distribution in a `site-packages` folder, without running its code.

    A distribution without a name or version has the name of its folder and an empty version.
    """
    versions: dict[str, str] = {}
    for info in sorted(packages.glob("*.dist-info")):
        with contextlib.suppress(OSError), open_regular(info / "METADATA") as file:
            header = re.split(rb"\r?\n\r?\n", file.read(MAX_HEADER_BYTES), maxsplit=1)[0].decode("utf-8", "replace")
            fields = {name.lower(): value for name, value in reversed(_METADATA_FIELD.findall(header))}
            if len(fields) == 2:
                versions[canonicalize_name(fields["name"])] = fields["version"]
                continue
        versions[info.name] = ""
    return versions


_NOT_CREATED = "the environment cannot be created"
"""First part of messages about machine faults, such as a full disk.

It does not contain the runtime's name, so that reports can merge equal faults.
"""
_OFFLINE_HINT = "to download the packages, run the command once without `--offline`"
_NETWORK_HINT = "check the network connection, or set `UV_DEFAULT_INDEX` to your package index"
_INSTALL_HINT = "check that the package index still contains the locked releases"
_LINK_MODE = "clone" if sys.platform == "darwin" else "hardlink"
"""Files are copied if they cannot be linked. Symbolic links would lead to the cache, which runtimes cannot read."""
_INSTALL_COMMAND = (
    *("pip", "install", "--quiet", "--no-deps", "--require-hashes", "--no-compile-bytecode"),
    *("--link-mode", _LINK_MODE, "--only-binary", ":all:", "--requirement", "-"),
)


def _cache_hint(fault: MachineFault | None, cache: Path, installer_variable: str = "UV_CACHE_DIR") -> str:
    """Return a hint for a fault in the folder where environments are created, or in the installer's cache."""
    if fault is not None and (fault.hint in LIMIT_HINTS or "`TMPDIR`" in fault.hint):
        return fault.hint
    variable = "ONNXGATE_CACHE_DIR" if fault is None or str(cache) in fault.message else installer_variable
    if fault is None or fault.hint not in (SPACE_HINT, WRITABLE_HINT, ACCESS_HINT):
        return f"set `{variable}` to another folder"
    return fault.hint + OTHER_FOLDER_HINT.format(f"`{variable}`")


def _uv_error(ended: CompletedCommand) -> str:
    """Return the innermost cause that uv reports, in one line."""
    causes = _UV_CAUSE.findall(ended.err)
    return causes[-1].strip() if causes else ended.last_error_line


PATH_VARIABLE = "ONNXGATE_PYTHON_PATH"
PROBE_TIMEOUT_S = 30
DOWNLOAD_TIMEOUT_S = 600
# Engines publish wheels for 64-bit CPython with the global interpreter lock.
_MINOR_SCRIPT = """
import platform, sys, sysconfig
usual = platform.python_implementation() == "CPython" and not sysconfig.get_config_var("Py_GIL_DISABLED")
print("%d.%d" % sys.version_info[:2] if usual and sys.maxsize > 2**32 else "unusual")
"""
_EXECUTABLE_SCRIPT = "import sys; print(sys.executable)"


def find_interpreter(minor: str, commands: CommandRunner, *, offline: bool) -> Path:
    """Return a CPython interpreter of a minor version, such as "3.11".

    Raises:
        UnavailableError: the interpreter is not installed, and uv could not or must not download it.
    """
    with temporary_folder() as scratch:
        variables = runtime_variables(os.environ, Path(scratch), own=False)
        for candidate in _interpreter_candidates(minor, commands, offline):
            command = [str(candidate), "-I", "-S", "-c", _MINOR_SCRIPT]
            ended = commands.run(command, timeout_s=PROBE_TIMEOUT_S, environment=variables)
            if ended.status == 0 and ended.out.strip() == minor:
                return candidate
    raise UnavailableError(
        f"Python {minor} was not found",
        hint=f"run `uv python install {minor}`, or add the folder of an installed Python {minor} to `{PATH_VARIABLE}`",
    )


def _interpreter_candidates(minor: str, commands: CommandRunner, offline: bool) -> Iterator[Path]:
    """Yield configured interpreters, then installed interpreters, and finally an interpreter that uv downloads."""
    for entry in filter(None, os.environ.get(PATH_VARIABLE, "").split(os.pathsep)):
        yield from _interpreters_in(Path(entry), minor)
    find = ["python", "find", "--no-project", "--system", minor]
    yield from _printed_path(wheels.run_uv(commands, find, timeout_s=PROBE_TIMEOUT_S))
    if minor == f"{sys.version_info[0]}.{sys.version_info[1]}":
        yield Path(sys.executable)
    if not offline:
        fetch = ["run", "--quiet", "--no-project", "--python", minor, "python", "-I", "-S", "-c", _EXECUTABLE_SCRIPT]
        yield from _printed_path(wheels.run_uv(commands, fetch, timeout_s=DOWNLOAD_TIMEOUT_S))


def _printed_path(ended: CompletedCommand) -> Iterator[Path]:
    if ended.status == 0 and ended.out.strip():
        yield Path(ended.out.strip().splitlines()[-1])


def _interpreters_in(path: Path, minor: str) -> Iterator[Path]:
    """Yield the interpreters at a path.

    `path` is an interpreter, its folder, an installation, or a folder that contains installations.
    """
    if path.is_file():
        yield path
    names = (f"python{minor}", f"python{minor}.exe", "python", "python.exe")
    for pattern in ("{}", "bin/{}", "*/bin/{}", "*/{}"):
        for name in names:
            yield from (file for file in sorted(path.glob(pattern.format(name))) if file.is_file())
