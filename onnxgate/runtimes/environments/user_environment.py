"""Identify the engine build in a user environment, and compare the environment with the lock."""

from __future__ import annotations

import hashlib
from pathlib import Path

from packaging.version import InvalidVersion, Version

from onnxgate.core.errors import UnavailableError
from onnxgate.core.jobs import Completed, Probe, ProbeResult
from onnxgate.core.subprocesses import CommandRunner
from onnxgate.project.config.schema import Target
from onnxgate.project.engines import is_library, is_satisfied, package_name
from onnxgate.project.lock.comparison import canonical_extensions
from onnxgate.project.lock.types import LockedRuntime
from onnxgate.runtimes.engine_program import EngineProgram, run_job
from onnxgate.runtimes.environments.health import describe_failure
from onnxgate.runtimes.environments.toolchain import interpreter_in
from onnxgate.runtimes.worker_spec import JobLimits, environment_path

PROBE_TIMEOUT_S = 120.0
CHUNK_BYTES = 2**20
NATIVE_SUFFIXES = (".so", ".pyd", ".dll", ".dylib")


def find_user_build(folder: Path, target: Target) -> LockedRuntime:
    """Return the build of a target's engine that is installed in the target's environment.

    Raises:
        UnavailableError: the build is missing or does not satisfy the target.
    """
    assert target.python is not None
    engine = package_name(target.runtime)
    extensions = canonical_extensions(target)
    packages = {package_name(text): text for text in extensions if not is_library(text)}
    interpreter = _require_interpreter(environment_path(folder, target.python), target.python)
    versions = _probe_versions(interpreter, target.python, engine, tuple(packages), CommandRunner())
    for name, text in {engine: target.runtime, **packages}.items():
        version = versions.get(name, "")
        if not is_satisfied(text, version):
            raise UnavailableError(
                f"`{target.python}` {_describe_installed(name, version)}, but the target requires `{text}`"
            )
    release = versions.pop(engine)
    pins = tuple(sorted(f"{name}=={version}" for name, version in versions.items()))
    return LockedRuntime(
        engine=engine, release=release, packages=pins, extensions=extensions, environment=target.python
    )


def check_user_environment(path: Path, runtime: LockedRuntime, commands: CommandRunner) -> Path:
    """Return the interpreter of a user environment after comparing its versions with the lock.

    Raises:
        UnavailableError: the environment is missing or has different versions.
    """
    interpreter = _require_interpreter(path, runtime.environment)
    locked = dict(pin.split("==", 1) for pin in runtime.packages)
    versions = _probe_versions(interpreter, runtime.environment, runtime.engine, tuple(locked), commands)
    for name, version in {runtime.engine: runtime.release, **locked}.items():
        installed = versions.get(name, "")
        if installed != version:
            hint = f"install {name} {version} in this environment"
            if installed:
                hint += f", or lock the installed version: `onnxgate lock --upgrade {name}={installed}`"
            problem = f"{_describe_installed(name, installed)}, but the lock pins {version}"
            raise UnavailableError(f"`{runtime.environment}` {problem}", hint=hint)
    return interpreter


def _describe_installed(name: str, version: str) -> str:
    return f"has {name} {version}" if version else f"has no {name}"


def build_identity(path: Path) -> str:
    """Return the SHA-256 of the engine's native libraries, without running the engine; "" if unknown.

    The version does not identify a build, because builds may be patched or use different options.
    """
    prefix = path.parent.parent if path.is_file() else path  # the environment that contains the interpreter
    patterns = ("lib/python3*/site-packages", "lib64/python3*/site-packages", "Lib/site-packages")
    folders = {packages.resolve() / "onnxruntime" / "capi" for pattern in patterns for packages in prefix.glob(pattern)}
    folders = {folder for folder in folders if folder.is_dir()}
    if len(folders) != 1:
        return ""
    files = (file for file in folders.pop().iterdir() if file.is_file())
    libraries = sorted(file for file in files if file.suffix in NATIVE_SUFFIXES or ".so." in file.name)
    digest = hashlib.sha256()
    for library in libraries:
        digest.update(f"{library.name} {library.stat().st_size}\n".encode())
        with library.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest() if libraries else ""


def _require_interpreter(path: Path, named: str) -> Path:
    interpreter = interpreter_in(path)
    if interpreter is None:
        problem = "contains no Python interpreter" if path.exists() else "does not exist"
        hint = "set `python` to a Python interpreter, or to the folder of an environment"
        raise UnavailableError(f"`{named}` {problem}", hint=hint)
    return interpreter.absolute()


def _probe_versions(
    interpreter: Path, named: str, engine: str, packages: tuple[str, ...], commands: CommandRunner
) -> dict[str, str]:
    """Return the versions of the engine and of the installed packages, without local suffixes.

    For ONNX Runtime, the version is read from the module, since a custom build may be packaged under a different name.
    """
    program = EngineProgram.of_python(engine, interpreter, own=True)
    try:
        observation = run_job(program, Probe(packages=(engine, *packages)), commands, JobLimits(time_s=PROBE_TIMEOUT_S))
    except OSError as error:
        raise UnavailableError(f"{engine} in `{named}` cannot be started: {error.strerror or error}") from error
    if not isinstance(observation, Completed) or not isinstance(observation.result, ProbeResult):
        raise UnavailableError(f"{engine} in `{named}` does not work: {describe_failure(observation)}")
    versions = observation.result.packages
    try:
        return {name: Version(version).public for name, version in versions.items() if name in (engine, *packages)}
    except InvalidVersion as error:
        raise UnavailableError(f"{engine} in `{named}` reports an invalid version: {error}") from error
