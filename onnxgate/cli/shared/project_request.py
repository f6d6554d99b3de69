"""Find the project of a command, and create the request to check it."""

from __future__ import annotations

import datetime
import functools
import os
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onnxgate import rules
from onnxgate.cli.shared.error_handling import report_error
from onnxgate.cli.shared.hint_commands import append_command_folder, set_command_folder
from onnxgate.core.errors import ConfigError, OnnxgateError, UsageError
from onnxgate.core.escape import escape_log_line
from onnxgate.core.text import join_phrases
from onnxgate.gate.request import Checkout, GateRequest, IgnorePolicy, RunCaches, Selection
from onnxgate.project.config.loader import find_config, find_configs_below, load_config
from onnxgate.project.config.project import MODEL_SUFFIX
from onnxgate.project.git.repository import find_git_root, is_ignored
from onnxgate.runtimes.environments.storage import support_dir

if TYPE_CHECKING:
    from onnxgate.cli.shared.options import CommonOptions
    from onnxgate.core.findings import Stage
    from onnxgate.project.config.project import PathSelection, Project, SelectedModel
    from onnxgate.project.lock.types import Lock
    from onnxgate.runtimes.pool import WorkerPool
    from onnxgate.runtimes.worker_spec import JobMeter


NO_CONFIG = "there is no `onnxgate.toml` in this folder or its parents"
MAX_SUGGESTED_PROJECTS = 3
EXIT_PRECEDENCE = (2, 1, 3)
"""Exit statuses of a check of several projects, the one that is returned first."""


def load_project(options: CommonOptions, paths: Sequence[str | Path] = ()) -> Project:
    """Load the project of a command; see `find_project_config`.

    Raises:
        ConfigError: there is none, or its config is invalid.
        UsageError: the paths belong to several projects.
    """
    project = find_project(options, paths)
    if project is None:
        raise ConfigError(NO_CONFIG, hint=(not paths and _suggest_directory(options)) or "run `onnxgate init`")
    return project


def find_project(options: CommonOptions, paths: Sequence[str | Path] = ()) -> Project | None:
    """Load the project of a command; return None if there is none. Models that it excludes are named in a note.

    Raises:
        ConfigError: its config is invalid.
        UsageError: the paths belong to several projects.
    """
    path = find_project_config(paths, options)
    if path is None:
        set_command_folder(options.start)
        return None
    project = load_project_config(path)
    for note in project.describe_excluded(list(map(str, paths)), base=options.start):
        _print_note(note, options)
    return project


def require_selection(paths: Sequence[str | Path], options: CommonOptions) -> None:
    """Raise a usage error if a command without a config has no paths, and there are projects below its folder."""
    if not paths and (hint := _suggest_directory(options)):
        raise UsageError(NO_CONFIG, hint=hint)


def _suggest_directory(options: CommonOptions) -> str:
    """Return a hint with the folders of projects below the command's folder; "" if there are none."""
    folders = [Path(os.path.relpath(path.parent)).as_posix() for path in find_configs_below(options.start)]
    if not folders:
        return ""
    shown = [f"`--directory {shlex.quote(folder)}`" for folder in folders[:MAX_SUGGESTED_PROJECTS]]
    more = [f"{len(folders) - len(shown)} more"] if len(folders) > len(shown) else []
    *first, last = [*shown, *more]
    choices = f"{', '.join(first)} or {last}" if first else last
    return f"to use {'a' if first else 'the'} project below this folder, add {choices}"


def find_project_config(paths: Sequence[str | Path], options: CommonOptions) -> Path | None:
    """Return the config of a command with these paths, or None if there is none; see `group_by_project`.

    Raises:
        UsageError: the models belong to several projects.
    """
    groups = group_by_project(paths, options)
    if len(groups) > 1:
        raise several_projects_error(groups)
    return next(iter(groups))


