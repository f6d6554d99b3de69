"""A project as described by its config: the models and their settings."""

from __future__ import annotations

import glob
import mmap
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NoReturn

import msgspec

from onnxgate.core.errors import ConfigError, FileProblem, UsageError, locate_errors
from onnxgate.core.findings import Place
from onnxgate.core.text import find_similar, join_phrases, join_quoted, quote_path, suggest_spelling
from onnxgate.project.config.globs import covers, is_glob, literal_folder, matches
from onnxgate.project.config.schema import Budget, Config, ModelSettings, Tolerance, read_opset
from onnxgate.project.git.repository import find_git_root, is_ignored, read_git_output
from onnxgate.project.toml import Keys, find_nearest_line, format_key_path, quote_string

LOCK_NAME = "onnxgate.lock"
MAX_NAMED_PATHS = 5
PathSelection = Literal["selected", "ignored", "refused"]
"""Whether a path selects models, is ignored, or is an error; see `Project.models`."""
_GITLINK_MODE = "160000"
"""Mode of a submodule in git's index."""


class MergedSettings(msgspec.Struct, frozen=True):
    """The `[[model]]` entries that match one model, merged key by key; later entries win."""

    targets: tuple[str, ...] = ()  # all targets of the config unless an entry names some
    source: str | None = None
    command: tuple[str, ...] | None = None
    sizes: Mapping[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    inputs: str | None = None
    tolerance: Mapping[str, float | Tolerance] = msgspec.field(default_factory=dict)
    quantized_from: str | None = None  # relative to the config's folder
    budget: Budget | None = None
    opset: Mapping[str, int] = msgspec.field(default_factory=dict)  # without the opsets of the top level

    @property
    def is_exported(self) -> bool:
        """Return whether the config names the model's source."""
        return self.source is not None or self.command is not None

    @property
    def called_inputs(self) -> str | None:
        """The callable that returns the inputs, such as `samples.py:batches`; None if `inputs` is a glob or not set."""
        return self.inputs if ".py:" in (self.inputs or "") else None


class SelectedModel(msgspec.Struct, frozen=True):
    """One model of the project. `path` is relative to the config's folder, with `/`."""

    path: str
    absolute: Path
    settings: MergedSettings
    place: Place  # its entry in the config; the config file if there is no entry


@dataclass(slots=True)
class Project:
    """A loaded config and its folder. The folder is listed once."""

    path: Path  # the config's file, absolute
    folder: Path
    root: Path  # git's root; the folder if there is none
    config: Config
    lines: Mapping[Keys, int]
    prefix: Keys = ()  # onnxgate's table of the file: `tool`, `onnxgate`
    _listing: tuple[str, ...] | None = field(default=None, repr=False, compare=False)

    @property
    def lock_path(self) -> Path:
        """The path of the lock, in the config's folder."""
        return self.folder / LOCK_NAME

    def place(self, *keys: str) -> Place:
        """Return the line of a key or of its nearest parent; an entry of `[[model]]` is identified by its index."""
        return Place(self.path.name, find_nearest_line(self.lines, (*self.prefix, *keys)))

    def required_opset(self, model: SelectedModel) -> dict[str, int]:
        """Return the required opset of each domain for one model."""
        return {**read_opset(self.config.opset), **model.settings.opset}

    def place_opset(self, model: SelectedModel) -> Place:
        """Return the line that requires the opset of a model."""
        numbers = [number for number, it in enumerate(self.config.model) if it.opset and matches(it.path, model.path)]
        return self.place("model", str(numbers[-1]), "opset") if numbers else self.place("opset")

    def models(
        self, paths: Sequence[str] = (), *, base: Path | None = None, absent: bool = False
    ) -> tuple[SelectedModel, ...]:
        """
        Return the project's models, sorted by path. With `paths`, return only the models that these paths select.

        A path is a model, its external data, its source or a folder, relative to `base` (default: the working
        directory). A file that selects no model is ignored, since hooks pass all changed files; but a model must be in
        the project or match `exclude`. `absent` adds models that have not been exported yet (`unexported`).

        Raises:
            UsageError: a path does not exist, is a folder without models, or is a model outside the project.
            ConfigError: the config names models that do not exist, or the project has no model.
        """
        present, missing = self._find_models()
        exportable = {name for name, entry in missing if _is_exported(entry)}
        listing = {*present, *(exportable if absent else ())}
        # One failed export must not stop the check of the other models.
        tolerated = {model.path for model in self.unexported()} if present else set()
        wrong = [(name, entry) for name, entry in missing if name not in listing | tolerated]
        with locate_errors(self.path):
            check_none_missing(wrong, self, listing | tolerated)
        models = tuple(self.selected(path) for path in sorted(listing))
        return select_by_paths(models, paths, base or Path.cwd(), self) if paths else models

    def unexported(self) -> tuple[SelectedModel, ...]:
        """Return the models with a source or a command whose files do not exist, sorted by path."""
        _, missing = self._find_models()
        names = {name for name, entry in missing if _is_exported(entry)}
        return tuple(self.selected(name) for name in sorted(names) if not os.path.lexists(self.folder / name))

    def _find_models(self) -> tuple[tuple[str, ...], list[MissingModel]]:
        """Return the paths of the models, and the paths in the config that are not models."""
        if self._listing is None:
            self._listing = list_models(self)
        return self._listing, find_missing_models(self, self._listing)

    def classify_paths(self, paths: Sequence[str], *, base: Path) -> dict[str, PathSelection]:
        """
        Return whether each path selects models, including those that are not exported yet.

        Raises:
            ConfigError: the config names models that do not exist, or the project has no model.
        """
        files = {path: Path(os.path.normpath(base / path)) for path in paths}
        matching = _match_files(files.values(), self.models(absent=True), self)
        selections: dict[str, PathSelection] = {}
        for path, file in files.items():
            if matching[file]:
                selections[path] = "selected"
            elif not os.path.lexists(file) or _is_refused(file, self):
                selections[path] = "refused"
            else:
                selections[path] = "ignored"
        return selections

    def describe_excluded(self, paths: Sequence[str], *, base: Path | None = None) -> tuple[str, ...]:
        """Return a note that names the models among these paths that `exclude` matches: they are not selected."""
        start = base or Path.cwd()
        models = [path for path in paths if path.endswith(MODEL_SUFFIX)]
        inside = {path: _path_inside(Path(os.path.normpath(start / path)), self) for path in models}
        excluded = [f"`{path}`" for path, relative in inside.items() if relative and _is_excluded(relative, self)]
        verb = "is" if len(excluded) == 1 else "are"
        named = join_phrases(excluded, MAX_NAMED_PATHS)
        return (f"{named} {verb} excluded by `exclude` in `{self.path.name}`",) if excluded else ()

    def describe_untracked(self) -> str:
        """Return a note that names the models that git neither tracks nor ignores, which other clones lack."""
        if find_git_root(self.folder) is None:
            return ""
        arguments = ("ls-files", "--others", "--exclude-standard", "-z", "--", f"*{MODEL_SUFFIX}")
        listed = (read_git_output(self.folder, *arguments) or "").split("\0")
        untracked = [path for path in listed if path.endswith(MODEL_SUFFIX) and not _is_excluded(path, self)]
        if self.config.models is not None:
            untracked = [path for path in untracked if path in (self._listing or ())]
        if not untracked:
            return ""
        what = "is not tracked by git" if len(untracked) == 1 else "are not tracked by git"
        what += "" if self.config.models is not None else f" and {what.partition(' ')[0]} not checked"
        added = quote_path(untracked[0]) if len(untracked) == 1 else "PATH"
        return f"{join_phrases([f'`{it}`' for it in untracked], MAX_NAMED_PATHS)} {what}; run `git add {added}`"

    def selected(self, path: str) -> SelectedModel:
        """Return the model at a path, with its settings."""
        entries = [(index, entry) for index, entry in enumerate(self.config.model) if matches(entry.path, path)]
        place = self.place("model", str(entries[-1][0]), "path") if entries else Place(path)
        settings = merge_settings((entry for _, entry in entries), tuple(self.config.targets))
        return SelectedModel(path, self.folder / path, settings, place)


def _is_exported(entry: ModelSettings | None) -> bool:
    return entry is not None and (entry.source, entry.command) != (None, None)


def merge_settings(entries: Iterable[ModelSettings], targets: tuple[str, ...]) -> MergedSettings:
    """Merge entries in their order; `sizes`, `tolerance` and `opset` are merged key by key."""
    merged: dict[str, Any] = {"targets": targets}
    sizes: dict[str, tuple[int, ...]] = {}
    tolerance: dict[str, float | Tolerance] = {}
    opset: dict[str, int] = {}
    for entry in entries:
        for name in ("targets", "source", "command", "inputs", "quantized_from", "budget"):
            if (value := getattr(entry, name)) is not None:
                merged[name] = value
        sizes |= entry.sizes or {}
        tolerance |= entry.tolerance or {}
        opset |= read_opset(entry.opset)
    return MergedSettings(**merged, sizes=sizes, tolerance=tolerance, opset=opset)


MODEL_SUFFIX = ".onnx"
MissingModel = tuple[str, ModelSettings | None]  # a path that the config names, and its `[[model]]` entry if it has one


def list_models(project: Project) -> tuple[str, ...]:
    """
    Return the sorted paths of the models that `models` selects (default: tracked models) and `exclude` does not match.

    Raises:
        ConfigError: a file name cannot be written into a lock or a report.
    """
    patterns, folder = project.config.models, project.folder
    candidates = (
        _find_tracked_models(folder)
        if patterns is None
        else {path for pattern in patterns for path in _expand_pattern(pattern, folder)}
    )
    models = tuple(sorted(path for path in candidates if not _is_excluded(path, project)))
    for path in models:
        if not is_utf8_name(path):
            hint = "rename the file, or add it to `exclude`"
            if sys.getfilesystemencoding() != "utf-8":
                hint = "set `PYTHONUTF8=1`, so that Python reads file names as UTF-8"
            raise ConfigError(f"the file name `{path}` is not valid UTF-8", hint=hint)
    return models


def is_utf8_name(path: str) -> bool:
    """Return whether a path is valid UTF-8: Python represents other bytes as surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in path)


def selects(config: Config, name: str) -> bool:
    """Return whether a config selects a file as a model, by its path relative to the config's folder."""
    if name.startswith("../") or any(covers(pattern, name) for pattern in config.exclude):
        return False
    is_model = name.endswith(MODEL_SUFFIX)
    if config.models is None:
        return is_model
    for pattern in (pattern.removeprefix("./").rstrip("/") for pattern in config.models):
        if is_glob(pattern):
            if matches(pattern, name) and (is_model or not pattern.endswith("*")):
                return True
        elif name == pattern or (is_model and name.startswith(f"{pattern}/")):
            return True
    return False


def _is_excluded(path: str, project: Project) -> bool:
    return any(covers(pattern, path) for pattern in project.config.exclude)


def _expand_pattern(pattern: str, folder: Path) -> Iterator[str]:
    """Yield the files that one entry of `models` selects. The entry is a file, a folder of models or a glob."""
    pattern = pattern.removeprefix("./").rstrip("/")
    if not is_glob(pattern):
        if (folder / pattern).is_dir():
            yield from _expand_pattern(f"{pattern}/**/*{MODEL_SUFFIX}", folder)
        elif _exists(folder / pattern):
            yield pattern
        return
    any_kind = not pattern.endswith("*")  # "models/**" selects models, not their data
    for path in _find_files(folder, literal_folder(pattern)):
        if matches(pattern, path) and (any_kind or path.endswith(MODEL_SUFFIX)):
            yield path


def _find_tracked_models(folder: Path) -> set[str]:
    """Return the models that git tracks below the folder; if git fails, all models outside hidden folders."""
    arguments = ("ls-files", "-z", "--", f"*{MODEL_SUFFIX}")
    listed = read_git_output(folder, *arguments) if find_git_root(folder) else None
    if listed is None:
        return {path for path in _find_files(folder, "") if path.endswith(MODEL_SUFFIX)}
    return {path for path in listed.split("\0") if path and _exists(folder / path)}


def _find_files(folder: Path, below: str) -> Iterator[str]:
    for parent, folders, names in os.walk(folder / below):
        folders[:] = [name for name in folders if not name.startswith(".")]
        relative = Path(parent).relative_to(folder)
        yield from ((relative / name).as_posix() for name in names)


def _exists(path: Path) -> bool:
    """Return whether a path is a file or a link; a broken link is an invalid model."""
    return path.is_symlink() or path.is_file()


def find_missing_models(project: Project, listing: Collection[str]) -> list[MissingModel]:
    """Return the paths in the config (except globs) that are not models of the project."""
    named: list[MissingModel] = [(path, None) for path in project.config.models or ()]
    named += [(entry.path, entry) for entry in project.config.model]
    plain = [(path.removeprefix("./"), entry) for path, entry in named if not is_glob(path)]
    absent = [(path, entry) for path, entry in plain if path not in listing]
    return [(path, entry) for path, entry in absent if entry or not (project.folder / path).is_dir()]


def check_none_missing(missing: Sequence[MissingModel], project: Project, listing: Collection[str]) -> None:
    """Raise if the config refers to a model that is not in the project, or if the project has no models."""
    wrong = [(path, entry) for path, entry in missing if entry or not _is_excluded(path, project)]
    problems = (
        *(_explain_missing(path, entry, project, listing) for path, entry in wrong),
        *_find_unmatched_globs(project, listing),
    )
    name = project.path.name
    if problems:
        texts, lines = tuple(problem.text for problem in problems), tuple(problem.line for problem in problems)
        raise ConfigError(f"`{name}` refers to models that are not in the project", problems=texts, lines=lines)
    if not listing:
        advice = (_suggest_submodule_update(pattern, project) for pattern in project.config.models or ())
        if hint := next(filter(None, advice), ""):
            raise ConfigError(f"`{name}` selects no models, because a git submodule is not initialized", hint=hint)
        hint = 'add models to git with `git add`, or set `models = ["models/**/*.onnx"]`'
        raise ConfigError(f"`{name}` selects no models", hint=hint)


def _find_unmatched_globs(project: Project, listing: Collection[str]) -> Iterator[FileProblem]:
    """Yield a problem for each glob without a match. It may be a typo, which would silently skip models or settings."""
    if not listing:
        return  # a project without models is a separate error
    patterns = project.config.models or ()
    for pattern in patterns:
        if any(_expand_pattern(pattern, project.folder)) or any(matches(pattern, path) for path in listing):
            continue
        if is_glob(pattern):
            why = _suggest_submodule(pattern, project) or _suggest_glob(pattern, patterns, listing)
            yield _render_problem(pattern, None, f"matches no file{why}", project)
        elif (project.folder / pattern).is_dir() and (why := _suggest_submodule(pattern, project)):
            yield _render_problem(pattern, None, f"contains no model{why}", project)
    for entry in project.config.model:
        if is_glob(entry.path) and not any(matches(entry.path, path) for path in listing):
            entries = [it.path for it in project.config.model]
            why = _suggest_submodule(entry.path, project) or _suggest_glob(entry.path, entries, listing)
            yield _render_problem(entry.path, entry, f"matches no model{why}", project)


def _suggest_glob(pattern: str, used: Collection[str], listing: Collection[str]) -> str:
    """Return a suggestion for a glob without a match, which is not one of the globs that the config already uses."""
    name = pattern.rpartition("/")[2]
    moved = sorted({str(PurePosixPath(path).with_name(name)) for path in listing})
    globs = [glob for glob in moved if any(matches(glob, path) for path in listing)]
    present = {glob.removeprefix("./") for glob in used}
    return suggest_spelling(pattern, [glob for glob in globs or sorted(listing) if glob not in present])


def _suggest_submodule(pattern: str, project: Project) -> str:
    """Return a suggestion for a path or glob that needs a git submodule; "" if no submodule is missing."""
    update = _suggest_submodule_update(pattern, project)
    return f": the git submodule is not initialized; {update}" if update else ""


def _suggest_submodule_update(pattern: str, project: Project) -> str:
    """Return how to initialize the git submodule that contains a path or glob; "" if no submodule is missing.

    git creates an empty folder for a submodule if the repository is cloned without its submodules.
    """
    folder = literal_folder(pattern) if is_glob(pattern) else pattern
    parents = [PurePosixPath(folder), *PurePosixPath(folder).parents]
    missing = [str(path) for path in parents if path.name and not (project.folder / path / ".git").exists()]
    if not missing or find_git_root(project.folder) is None:
        return ""
    listed = read_git_output(project.folder, "ls-files", "--stage", "-z", "--", *(f":(literal){it}" for it in missing))
    for entry in (listed or "").split("\0"):
        details, _, path = entry.partition("\t")
        if details.startswith(f"{_GITLINK_MODE} ") and path in missing:
            return f"run `git submodule update --init {quote_path(path)}`"
    return ""


def _explain_missing(path: str, entry: ModelSettings | None, project: Project, listing: Collection[str]) -> FileProblem:
    if not _exists(project.folder / path) and (update := _suggest_submodule(path, project)):
        why = f"does not exist{update}"
    elif (project.folder / path).is_dir():
        why = "is a folder; expected a model or a glob"
    elif not _exists(project.folder / path):
        near = suggest_file(project.folder / path, path)
        why = f"does not exist; {near}" if near else "does not exist"
    elif _is_excluded(path, project):
        why = "is excluded by `exclude`"
    elif project.config.models is not None:
        why = "is not matched by `models`"
    else:
        file = project.folder / path
        why = "; ".join(_explain_outsider(file, file, project, listing))
    return _render_problem(path, entry, why, project)


def _render_problem(path: str, entry: ModelSettings | None, why: str, project: Project) -> FileProblem:
    keys: tuple[str, ...]
    if entry is not None:
        keys = ("model", str(project.config.model.index(entry)), "path")
    else:
        named = [model.removeprefix("./") for model in project.config.models or ()]
        keys = ("models", str(named.index(path.removeprefix("./"))))
    line = project.place(*keys).line
    return FileProblem(f"line {line}: `{format_key_path((*project.prefix, *keys))}`: `{path}` {why}", line)


def select_by_paths(
    models: Sequence[SelectedModel], paths: Sequence[str], base: Path, project: Project
) -> tuple[SelectedModel, ...]:
    """Return the models that the paths select. A file that selects no model is ignored, unless it is a model."""
    files = {path: Path(os.path.normpath(base / path)) for path in paths}
    to_be = {model.absolute for model in models}  # a model that is not exported yet does not exist
    absent = [path for path in paths if not os.path.lexists(files[path]) and files[path] not in to_be]
    if absent:
        problem = f"{join_quoted(absent)} {'does' if len(absent) == 1 else 'do'} not exist"
        inside = _path_inside(files[absent[0]], project)
        hint = inside and _suggest_submodule_update(inside, project)
        if inside in {model.path for model in project.unexported()}:
            hint = suggest_export_command(inside)
        raise UsageError(problem, hint=hint or suggest_file(files[absent[0]], absent[0]))
    matching = _match_files(files.values(), models, project)
    for path, file in files.items():
        if not matching[file] and _is_refused(file, project):
            _raise_outsider(path, file, project, [model.path for model in models])
    selected = {model.path for matches in matching.values() for model in matches}
    return tuple(model for model in models if model.path in selected)


def suggest_export_command(path: str) -> str:
    """Return a hint for a model that does not exist, although the config names its source."""
    return f"run `onnxgate export {quote_path(path)}`"


def suggest_file(file: Path, shown: str) -> str | None:
    """Return a hint for a missing file: to unquote a glob, or the most similar path; None if there is neither."""
    if is_glob(shown) and any(glob.iglob(str(file), recursive=True)):  # noqa: PTH207 - the path may be absolute
        return f"remove the quotes around `{shown}`, so that the shell expands the glob"
    existing = next(folder for folder in file.parents if folder.is_dir())
    near = existing
    missing = file.relative_to(existing).parts
    for name in missing:
        if not os.path.lexists(near / name):
            name = find_similar(name, _list_visible(near))
        if not name:
            return None
        near /= name
    typed = PurePosixPath(Path(shown).as_posix()).parts
    return f"did you mean `{PurePosixPath(*typed[: -len(missing)], *near.relative_to(existing).parts)}`?"


def _list_visible(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir() if not path.name.startswith(".")]
    except OSError:
        return []


def _is_refused(file: Path, project: Project) -> bool:
    """Return whether a path without models is an error: ignoring a folder or a model could cause `pass`."""
    return file.is_dir() or (file.suffix == MODEL_SUFFIX and not _is_excluded(_path_inside(file, project), project))


def _raise_outsider(path: str, file: Path, project: Project, listing: Collection[str]) -> NoReturn:
    if not file.is_dir():
        why, hint = _explain_outsider(file, file, project, listing)
        raise UsageError(f"`{path}` {why}", hint=hint)
    problem = f"`{path}` contains no model of the project"
    below = min((name for name in _find_files(file, "") if name.endswith(MODEL_SUFFIX)), default=None)
    if below is None:
        raise UsageError(problem, hint="specify a folder that contains models, or omit the path to select all models")
    why, hint = _explain_outsider(file / below, file / f"**/*{MODEL_SUFFIX}", project, listing)
    raise UsageError(f"{problem}; `{PurePosixPath(path, below)}` {why}", hint=hint)


def _explain_outsider(file: Path, added: Path, project: Project, listing: Collection[str]) -> tuple[str, str]:
    """Return why a model is not in the project, and a hint on how to add `added`: the model, or a glob that matches it.

    If the config has no `models`, the hint must list all models, because a list with only the new one would exclude
    all others from the check.
    """
    name, inside = project.path.name, _path_inside(file, project)
    if not inside:
        hint = "run onnxgate in the project that contains the model, or limit `files` in the hook to this folder"
        return f"is outside the folder of `{name}`", hint
    if _is_excluded(inside, project):
        return (
            "is excluded by `exclude`",
            "specify a folder that contains models, or omit the path to select all models",
        )
    pattern = _path_inside(added, project)
    if project.config.models is not None:
        return f"is not matched by `models` in `{name}`", f"add `{pattern}` to `models` or to `exclude` in `{name}`"
    where = f"in `[{'.'.join(project.prefix)}]`" if project.prefix else "at the top"
    models = ", ".join(map(quote_string, (*_cover_models(listing), pattern)))
    setting = f"set `models = [{models}]` {where} of `{name}`"
    root = find_git_root(project.folder)
    if root is None:
        return "is in a hidden folder", setting
    submodule = find_git_root(_resolve_path(file).parent)
    if submodule is not None and submodule != _resolve_path(root):
        shown = _relative_path(submodule, _resolve_path(root)) or submodule
        return f"is in the git submodule `{shown}`, so git does not list it in this repository", setting
    git_path = quote_path(pattern.replace("**/", ""))  # for git, `*` matches any number of folders
    if is_ignored(project.folder, inside):
        return "is ignored by git", f"run `git add --force {git_path}`"
    return "is not tracked by git", f"run `git add {git_path}`"


def _cover_models(listing: Iterable[str]) -> list[str]:
    """Return globs that match all of these models: one per top-level or hidden folder."""
    folders = set()
    for path in listing:
        parents = path.split("/")[:-1]
        hidden = [depth for depth, parent in enumerate(parents, start=1) if parent.startswith(".")]
        folders.add("/".join(parents[: max(hidden, default=1)]))
    return [f"{folder}/**/*{MODEL_SUFFIX}" if folder else f"*{MODEL_SUFFIX}" for folder in sorted(folders)]


def _path_inside(file: Path, project: Project) -> str:
    """Return a path relative to the config's folder; "" if it is outside."""
    return _relative_path(file, project.folder) or _relative_path(_resolve_path(file), _resolve_path(project.folder))


def _relative_path(file: Path, folder: Path) -> str:
    return file.relative_to(folder).as_posix() if file.is_relative_to(folder) else ""


def _match_files(
    files: Iterable[Path], models: Sequence[SelectedModel], project: Project
) -> dict[Path, Collection[SelectedModel]]:
    """Return the models that each file or folder selects. Hooks pass many files, so each model is resolved once."""
    real = {file: _resolve_path(file) for file in files}
    resolved = [(_resolve_path(model.absolute), model) for model in models]
    by_path = _group(resolved)
    matching: dict[Path, Collection[SelectedModel]] = {file: by_path.get(path, ()) for file, path in real.items()}
    if folders := [file for file in real if file.is_dir()]:
        absolute = [(model.absolute, model) for model in models]
        by_folder = _group((it, model) for path, model in (*resolved, *absolute) for it in (path, *path.parents))
        for folder in folders:
            matching[folder] = (*by_folder.get(folder, ()), *by_folder.get(real[folder], ()))
    for config in (_resolve_path(project.path), _resolve_path(project.lock_path)):
        matching |= {file: models for file, path in real.items() if path == config}  # they apply to every model
    if others := [file for file, matches in matching.items() if not matches and file not in folders]:
        by_source = _group((path, model) for model in models for path in _resolve_sources(model, project))
        by_data = _group(_find_external_data({real[file] for file in others}, resolved))
        matching |= {file: (*by_source.get(real[file], ()), *by_data.get(real[file], ())) for file in others}
    return matching


def _group(pairs: Iterable[tuple[Path, SelectedModel]]) -> dict[Path, list[SelectedModel]]:
    groups: dict[Path, list[SelectedModel]] = {}
    for path, model in pairs:
        groups.setdefault(path, []).append(model)
    return groups


def _resolve_path(path: Path) -> Path:
    """Return the real path; unlike `Path.resolve`, circular links are not an error."""
    return Path(os.path.realpath(path))


def _resolve_sources(model: SelectedModel, project: Project) -> set[Path]:
    source, command = model.settings.source, model.settings.command or ()
    named = (*((source.rpartition(":")[0],) if source else ()), *command)
    return {_resolve_path(project.folder / name) for name in named if name}


def _find_external_data(
    files: Collection[Path], models: Iterable[tuple[Path, SelectedModel]]
) -> Iterator[tuple[Path, SelectedModel]]:
    """Yield the files that may be a model's external data: they are next to the model, which contains their names."""
    below: dict[Path, list[Path]] = {}
    for file in files:
        for folder in file.parents:
            below.setdefault(folder, []).append(file)
    for path, model in models:
        if path.parent not in below or not path.is_file() or not path.stat().st_size:
            continue
        with path.open("rb") as content, mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            yield from ((file, model) for file in below[path.parent] if mapped.find(os.fsencode(file.name)) >= 0)
