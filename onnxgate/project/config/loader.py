"""Find and load the config: `onnxgate.toml`, or `[tool.onnxgate]` of a `pyproject.toml`; all problems are collected."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from packaging.specifiers import SpecifierSet

from onnxgate import __version__
from onnxgate.core.errors import ConfigError, locate_errors
from onnxgate.core.files import open_regular
from onnxgate.core.report import ConfiguredName, SharedNames
from onnxgate.core.text import join_quoted, lower_first, suggest_spelling, truncate
from onnxgate.project.config.globs import matches
from onnxgate.project.config.project import Project
from onnxgate.project.config.schema import Config, Conversion, Problem, Tolerance
from onnxgate.project.config.validation import Validation
from onnxgate.project.engines import specifier_problem
from onnxgate.project.git.repository import find_git_root
from onnxgate.project.toml import (
    Keys,
    TOMLDecodeError,
    decode,
    find_error_line,
    find_key_lines,
    find_nearest_line,
    format_key_path,
    loads,
)

CONFIG_NAME = "onnxgate.toml"
PYPROJECT = "pyproject.toml"
MAX_PROBLEMS = 100
MAX_SEARCHED_FOLDERS = 10_000
MAX_SEARCHED_PER_LEVEL = 2_000
"""Limits of the search for nested projects; the second one is per level of folders."""
_SKIPPED_FOLDERS = ("node_modules", "site-packages")
MAX_LINE_LENGTH = 100
"""Maximum length of the invalid line in an error message."""


def find_config(start: Path) -> Path | None:
    """Return the nearest config in `start` or its parents, up to the repository root; None if there is none."""
    start = start.absolute()
    root = find_git_root(start)
    for folder in (start, *start.parents):
        if (folder / CONFIG_NAME).is_file():
            return folder / CONFIG_NAME
        if _has_config(folder / PYPROJECT):
            return folder / PYPROJECT
        if folder == root:
            break
    return None


def find_configs_below(folder: Path) -> list[Path]:
    """Return the configs in subfolders, except those in hidden folders, npm folders and virtual environments.

    The folder may be a whole file system, so the number of searched folders is limited, in all and per level. So that
    folders of data do not hide a project next to them, names that end in a digit come last in each level, and the first
    subfolders of all folders come before their second ones.
    """
    configs: list[Path] = []
    level, searched = [folder.absolute()], 0
    while level and searched < MAX_SEARCHED_FOLDERS:
        rows = itertools.zip_longest(*map(_list_subfolders, level))
        subfolders = (it for row in rows for it in row if it is not None)
        level = sorted(subfolders, key=_count_numbered)[:MAX_SEARCHED_PER_LEVEL]
        searched += len(level)
        for parent in level:
            if os.path.isfile(parent / CONFIG_NAME):  # noqa: PTH113 - no error if the folder is not readable
                configs.append(parent / CONFIG_NAME)
            elif _has_config(parent / PYPROJECT):
                configs.append(parent / PYPROJECT)
    return sorted(configs)


def _list_subfolders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(it.name for it in entries if it.is_dir(follow_symlinks=False))
    except OSError:
        return []
    return [folder / name for name in names if not name.startswith(".") and name not in _SKIPPED_FOLDERS]


def _count_numbered(folder: Path) -> int:
    return sum(name[-1].isdigit() for name in folder.parts)


def _has_config(path: Path) -> bool:
    try:
        with open_regular(path) as file:
            return has_table(file.read())
    except OSError:
        return False


def has_table(data: bytes) -> bool:
    """Return whether a `pyproject.toml` has a table for onnxgate; if the file is invalid, whether it mentions one."""
    if b"onnxgate" not in data:
        return False
    try:
        tool = loads(decode(data)).get("tool", {})
    except (TOMLDecodeError, UnicodeDecodeError):
        return b"[tool.onnxgate" in data
    return isinstance(tool, dict) and "onnxgate" in tool


def load_config(path: Path, *, rule_ids: Collection[str] | None = None) -> Project:
    """
    Return the project of one config file. `rule_ids` are the existing rules; with None, rule names are not checked.

    Raises:
        ConfigError: the file is not a valid config; `problems` lists all errors.
    """
    path = path.absolute()
    with locate_errors(path):
        return _load(path, rule_ids)


def _load(path: Path, rule_ids: Collection[str] | None) -> Project:
    text = _read_text(path)
    prefix = _find_prefix(path.name)
    try:
        raw: Any = loads(text)
    except TOMLDecodeError as error:
        line = find_error_line(error, text)
        raise ConfigError(
            f"`{_shown_name(path)}` is not valid TOML", problems=(describe_syntax_error(error, text),), lines=(line,)
        ) from error
    for key in prefix:
        raw = raw.get(key) if isinstance(raw, dict) else None
    if not isinstance(raw, dict):
        raise ConfigError(f"`{_shown_name(path)}` has no `[{'.'.join(prefix)}]` table")
    lines = find_key_lines(text)
    _check_required_version(raw, path, lines.get((*prefix, "required-version"), 0))
    folder = path.parent
    root = find_git_root(folder) or folder
    targets = raw.get("targets", {})
    names = tuple(targets) if isinstance(targets, dict) else ()
    conversion = Conversion(Validation(folder, root, names, rule_ids).check)
    config = conversion.table(raw, Config)
    problems = conversion.problems
    is_misspelled = any(problem.text.endswith("did you mean `targets`?") for problem in problems)
    if targets == {} and not is_misspelled:  # no model would be checked on any runtime
        example = f'`[{format_key_path((*prefix, "targets", "cpu"))}]` with `runtime = "onnxruntime>=1.18"`'
        problems.append(Problem(("targets",), f"no targets are set; add a target, for example {example}"))
    if config is None or problems:
        raise _config_error(path, problems, lines, prefix)
    return Project(path=path, folder=folder, root=root, config=config, lines=lines, prefix=prefix)


def parse_config(text: str, name: str) -> Config | None:
    """Return the config in the text of a file with this name, without checks that need other files; None if invalid."""
    try:
        raw: Any = loads(text)
    except TOMLDecodeError:
        return None
    for key in _find_prefix(name):
        raw = raw.get(key) if isinstance(raw, dict) else None
    conversion = Conversion(lambda _table, _keys: iter(()))
    config = conversion.table(raw, Config) if isinstance(raw, dict) else None
    return None if conversion.problems else config


def _find_prefix(name: str) -> Keys:
    return ("tool", "onnxgate") if name == PYPROJECT else ()


def _shown_name(path: Path) -> str:
    """Return the path of a config below the working directory, which may have its own config; otherwise its name."""
    try:
        current = Path.cwd()
    except OSError:  # the working directory was removed
        return path.name
    return path.relative_to(current).as_posix() if path.is_relative_to(current) else path.name


def _read_text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        hint = f"check its permissions: `ls -l {path.name}`"
        raise ConfigError(
            f"cannot read `{_shown_name(path)}`: {lower_first(error.strerror or str(error))}", hint=hint
        ) from error
    try:
        return decode(data)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = f"line {line}: expected UTF-8, got the byte 0x{data[error.start]:02x}"
        raise ConfigError(f"`{_shown_name(path)}` is not valid", problems=(problem,), lines=(line,)) from error


def describe_syntax_error(error: TOMLDecodeError, text: str) -> str:
    """Describe a TOML syntax error. The description begins with the line number and ends with the text of the line."""
    message, number = str(error), find_error_line(error, text)
    if place := re.search(r" \(at line \d+, column (\d+)\)$", message):
        line = text.split("\n")[number - 1].strip()
        shown = f": `{truncate(line, MAX_LINE_LENGTH)}`" if line else ""
        return f"line {number}, column {place[1]}: {lower_first(message[: place.start()])}{shown}"
    return f"line {number}: {lower_first(message.removesuffix(' (at end of document)'))}"


def _check_required_version(raw: Mapping[str, Any], path: Path, line: int) -> None:
    """Raise an error if the config requires a different release of onnxgate; called before other keys are read."""
    required = raw.get("required-version")
    if not isinstance(required, str):
        return  # a wrong type is reported with the other problems
    if problem := specifier_problem(required):
        problems = (f"`required-version`: {problem}",)
        raise ConfigError(f"`{_shown_name(path)}` is not valid", problems=problems, lines=(line,))
    if not SpecifierSet(required).contains(__version__, prereleases=True):
        raise ConfigError(
            f"`{_shown_name(path)}` requires onnxgate `{required}`; this is onnxgate {__version__}",
            line=line,
            hint=f'run `pip install "onnxgate{required}"`; in GitHub Actions, change the release in `uses`',
        )


def _config_error(path: Path, problems: Iterable[Problem], lines: Mapping[Keys, int], prefix: Keys) -> ConfigError:
    located = []
    for problem in problems:
        keys = (*prefix, *problem.keys)
        below = (line for key, line in lines.items() if key[: len(keys)] == keys)  # `[target.cpu]` for `target`
        line = find_nearest_line(lines, keys) or next(below, 0)
        where = f"line {line}: " if line else ""
        located.append((line, f"{where}`{format_key_path(keys)}`: {problem.text}"))
    located.sort(key=lambda item: item[0])
    count = "1 problem" if len(located) == 1 else f"{len(located)} problems"
    if len(located) > MAX_PROBLEMS:
        located[MAX_PROBLEMS:] = [(0, f"and {len(located) - MAX_PROBLEMS} more")]
    ordered_lines, ordered = zip(*located, strict=True)
    return ConfigError(f"`{_shown_name(path)}` has {count}", problems=ordered, lines=ordered_lines)


UNKNOWN_NAME_FIX = "correct the name, or remove the setting, which has no effect"
"""Hint for the name of an axis or output that does not exist in any model."""


class ModelNames(msgspec.Struct, frozen=True):
    """The names of one model's dynamic axes (`x[1]` if unnamed) and of its outputs."""

    axes: Collection[str]
    outputs: Collection[str]


