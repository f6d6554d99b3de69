"""Read the ONNX Runtime packages in lock files of Python and npm package managers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from packaging.utils import canonicalize_name

from onnxgate.commands.init.dependencies.declarations import (
    DEVELOPMENT_GROUP,
    NPM_PACKAGES,
    PACKAGES,
    Declaration,
    find_line,
    indicates_development,
    line_of,
    parse_json,
    parse_toml,
    read_version_table,
    table,
)
from onnxgate.commands.init.dependencies.version_ranges import convert_npm_range, convert_poetry_version

MANIFESTS = {"poetry.lock": "pyproject.toml", "yarn.lock": "package.json", "pnpm-lock.yaml": "package.json"}
"""Lock files that may not contain whether a package is used for development only, each with its manifest."""
_NPM_NAMES = "|".join(NPM_PACKAGES)
_YARN_ENTRY = re.compile(
    rf'^"?({_NPM_NAMES})@[^\n]*:\n(?:[ \t]+[^\n]*\n)*?[ \t]+version:?[ \t]+"?([^"\s]+)', re.MULTILINE
)
_PNPM_ENTRY = re.compile(rf"^  ['\"]?/?({_NPM_NAMES})[@/](\d+\.\d+\.\d+(?:-[\w.]+)?)", re.MULTILINE)


def read_toml_lock(text: str) -> Iterator[Declaration]:
    """Read the packages in uv.lock, poetry.lock, pdm.lock or pylock.toml."""
    data = parse_toml(text)
    for key in ("package", "packages"):
        values = data.get(key)
        entries = [table(value) for value in values] if isinstance(values, list) else []
        lines, deployed = _locate_entries(text, key), _find_deployed_packages(entries)
        for number, entry in enumerate(entries):
            name, version = str(entry.get("name", "")), entry.get("version")
            package = canonicalize_name(name)
            if package in PACKAGES and isinstance(version, str):
                line = lines[number] if len(lines) == len(entries) else find_line(text, name)
                is_deployed = _is_in_deployed_group(entry) and (deployed is None or name in deployed)
                group = "" if is_deployed else DEVELOPMENT_GROUP
                yield Declaration(package, f"=={version}", line, group=group, marker=_read_marker(entry))


def _locate_entries(text: str, key: str) -> list[int]:
    """Return the line with the name of each entry in the array of tables `key`; its first line if it has no name."""
    lines: list[int] = []
    is_named = False
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(rf"\[\[\s*{key}\s*\]\]", line):
            lines.append(number)
            is_named = False
        elif lines and not is_named and re.match(r"name\s*=", line):
            lines[-1] = number
            is_named = True
    return lines


def _is_in_deployed_group(entry: Mapping[str, Any]) -> bool:
    groups = entry.get("groups", [entry.get("category", "main")])
    return not isinstance(groups, list) or not all(indicates_development(str(group)) for group in groups)


def _read_marker(entry: Mapping[str, Any]) -> str:
    """Return the environment marker of a package in a lock file; in uv.lock, that of the fork that contains it."""
    marker = entry.get("marker", entry.get("markers", ""))
    forks = entry.get("resolution-markers")
    if isinstance(forks, list) and forks:
        return " or ".join(map(str, forks))
    return marker if isinstance(marker, str) else ""


def _find_deployed_packages(entries: Sequence[Mapping[str, Any]]) -> set[str] | None:
    """Return the packages that the projects in a uv.lock need outside of their development groups.

    The result is None if the file contains no project.
    """
    projects = [entry for entry in entries if table(entry.get("source")).keys() & {"virtual", "editable"}]
    if not projects:
        return None
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for entry in entries:
        by_name.setdefault(str(entry.get("name")), []).append(entry)
    pending = [name for project in projects for name in _required_names(project)]
    found: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += [required for entry in by_name.get(name, ()) for required in _required_names(entry)]
    return found


def _required_names(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the packages that a package in uv.lock requires, without those for development."""
    lists = [entry.get("dependencies")]
    for key in ("optional-dependencies", "dev-dependencies"):
        lists += [values for group, values in table(entry.get(key)).items() if not indicates_development(group)]
    for values in lists:
        yield from (str(table(value).get("name")) for value in values) if isinstance(values, list) else ()


def read_pipfile_lock(text: str) -> Iterator[Declaration]:
    """Read the packages in Pipfile.lock."""
    data = parse_json(text)
    for group in ("default", "develop"):
        yield from read_version_table(text, data.get(group), convert_poetry_version, group)


def read_npm_lock(text: str) -> Iterator[Declaration]:
    """Read the packages in package-lock.json, of any version of its format."""
    data = parse_json(text)
    by_key = {**table(data.get("dependencies")), **table(data.get("packages"))}
    installed = {key.rpartition("node_modules/")[2]: (key, table(entry)) for key, entry in by_key.items()}
    for name, (key, entry) in installed.items():
        version = entry.get("version")
        if name in NPM_PACKAGES and isinstance(version, str):
            group = DEVELOPMENT_GROUP if entry.get("dev") is True else ""
            place = re.search(rf'"{re.escape(key)}"\s*:\s*\{{', text)
            line = line_of(text, place.start()) if place else 1
            yield Declaration(name, version, line, convert_npm_range, group)


def read_yarn_lock(text: str) -> Iterator[Declaration]:
    """Read the packages in yarn.lock, of Yarn 1 or later."""
    for match in _YARN_ENTRY.finditer(text):
        yield Declaration(match[1], match[2], line_of(text, match.start()), convert_npm_range)


def read_pnpm_lock(text: str) -> Iterator[Declaration]:
    """Read the packages in pnpm-lock.yaml. A package may have an entry in two sections."""
    first: dict[tuple[str, str], int] = {}
    for match in _PNPM_ENTRY.finditer(text):
        first.setdefault((match[1], match[2]), line_of(text, match.start()))
    for (package, version), line in first.items():
        yield Declaration(package, version, line, convert_npm_range)