def group_by_project(
    paths: Sequence[str | Path], options: CommonOptions, *, all_below: bool = False
) -> dict[Path | None, list[str | Path]]:
    """Return the paths by the config of their project; None stands for no config.

    This is `--config` if given. Otherwise it is the nearest config in the working directory or its parents. For models
    that its project does not contain, and if there is none, it is the config nearest to the models, unless
    `--directory` selects a project. A config that is not obvious is named in a note on stderr.

    `all_below`: without paths and without such a config, all projects below the folder are selected.
    """
    here = options.config or find_config(options.start)
    if here is not None and (options.config is not None or options.directory is not None):
        return {here: [*paths]}
    if here is not None:
        groups = _group_in_project(here, paths, options)
    elif paths or not all_below:
        groups = _group_by_nearest(paths, options.start)
    else:
        groups = {config: [] for config in _find_projects_below(options.start)}
    if len(groups) == 1 and (names := _name_configs(groups.keys() - {here})):
        _print_note(f"using {names[0]}, the config nearest to the models", options)
    order = sorted(groups, key=lambda config: (config is None, str(config)))
    return {config: groups[config] for config in order} or {None: [*paths]}


def run_for_each_project(
    groups: Mapping[Path | None, Sequence[str | Path]], run: Callable[[Path | None, Sequence[str | Path]], int]
) -> int:
    """Run a command in each project, also if another one has an error. Return the exit status with the most weight."""
    statuses: list[int] = []
    for config, paths in groups.items():
        if len(groups) > 1:
            title = f"{_relative_name(config)}:" if config is not None else "models without a config:"
            click.echo(("\n" if statuses else "") + escape_log_line(title))
        try:
            statuses.append(run(config, paths))
        except OnnxgateError as error:
            if len(groups) == 1:
                raise
            statuses.append(report_error(error))
    return next((status for status in EXIT_PRECEDENCE if status in statuses), 0)


def _find_projects_below(folder: Path) -> list[Path]:
    """Return the configs below a folder of a git repository, except ignored ones and those of other repositories."""
    root = find_git_root(folder.absolute())
    configs = find_configs_below(folder) if root is not None else []
    own = [config for config in configs if find_git_root(config.parent) == root]
    return [config for config in own if not is_ignored(config.parent, config.name)]


def _group_in_project(
    here: Path, paths: Sequence[str | Path], options: CommonOptions
) -> dict[Path | None, list[str | Path]]:
    """Group paths by the config of the working directory, and by the configs of the models that it does not select."""
    current, start = here.resolve(), options.start
    nearest = _find_nearest_configs(paths, start)
    if {None, current}.issuperset(nearest.values()) and not any((start / path).is_dir() for path in paths):
        return {here: [*paths]}
    selections = _classify_paths(here, paths, start)
    elsewhere = _find_other_projects(selections, nearest, current, start)
    groups: dict[Path | None, list[str | Path]] = {}
    for path in selections:
        for config in elsewhere.get(path, {here}):
            groups.setdefault(config, []).append(path)
    if len(groups) > 1 and all(selections[path] == "ignored" for path in groups.get(here, ())):
        groups.pop(here, None)
    if names := _name_configs({nearest[path] for path, it in selections.items() if it == "selected"} - {current}):
        hint = f"to use {names[0]}, add `--config {names[0][1:]}"
        _print_note(f"using `{_relative_name(current)}` also for models that have their own config; {hint}", options)
    return groups


def _group_by_nearest(paths: Sequence[str | Path], start: Path) -> dict[Path | None, list[str | Path]]:
    """Group paths by the config nearest to them. Files that are neither models nor in a project are left out."""
    groups: dict[Path | None, list[str | Path]] = {}
    for path, config in _find_nearest_configs(paths, start).items():
        is_searched = config is None and (start / path).is_dir()
        for owner, inside in (_group_models(start, path) if is_searched else {config: [path]}).items():
            groups.setdefault(owner, []).extend(inside)
    if len(groups) > 1 and None in groups:
        groups[None] = [it for it in groups[None] if Path(it).suffix == MODEL_SUFFIX or not (start / it).is_file()]
        groups = {config: inside for config, inside in groups.items() if inside}
    return groups


def _find_other_projects(
    selections: Mapping[str | Path, PathSelection],
    nearest: Mapping[str | Path, Path | None],
    current: Path,
    start: Path,
) -> dict[str | Path, set[Path]]:
    """Return the configs whose projects contain the models of paths that the current project does not select.

    This is the config nearest to the path or, for a folder, all configs in it.
    """
    candidates: dict[Path, list[str | Path]] = {}
    for path in (path for path, selection in selections.items() if selection != "selected"):
        folder = Path(os.path.realpath(start / path))
        below = find_configs_below(folder) if folder.is_dir() else ()
        for config in dict.fromkeys((nearest[path], *below)):
            if config not in (None, current):
                candidates.setdefault(config, []).append(path)
    found: dict[str | Path, set[Path]] = {}
    for config, paths in candidates.items():
        for path, selection in _classify_paths(config, paths, start).items():
            if selection == "selected" and nearest[path] not in found.get(path, ()):
                found.setdefault(path, set()).add(config)
    return found


