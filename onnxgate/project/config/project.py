"""A repository as its config describes it: which models there are, and what is asked of each."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from onnxgate.core.errors import ConfigError, UsageError
from onnxgate.core.findings import Place
from onnxgate.core.spelling import suggest_spelling
from onnxgate.project.config.discovery import find_git_root
from onnxgate.project.config.globs import covers, is_glob, literal_folder, matches
from onnxgate.project.config.schema import Budget, Config, ModelSettings, Tolerance
from onnxgate.project.toml import Keys, find_nearest_line, format_key_path

LOCK_NAME = "onnxgate.lock"


@dataclass(frozen=True, slots=True)
class MergedSettings:
    """All `[[model]]` entries that match one model, a later one over an earlier one, key by key."""

    targets: tuple[str, ...] = ()  # all targets of the config where no entry names some
    source: str | None = None
    command: tuple[str, ...] | None = None
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    inputs: str | None = None
    tolerance: Mapping[str, float | Tolerance] = field(default_factory=dict)
    quantized_from: str | None = None  # relative to the config's folder
    budget: Budget | None = None

    @property
    def is_exported(self) -> bool:
        """Whether the config says what the model is made from."""
        return self.source is not None or self.command is not None

    @property
    def called_inputs(self) -> str | None:
        """The callable that gives the inputs, `samples.py:batches`; None where files do, or nothing."""
        return self.inputs if ".py:" in (self.inputs or "") else None

    def tolerance_of(self, output: str) -> Tolerance | None:
        """The tolerance that the config gives one output; None where it gives none."""
        own = self.tolerance.get(output)
        if isinstance(own, Tolerance):
            return own
        rtol, atol = self.tolerance.get("rtol"), self.tolerance.get("atol")
        if isinstance(rtol, float) and isinstance(atol, float):
            return Tolerance(rtol=rtol, atol=atol)
        return None


@dataclass(frozen=True, slots=True)
class SelectedModel:
    """One model of the project. `path` is relative to the config's folder, with `/`."""

    path: str
    absolute: Path
    settings: MergedSettings
    place: Place  # its entry in the config, else the file


@dataclass(slots=True)
class Project:
    """A loaded config and where it lies. What lies in its folder is looked at once."""

    path: Path  # the config's file, absolute
    folder: Path
    root: Path  # git's root, else the folder
    config: Config
    lines: Mapping[Keys, int]
    prefix: Keys = ()  # the table of the file that is ours: `tool`, `onnxgate`
    _listing: tuple[str, ...] | None = field(default=None, repr=False, compare=False)

    @property
    def lock_path(self) -> Path:
        """Where the lock lies: beside the config."""
        return self.folder / LOCK_NAME

    def place(self, *keys: str) -> Place:
        """The line of a key, else of its nearest parent; an entry of `[[model]]` is named by its index."""
        return Place(self.path.name, find_nearest_line(self.lines, (*self.prefix, *keys)))

    def models(
        self, paths: Sequence[str] = (), *, base: Path | None = None, absent: bool = False
    ) -> tuple[SelectedModel, ...]:
        """
        The project's models, by path; with `paths`, those that these mean: a model, its data, a folder, its source.

        `paths` are relative to `base` (default: the working directory). One that is there but means no model of the
        project is out of scope and no error, unless it is a model that `exclude` does not take out. `absent` adds
        models that the config names and says how to export, and that are not there yet.

        Raises:
            UsageError: one of the paths is not there, or is a model that is none of the project's.
            ConfigError: the config names models that are not there, or the project has no model at all.
        """
        # REMAP-EMPTY

        if self._listing is None:
            self._listing = list_models(self)
        missing = find_missing_models(self, self._listing)
        listing = {*self._listing, *(name for name, entry in missing if absent and _is_exportable(entry))}
        check_none_missing([each for each in missing if each[0] not in listing], self, listing)
        models = tuple(self.selected(path) for path in sorted(listing))
        return select_by_paths(models, paths, base or Path.cwd(), self) if paths else models

    def selected(self, path: str) -> SelectedModel:
        """One path as a model, with its settings."""
        entries = [(index, entry) for index, entry in enumerate(self.config.model) if matches(entry.path, path)]
        place = self.place("model", str(entries[-1][0]), "path") if entries else Place(path)
        settings = merge_settings((entry for _, entry in entries), tuple(self.config.targets))
        return SelectedModel(path, self.folder / path, settings, place)


