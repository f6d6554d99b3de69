"""Releases of ONNX Runtime that a repository deploys, from its requirements, manifests, lock files and Dockerfiles."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from onnxgate.commands.init.conda_environment import read_environment
from onnxgate.commands.init.text_files import UnreadableFileError, read_text
from onnxgate.commands.init.version_ranges import convert_conda_version, convert_npm_range, convert_poetry_version
from onnxgate.project import toml
from onnxgate.project.config.loader import describe_syntax_error
from onnxgate.project.engines import ONNXRUNTIME, ONNXRUNTIME_BUILDS, is_satisfiable

NPM_PACKAGES = ("onnxruntime-node", "onnxruntime-web")
PACKAGES = (ONNXRUNTIME, *ONNXRUNTIME_BUILDS, *NPM_PACKAGES)
IGNORED_FOLDERS = frozenset({"node_modules", "site-packages", "tests", "test", "fixtures", "vendor", "third_party"})
"""Names of folders whose files do not describe a deployment of this repository."""
DEVELOPMENT_WORDS = frozenset(
    {"dev", "develop", "development", "devcontainer", "test", "tests", "testing", "lint", "doc", "docs", "ci"}
)
"""A package is not deployed if the name of its file, folder or dependency group contains one of these words."""


@dataclass(frozen=True, slots=True)
class DeployedRuntime:
    """A package that one file declares. `specifier` selects its releases, such as `==1.18.1`; "" for any release."""

    package: str
    specifier: str
    file: str  # relative to the folder of the config
    line: int
    group: str = ""  # the group of dependencies in the file
    is_conda: bool = False  # installed by conda, which has other builds than pip

    @property
    def requirement(self) -> str:
        """The package and its specifier, such as `onnxruntime==1.18.1`."""
        return f"{self.package}{self.specifier}"

    @property
    def is_for_development(self) -> bool:
        """True if the name of the file, its folder or the dependency group indicates development, tests, docs or CI."""
        *folders, name = PurePosixPath(self.file).parts
        words = {*(folder.lstrip(".").lower() for folder in folders), *_split_name(name), *_split_name(self.group)}
        return not DEVELOPMENT_WORDS.isdisjoint(words)

    @property
    def pin(self) -> str:
        """The exact release; "" for a range."""
        match = re.fullmatch(r"==([^*]+)", self.specifier)
        return match[1] if match else ""

    @property
    def is_installed_directly(self) -> bool:
        """True for a command in a Dockerfile, to which no lock file applies."""
        return _is_dockerfile(PurePosixPath(self.file).name)


@dataclass(frozen=True, slots=True)
class Deployments:
    """All deployed packages in the order of their files, and the files that could not be read, with the reasons.

    If all packages are development dependencies, `runtimes` contains them and `ignored` is empty.
    """

    runtimes: tuple[DeployedRuntime, ...] = ()
    problems: tuple[str, ...] = ()
    ignored: tuple[DeployedRuntime, ...] = ()  # for development


class Declaration(NamedTuple):
    """A package as declared in a file. `convert` turns `version` into a specifier."""

    package: str
    version: str
    line: int
    convert: Callable[[str], str] = str
    group: str = ""
    is_conda: bool = False


Reader = Callable[[str], Iterable[Declaration]]


def find_deployments(folder: Path, paths: Iterable[str]) -> Deployments:
    """Return the packages that the files declare as dependencies. Files that declare no dependencies are skipped.

    An exact pin replaces the ranges that it satisfies. Development dependencies are ignored if others exist.
    """
    runtimes: dict[DeployedRuntime, None] = {}
    problems = []
    for path in sorted(paths, key=lambda path: (path.count("/"), path)):
        reader = select_reader(path)
        if reader is None:
            continue
        try:
            for package, version, line, convert, group, is_conda in reader(read_text(folder / path)):
                try:
                    specifier = _normalize_specifier(convert(version))
                    runtimes[DeployedRuntime(package, specifier, path, line, group, is_conda)] = None
                except UnreadableFileError as reason:
                    problems.append(f"{path}:{line}: {reason}")
        except UnreadableFileError as reason:
            problems.append(f"{path}: {reason}")
        except RecursionError:
            problems.append(f"{path}: nested too deeply")
    declared = tuple(_drop_satisfied_ranges(tuple(runtimes)))
    deployed = tuple(runtime for runtime in declared if not runtime.is_for_development)
    ignored = tuple(runtime for runtime in declared if runtime.is_for_development and deployed)
    return Deployments(deployed or declared, tuple(dict.fromkeys(problems)), ignored)


def _split_name(name: str) -> list[str]:
    """Return the words in a name, such as `requirements`, `dev` and `txt` in `requirements-dev.txt`."""
    return re.split(r"[^a-z0-9]+", name.lower())


def select_reader(path: str) -> Reader | None:
    """Return the function that reads a file of this name; None if the file does not declare dependencies."""
    pure = PurePosixPath(path)
    if IGNORED_FOLDERS.intersection(pure.parts[:-1]):
        return None
    words = _split_name(pure.stem)
    if pure.suffix in (".txt", ".in") and (
        pure.parent.name == "requirements"
        or pure.name.startswith(("requirements", "constraints"))
        or "requirements" in words
    ):
        return _read_requirements
    if pure.suffix in (".yml", ".yaml") and "environment" in words:
        return _read_environment
    if _is_dockerfile(pure.name):
        return _read_dockerfile
    if fnmatch.fnmatchcase(pure.name, "pylock*.toml"):
        return _read_toml_lock
    return {
        "pyproject.toml": _read_pyproject,
        "uv.lock": _read_toml_lock,
        "poetry.lock": _read_toml_lock,
        "pdm.lock": _read_toml_lock,
        "Pipfile": _read_pipfile,
        "Pipfile.lock": _read_pipfile_lock,
        "package.json": _read_package_json,
        "package-lock.json": _read_npm_lock,
    }.get(pure.name)


def _is_dockerfile(name: str) -> bool:
    return name in ("Dockerfile", "Containerfile") or name.startswith("Dockerfile.") or name.endswith(".Dockerfile")


def _drop_satisfied_ranges(runtimes: Sequence[DeployedRuntime]) -> Iterator[DeployedRuntime]:
    """Yield the packages. A range is omitted if an exact pin in a file in the same or a parent folder satisfies it."""
    for runtime in runtimes:
        folder = PurePosixPath(runtime.file).parent
        pins = (
            other.pin
            for other in runtimes
            if other.pin
            and other.package == runtime.package
            and (runtime.is_for_development or not other.is_for_development)
            and PurePosixPath(other.file).parent in (folder, *folder.parents)
        )
        is_range = not runtime.pin and not runtime.is_installed_directly
        if not (is_range and any(SpecifierSet(runtime.specifier).contains(pin, prereleases=True) for pin in pins)):
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


def _find_line(text: str, package: str, version: str = "") -> int:
    """Return the number of the first line with the package and its version or, if there is none, with the package.

    The result is 1 if no line contains the package.
    """
    name = rf"(?<![\w./-]){re.escape(package)}(?![\w-])"
    match = re.search(rf"{name}[^\n]*{re.escape(version)}", text) or re.search(name, text)
    return text.count("\n", 0, match.start()) + 1 if match else 1


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the logical lines of a text, each with its line number.

    Comment lines are skipped. A line that ends with a backslash is joined with the next one.
    """
    started = 0
    parts: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#"):
            continue
        started = started if parts else number
        body = line.rstrip()
        parts.append(body.removesuffix("\\"))
        if not body.endswith("\\"):
            yield started, " ".join(parts)
            parts = []
    if parts:
        yield started, " ".join(parts)


