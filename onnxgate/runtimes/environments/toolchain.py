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
from onnxgate.runtimes.sandbox import source_variables
from onnxgate.runtimes.worker.exporters import FRAMEWORKS, PYTORCH, Framework

PROBE_TIMEOUT_S = 60.0
_PROBE_SCRIPT = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]  # the folder may contain a json.py
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
    """A Python interpreter, its version, its installed packages and its environment markers."""

    path: Path
    python: str  # "3.11.7"
    packages: dict[str, str]  # those of the requested packages that are installed: "torch" -> "2.13.0+cpu"
    system: dict[str, str] = field(default_factory=dict)  # environment markers

    @property
    def minor(self) -> str:
        """Return the minor version, such as "3.11"."""
        return ".".join(self.python.split(".")[:2])


class ProbeError(Exception):
    """An interpreter cannot be used; the message is the reason."""


def find_toolchain(folder: Path, settings: Toolchain, needs: Sequence[PackageChoice] = ()) -> Path:
    """Return the interpreter that exports models.

    If the config does not set `toolchain.python`, the candidates are `$VIRTUAL_ENV`, `.venv` in the config's folder,
    `python` on PATH, and onnxgate's own interpreter, in this order. The first candidate that satisfies `requires` is
    returned; if `requires` is empty, the first that satisfies `needs`.

    Raises:
        UnavailableError: no interpreter satisfies the requirements; the message gives the reason for each candidate.
    """
    requires: list[PackageChoice] = [(require,) for require in settings.requires] or list(needs)
    names = [Requirement(name).name for require in requires for name in require]
    problems = []
    for name, candidate in _toolchain_candidates(folder, settings):
        path = interpreter_in(candidate)
        if path is None and settings.python is not None:
            problem = "has no Python interpreter" if candidate.exists() else "does not exist"
            hint = "set `toolchain.python` to a Python interpreter, or to the folder of an environment"
            raise UnavailableError(f"{name} {problem}", hint=hint)
        if path is None:
            problems.append(f"{name} does not exist")
            continue
        try:
            interpreter = probe_interpreter(path, names, folder=folder)
        except ProbeError as error:
            problems.append(f"{name} {error}")
            continue
        lacks = [problem for require in requires if (problem := _missing_choice(require, interpreter))]
        if not lacks:
            return interpreter.path
        problems.append(f"{name} has {' and '.join(lacks)}")
    packages = ", ".join(" or ".join(f"`{name}`" for name in require) for require in requires)
    missing = f"no Python environment with {packages} was found" if packages else "no Python environment was found"
    hint = "activate the Python environment that exports the models, or set `toolchain.python` to its path"
    if settings.python is not None:
        hint = (
            "install the packages in this environment, or set `toolchain.python` to an environment with these packages"
        )
    raise UnavailableError(f"{missing}: {'; '.join(problems)}", hint=hint)


def probe_interpreter(python: Path, names: Iterable[str], *, folder: Path | None = None) -> Interpreter:
    """Return the versions of an interpreter and of these packages, as the worker will import them.

    Raises:
        ProbeError: the interpreter does not work.
    """
    command = [str(python), "-s", "-c", _PROBE_SCRIPT, json.dumps(sorted({canonicalize_name(name) for name in names}))]
    try:
        ended = run_supervised(
            command, environment=source_variables(os.environ), folder=folder, timeout_s=PROBE_TIMEOUT_S
        )
        answer = json.loads(ended.stdout)
        return Interpreter(Path(answer["executable"]), answer["python"], answer["packages"], answer["system"])
    except OSError as error:
        raise ProbeError(f"cannot be started ({error.strerror})") from error
    except subprocess.TimeoutExpired as error:
        raise ProbeError(f"did not respond within {PROBE_TIMEOUT_S:g} s") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ProbeError(f"does not work (exit status {ended.returncode})") from error


def lock_toolchain(python: Path, settings: Toolchain, recorded: Iterable[str]) -> LockedToolchain:
    """Return the toolchain for the lock, with the versions of the recorded and the required packages.

    Versions have no local suffix: a different local build of the same release does not count as drift.
    """
    required = (Requirement(require).name for require in settings.requires)
    interpreter = probe_interpreter(python, (*recorded, *required))
    versions = public_versions(interpreter.packages)
    return LockedToolchain(policy=toolchain_policy(settings), python=interpreter.minor, packages=versions)


def public_versions(packages: dict[str, str]) -> dict[str, str]:
    """Return versions without local suffixes, by name: `2.13.0+cpu` becomes `2.13.0`."""
    public = {}
    for name, version in sorted(packages.items()):
        try:
            public[name] = Version(version).public
        except InvalidVersion:
            public[name] = version
    return public


def find_drift(locked: LockedToolchain, interpreter: Interpreter) -> dict[str, tuple[str, str]]:
    """Return, by package, the locked and the installed version if they differ; "" if it is not installed."""
    installed = public_versions(interpreter.packages)
    return {
        name: (version, installed.get(name, ""))
        for name, version in sorted(locked.packages.items())
        if installed.get(name) != version
    }


