"""Which files are the project's models, and which of them the paths of a command line mean."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from onnxgate.config.discovery import find_root
from onnxgate.config.globs import covers, is_glob, literal_folder, matches
from onnxgate.config.lines import key_path
from onnxgate.config.spelling import nearest
from onnxgate.config.types import ModelSettings
from onnxgate.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from onnxgate.config.project import Project, SelectedModel

SUFFIX = ".onnx"
GIT_TIMEOUT_S = 120
Missing = tuple[str, ModelSettings | None]  # a path that the config names, and its `[[model]]` entry if it has one


def list_models(project: Project) -> tuple[str, ...]:
    """Paths of the project's models, sorted: what `models` names, else what git tracks, less `exclude`.

    Raises:
        ConfigError: the name of one cannot be written into a lock or a report.
    """
    patterns, folder = project.config.models, project.folder
    found = _tracked(folder) if patterns is None else {path for each in patterns for path in _expand(each, folder)}
    models = tuple(sorted(path for path in found if not _is_excluded(path, project.config.exclude)))
    for path in models:
        if not is_text(path):
            raise ConfigError(f"the name of `{path}` is not UTF-8", hint=_way_out())
    return models


def is_text(path: str) -> bool:
    """Whether a path is text; bytes of a file's name that are none are surrogates in it."""
    return not any("\ud800" <= character <= "\udfff" for character in path)


def _is_excluded(path: str, patterns: Iterable[str]) -> bool:
    return any(covers(pattern, path) for pattern in patterns)


def _expand(pattern: str, folder: Path) -> Iterator[str]:
    """The files that one entry of `models` means: a file, a folder of models, a glob."""
    pattern = pattern.removeprefix("./").rstrip("/")
    if not is_glob(pattern):
        if (folder / pattern).is_dir():
            yield from _expand(f"{pattern}/**/*{SUFFIX}", folder)
        elif _is_there(folder / pattern):
            yield pattern
        return
    any_kind = not pattern.endswith("*")  # "models/**" means the models in there, not their data
    for path in _files(folder, literal_folder(pattern)):
        if matches(pattern, path) and (any_kind or path.endswith(SUFFIX)):
            yield path


def _tracked(folder: Path) -> set[str]:
    """Every model that git tracks below the folder; without git, every model that is in no hidden folder."""
    listed = _ask_git(folder) if find_root(folder) else None
    if listed is None:
        return {path for path in _files(folder, "") if path.endswith(SUFFIX)}
    return {path for path in listed if _is_there(folder / path)}


def _ask_git(folder: Path) -> list[str] | None:
    """What `git ls-files` says, None where git cannot be asked."""
    # A checkout may belong to another user (containers), and its own settings may name programs to run.
    safe = ("-c", "safe.directory=*", "-c", "core.fsmonitor=false")
    command = ["git", *safe, "ls-files", "-z", "--", f"*{SUFFIX}"]
    try:
        answer = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            check=True,
            stdin=subprocess.DEVNULL,
            timeout=GIT_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return [os.fsdecode(name) for name in answer.stdout.split(b"\0") if name]


def _files(folder: Path, below: str) -> Iterator[str]:
    for here, folders, names in os.walk(folder / below):
        folders[:] = [name for name in folders if not name.startswith(".")]
        relative = Path(here).relative_to(folder)
        yield from ((relative / name).as_posix() for name in names)


def _is_there(path: Path) -> bool:
    """A file, or a link whatever it leads to: a broken one is a model that is broken."""
    return path.is_symlink() or path.is_file()


def _way_out() -> str:
    if sys.getfilesystemencoding() != "utf-8":
        return "have Python read names as UTF-8: `PYTHONUTF8=1`"
    return "rename it, or name it in `exclude`"


def missing_models(project: Project, listing: Collection[str]) -> list[Missing]:
    """Paths that the config names, no globs, and that are not among the project's models."""
    named: list[Missing] = [(path, None) for path in project.config.models or ()]
    named += [(entry.path, entry) for entry in project.config.model]
    plain = [(path.removeprefix("./"), entry) for path, entry in named if not is_glob(path)]
    return [each for each in plain if each[0] not in listing and not _is_folder_of_models(*each, project)]


def _is_folder_of_models(path: str, entry: ModelSettings | None, project: Project) -> bool:
    return entry is None and (project.folder / path).is_dir()


def refuse_missing(missing: Sequence[Missing], project: Project, listing: Collection[str]) -> None:
    """Raise where the config names a model that the project does not have, or where it has none at all."""
    wrong = [(path, entry) for path, entry in missing if not _excluded_on_purpose(path, entry, project)]
    problems = (*(_why_missing(path, entry, project) for path, entry in wrong), *_dead_globs(project, listing))
    name = project.path.name
    if problems:
        raise ConfigError(f"`{name}` names models that are not there", problems=problems)
    if not listing:
        hint = 'track one with `git add`, or name them: `models = ["models/**/*.onnx"]`'
        raise ConfigError(f"`{name}` has no models to judge", hint=hint)


def _dead_globs(project: Project, listing: Collection[str]) -> Iterator[str]:
    """Globs that match nothing: what they were meant for would be left out, or left to the defaults, unseen."""
    if not listing:
        return  # that is what has to be said then
    for pattern in project.config.models or ():
        found = any(_expand(pattern, project.folder)) or any(matches(pattern, path) for path in listing)
        if is_glob(pattern) and not found:
            yield _said(pattern, None, "it matches no file" + _near_glob(pattern, listing), project)
    for entry in project.config.model:
        if is_glob(entry.path) and not any(matches(entry.path, path) for path in listing):
            yield _said(entry.path, entry, "no model matches it" + _near_glob(entry.path, listing), project)


