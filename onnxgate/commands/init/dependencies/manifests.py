"""Read dependencies in manifests: pyproject.toml, setup.cfg, setup.py, Pipfile, environment.yml and package.json."""

from __future__ import annotations

import ast
import configparser
import re
from collections.abc import Iterator

from packaging.utils import canonicalize_name

from onnxgate.commands.init.dependencies.conda_environment import read_environment
from onnxgate.commands.init.dependencies.declarations import (
    DEVELOPMENT_GROUP,
    PACKAGES,
    Declaration,
    find_line,
    parse_json,
    parse_requirement,
    parse_toml,
    read_version_table,
    table,
)
from onnxgate.commands.init.dependencies.requirements_files import parse_requirement_line
from onnxgate.commands.init.dependencies.version_ranges import (
    convert_conda_version,
    convert_npm_range,
    convert_poetry_version,
)
from onnxgate.commands.init.text_files import UnreadableFileError


def read_pyproject(text: str) -> Iterator[Declaration]:
    """Read the dependencies of a project, in the tables of the standard, of uv and of Poetry."""
    data = parse_toml(text)
    project, tool = table(data.get("project")), table(data.get("tool"))
    lists = [
        ("", project.get("dependencies")),
        *table(project.get("optional-dependencies")).items(),
        *table(data.get("dependency-groups")).items(),
        (DEVELOPMENT_GROUP, table(tool.get("uv")).get("dev-dependencies")),
    ]
    for group, requirement in ((group, text) for group, values in lists for text in _strings(values)):
        yield from _locate_requirement(text, requirement, group)
    poetry = table(tool.get("poetry"))
    groups = [(name, table(group).get("dependencies")) for name, group in table(poetry.get("group")).items()]
    legacy = (DEVELOPMENT_GROUP, poetry.get("dev-dependencies"))
    for group, entries in (("", poetry.get("dependencies")), legacy, *groups):
        yield from read_version_table(text, entries, convert_poetry_version, group)


def _strings(value: object) -> Iterator[str]:
    yield from (text for text in value if isinstance(text, str)) if isinstance(value, list) else ()


def _locate_requirement(text: str, requirement: str, group: str) -> Iterator[Declaration]:
    name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
    return parse_requirement(requirement, find_line(text, name, requirement.removeprefix(name)), group)


def read_setup_cfg(text: str) -> Iterator[Declaration]:
    """Read the dependencies in the `setup.cfg` of setuptools."""
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise UnreadableFileError("not a valid INI file") from error
    lists = [("", parser.get("options", "install_requires", fallback=""))]
    if parser.has_section("options.extras_require"):
        lists += parser.items("options.extras_require")
    for group, requirements in lists:
        for requirement in filter(None, map(str.strip, requirements.splitlines())):
            yield from _locate_requirement(text, requirement, group)


def read_setup_py(text: str) -> Iterator[Declaration]:
    """Read the requirements in `setup.py` that are literals, without running the file."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise UnreadableFileError("not valid Python") from error
    keywords = {keyword.arg: keyword.value for keyword in ast.walk(tree) if isinstance(keyword, ast.keyword)}
    assigned = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for argument in ("install_requires", "extras_require"):
        value = keywords.get(argument)
        value = assigned.get(value.id) if isinstance(value, ast.Name) else value
        groups: list[tuple[ast.expr | None, ast.expr | None]] = [(None, value)]
        if isinstance(value, ast.Dict):
            groups = list(zip(value.keys, value.values, strict=True))
        for group, requirements in groups:
            name = str(group.value) if isinstance(group, ast.Constant) else ""
            for literal in ast.walk(requirements) if requirements is not None else ():
                if isinstance(literal, ast.Constant) and isinstance(literal.value, str):
                    yield from parse_requirement(literal.value, literal.lineno, name)


def read_pipfile(text: str) -> Iterator[Declaration]:
    """Read the packages in a Pipfile."""
    data = parse_toml(text)
    for name in ("packages", "dev-packages"):
        yield from read_version_table(text, data.get(name), convert_poetry_version, name)


def read_package_json(text: str) -> Iterator[Declaration]:
    """Read the npm packages in package.json."""
    data = parse_json(text)
    for group in ("dependencies", "optionalDependencies", "peerDependencies"):
        yield from read_version_table(text, data.get(group), convert_npm_range)
    yield from read_version_table(text, data.get("devDependencies"), convert_npm_range, DEVELOPMENT_GROUP)


def read_conda_environment(text: str) -> Iterator[Declaration]:
    """Read the packages in a conda environment. A package in the `pip` list replaces the conda package of that name."""
    entries = tuple(read_environment(text))
    from_pip = [found for it in entries if it.kind == "pip" for found in parse_requirement_line(it.text, it.line)]
    for kind, entry, line in entries:
        if kind == "not read":
            yield Declaration("", entry, line, _refuse_line)
        elif kind == "conda":
            replaced = {declaration.package for declaration in from_pip}
            yield from (it for it in parse_conda_package(entry, line) if it.package not in replaced)
    yield from from_pip


def _refuse_line(text: str) -> str:
    raise UnreadableFileError(f"not read: `{text}`")


def parse_conda_package(text: str, line: int) -> Iterator[Declaration]:
    """Parse a conda package, such as `conda-forge::onnxruntime >=1.17,<2` or `onnxruntime=1.18.1=py311_0`."""
    match = re.fullmatch(r"(?:.*::)?([\w.-]+)\s*(.*)", text)
    package = canonicalize_name(match[1]) if match else ""
    if match is None or package not in PACKAGES:
        return
    version, *_build = re.sub(r"\s*([,<>=!~|]+)\s*", r"\1", match[2]).split() or [""]
    if with_build := re.fullmatch(r"(={0,2}[^=<>!~,]+)=[^=,]+", version):
        version = with_build[1]
    yield Declaration(package, version, line, convert_conda_version, is_conda=True)
