"""The toolchain: the interpreter that models are exported with, and the versions that decide what an export is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onnxgate.config.types import Toolchain
from onnxgate.errors import UnavailableError
from onnxgate.lock.types import LockedToolchain
from onnxgate.runtimes.frameworks import Need

PROBE_TIMEOUT_S = 60.0
DECIDING = ("torch", "onnx", "onnxscript", "onnx-ir")
"""Recorded wherever they are installed, besides what `requires` names.

The same code gives the same graph under torch 2.13 and 2.15, and another one under another onnxscript (measured); onnx
and onnx-ir are what onnxscript makes and converts graphs with. numpy and whatever else is there has never been seen to
change an export, and would only be drift without a meaning; a project that knows better names it in `requires`.
"""
_ASK = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]  # the folder may hold a json.py of its own
import json, platform
from importlib import metadata
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
found = {name: version(name) for name in json.loads(sys.argv[1])}
print(json.dumps({
    "executable": sys.executable,
    "python": platform.python_version(),
    "system": {"os_name": __import__("os").name, "sys_platform": sys.platform, "platform_system": platform.system(),
               "platform_machine": platform.machine()},
    "packages": {name: version for name, version in found.items() if version},
}))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """One Python, as it describes itself."""

    path: Path
    python: str  # "3.11.7"
    packages: dict[str, str]  # of those asked for, the ones that it has: "torch" -> "2.13.0+cpu"
    system: dict[str, str] = field(default_factory=dict)  # environment markers

    @property
    def minor(self) -> str:
        """Its minor version: "3.11"."""
        return ".".join(self.python.split(".")[:2])


class ProbeError(Exception):
    """An interpreter does not answer; the message says how."""


def find_toolchain(folder: Path, settings: Toolchain, needs: Sequence[Need] = ()) -> Path:
    """
    The interpreter that models are exported with.

    It is the config's `toolchain.python`; without that, the first of `$VIRTUAL_ENV`, `.venv` beside the config,
    `python` on PATH and onnxgate's own that has what `requires` asks for, or `needs` where it asks for nothing.

    Raises:
        UnavailableError: none has; the message says of each why not.
    """
    requires: list[Need] = [(each,) for each in settings.requires] or list(needs)
    refused = []
    for name, candidate in _candidates(folder, settings):
        reason, found = _judge(candidate, folder, requires)
        if found is not None:
            return found
        refused.append(f"{name} {reason}")
    asked = ", ".join(" or ".join(f"`{name}`" for name in each) for each in requires)
    wanted = f"no toolchain with {asked}" if asked else "no toolchain"
    raise UnavailableError(f"{wanted}: {'; '.join(refused)}", hint=_hint(settings))


def probe(python: Path, names: Iterable[str], *, folder: Path | None = None) -> Interpreter:
    """What the interpreter says of itself and of the packages of these names: those that the worker will see.

    Raises:
        ProbeError: it cannot be started, or does not answer.
    """
    command = [str(python), "-s", "-c", _ASK, json.dumps(sorted({canonical(name) for name in names}))]
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
            cwd=folder,
            env={name: value for name, value in os.environ.items() if name != "PYTHONHOME"},
        )
        said = json.loads(answer.stdout)
        return Interpreter(Path(said["executable"]), said["python"], said["packages"], said["system"])
    except OSError as error:
        raise ProbeError(f"cannot be started ({error.strerror})") from error
    except subprocess.TimeoutExpired as error:
        raise ProbeError(f"does not answer within {PROBE_TIMEOUT_S:g} s") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ProbeError(f"does not work (exit status {answer.returncode})") from error


def locked_toolchain(python: Path, settings: Toolchain, deciding: Sequence[str] = DECIDING) -> LockedToolchain:
    """What the lock says of the toolchain: public versions, since another local build of a release is no drift."""
    from onnxgate.lock.policy import toolchain_policy

    found = probe(python, recorded_names(settings, deciding))
    return LockedToolchain(
        policy=toolchain_policy(settings), python=found.minor, packages=public_versions(found.packages)
    )


def recorded_names(settings: Toolchain, deciding: Sequence[str] = DECIDING) -> tuple[str, ...]:
    """The packages whose versions are locked, sorted."""
    from packaging.requirements import Requirement

    return tuple(sorted({*deciding, *(canonical(Requirement(each).name) for each in settings.requires)}))


def public_versions(packages: dict[str, str]) -> dict[str, str]:
    """Versions without local suffix, by name: `2.13.0+cpu` is `2.13.0`."""
    from packaging.version import InvalidVersion, Version

    public = {}
    for name, version in sorted(packages.items()):
        try:
            public[name] = Version(version).public
        except InvalidVersion:
            public[name] = version
    return public


def drift(locked: LockedToolchain, found: Interpreter) -> dict[str, tuple[str, str]]:
    """Package -> (locked, found) where they differ; found is "" where it is absent. Python itself is no package."""
    here = public_versions(found.packages)
    return {
        name: (version, here.get(name, ""))
        for name, version in sorted(locked.packages.items())
        if here.get(name) != version
    }


def canonical(name: str) -> str:
    """A package's normalised name: `onnx_ir` is `onnx-ir`."""
    from packaging.utils import canonicalize_name

    return canonicalize_name(name)


