"""Loads `onnxgate.toml`, or `[tool.onnxgate]` of a `pyproject.toml`; all that is wrong with it comes at once."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet

from onnxgate import __version__
from onnxgate.config.conversion import Conversion, Problem
from onnxgate.config.discovery import PYPROJECT, find_root
from onnxgate.config.lines import Keys, key_lines, key_path, nearest_line
from onnxgate.config.project import Project
from onnxgate.config.requirements import specifier_problem
from onnxgate.config.toml import TOMLDecodeError, decode, loads
from onnxgate.config.types import Config
from onnxgate.config.validation import Validation
from onnxgate.errors import ConfigError

PROBLEMS_SAID = 100


def load_config(path: Path, *, rule_ids: Collection[str] | None = None) -> Project:
    """
    The project of one config file. `rule_ids` are the rules that there are; None judges no names of rules.

    Raises:
        ConfigError: the file is no valid config; `problems` has everything that is wrong with it.
    """
    path = path.absolute()
    text = _read(path)
    prefix = ("tool", "onnxgate") if path.name == PYPROJECT else ()
    raw = _table(_parse(text, path), prefix, path)
    lines = key_lines(text)
    _hold_to_version(raw, path)
    folder = path.parent
    root = find_root(folder) or folder
    conversion = Conversion(Validation(folder, root, tuple(_names(raw.get("targets"))), rule_ids).check)
    config = conversion.table(raw, Config)
    problems = [*conversion.problems, *_nothing_promised(raw, prefix)]
    if config is None or problems:
        raise _refusal(path, problems, lines, prefix)
    return Project(path=path, folder=folder, root=root, config=config, lines=lines, prefix=prefix)


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        hint = f"see that whoever runs onnxgate may read it: `ls -l {path.name}`"
        raise ConfigError(f"`{path.name}` cannot be read: {error.strerror}", hint=hint) from error
    try:
        return decode(data)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = f"line {line}: expected UTF-8, got the byte 0x{data[error.start]:02x}"
        raise ConfigError(f"`{path.name}` is not valid", problems=(problem,)) from error


def _parse(text: str, path: Path) -> dict[str, Any]:
    try:
        return loads(text)
    except TOMLDecodeError as error:
        raise ConfigError(f"`{path.name}` is not valid", problems=(syntax_problem(error, text),)) from error


def syntax_problem(error: TOMLDecodeError, text: str) -> str:
    """A syntax error of TOML, line first."""
    words = str(error)
    if place := re.search(r" \(at line (\d+), column (\d+)\)$", words):
        return f"line {place[1]}, column {place[2]}: {_lowered(words[: place.start()])}"
    last_line = text.rstrip("\n").count("\n") + 1
    return f"line {last_line}: {_lowered(words.removesuffix(' (at end of document)'))}"


def _lowered(words: str) -> str:
    return words[:1].lower() + words[1:]


def _table(raw: Mapping[str, Any], prefix: Keys, path: Path) -> dict[str, Any]:
    table: Any = raw
    for key in prefix:
        table = table.get(key) if isinstance(table, dict) else None
    if not isinstance(table, dict):
        raise ConfigError(f"`{path.name}` has no table `[{'.'.join(prefix)}]`")
    return table


def _names(table: object) -> Iterable[str]:
    return table if isinstance(table, dict) else ()


def _nothing_promised(raw: Mapping[str, Any], prefix: Keys) -> Iterator[Problem]:
    """Without a target no model is loaded by anything, and a gate that passes would say nothing."""
    if raw.get("targets", {}) == {}:
        example = f'`[{key_path((*prefix, "targets", "cpu"))}]` with `runtime = "onnxruntime>=1.18"`'
        yield Problem(("targets",), f"nothing is promised: add a target, such as {example}")


def _hold_to_version(raw: Mapping[str, Any], path: Path) -> None:
    """Refuse to read any further what another onnxgate is meant to read."""
    required = raw.get("required-version")
    if not isinstance(required, str):
        return  # a wrong type is a problem like any other
    if problem := specifier_problem(required):
        raise ConfigError(f"`{path.name}` is not valid", problems=(f"`required-version`: {problem}",))
    if not SpecifierSet(required).contains(__version__, prereleases=True):
        raise ConfigError(
            f"`{path.name}` requires onnxgate `{required}`; this is onnxgate {__version__}",
            hint=f'install what it asks for: `pip install "onnxgate{required}"`',
        )


def _refusal(path: Path, problems: Iterable[Problem], lines: Mapping[Keys, int], prefix: Keys) -> ConfigError:
    said = []
    for problem in problems:
        keys = (*prefix, *problem.keys)
        line = nearest_line(lines, keys)
        where = f"line {line}: " if line else ""
        said.append((line, f"{where}`{key_path(keys)}`: {problem.text}"))
    ordered = [text for _, text in sorted(said, key=lambda each: each[0])]
    count = "1 problem" if len(ordered) == 1 else f"{len(ordered)} problems"
    if len(ordered) > PROBLEMS_SAID:
        ordered[PROBLEMS_SAID:] = [f"and {len(ordered) - PROBLEMS_SAID} more"]
    return ConfigError(f"`{path.name}` has {count}", problems=tuple(ordered))