def _near_glob(pattern: str, listing: Collection[str]) -> str:
    name = pattern.rpartition("/")[2]
    moved = sorted({str(PurePosixPath(path).with_name(name)) for path in listing})
    return nearest(pattern, [each for each in moved if any(matches(each, path) for path in listing)] or sorted(listing))


def _excluded_on_purpose(path: str, entry: ModelSettings | None, project: Project) -> bool:
    return entry is None and _is_excluded(path, project.config.exclude)


def _why_missing(path: str, entry: ModelSettings | None, project: Project) -> str:
    if (project.folder / path).is_dir():
        why = "it is a folder; expected a model or a glob"
    elif not _is_there(project.folder / path):
        why = "there is no such file"
    elif _is_excluded(path, project.config.exclude):
        why = "`exclude` takes it out"
    elif project.config.models is not None:
        why = "`models` does not have it"
    else:
        why = "git does not track it; run `git add`, or name it in `models`"
    return _said(path, entry, why, project)


def _said(path: str, entry: ModelSettings | None, why: str, project: Project) -> str:
    keys = _keys_of(path.removeprefix("./"), entry, project)
    return f"line {project.place(*keys).line}: `{key_path((*project.prefix, *keys))}`: `{path}`: {why}"


def _keys_of(path: str, entry: ModelSettings | None, project: Project) -> tuple[str, ...]:
    if entry is not None:
        return ("model", str(project.config.model.index(entry)), "path")
    named = [each.removeprefix("./") for each in project.config.models or ()]
    return ("models", str(named.index(path)))


def narrowed(
    models: Sequence[SelectedModel], paths: Sequence[str], base: Path, project: Project
) -> tuple[SelectedModel, ...]:
    """The models that the paths mean. A path that is there and means none is out of scope, unless it is a model."""
    files = [Path(os.path.normpath(base / path)) for path in paths]
    to_be = {model.absolute for model in models}  # one that is not exported yet is no file
    absent = [path for path, file in zip(paths, files, strict=True) if not os.path.lexists(file) and file not in to_be]
    if absent:
        raise UsageError(f"there is no file or folder `{'`, `'.join(absent)}`")
    meant = {file: [model.path for model in _meant(file, models, project)] for file in files}
    for path, file in zip(paths, files, strict=True):
        if not meant[file]:
            _refuse_stranger(path, file, project)
    chosen = {path for found in meant.values() for path in found}
    return tuple(model for model in models if model.path in chosen)


def _refuse_stranger(path: str, file: Path, project: Project) -> None:
    """Raise where a model is asked for that the project does not have: to pass it by would look like a pass."""
    if file.suffix != SUFFIX or file.is_dir():
        return
    wrong = f"`{path}` is no model of this project"
    inside = _inside(file, project.folder) or _inside(_followed(file), _followed(project.folder))
    if not inside:
        hint = "run onnxgate in that model's own project, or limit the hook's `files` to the folder"
        raise UsageError(f"{wrong}: it lies outside of the folder of `{project.path.name}`", hint=hint)
    if _is_excluded(inside, project.config.exclude):
        return
    if project.config.models is not None:
        raise UsageError(f"{wrong}: no glob of `models` matches it", hint="add it to `models`, or to `exclude`")
    if find_root(project.folder):
        raise UsageError(f"{wrong}: git does not track it", hint=f"`git add {inside}` first, or name it in `models`")
    raise UsageError(f"{wrong}: it lies in a hidden folder", hint="name it in `models`")


def _inside(file: Path, folder: Path) -> str:
    return file.relative_to(folder).as_posix() if file.is_relative_to(folder) else ""


def _meant(file: Path, models: Sequence[SelectedModel], project: Project) -> Iterable[SelectedModel]:
    real = _followed(file)
    if real in (_followed(project.path), _followed(project.lock_path)):
        return models  # what they say concerns every model
    if file.is_dir():
        return [model for model in models if model.absolute.is_relative_to(file) or _real(model).is_relative_to(real)]
    same = [model for model in models if model.absolute == file or _real(model) == real]
    if same:
        return same
    return [model for model in models if _is_source(real, model, project) or _is_data(real, model)]


def _real(model: SelectedModel) -> Path:
    return _followed(model.absolute)


def _followed(path: Path) -> Path:
    """Where a path leads; one whose links go round in a ring leads nowhere, and is no fault of ours."""
    return Path(os.path.realpath(path))


def _is_source(file: Path, model: SelectedModel, project: Project) -> bool:
    source, command = model.settings.source, model.settings.command or ()
    named = (*((source.rpartition(":")[0],) if source else ()), *command)
    return any(_followed(project.folder / name) == file for name in named if name)


def _is_data(file: Path, model: SelectedModel) -> bool:
    """Whether the model may keep tensors in the file: it lies beside or below it, and the model has its name inside."""
    real = _real(model)
    return file.is_relative_to(real.parent) and real.is_file() and _mentions(real, os.fsencode(file.name))


def _mentions(path: Path, name: bytes) -> bool:
    """Whether a file has some bytes anywhere; a location of external data stands in a model as plain text."""
    if not path.stat().st_size:
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(name) >= 0