def _classify_paths(config: Path, paths: Sequence[str | Path], start: Path) -> dict[str | Path, PathSelection]:
    """Return whether a project selects each path. With an invalid config, it does, so that the error is shown."""
    try:
        selections = load_config(config).classify_paths([str(path) for path in paths], base=start)
    except ConfigError:
        return dict.fromkeys(paths, "selected")
    return {path: selections[str(path)] for path in paths}


def several_projects_error(configs: Collection[Path | None], because: str = "") -> UsageError:
    """Return the error of a command that is limited to one project."""
    names = _name_configs(configs)
    listed = join_phrases([*names, *(["no config"] if None in configs else [])])
    message = f"the models belong to several projects: {listed}{because}"
    return UsageError(message, hint=f"select one project at a time, for example with `--config {names[0][1:]}")


def _name_configs(configs: Iterable[Path | None]) -> list[str]:
    return sorted({f"`{_relative_name(config)}`" for config in configs if config is not None})


def _find_nearest_configs(paths: Iterable[str | Path], start: Path) -> dict[str | Path, Path | None]:
    """Return the config nearest to each file or folder; each folder is searched once, because hooks pass many files."""
    find = functools.cache(find_config)
    files = {path: start / path for path in paths}
    folders = {path: file if file.is_dir() else file.parent for path, file in files.items()}
    return {path: find(Path(os.path.realpath(folder))) for path, folder in folders.items()}


def _group_models(start: Path, folder: str | Path) -> dict[Path | None, list[str | Path]]:
    """Group the models in a folder that has no config itself; models of a project are represented by the folder."""
    root = Path(os.path.realpath(start / folder))
    files = [file for file in sorted(root.rglob(f"*{MODEL_SUFFIX}")) if not _is_hidden(file, root)]
    find = functools.cache(find_config)
    groups: dict[Path | None, list[str | Path]] = {find(file.parent): [folder] for file in files}
    if None in groups and len(groups) > 1:
        groups[None] = [Path(folder) / file.relative_to(root) for file in files if find(file.parent) is None]
    return groups or {None: [folder]}


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts[:-1])


def _relative_name(path: Path) -> str:
    current = Path.cwd().resolve()
    return (path.relative_to(current) if path.is_relative_to(current) else path).as_posix()


def _print_note(text: str, options: CommonOptions) -> None:
    if not options.quiet:
        click.echo(escape_log_line(f"note: {text}"), err=True)


def print_untracked_models(project: Project, options: CommonOptions) -> None:
    """Print a note that names the models that are not in git. In CI, models that a job creates are expected."""
    if "CI" not in os.environ and (note := project.describe_untracked()):
        _print_note(append_command_folder(note), options)


def load_project_config(path: Path) -> Project:
    """Load a config. Hints and fixes printed later name its folder if it is not the working directory.

    Raises:
        ConfigError: the config is invalid.
    """
    set_command_folder(path.absolute().parent, path)
    return load_config(path, rule_ids=frozenset(rules.by_id))


def make_project_request(
    project: Project,
    lock: Lock,
    models: Sequence[SelectedModel],
    stages: frozenset[Stage],
    options: CommonOptions,
    meter: JobMeter | None = None,
) -> GateRequest:
    """Return the request to check models with the runtimes in the lock. Environments are created when needed."""
    return GateRequest(
        checkout=Checkout(
            project=project,
            lock=lock,
            lock_text=project.lock_path.read_text(encoding="utf-8"),
            lock_name=project.lock_path.name,
            models=tuple(models),
        ),
        selection=Selection(stages),
        ignores=IgnorePolicy(current_date(), honoured=not options.no_ignores),
        open_host=functools.partial(_open_host, project, options, meter),
        caches=RunCaches(support=support_dir),
    )


def current_date() -> datetime.date:
    """Return the current date in UTC, which decides whether ignores have expired."""
    return datetime.datetime.now(tz=datetime.timezone.utc).date()


def _open_host(project: Project, options: CommonOptions, meter: JobMeter | None) -> AbstractContextManager[WorkerPool]:
    from onnxgate.cli.shared.worker_pool import open_pool_with_progress  # heavy: no static check needs it

    return open_pool_with_progress(project, options, meter)
