"""The toolchain: the interpreter that exports models, and the package versions that determine an export."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from onnxgate.core.errors import UnavailableError
from onnxgate.core.subprocesses import run_supervised
from onnxgate.project.config.schema import Config, Toolchain
from onnxgate.project.lock.comparison import toolchain_policy
from onnxgate.project.lock.types import LockedToolchain
from onnxgate.runtimes.worker.exporters import FRAMEWORKS, PYTORCH, Framework

PROBE_TIMEOUT_S = 60.0
RECORDED_PACKAGES = ("torch", "onnx", "onnxscript", "onnx-ir")
"""Packages recorded if installed, in addition to those in `requires`.

The same code gives the same graph under torch 2.13 and 2.15, and another one under another onnxscript (measured); onnx
and onnx-ir are what onnxscript builds and converts graphs with. numpy and other packages were never observed to
change an export, so recording them would only report drift without effect; a project can add them to `requires`.
"""
_PROBE_SCRIPT = """
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
    """One Python interpreter with its versions and environment markers."""

    path: Path
    python: str  # "3.11.7"
    packages: dict[str, str]  # those of the requested packages that are installed: "torch" -> "2.13.0+cpu"
    system: dict[str, str] = field(default_factory=dict)  # environment markers

    @property
    def minor(self) -> str:
        """Return the minor version, such as "3.11"."""
        return ".".join(self.python.split(".")[:2])


class ProbeError(Exception):
    """An interpreter does not answer; the message is the reason."""


def find_toolchain(folder: Path, settings: Toolchain, needs: Sequence[PackageChoice] = ()) -> Path:
    """Return the interpreter that exports models.

    It is the config's `toolchain.python`. Without that setting, it is the first of `$VIRTUAL_ENV`, `.venv` in the
    config's folder, `python` on PATH and onnxgate's own that satisfies `requires`, or `needs` if `requires` is empty.

    Raises:
        UnavailableError: no candidate does; the message gives the reason for each.
    """
    requires: list[PackageChoice] = [(require,) for require in settings.requires] or list(needs)
    refused = []
    for name, candidate in _toolchain_candidates(folder, settings):
        reason, found = _check_candidate(candidate, folder, requires)
        if found is not None:
            return found
        refused.append(f"{name} {reason}")
    asked = ", ".join(" or ".join(f"`{name}`" for name in require) for require in requires)
    wanted = f"no toolchain with {asked}" if asked else "no toolchain"
    raise UnavailableError(f"{wanted}: {'; '.join(refused)}", hint=_toolchain_hint(settings))


def probe_interpreter(python: Path, names: Iterable[str], *, folder: Path | None = None) -> Interpreter:
    """Return the version of an interpreter and of these packages, as the worker will import them.

    Raises:
        ProbeError: the interpreter cannot be started, or does not answer.
    """
    command = [str(python), "-s", "-c", _PROBE_SCRIPT, json.dumps(sorted({canonical_name(name) for name in names}))]
    try:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONHOME"}
        answer = run_supervised(command, environment=environment, folder=folder, timeout_s=PROBE_TIMEOUT_S)
        said = json.loads(answer.stdout)
        return Interpreter(Path(said["executable"]), said["python"], said["packages"], said["system"])
    except OSError as error:
        raise ProbeError(f"cannot be started ({error.strerror})") from error
    except subprocess.TimeoutExpired as error:
        raise ProbeError(f"does not answer within {PROBE_TIMEOUT_S:g} s") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ProbeError(f"does not work (exit status {answer.returncode})") from error


def lock_toolchain(python: Path, settings: Toolchain, deciding: Sequence[str] = RECORDED_PACKAGES) -> LockedToolchain:
    """Return the toolchain for the lock: public versions, since another local build of a release is not drift."""
    found = probe_interpreter(python, recorded_names(settings, deciding))
    return LockedToolchain(
        policy=toolchain_policy(settings), python=found.minor, packages=public_versions(found.packages)
    )