def _parse_requirement(text: str, line: int, group: str = "") -> Iterator[Declaration]:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return
    package = canonicalize_name(requirement.name)
    if package in PACKAGES:
        if requirement.url:
            yield Declaration(package, requirement.url, line, _read_wheel_version, group)
        else:
            yield Declaration(package, str(requirement.specifier), line, group=group)


def _read_wheel_version(url: str) -> str:
    """Return a specifier for the release in the URL of a wheel, such as `https://…/onnxruntime-1.18.1-cp311-….whl`."""
    wheel = re.search(r"/[A-Za-z_]+-(\d+(?:\.\d+)+)-[^/]*$", url)
    if wheel is None:
        raise UnreadableFileError(f"the URL `{url}` does not contain a version")
    return f"=={wheel[1]}"


def _read_requirements(text: str) -> Iterator[Declaration]:
    for number, line in _logical_lines(text):
        yield from _parse_requirement_line(line, number)


def _parse_requirement_line(line: str, number: int) -> Iterator[Declaration]:
    """Parse one line of a requirements file. Comments and options in it are ignored."""
    return _parse_requirement(re.split(r"(?:^|\s)#|\s--", line)[0].strip(), number)


def _read_environment(text: str) -> Iterator[Declaration]:
    """Read the packages in a conda environment. A package in the `pip` list replaces the conda package of that name."""
    entries = tuple(read_environment(text))
    from_pip = [found for it in entries if it.kind == "pip" for found in _parse_requirement_line(it.text, it.line)]
    for kind, entry, line in entries:
        if kind == "not read":
            yield Declaration("", entry, line, _refuse_line)
        elif kind == "conda":
            replaced = {declaration.package for declaration in from_pip}
            yield from (it for it in _parse_conda_package(entry, line) if it.package not in replaced)
    yield from from_pip