def merge_settings(entries: Iterable[ModelSettings], targets: tuple[str, ...]) -> MergedSettings:
    """Entries in their order as one; `sizes` and `tolerance` are merged key by key."""
    source, command, inputs, quantized_from = None, None, None, None
    budget: Budget | None = None
    sizes: dict[str, tuple[int, ...]] = {}
    tolerance: dict[str, float | Tolerance] = {}
    for entry in entries:
        targets = targets if entry.targets is None else entry.targets
        source = source if entry.source is None else entry.source
        command = command if entry.command is None else entry.command
        inputs = inputs if entry.inputs is None else entry.inputs
        quantized_from = quantized_from if entry.quantized_from is None else entry.quantized_from
        budget = budget if entry.budget is None else entry.budget
        sizes |= entry.sizes or {}
        tolerance |= entry.tolerance or {}
    return MergedSettings(targets, source, command, sizes, inputs, tolerance, quantized_from, budget)


def _is_exportable(entry: ModelSettings | None) -> bool:
    return entry is not None and (entry.source is not None or entry.command is not None)


MODEL_SUFFIX = ".onnx"
GIT_TIMEOUT_S = 120
MissingModel = tuple[str, ModelSettings | None]  # a path that the config names, and its `[[model]]` entry if it has one


def list_models(project: Project) -> tuple[str, ...]:
    """Paths of the project's models, sorted: what `models` names, else what git tracks, less `exclude`.

    Raises:
        ConfigError: the name of one cannot be written into a lock or a report.
    """
    patterns, folder = project.config.models, project.folder
    found = (
        _find_tracked_models(folder)
        if patterns is None
        else {path for pattern in patterns for path in _expand_pattern(pattern, folder)}
    )
    models = tuple(sorted(path for path in found if not _is_excluded(path, project.config.exclude)))
    for path in models:
        if not is_utf8_name(path):
            raise ConfigError(f"the name of `{path}` is not UTF-8", hint=_encoding_hint())
    return models


def is_utf8_name(path: str) -> bool:
    """Whether a path is text; bytes of a file's name that are none are surrogates in it."""
    return not any("\ud800" <= character <= "\udfff" for character in path)


def _is_excluded(path: str, patterns: Iterable[str]) -> bool:
    return any(covers(pattern, path) for pattern in patterns)


def _expand_pattern(pattern: str, folder: Path) -> Iterator[str]:
    """The files that one entry of `models` means: a file, a folder of models, a glob."""
    pattern = pattern.removeprefix("./").rstrip("/")
    if not is_glob(pattern):
        if (folder / pattern).is_dir():
            yield from _expand_pattern(f"{pattern}/**/*{MODEL_SUFFIX}", folder)
        elif _exists(folder / pattern):
            yield pattern
        return
    any_kind = not pattern.endswith("*")  # "models/**" means the models in there, not their data
    for path in _find_files(folder, literal_folder(pattern)):
        if matches(pattern, path) and (any_kind or path.endswith(MODEL_SUFFIX)):
            yield path


def _find_tracked_models(folder: Path) -> set[str]:
    """Every model that git tracks below the folder; without git, every model that is in no hidden folder."""
    listed = _list_tracked_files(folder) if find_git_root(folder) else None
    if listed is None:
        return {path for path in _find_files(folder, "") if path.endswith(MODEL_SUFFIX)}
    return {path for path in listed if _exists(folder / path)}


def _list_tracked_files(folder: Path) -> list[str] | None:
    """What `git ls-files` says, None where git cannot be asked."""
    # A checkout may belong to another user (containers), and its own settings may name programs to run.
    safe = ("-c", "safe.directory=*", "-c", "core.fsmonitor=false")
    command = ["git", *safe, "ls-files", "-z", "--", f"*{MODEL_SUFFIX}"]
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