def _candidates(folder: Path, settings: Toolchain) -> Iterator[tuple[str, Path]]:
    """How a message calls it, and where it is."""
    if settings.python is not None:
        yield f"`toolchain.python` ({settings.python})", folder / Path(settings.python).expanduser()
        return
    if active := os.environ.get("VIRTUAL_ENV"):
        yield "`$VIRTUAL_ENV`", Path(active)
    yield "`.venv`", folder / ".venv"
    yield "`python` on PATH", _on_path()
    yield "onnxgate's own Python", Path(sys.executable)


def _on_path() -> Path:
    """The first `python` on PATH outside of onnxgate's own environment, which pre-commit puts before the project's."""
    own = Path(sys.executable).parent
    others = [folder for folder in os.get_exec_path() if Path(folder) != own]
    found = (shutil.which(name, path=os.pathsep.join(others)) for name in ("python", "python3"))
    return Path(next((each for each in found if each), "python"))


def _judge(candidate: Path, folder: Path, requires: Sequence[Need]) -> tuple[str, Path | None]:
    """Why it cannot be taken, or its interpreter."""
    interpreter = interpreter_in(candidate)
    if interpreter is None:
        return "is not there", None
    try:
        found = probe(interpreter, [_name(name) for each in requires for name in each], folder=folder)
    except ProbeError as error:
        return str(error), None
    lacks = [problem for each in requires if (problem := _lack(each, found))]
    return (f"has {' and '.join(lacks)}", None) if lacks else ("", found.path)


def interpreter_in(path: Path) -> Path | None:
    """The interpreter of an environment's folder, or the interpreter itself; None where there is none."""
    if path.is_file():
        return path
    names = (path / "bin" / "python", path / "Scripts" / "python.exe", path / "python.exe")
    return next((each for each in names if each.is_file()), None)


def _name(requirement: str) -> str:
    from packaging.requirements import Requirement

    return Requirement(requirement).name


def _lack(need: Need, found: Interpreter) -> str:
    """What the interpreter has instead of one of these, "" where it has one."""
    problems = [_problem(text, found) for text in need]
    if "" in problems:
        return ""
    others = [problem.removeprefix("no ") for problem in problems[1:]]
    return " or ".join([problems[0], *others])


def _problem(text: str, found: Interpreter) -> str:
    """What the interpreter has instead of a requirement, "" where it has it."""
    from packaging.requirements import Requirement
    from packaging.version import InvalidVersion

    requirement = Requirement(text)
    if requirement.marker is not None and not requirement.marker.evaluate(_markers(found)):
        return ""
    version = found.packages.get(canonical(requirement.name))
    if version is None:
        return f"no {requirement.name}"
    try:
        fits = requirement.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        fits = not requirement.specifier
    return "" if fits else f"{requirement.name} {version}"


def _markers(found: Interpreter) -> dict[str, str]:
    return {"python_version": found.minor, "python_full_version": found.python, **found.system}


def _hint(settings: Toolchain) -> str:
    if settings.python is not None:
        return "install what `toolchain.requires` asks for there, or name another `toolchain.python`"
    return "activate the environment that models are exported with, or name it as `toolchain.python`"
