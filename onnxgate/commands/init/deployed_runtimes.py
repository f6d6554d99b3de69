"""Releases of ONNX Runtime that a repository deploys, from its requirements, manifests, lock files and Dockerfiles."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from onnxgate.core.files import open_regular
from onnxgate.project import toml
from onnxgate.project.config.loader import describe_syntax_error
from onnxgate.project.engines import ONNXRUNTIME, ONNXRUNTIME_BUILDS, is_satisfiable

NPM_PACKAGES = ("onnxruntime-node", "onnxruntime-web")
PACKAGES = (ONNXRUNTIME, *ONNXRUNTIME_BUILDS, *NPM_PACKAGES)
IGNORED_FOLDERS = frozenset({"node_modules", "site-packages", "tests", "test", "fixtures", "vendor", "third_party"})
"""Folders with files that do not describe a deployment of this repository."""
MAX_FILE_BYTES = 50_000_000


@dataclass(frozen=True, slots=True)
class DeployedRuntime:
    """One package in one file. `specifier` selects its releases: `==1.18.1`; "" for any release."""

    package: str
    specifier: str
    file: str  # relative to the folder of the config
    line: int

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
    """All deployed packages in the order of their files, and files that could not be read, each with the reason."""

    runtimes: tuple[DeployedRuntime, ...] = ()
    problems: tuple[str, ...] = ()


class UnreadableFileError(Exception):
    """The reason why a file could not be read."""


class Declaration(NamedTuple):
    """A package as a file declares it; `convert` returns the specifier for `version`."""

    package: str
    version: str
    line: int
    convert: Callable[[str], str] = str


Reader = Callable[[str], Iterable[Declaration]]


def find_deployments(folder: Path, paths: Iterable[str]) -> Deployments:
    """Read those of the files that declare dependencies; an exact pin replaces the ranges that it satisfies."""
    runtimes: dict[DeployedRuntime, None] = {}
    problems = []
    for path in sorted(paths, key=lambda path: (path.count("/"), path)):
        reader = select_reader(path)
        if reader is None:
            continue
        try:
            for package, version, line, convert in reader(read_text(folder / path)):
                try:
                    specifier = _normalize_specifier(convert(version))
                    runtimes[DeployedRuntime(package, specifier, path, line)] = None
                except UnreadableFileError as reason:
                    problems.append(f"{path}:{line}: {reason}")
        except UnreadableFileError as reason:
            problems.append(f"{path}: {reason}")
        except RecursionError:
            problems.append(f"{path}: nested too deeply")
    return Deployments(tuple(_drop_satisfied_ranges(tuple(runtimes))), tuple(dict.fromkeys(problems)))


def select_reader(path: str) -> Reader | None:
    """Return the function that reads a file of this name; None if the file does not declare dependencies."""
    pure = PurePosixPath(path)
    if IGNORED_FOLDERS.intersection(pure.parts[:-1]):
        return None
    if pure.suffix in (".txt", ".in") and (
        pure.parent.name == "requirements" or pure.name.startswith(("requirements", "constraints"))
    ):
        return _read_requirements
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


def read_text(path: Path) -> str:
    """
    Return the text of a regular file.

    Raises:
        UnreadableFileError: the file is missing, not a regular file, not readable, too large, or not UTF-8.
    """
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
                raise UnreadableFileError(f"larger than {MAX_FILE_BYTES:,} bytes")
            return toml.decode(file.read())
    except FileNotFoundError as error:
        raise UnreadableFileError("dangling link" if path.is_symlink() else "no such file or directory") from error
    except OSError as error:
        raise UnreadableFileError((error.strerror or str(error)).lower()) from error
    except UnicodeDecodeError as error:
        raise UnreadableFileError("not UTF-8") from error


def _drop_satisfied_ranges(runtimes: Sequence[DeployedRuntime]) -> Iterator[DeployedRuntime]:
    """Yield the packages without ranges for which a file in the same folder or above has an exact pin."""
    for runtime in runtimes:
        folder = PurePosixPath(runtime.file).parent
        pins = (
            other.pin
            for other in runtimes
            if other.pin
            and other.package == runtime.package
            and PurePosixPath(other.file).parent in (folder, *folder.parents)
        )
        is_range = not runtime.pin and not runtime.is_installed_directly
        if not (is_range and any(SpecifierSet(runtime.specifier).contains(pin, prereleases=True) for pin in pins)):
            yield runtime


_OPERATORS = ("===", "==", "~=", ">=", ">", "!=", "<=", "<")
"""Operators in the order in which people write them."""


def _normalize_specifier(text: str) -> str:
    """Return a specifier in its normal form. A local version such as `1.18.1+cu118` is a build of the release."""
    try:
        specifier = SpecifierSet(re.sub(r"^={2,3}\s*([^+*,]+)\+[\w.]+$", r"==\1", text))
    except InvalidSpecifier as error:
        raise UnreadableFileError(f"`{text}` is not a version specifier") from error
    if not is_satisfiable(specifier):
        raise UnreadableFileError(f"no release satisfies `{text}`")
    clauses = sorted(specifier, key=lambda clause: (_OPERATORS.index(clause.operator), clause.version))
    return ",".join(f"{clause.operator.replace('===', '==')}{clause.version}" for clause in clauses)


def _find_line(text: str, package: str) -> int:
    """Return the line that names a package first; 1 if none does."""
    match = re.search(rf"(?<![\w./-]){re.escape(package)}(?![\w-])", text)
    return text.count("\n", 0, match.start()) + 1 if match else 1


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers; a line that ends with a backslash continues. Comment lines are left out."""
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


