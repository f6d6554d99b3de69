"""Read requirements files of pip, and find the files that they include."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from onnxgate.commands.init.dependencies.declarations import (
    DEVELOPMENT_GROUP,
    Declaration,
    is_development_file,
    logical_lines,
    parse_requirement,
)
from onnxgate.commands.init.text_files import UnreadableFileError, read_text

_INCLUSION = re.compile(r"\s*(?:-([rc])\s*|--(r)equirement[\s=]\s*|--(c)onstraint[\s=]\s*)(\S.*)")


@dataclass(frozen=True, slots=True)
class RequirementsFile:
    """A requirements or constraints file; `path` is relative to the config's folder."""

    path: str
    group: str = ""  # "dev" if only development requirements include the file
    limits: str | None = None  # the folder of the requirements that a constraints file limits
    is_included: bool = False  # another file names it, so that it is used only together with that file


class _Inclusion(NamedTuple):
    is_constraint: bool
    path: str
    line: int


def read_requirements(text: str) -> Iterator[Declaration]:
    """Yield the packages that a requirements file declares itself."""
    for number, line in logical_lines(text):
        yield from parse_requirement_line(line, number)


def parse_requirement_line(line: str, number: int) -> Iterator[Declaration]:
    """Parse one line of a requirements file. Comments and options in it are ignored."""
    return parse_requirement(re.split(r"(?:^|\s)#|\s--", line)[0].strip(), number)


def collect_requirements_files(
    folder: Path, root: Path, paths: Iterable[str], problems: list[str]
) -> Iterator[RequirementsFile]:
    """Yield the requirements files and those that they include with `-r` or `-c`, each once.

    Only files below `root` are followed. `problems` receives the inclusions that are not.
    """
    named = [_describe_file(path) for path in paths]
    # The files of the deployment come first: what they include is deployed, whatever else includes it.
    named.sort(key=lambda file: (file.limits is not None, is_development_file(file.path)))
    seen: set[str] = set()
    for start in named:
        pending = [start]
        while pending:
            file = pending.pop(0)
            if file.path not in seen:
                seen.add(file.path)
                yield file
                pending += _find_included_files(folder, root, file, problems)


def _describe_file(path: str) -> RequirementsFile:
    pure = PurePosixPath(path)
    return RequirementsFile(path, limits=pure.parent.as_posix() if pure.name.startswith("constraints") else None)


def _find_included_files(
    folder: Path, root: Path, file: RequirementsFile, problems: list[str]
) -> Iterator[RequirementsFile]:
    try:
        inclusions = list(_find_inclusions(read_text(folder / file.path)))
    except UnreadableFileError:  # reported where the requirements are read
        return
    parent = PurePosixPath(file.path).parent
    is_development = file.group or is_development_file(file.path)
    for is_constraint, name, line in inclusions:
        path = Path(os.path.normpath(parent / name)).as_posix()
        target = folder / path
        reason = "does not exist"
        if "://" in name or "$" in name or not target.resolve().is_relative_to(root.resolve()):
            reason = "is not a file in this repository"
        elif target.is_file():
            limits = (file.limits or parent.as_posix()) if is_constraint or file.limits else None
            yield RequirementsFile(path, DEVELOPMENT_GROUP if is_development else "", limits, True)
            continue
        problems.append(f"{file.path}:{line}: not read: `{name}` {reason}")


def _find_inclusions(text: str) -> Iterator[_Inclusion]:
    for number, line in logical_lines(text):
        if match := _INCLUSION.match(line):
            name = re.split(r"\s#", match[4])[0].strip().strip("\"'")
            yield _Inclusion((match[1] or match[2] or match[3]) == "c", name, number)