def _toolchain_candidates(folder: Path, settings: Toolchain) -> Iterator[tuple[str, Path]]:
    """Yield each candidate: its name in messages, and its path."""
    if settings.python is not None:
        yield f"`toolchain.python` ({settings.python})", folder / Path(settings.python).expanduser()
        return
    if active := os.environ.get("VIRTUAL_ENV"):
        yield "`$VIRTUAL_ENV`", Path(active)
    yield "`.venv`", folder / ".venv"
    # Skips onnxgate's own environment, which pre-commit puts first on PATH.
    path = os.pathsep.join(entry for entry in os.get_exec_path() if Path(entry) != Path(sys.executable).parent)
    yield "`python` on PATH", Path(shutil.which("python", path=path) or shutil.which("python3", path=path) or "python")
    yield "onnxgate's own Python", Path(sys.executable)


def interpreter_in(path: Path) -> Path | None:
    """Return `path` if it is a file, or the interpreter in an environment's folder; None if there is no interpreter."""
    if path.is_file():
        return path
    names = (path / "bin" / "python", path / "Scripts" / "python.exe", path / "python.exe")
    return next((name for name in names if name.is_file()), None)


def _missing_choice(choice: PackageChoice, interpreter: Interpreter) -> str:
    """Return why none of the alternative packages satisfies its requirement; "" if one does."""
    first, *others = (_unmet_requirement(text, interpreter) for text in choice)
    if "" in (first, *others):
        return ""
    return " or ".join([first, *(problem.removeprefix("no ") for problem in others)])


def _unmet_requirement(text: str, interpreter: Interpreter) -> str:
    """Describe an unmet requirement: the installed version, or "no <package>". Return "" if it is met."""
    requirement = Requirement(text)
    versions = {"python_version": interpreter.minor, "python_full_version": interpreter.python}
    if requirement.marker is not None and not requirement.marker.evaluate({**versions, **interpreter.system}):
        return ""
    version = interpreter.packages.get(canonicalize_name(requirement.name))
    if version is None:
        return f"no {requirement.name}"
    try:
        fits = requirement.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        fits = not requirement.specifier
    return "" if fits else f"{requirement.name} {version}"


PackageChoice = tuple[str, ...]
"""Alternative packages, one of which is required: a framework may have several distributions."""


def required_frameworks(config: Config, folder: Path) -> tuple[PackageChoice, ...]:
    """Return a choice of packages for each framework that the sources import.

    If none is found, return one choice of all frameworks, since imports may be indirect.
    """
    used = _used_frameworks(config, folder)
    if not used and any(model.source for model in config.model):
        return (tuple(framework.packages[0] for framework in FRAMEWORKS),)
    return tuple(framework.packages for framework in used)


def imported_frameworks(config: Config, folder: Path) -> tuple[str, ...]:
    """Return the framework modules that the sources import."""
    names = _imported_packages(config, folder)
    return tuple(name for framework in FRAMEWORKS for name in framework.modules if name in names)


def packages_to_record(config: Config, folder: Path) -> tuple[str, ...]:
    """Return the packages that affect exports. The lock records the versions of those that are installed.

    For a `command`, whose dependencies are unknown, PyTorch's packages are recorded.
    """
    has_sources = any(model.source for model in config.model)
    used = _used_frameworks(config, folder) or list(FRAMEWORKS if has_sources else ())
    if not has_sources or any(model.command for model in config.model):
        used.append(PYTORCH)
    return tuple(sorted({name for framework in used for name in (*framework.packages, *framework.recorded)}))


def _used_frameworks(config: Config, folder: Path) -> list[Framework]:
    names = _imported_packages(config, folder)
    return [framework for framework in FRAMEWORKS if names.intersection(framework.modules)]


def _imported_packages(config: Config, folder: Path) -> set[str]:
    """Return the top-level names of the packages that the sources import, directly or through project modules."""
    names = set()
    for start in (folder / model.source.rpartition(":")[0] for model in config.model if model.source):
        waiting, visited = [start], {start}
        while waiting:
            file = waiting.pop()
            for name in _read_imports(file, deep=file == start):
                own = _project_files(name, (start.parent, folder, file.parent))
                if not own:
                    names.add(name.partition(".")[0])
                waiting += [path for path in own if path not in visited]
                visited.update(own)
    return names


def _read_imports(file: Path, *, deep: bool) -> Iterator[str]:
    """Yield the dotted names of imports outside `try`; with `deep`, also of imports inside functions."""
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
    """Return the project's files that contain a module and its parent packages."""
    parts = name.split(".")
    for folder in dict.fromkeys(folders):
        packages = [folder.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)]
        paths = (path for package in packages for path in (Path(f"{package}.py"), package / "__init__.py"))
        if files := [path for path in paths if path.is_file()]:
            return files
    return []