def _refuse_line(text: str) -> str:
    raise UnreadableFileError(f"not read: `{text}`")


def _parse_conda_package(text: str, line: int) -> Iterator[Declaration]:
    """Parse a conda package, such as `conda-forge::onnxruntime >=1.17,<2` or `onnxruntime=1.18.1=py311_0`."""
    match = re.fullmatch(r"(?:.*::)?([\w.-]+)\s*(.*)", text)
    package = canonicalize_name(match[1]) if match else ""
    if match is None or package not in PACKAGES:
        return
    version, *_build = re.sub(r"\s*([,<>=!~|]+)\s*", r"\1", match[2]).split() or [""]
    if with_build := re.fullmatch(r"(={0,2}[^=<>!~,]+)=[^=,]+", version):
        version = with_build[1]
    yield Declaration(package, version, line, convert_conda_version, is_conda=True)


def _parse_toml(text: str) -> Mapping[str, Any]:
    try:
        return toml.loads(text)
    except toml.TOMLDecodeError as error:
        raise UnreadableFileError(f"not valid TOML: {describe_syntax_error(error, text)}") from error


def _parse_json(text: str) -> Mapping[str, Any]:
    try:
        values = json.loads(text)
    except ValueError as error:
        raise UnreadableFileError(f"not valid JSON: {str(error)[:1].lower()}{str(error)[1:]}") from error
    return _table(values)


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _strings(value: object) -> Iterator[str]:
    yield from (text for text in value if isinstance(text, str)) if isinstance(value, list) else ()


def _read_pyproject(text: str) -> Iterator[Declaration]:
    data = _parse_toml(text)
    project, tool = _table(data.get("project")), _table(data.get("tool"))
    lists = [
        ("", project.get("dependencies")),
        *_table(project.get("optional-dependencies")).items(),
        *_table(data.get("dependency-groups")).items(),
        ("dev", _table(tool.get("uv")).get("dev-dependencies")),
    ]
    for group, requirement in ((group, text) for group, values in lists for text in _strings(values)):
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        yield from _parse_requirement(requirement, _find_line(text, name, requirement.removeprefix(name)), group)
    poetry = _table(tool.get("poetry"))
    groups = [(name, _table(group).get("dependencies")) for name, group in _table(poetry.get("group")).items()]
    for group, table in (("", poetry.get("dependencies")), ("dev", poetry.get("dev-dependencies")), *groups):
        yield from _read_version_table(text, table, convert_poetry_version, group)


def _read_pipfile(text: str) -> Iterator[Declaration]:
    data = _parse_toml(text)
    for name in ("packages", "dev-packages"):
        yield from _read_version_table(text, data.get(name), convert_poetry_version, name)