def _parse_requirement(text: str, line: int) -> Iterator[Declaration]:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return
    package = canonicalize_name(requirement.name)
    if package in PACKAGES:
        if requirement.url:
            yield Declaration(package, requirement.url, line, _read_wheel_version)
        else:
            yield Declaration(package, str(requirement.specifier), line)


def _read_wheel_version(url: str) -> str:
    """Return the release in the address of a wheel, such as `https://…/onnxruntime-1.18.1-cp311-….whl`."""
    wheel = re.search(r"/[A-Za-z_]+-(\d+(?:\.\d+)+)-[^/]*$", url)
    if wheel is None:
        raise UnreadableFileError(f"the address `{url}` does not contain a version")
    return f"=={wheel[1]}"


def _read_requirements(text: str) -> Iterator[Declaration]:
    for number, line in _logical_lines(text):
        yield from _parse_requirement(re.split(r"(?:^|\s)#|\s--", line)[0].strip(), number)


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
        project.get("dependencies"),
        *_table(project.get("optional-dependencies")).values(),
        *_table(data.get("dependency-groups")).values(),
        _table(tool.get("uv")).get("dev-dependencies"),
    ]
    for requirement in (text for values in lists for text in _strings(values)):
        name = re.match(r"[\w.-]*", requirement)
        yield from _parse_requirement(requirement, _find_line(text, name[0] if name else ""))
    poetry = _table(tool.get("poetry"))
    groups = [_table(group).get("dependencies") for group in _table(poetry.get("group")).values()]
    for table in (poetry.get("dependencies"), poetry.get("dev-dependencies"), *groups):
        yield from _read_version_table(text, table, convert_poetry_version)


def _read_pipfile(text: str) -> Iterator[Declaration]:
    data = _parse_toml(text)
    for name in ("packages", "dev-packages"):
        yield from _read_version_table(text, data.get(name), convert_poetry_version)


def _read_version_table(text: str, table: object, convert: Callable[[str], str]) -> Iterator[Declaration]:
    """Read `name = "^1.18"`, `name = { version = "^1.18" }` and lists of these tables."""
    for name, value in _table(table).items():
        package = canonicalize_name(name)
        if package in PACKAGES:
            for entry in value if isinstance(value, list) else [value]:
                version = _table(entry).get("version", "*") if isinstance(entry, dict) else entry
                yield Declaration(package, str(version), _find_line(text, name), convert)


def _read_toml_lock(text: str) -> Iterator[Declaration]:
    """Read the packages of uv.lock, poetry.lock, pdm.lock and pylock.toml."""
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
        yield from _read_version_table(text, data.get(group), convert_poetry_version)