def _find_files(folder: Path, below: str) -> Iterator[str]:
    for here, folders, names in os.walk(folder / below):
        folders[:] = [name for name in folders if not name.startswith(".")]
        relative = Path(here).relative_to(folder)
        yield from ((relative / name).as_posix() for name in names)


def _exists(path: Path) -> bool:
    """A file, or a link whatever it leads to: a broken one is a model that is broken."""
    return path.is_symlink() or path.is_file()


def _encoding_hint() -> str:
    if sys.getfilesystemencoding() != "utf-8":
        return "have Python read names as UTF-8: `PYTHONUTF8=1`"
    return "rename it, or name it in `exclude`"


def find_missing_models(project: Project, listing: Collection[str]) -> list[MissingModel]:
    """Paths that the config names, no globs, and that are not among the project's models."""
    named: list[MissingModel] = [(path, None) for path in project.config.models or ()]
    named += [(entry.path, entry) for entry in project.config.model]
    plain = [(path.removeprefix("./"), entry) for path, entry in named if not is_glob(path)]
    return [each for each in plain if each[0] not in listing and not _is_folder_of_models(*each, project)]


def _is_folder_of_models(path: str, entry: ModelSettings | None, project: Project) -> bool:
    return entry is None and (project.folder / path).is_dir()


def check_none_missing(missing: Sequence[MissingModel], project: Project, listing: Collection[str]) -> None:
    """Raise where the config names a model that the project does not have, or where it has none at all."""
    wrong = [(path, entry) for path, entry in missing if not _is_intentionally_excluded(path, entry, project)]
    problems = (
        *(_explain_missing(path, entry, project) for path, entry in wrong),
        *_find_unmatched_globs(project, listing),
    )
    name = project.path.name
    if problems:
        raise ConfigError(f"`{name}` names models that are not there", problems=problems)
    if not listing:
        hint = 'track one with `git add`, or name them: `models = ["models/**/*.onnx"]`'
        raise ConfigError(f"`{name}` has no models to judge", hint=hint)


def _find_unmatched_globs(project: Project, listing: Collection[str]) -> Iterator[str]:
    """Globs that match nothing: what they were meant for would be left out, or left to the defaults, unseen."""
    if not listing:
        return  # that is what has to be said then
    for pattern in project.config.models or ():
        found = any(_expand_pattern(pattern, project.folder)) or any(matches(pattern, path) for path in listing)
        if is_glob(pattern) and not found:
            yield _render_problem(pattern, None, "it matches no file" + _suggest_glob(pattern, listing), project)
    for entry in project.config.model:
        if is_glob(entry.path) and not any(matches(entry.path, path) for path in listing):
            yield _render_problem(
                entry.path, entry, "no model matches it" + _suggest_glob(entry.path, listing), project
            )


def _suggest_glob(pattern: str, listing: Collection[str]) -> str:
    name = pattern.rpartition("/")[2]
    moved = sorted({str(PurePosixPath(path).with_name(name)) for path in listing})
    return suggest_spelling(
        pattern, [each for each in moved if any(matches(each, path) for path in listing)] or sorted(listing)
    )


def _is_intentionally_excluded(path: str, entry: ModelSettings | None, project: Project) -> bool:
    return entry is None and _is_excluded(path, project.config.exclude)


def _explain_missing(path: str, entry: ModelSettings | None, project: Project) -> str:
    if (project.folder / path).is_dir():
        why = "it is a folder; expected a model or a glob"
    elif not _exists(project.folder / path):
        why = "there is no such file"
    elif _is_excluded(path, project.config.exclude):
        why = "`exclude` takes it out"
    elif project.config.models is not None:
        why = "`models` does not have it"
    else:
        why = "git does not track it; run `git add`, or name it in `models`"
    return _render_problem(path, entry, why, project)


def _render_problem(path: str, entry: ModelSettings | None, why: str, project: Project) -> str:
    keys = _config_keys(path.removeprefix("./"), entry, project)
    return f"line {project.place(*keys).line}: `{format_key_path((*project.prefix, *keys))}`: `{path}`: {why}"


