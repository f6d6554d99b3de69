"""Declarations of ONNX Runtime packages, and parts that the readers of several file types share."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from onnxgate.commands.init.text_files import UnreadableFileError
from onnxgate.project import toml
from onnxgate.project.config.loader import describe_syntax_error
from onnxgate.project.engines import ONNXRUNTIME, ONNXRUNTIME_BUILDS

NPM_PACKAGES = ("onnxruntime-node", "onnxruntime-web")
PYTHON_ENGINES = (ONNXRUNTIME, "openvino", "tract")
"""Engines that are checked with the deployed package; for all other packages, `onnxruntime` is checked instead."""
PACKAGES = (*PYTHON_ENGINES, *ONNXRUNTIME_BUILDS, *NPM_PACKAGES)
DEVELOPMENT_GROUP = "dev"
_DEVELOPMENT_WORDS = frozenset(
    {"dev", "develop", "development", "devcontainer", "test", "tests", "testing", "lint", "doc", "docs", "ci"}
)
"""A package is not deployed if the name of its file, folder or dependency group contains one of these words."""


class Declaration(NamedTuple):
    """A package as declared in a file. `convert` turns `version` into a specifier."""

    package: str
    version: str
    line: int
    convert: Callable[[str], str] = str
    group: str = ""
    is_conda: bool = False
    marker: str = ""  # an environment marker: `python_version < "3.8"`
    text: str = ""  # the declaration in the file if it is not a requirement, such as the name of an image


Reader = Callable[[str], Iterable[Declaration]]


def split_name(name: str) -> list[str]:
    """Return the words in a name, such as `requirements`, `dev` and `txt` in `requirements-dev.txt`."""
    return re.split(r"[^a-z0-9]+", name.lower())


def indicates_development(name: str) -> bool:
    """Return whether the name of a file or a group of dependencies indicates development, tests, docs or CI."""
    return not _DEVELOPMENT_WORDS.isdisjoint(split_name(name))


def is_development_file(path: str) -> bool:
    """Return whether the name of a file or one of its folders indicates development, tests, docs or CI."""
    *folders, name = PurePosixPath(path).parts
    is_folder = not _DEVELOPMENT_WORDS.isdisjoint(folder.lstrip(".").lower() for folder in folders)
    return is_folder or indicates_development(name)


def find_line(text: str, package: str, version: str = "") -> int:
    """Return the number of the first line with the package and its version or, if there is none, with the package.

    The result is 1 if no line contains the package.
    """
    name = rf"(?<![\w./-]){re.escape(package)}(?![\w-])"
    match = re.search(rf"{name}[^\n]*{re.escape(version)}", text) or re.search(name, text)
    return line_of(text, match.start()) if match else 1


def line_of(text: str, position: int) -> int:
    """Return the number of the line that contains a position."""
    return text.count("\n", 0, position) + 1


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
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


def parse_requirement(text: str, line: int, group: str = "") -> Iterator[Declaration]:
    """Yield the declaration in a requirement, unless it is of another package."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return
    package = canonicalize_name(requirement.name)
    if package in PACKAGES:
        marker = str(requirement.marker or "")
        if requirement.url:
            yield Declaration(package, requirement.url, line, _read_wheel_version, group, marker=marker)
        else:
            yield Declaration(package, str(requirement.specifier), line, group=group, marker=marker)


def _read_wheel_version(url: str) -> str:
    """Return a specifier for the release in the URL of a wheel, such as `https://…/onnxruntime-1.18.1-cp311-….whl`."""
    wheel = re.search(r"/[A-Za-z_]+-(\d+(?:\.\d+)+)-[^/]*$", url)
    if wheel is None:
        raise UnreadableFileError(f"the URL `{url}` does not contain a version")
    return f"=={wheel[1]}"


def read_version_table(
    text: str, entries: object, convert: Callable[[str], str], group: str = ""
) -> Iterator[Declaration]:
    """Read dependencies in TOML such as `name = "^1.18"`, `name = { version = "^1.18" }` or a list of such tables."""
    for name, value in table(entries).items():
        package = canonicalize_name(name)
        if package in PACKAGES:
            for entry in value if isinstance(value, list) else [value]:
                version = table(entry).get("version", "*") if isinstance(entry, dict) else entry
                yield Declaration(package, str(version), find_line(text, name, str(version)), convert, group)


def parse_toml(text: str) -> Mapping[str, Any]:
    """Return the content of a TOML file; raise `UnreadableFileError` if it is not valid."""
    try:
        return toml.loads(text)
    except toml.TOMLDecodeError as error:
        raise UnreadableFileError(f"not valid TOML: {describe_syntax_error(error, text)}") from error


def parse_json(text: str) -> Mapping[str, Any]:
    """Return the object in a JSON file; raise `UnreadableFileError` if the file is not valid."""
    try:
        values = json.loads(text)
    except ValueError as error:
        raise UnreadableFileError(f"not valid JSON: {str(error)[:1].lower()}{str(error)[1:]}") from error
    return table(values)


def table(value: object) -> Mapping[str, Any]:
    """Return a table; an empty one if the value is of another type."""
    return value if isinstance(value, dict) else {}