def _read_package_json(text: str) -> Iterator[Declaration]:
    data = _parse_json(text)
    for group in ("dependencies", "optionalDependencies", "peerDependencies", "devDependencies"):
        yield from _read_version_table(text, data.get(group), convert_npm_range)


def _read_npm_lock(text: str) -> Iterator[Declaration]:
    data = _parse_json(text)
    installed = {path.rpartition("node_modules/")[2]: entry for path, entry in _table(data.get("packages")).items()}
    for name, entry in {**_table(data.get("dependencies")), **installed}.items():
        version = _table(entry).get("version")
        if name in NPM_PACKAGES and isinstance(version, str):
            yield Declaration(name, version, _find_line(text, name), convert_npm_range)


_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
_ASSIGNMENT = re.compile(r"\s*(?:ARG|ENV)\s+(\w+)[=\s]\s*\"?([^\s\"]+)", re.IGNORECASE)
_INSTALL_COMMAND = re.compile(r"\b(?:install|add|i|ci)\b")


def _read_dockerfile(text: str) -> Iterator[Declaration]:
    """Read packages that `pip`, `uv`, `conda`, `npm` or a similar program installs."""
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
                yield from _parse_installed_package(word.strip("[],;"), number)


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
    elif conda := re.fullmatch(r"=(\d+(?:\.\d+)*)", version):
        yield Declaration(package, f"=={conda[1]}" if conda[1].count(".") >= 2 else f"=={conda[1]}.*", line)
    else:
        yield from _parse_requirement(f"{package}{version}", line)


def _refuse_build_argument(word: str) -> str:
    raise UnreadableFileError(f"the version in `{word}` is only known when the image is built")


_RELEASE = r"v?(\d+(?:\.\d+)*)"


def convert_poetry_version(text: str) -> str:
    """Return the specifier for a version constraint of Poetry or Pipenv: `^1.18` is `>=1.18,<2`."""
    return ",".join(filter(None, (_convert_clause(clause.strip(), text) for clause in text.split(","))))


def convert_npm_range(text: str) -> str:
    """Return the specifier for a version range of npm: `~1.20.1` is `>=1.20.1,<1.21`."""
    stripped = text.strip()
    if stripped in ("", "latest"):
        return ""
    if between := re.fullmatch(rf"{_RELEASE}\s+-\s+{_RELEASE}", stripped):
        return f">={between[1]},<={between[2]}"
    clauses = re.sub(r"([<>=^~])\s+", r"\1", stripped).split()
    converted = []
    for clause in clauses:
        shortened = re.fullmatch(rf"=?{_RELEASE}", clause)
        if shortened and shortened[1].count(".") < 2:  # `1.20` means `1.20.x`
            clause = f"{shortened[1]}.*"
        converted.append(_convert_clause(re.sub(r"(?:\.[xX*])+$", ".*", clause), text))
    return ",".join(filter(None, converted))


def _convert_clause(clause: str, text: str) -> str:
    """Convert one clause.

    Raises:
        UnreadableFileError: it is a tag, an address or another form without releases.
    """
    if clause in ("*", "x", ""):
        return ""
    if match := re.fullmatch(rf"\^{_RELEASE}(?:\.\*)?", clause):
        parts = [int(part) for part in match[1].split(".")]
        significant = next((index for index, part in enumerate(parts) if part), len(parts) - 1)
        return f">={match[1]},<{'.'.join(map(str, (*parts[:significant], parts[significant] + 1)))}"
    if match := re.fullmatch(rf"~{_RELEASE}(?:\.\*)?", clause):
        parts = [int(part) for part in match[1].split(".")][:2]
        return f">={match[1]},<{'.'.join(map(str, (*parts[:-1], parts[-1] + 1)))}"
    if re.fullmatch(rf"=?{_RELEASE}(?:\.\*)?", clause):
        return f"=={clause.lstrip('=v')}"
    try:
        return str(SpecifierSet(clause))
    except InvalidSpecifier as error:
        raise UnreadableFileError(f"the version `{text}` is not supported") from error