def _config_keys(path: str, entry: ModelSettings | None, project: Project) -> tuple[str, ...]:
    if entry is not None:
        return ("model", str(project.config.model.index(entry)), "path")
    named = [model.removeprefix("./") for model in project.config.models or ()]
    return ("models", str(named.index(path)))


def select_by_paths(
    models: Sequence[SelectedModel], paths: Sequence[str], base: Path, project: Project
) -> tuple[SelectedModel, ...]:
    """The models that the paths mean. A path that is there and means none is out of scope, unless it is a model."""
    files = [Path(os.path.normpath(base / path)) for path in paths]
    to_be = {model.absolute for model in models}  # one that is not exported yet is no file
    absent = [path for path, file in zip(paths, files, strict=True) if not os.path.lexists(file) and file not in to_be]
    if absent:
        raise UsageError(f"there is no file or folder `{'`, `'.join(absent)}`")
    meant = {file: [model.path for model in _find_matching_models(file, models, project)] for file in files}
    for path, file in zip(paths, files, strict=True):
        if not meant[file]:
            _check_belongs_to_project(path, file, project)
    chosen = {path for found in meant.values() for path in found}
    return tuple(model for model in models if model.path in chosen)


def _check_belongs_to_project(path: str, file: Path, project: Project) -> None:
    """Raise where a model is asked for that the project does not have: to pass it by would look like a pass."""
    if file.suffix != MODEL_SUFFIX or file.is_dir():
        return
    wrong = f"`{path}` is no model of this project"
    inside = _relative_path(file, project.folder) or _relative_path(_resolve_path(file), _resolve_path(project.folder))
    if not inside:
        hint = "run onnxgate in that model's own project, or limit the hook's `files` to the folder"
        raise UsageError(f"{wrong}: it lies outside of the folder of `{project.path.name}`", hint=hint)
    if _is_excluded(inside, project.config.exclude):
        return
    if project.config.models is not None:
        raise UsageError(f"{wrong}: no glob of `models` matches it", hint="add it to `models`, or to `exclude`")
    if find_git_root(project.folder):
        raise UsageError(f"{wrong}: git does not track it", hint=f"`git add {inside}` first, or name it in `models`")
    raise UsageError(f"{wrong}: it lies in a hidden folder", hint="name it in `models`")


def _relative_path(file: Path, folder: Path) -> str:
    return file.relative_to(folder).as_posix() if file.is_relative_to(folder) else ""


def _find_matching_models(file: Path, models: Sequence[SelectedModel], project: Project) -> Iterable[SelectedModel]:
    real = _resolve_path(file)
    if real in (_resolve_path(project.path), _resolve_path(project.lock_path)):
        return models  # what they say concerns every model
    if file.is_dir():
        return [
            model
            for model in models
            if model.absolute.is_relative_to(file) or _resolve_model_path(model).is_relative_to(real)
        ]
    same = [model for model in models if model.absolute == file or _resolve_model_path(model) == real]
    if same:
        return same
    return [model for model in models if _is_source(real, model, project) or _is_data(real, model)]


def _resolve_model_path(model: SelectedModel) -> Path:
    return _resolve_path(model.absolute)


def _resolve_path(path: Path) -> Path:
    """Where a path leads; one whose links go round in a ring leads nowhere, and is no fault of ours."""
    return Path(os.path.realpath(path))


def _is_source(file: Path, model: SelectedModel, project: Project) -> bool:
    source, command = model.settings.source, model.settings.command or ()
    named = (*((source.rpartition(":")[0],) if source else ()), *command)
    return any(_resolve_path(project.folder / name) == file for name in named if name)


def _is_data(file: Path, model: SelectedModel) -> bool:
    """Whether the model may keep tensors in the file: it lies beside or below it, and the model has its name inside."""
    real = _resolve_model_path(model)
    return file.is_relative_to(real.parent) and real.is_file() and _contains_bytes(real, os.fsencode(file.name))


def _contains_bytes(path: Path, name: bytes) -> bool:
    """Whether a file has some bytes anywhere; a location of external data stands in a model as plain text."""
    if not path.stat().st_size:
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(name) >= 0