def _read_version_table(
    text: str, table: object, convert: Callable[[str], str], group: str = ""
) -> Iterator[Declaration]:
    """Read dependencies in TOML such as `name = "^1.18"`, `name = { version = "^1.18" }` or a list of such tables."""
    for name, value in _table(table).items():
        package = canonicalize_name(name)
        if package in PACKAGES:
            for entry in value if isinstance(value, list) else [value]:
                version = _table(entry).get("version", "*") if isinstance(entry, dict) else entry
                yield Declaration(package, str(version), _find_line(text, name, str(version)), convert, group)


def _read_toml_lock(text: str) -> Iterator[Declaration]:
    """Read the packages in uv.lock, poetry.lock, pdm.lock or pylock.toml."""
    data = _parse_toml(text)
    for key in ("package", "packages"):
        entries = data.get(key)
        for entry in map(_table, entries) if isinstance(entries, list) else ():
            package, version = str(entry.get("name", "")), entry.get("version")
            if canonicalize_name(package) in PACKAGES and isinstance(version, str):
                yield Declaration(canonicalize_name(package), f"=={version}", _find_line(text, package))


def _read_pipfile_lock(text: str) -> Iterator[Declaration]:
    data = _parse_json(text)
    for group in ("default", "develop"):
        yield from _read_version_table(text, data.get(group), convert_poetry_version, group)


def _read_package_json(text: str) -> Iterator[Declaration]:
    data = _parse_json(text)
    for group in ("dependencies", "optionalDependencies", "peerDependencies"):
        yield from _read_version_table(text, data.get(group), convert_npm_range)
    yield from _read_version_table(text, data.get("devDependencies"), convert_npm_range, "dev")


def _read_npm_lock(text: str) -> Iterator[Declaration]:
    data = _parse_json(text)
    installed = {path.rpartition("node_modules/")[2]: entry for path, entry in _table(data.get("packages")).items()}
    for name, entry in {**_table(data.get("dependencies")), **installed}.items():
        version = _table(entry).get("version")
        if name in NPM_PACKAGES and isinstance(version, str):
            group = "dev" if _table(entry).get("dev") is True else ""
            yield Declaration(name, version, _find_line(text, name), convert_npm_range, group)


_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
_ASSIGNMENT = re.compile(r"\s*(?:ARG|ENV)\s+(\w+)[=\s]\s*\"?([^\s\"]+)", re.IGNORECASE)
_INSTALL_COMMAND = re.compile(r"\b(?:install|add|i|ci)\b")


def _read_dockerfile(text: str) -> Iterator[Declaration]:
    """Read the packages that a Dockerfile installs with `pip`, `uv`, `conda`, `npm` or a similar program."""
    variables: dict[str, str] = {}
    for number, line in _logical_lines(text):
        if assigned := _ASSIGNMENT.match(line):
            variables[assigned[1]] = assigned[2]
            continue
        expanded = _VARIABLE.sub(lambda match: variables.get(match[1] or match[3], match[2] or match[0]), line)
        if not _INSTALL_COMMAND.search(expanded):
            continue
        for command in re.split(r"&&|\|\|", expanded):
            for word in _split_words(command):
                yield from _parse_installed_package(word.strip("[],;").rpartition("::")[2], number)


def _split_words(command: str) -> list[str]:
    try:
        return shlex.split(command.replace('",', '" '))  # `RUN ["pip", "install", …]` is a list of strings
    except ValueError:
        return command.split()


def _parse_installed_package(word: str, line: int) -> Iterator[Declaration]:
    match = re.match(r"(onnxruntime(?:[-_.][a-z]+)?)(?![\w-])(\[[^\]]*\])?(.*)", word, re.IGNORECASE)
    package = canonicalize_name(match[1]) if match else ""
    if match is None or package not in PACKAGES:
        return
    version = match[3]
    if "$" in version:
        yield Declaration(package, word, line, _refuse_build_argument)
    elif version.startswith("@"):
        yield Declaration(package, version[1:], line, convert_npm_range)
    elif re.match(r"=[^=]", version):
        yield from _parse_conda_package(word, line)
    else:
        yield from _parse_requirement(f"{package}{version}", line)


def _refuse_build_argument(word: str) -> str:
    raise UnreadableFileError(f"the version in `{word}` is only known when the image is built")