def recorded_names(settings: Toolchain, deciding: Sequence[str] = RECORDED_PACKAGES) -> tuple[str, ...]:
    """Return the packages whose versions are locked, sorted."""
    return tuple(sorted({*deciding, *(canonical_name(Requirement(require).name) for require in settings.requires)}))


def public_versions(packages: dict[str, str]) -> dict[str, str]:
    """Return versions without local suffix, by name: `2.13.0+cpu` becomes `2.13.0`."""
    public = {}
    for name, version in sorted(packages.items()):
        try:
            public[name] = Version(version).public
        except InvalidVersion:
            public[name] = version
    return public


def find_drift(locked: LockedToolchain, found: Interpreter) -> dict[str, tuple[str, str]]:
    """Return package -> (locked, found) for each difference; found is "" if absent. Python itself is not included."""
    here = public_versions(found.packages)
    return {
        name: (version, here.get(name, ""))
        for name, version in sorted(locked.packages.items())
        if here.get(name) != version
    }


def canonical_name(name: str) -> str:
    """Return a package's normalised name: `onnx-ir` for `onnx_ir`."""
    return canonicalize_name(name)


def _toolchain_candidates(folder: Path, settings: Toolchain) -> Iterator[tuple[str, Path]]:
    """Yield the name for messages and the path of each candidate."""
    if settings.python is not None:
        yield f"`toolchain.python` ({settings.python})", folder / Path(settings.python).expanduser()
        return
    if active := os.environ.get("VIRTUAL_ENV"):
        yield "`$VIRTUAL_ENV`", Path(active)
    yield "`.venv`", folder / ".venv"
    yield "`python` on PATH", _python_on_path()
    yield "onnxgate's own Python", Path(sys.executable)


def _python_on_path() -> Path:
    """Return the first `python` on PATH outside onnxgate's environment, which pre-commit puts before the project's."""
    own = Path(sys.executable).parent
    others = [folder for folder in os.get_exec_path() if Path(folder) != own]
    found = (shutil.which(name, path=os.pathsep.join(others)) for name in ("python", "python3"))
    return Path(next((each for each in found if each), "python"))


def _check_candidate(candidate: Path, folder: Path, requires: Sequence[PackageChoice]) -> tuple[str, Path | None]:
    """Return the reason why the candidate is rejected, or its interpreter."""
    interpreter = interpreter_in(candidate)
    if interpreter is None:
        return "is not there", None
    try:
        found = probe_interpreter(
            interpreter, [_requirement_name(name) for require in requires for name in require], folder=folder
        )
    except ProbeError as error:
        return str(error), None
    lacks = [problem for require in requires if (problem := _missing_choice(require, found))]
    return (f"has {' and '.join(lacks)}", None) if lacks else ("", found.path)


def interpreter_in(path: Path) -> Path | None:
    """Return the interpreter in an environment's folder, or the interpreter itself; None if there is none."""
    if path.is_file():
        return path
    names = (path / "bin" / "python", path / "Scripts" / "python.exe", path / "python.exe")
    return next((name for name in names if name.is_file()), None)


def _requirement_name(requirement: str) -> str:
    return Requirement(requirement).name


def _missing_choice(need: PackageChoice, found: Interpreter) -> str:
    """Return the conflicting versions if no package of the choice is satisfied, "" otherwise."""
    problems = [_unmet_requirement(text, found) for text in need]
    if "" in problems:
        return ""
    others = [problem.removeprefix("no ") for problem in problems[1:]]
    return " or ".join([problems[0], *others])


def _unmet_requirement(text: str, found: Interpreter) -> str:
    """Return the conflicting version, or "no <package>", of an unmet requirement; "" if it is met."""
    requirement = Requirement(text)
    if requirement.marker is not None and not requirement.marker.evaluate(_markers(found)):
        return ""
    version = found.packages.get(canonical_name(requirement.name))
    if version is None:
        return f"no {requirement.name}"
    try:
        fits = requirement.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        fits = not requirement.specifier
    return "" if fits else f"{requirement.name} {version}"