def find_unknown_names(project: Project, known: Mapping[str, ModelNames]) -> tuple[tuple[str, str], ...]:
    """
    Return the models concerned and a problem for each unknown name in `sizes` or `tolerance` of a `[[model]]` entry.

    A name is unknown if none of the models that the entry matches has it.

    `known` maps model paths to their names. A `[[model]]` entry is not checked if it matches a model that is not in
    `known`, because that model may have the name.
    """
    entries = collect_entry_names(project, known, [model.path for model in project.models()])
    return tuple(pair for entry in entries for pair in describe_unknown_names(entry))


def describe_unknown_names(entry: SharedNames) -> Iterator[tuple[str, str]]:
    """Yield each model and a problem for each configured name that none of the models has.

    If a model is unreadable, yield nothing.
    """
    for configured in entry.configured if entry.whole else ():
        names = sorted(set(entry.axes if configured.kind == "dynamic axis" else entry.outputs))
        if configured.name not in names:
            near = suggest_spelling(configured.name, names) or (
                f"; expected one of {join_quoted(names)}" if names else ""
            )
            problem = f"{configured.where}: no {configured.kind} is named `{configured.name}`{near}"
            yield from ((model, problem) for model in entry.models)


def collect_entry_names(
    project: Project, known: Mapping[str, ModelNames], paths: Collection[str]
) -> tuple[SharedNames, ...]:
    """Return the names in each `[[model]]` entry, and the names that the matching models of `paths` have."""
    entries = []
    for index, entry in enumerate(project.config.model):
        matched = [path for path in paths if matches(entry.path, path)]
        read = [known[path] for path in matched if path in known]
        names = SharedNames(
            configured=tuple(_configured_names(project, index)),
            axes=tuple(sorted({name for model in read for name in model.axes})),
            outputs=tuple(sorted({name for model in read for name in model.outputs})),
            whole=len(read) == len(matched),
            models=tuple(matched),
        )
        entries.append(names)
    return tuple(entries)


def _configured_names(project: Project, index: int) -> Iterator[ConfiguredName]:
    entry = project.config.model[index]
    names = [("sizes", name) for name in entry.sizes or ()]
    names += [("tolerance", name) for name, value in (entry.tolerance or {}).items() if isinstance(value, Tolerance)]
    for table, name in names:
        keys = ("model", str(index), table, name)
        where = f"{project.path.name}:{project.place(*keys).line}: `{format_key_path((*project.prefix, *keys))}`"
        yield ConfiguredName(where=where, kind="dynamic axis" if table == "sizes" else "output", name=name)
