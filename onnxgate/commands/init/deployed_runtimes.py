"""Releases of ONNX Runtime that a repository deploys, from its requirements, manifests, lock files and Dockerfiles."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from onnxgate.commands.init.dependencies.declarations import (
    DEVELOPMENT_GROUP,
    Reader,
    indicates_development,
    is_development_file,
    split_name,
)
from onnxgate.commands.init.dependencies.dockerfiles import is_dockerfile, read_dockerfile
from onnxgate.commands.init.dependencies.lock_files import (
    MANIFESTS,
    read_npm_lock,
    read_pipfile_lock,
    read_pnpm_lock,
    read_toml_lock,
    read_yarn_lock,
)
from onnxgate.commands.init.dependencies.manifests import (
    read_conda_environment,
    read_package_json,
    read_pipfile,
    read_pyproject,
    read_setup_cfg,
    read_setup_py,
)
from onnxgate.commands.init.dependencies.requirements_files import (
    RequirementsFile,
    collect_requirements_files,
    read_requirements,
)
from onnxgate.commands.init.text_files import UnreadableFileError, read_text
from onnxgate.core.bug_reports import note_errors
from onnxgate.project.engines import is_satisfiable

IGNORED_FOLDERS = frozenset({"node_modules", "site-packages", "tests", "test", "fixtures", "vendor", "third_party"})
"""Names of folders whose files do not describe a deployment of this repository."""


@dataclass(frozen=True, slots=True)
class DeployedRuntime:
    """A package that one file declares. `specifier` selects its releases, such as `==1.18.1`; "" for any release."""

    package: str
    specifier: str
    file: str  # relative to the folder of the config
    line: int
    group: str = ""  # the group of dependencies in the file
    is_conda: bool = False  # installed by conda, which has other builds than pip
    declared: str = ""  # the declaration in the file if it is not `requirement`
    limits: str | None = None  # in a constraints file: the folder of the requirements that it limits
    is_included: bool = False  # another requirements file includes the file

    @property
    def requirement(self) -> str:
        """The package and its specifier, such as `onnxruntime==1.18.1`."""
        return f"{self.package}{self.specifier}"

    @property
    def declaration(self) -> str:
        """The declaration in the file: the requirement, with its environment marker, or the name of an image."""
        return self.declared or self.requirement

    @property
    def is_for_development(self) -> bool:
        """True if the name of the file, its folder or the dependency group indicates development, tests, docs or CI."""
        return is_development_file(self.file) or indicates_development(self.group)

    @property
    def pin(self) -> str:
        """The exact release; "" for a range."""
        match = re.fullmatch(r"==([^*]+)", self.specifier)
        return match[1] if match else ""

    @property
    def is_installed_directly(self) -> bool:
        """True for a command in a Dockerfile, to which no lock file applies."""
        return is_dockerfile(PurePosixPath(self.file).name)

    def applies_to(self, other: DeployedRuntime) -> bool:
        """Return whether the declaration may replace or limit another one of the same package."""
        folder = PurePosixPath(other.file).parent
        own = PurePosixPath(self.file).parent if self.limits is None else PurePosixPath(self.limits)
        is_same_use = other.is_for_development or not self.is_for_development
        return (
            other.package == self.package
            and not other.is_installed_directly
            and is_same_use
            and own in (folder, *folder.parents)
        )


@dataclass(frozen=True, slots=True)
class Deployments:
    """All deployed packages in the order of their files, and the files that could not be read, with the reasons.

    If all packages are development dependencies, `runtimes` contains them and `ignored` is empty.
    """

    runtimes: tuple[DeployedRuntime, ...] = ()
    problems: tuple[str, ...] = ()
    ignored: tuple[DeployedRuntime, ...] = ()  # for development


def find_deployments(folder: Path, paths: Iterable[str], root: Path | None = None) -> Deployments:
    """Return the packages that the files declare as dependencies. Files that declare no dependencies are skipped.

    An exact pin replaces the ranges that it satisfies. Development dependencies are ignored if others exist.
    Requirements files are followed to the files that they include, below `root`.
    """
    problems: list[str] = []
    read = {path: reader for path in paths if (reader := select_reader(path))}
    requirements = [path for path, reader in read.items() if reader is read_requirements]
    included = {file.path: file for file in collect_requirements_files(folder, root or folder, requirements, problems)}
    read |= dict.fromkeys(included, read_requirements)
    runtimes: dict[DeployedRuntime, None] = {}
    for path, reader in sorted(read.items(), key=lambda item: (item[0].count("/"), item[0])):
        file = included.get(path, RequirementsFile(path))
        with note_errors(path, problems):
            for runtime in _read_file(folder, file, reader, problems):
                runtimes[runtime] = None
    used = tuple(dict.fromkeys(_apply_constraints(_mark_development_packages(tuple(runtimes)))))
    declared = tuple(_drop_satisfied_ranges(used))
    deployed = tuple(runtime for runtime in declared if not runtime.is_for_development)
    ignored = tuple(runtime for runtime in declared if runtime.is_for_development and deployed)
    return Deployments(deployed or declared, tuple(dict.fromkeys(problems)), ignored)


def _read_file(folder: Path, file: RequirementsFile, reader: Reader, problems: list[str]) -> Iterator[DeployedRuntime]:
    try:
        for package, version, line, convert, group, is_conda, marker, text in reader(read_text(folder / file.path)):
            try:
                specifier = _normalize_specifier(convert(version))
            except UnreadableFileError as reason:
                subject = f"`{package}`: " if package and package not in str(reason) else ""
                problems.append(f"{file.path}:{line}: {subject}{reason}")
                continue
            declared = text or (f"{package}{specifier} ; {marker}" if marker else "")
            used_group = group or file.group
            yield DeployedRuntime(
                package, specifier, file.path, line, used_group, is_conda, declared, file.limits, file.is_included
            )
    except UnreadableFileError as reason:
        problems.append(f"{file.path}: {reason}")
    except RecursionError:
        problems.append(f"{file.path}: nested too deeply")


def select_reader(path: str) -> Reader | None:
    """Return the function that reads a file of this name; None if the file does not declare dependencies."""
    pure = PurePosixPath(path)
    if IGNORED_FOLDERS.intersection(pure.parts[:-1]):
        return None
    words = split_name(pure.stem)
    if pure.suffix in (".txt", ".in") and (
        pure.parent.name == "requirements"
        or pure.name.startswith(("requirements", "constraints"))
        or "requirements" in words
    ):
        return read_requirements
    if pure.suffix in (".yml", ".yaml") and "environment" in words:
        return read_conda_environment
    if is_dockerfile(pure.name):
        return read_dockerfile
    if fnmatch.fnmatchcase(pure.name, "pylock*.toml"):
        return read_toml_lock
    return {
        "pyproject.toml": read_pyproject,
        "setup.cfg": read_setup_cfg,
        "setup.py": read_setup_py,
        "uv.lock": read_toml_lock,
        "poetry.lock": read_toml_lock,
        "pdm.lock": read_toml_lock,
        "Pipfile": read_pipfile,
        "Pipfile.lock": read_pipfile_lock,
        "package.json": read_package_json,
        "package-lock.json": read_npm_lock,
        "yarn.lock": read_yarn_lock,
        "pnpm-lock.yaml": read_pnpm_lock,
    }.get(pure.name)


def _mark_development_packages(runtimes: Sequence[DeployedRuntime]) -> Iterator[DeployedRuntime]:
    """Yield the packages. One in a lock file is for development if its manifest declares it only for development."""
    for runtime in runtimes:
        path = PurePosixPath(runtime.file)
        manifest = path.with_name(MANIFESTS[path.name]).as_posix() if path.name in MANIFESTS else ""
        declared = [it for it in runtimes if it.file == manifest and it.package == runtime.package]
        if declared and all(it.is_for_development for it in declared):
            runtime = replace(runtime, group=DEVELOPMENT_GROUP)
        yield runtime


def _apply_constraints(runtimes: Iterable[DeployedRuntime]) -> Iterator[DeployedRuntime]:
    """Yield the packages, with their ranges narrowed by constraints files.

    A constraint of a package that no other file declares is yielded as a declaration: it may limit a dependency of
    another package.
    """
    declared = list(runtimes)
    constraints = [it for it in declared if it.limits is not None]
    used: set[DeployedRuntime] = set()
    for runtime in (it for it in declared if it.limits is None):
        near = [it for it in constraints if it.applies_to(runtime) and not runtime.is_conda]
        used.update(near)
        # A constraints file with `-c` limits only what pip installs from requirements files, not other manifests.
        is_requirement = select_reader(runtime.file) in (read_requirements, None)
        applied = [it for it in near if is_requirement or not it.is_included]
        specifier = _narrow_range(runtime, applied)
        if specifier == runtime.specifier:
            yield runtime
        else:
            narrowed = (runtime, *applied)
            yield from (replace(it, specifier=specifier, declared=it.declaration) for it in narrowed)
    yield from (it for it in constraints if it not in used)


def _narrow_range(runtime: DeployedRuntime, constraints: Sequence[DeployedRuntime]) -> str:
    """Return the specifier of a package within constraints. It is unchanged if they exclude all of its releases."""
    if runtime.pin:
        return runtime.specifier
    for constraint in constraints:
        if constraint.pin and _contains(runtime.specifier, constraint.pin):
            return constraint.specifier
    try:
        return _normalize_specifier(",".join(filter(None, (it.specifier for it in (runtime, *constraints)))))
    except UnreadableFileError:  # pip would report the conflict
        return runtime.specifier


def _contains(specifier: str, release: str) -> bool:
    return SpecifierSet(specifier).contains(release, prereleases=True)


def _drop_satisfied_ranges(runtimes: Sequence[DeployedRuntime]) -> Iterator[DeployedRuntime]:
    """Yield the packages. A range is omitted if an exact pin in a file in the same or a parent folder satisfies it."""
    for runtime in runtimes:
        pins = (other.pin for other in runtimes if other.pin and other.applies_to(runtime))
        if runtime.pin or not any(_contains(runtime.specifier, pin) for pin in pins):
            yield runtime


_OPERATORS = ("===", "==", "~=", ">=", ">", "!=", "<=", "<")
"""Comparison operators, in the usual order of clauses in a version specifier."""


def _normalize_specifier(text: str) -> str:
    """Return a normalized version specifier. A local version such as `==1.18.1+cu118` becomes `==1.18.1`."""
    try:
        specifier = SpecifierSet(re.sub(r"^={2,3}\s*([^+*,]+)\+[\w.]+$", r"==\1", text))
    except InvalidSpecifier as error:
        raise UnreadableFileError(f"`{text}` is not a valid version specifier") from error
    if not is_satisfiable(specifier):
        raise UnreadableFileError(f"no release satisfies `{text}`")
    clauses = sorted(specifier, key=lambda clause: (_OPERATORS.index(clause.operator), clause.version))
    return ",".join(f"{clause.operator.replace('===', '==')}{clause.version}" for clause in clauses)