def _markers(found: Interpreter) -> dict[str, str]:
    return {"python_version": found.minor, "python_full_version": found.python, **found.system}


def _toolchain_hint(settings: Toolchain) -> str:
    if settings.python is not None:
        return "install what `toolchain.requires` asks for there, or name another `toolchain.python`"
    return "activate the environment that models are exported with, or name it as `toolchain.python`"


PackageChoice = tuple[str, ...]
"""Packages of which one suffices: a framework may be distributed under several names."""


def required_frameworks(config: Config, folder: Path) -> tuple[PackageChoice, ...]:
    """Return the frameworks that the sources import; any framework if none is found, since a package may import it."""
    sources = [each.source for each in config.model if each.source]
    found = [framework for framework in FRAMEWORKS if framework in _used_frameworks(sources, folder)]
    if sources and not found:
        return (tuple(framework.packages[0] for framework in FRAMEWORKS),)
    return tuple(framework.packages for framework in found)


def imported_frameworks(config: Config, folder: Path) -> tuple[str, ...]:
    """Return the modules of frameworks that the sources import."""
    sources = [each.source for each in config.model if each.source]
    names = {name for source in sources for name in _imported_packages(source, folder)}
    return tuple(name for framework in FRAMEWORKS for name in framework.modules if name in names)


def packages_to_record(config: Config, folder: Path) -> tuple[str, ...]:
    """Return the packages that the lock records if they are installed: those that affect an export.

    The dependencies of a command that writes a model are unknown: PyTorch's packages are recorded for it.
    """
    sources = [each.source for each in config.model if each.source]
    used = _used_frameworks(sources, folder) or set(FRAMEWORKS if sources else ())
    if not sources or any(each.command for each in config.model):
        used.add(PYTORCH)
    return tuple(sorted({name for framework in used for name in (*framework.packages, *framework.recorded)}))


def _used_frameworks(sources: list[str], folder: Path) -> set[Framework]:
    modules = {name for source in sources for name in _imported_packages(source, folder)}
    return {framework for framework in FRAMEWORKS if modules.intersection(framework.modules)}


def _imported_packages(source: str, folder: Path) -> Iterator[str]:
    """Yield top-level names of the packages that the source and its project modules import."""
    start = folder / source.rpartition(":")[0]
    waiting, seen = [start], {start}
    while waiting:
        file = waiting.pop()
        for name in _read_imports(file, deep=file == start):
            own = _project_files(name, (start.parent, folder, file.parent))
            if not own:
                yield name.partition(".")[0]
            waiting += [each for each in own if each not in seen]
            seen.update(own)


def _read_imports(file: Path, *, deep: bool) -> Iterator[str]:
    """Yield the dotted names of a file's unconditional imports; with `deep`, also of those inside functions."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    waiting: list[ast.AST] = [tree]
    while waiting:
        match waiting.pop():
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                prefix = f"{module}." if module else ""
                yield from (prefix + alias.name for alias in names)
                if module and not level:
                    yield module
            case ast.Try():  # imports inside `try` are optional
                pass
            case ast.FunctionDef() | ast.AsyncFunctionDef() if not deep:
                pass
            case node:
                waiting += ast.iter_child_nodes(node)


def _project_files(name: str, folders: tuple[Path, ...]) -> list[Path]:
    """Return the project's file of a module, and those of its parent packages."""
    parts = name.split(".")
    found = []
    for folder in dict.fromkeys(folders):
        for count in range(1, len(parts) + 1):
            place = folder.joinpath(*parts[:count])
            found += [each for each in (place.with_name(place.name + ".py"), place / "__init__.py") if each.is_file()]
        if found:
            return found
    return found
