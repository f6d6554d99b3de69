"""Find the project of a command, and create the request to check it."""

from __future__ import annotations

import datetime
import functools
import itertools
import os
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from onnxgate import rules
from onnxgate.cli.shared.hint_commands import set_command_folder
from onnxgate.core.errors import ConfigError, UsageError
from onnxgate.core.escape import escape_log_line
from onnxgate.core.text import join_phrases
from onnxgate.gate.request import Checkout, GateRequest, IgnorePolicy, RunCaches, Selection
from onnxgate.project.config.loader import find_config, find_configs_below, load_config
from onnxgate.runtimes.environments.storage import support_dir

if TYPE_CHECKING:
    from onnxgate.cli.shared.options import CommonOptions
    from onnxgate.core.findings import Stage
    from onnxgate.project.config.project import Project, SelectedModel
    from onnxgate.project.lock.types import Lock
    from onnxgate.runtimes.pool import WorkerPool
    from onnxgate.runtimes.worker_spec import JobMeter


NO_CONFIG = "there is no `onnxgate.toml` in this folder or its parents"
MAX_SUGGESTED_PROJECTS = 3


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
    """Return the config of a command with these paths, or None if there is none.

    This is `--config` if given. Otherwise it is the nearest config in the working directory or its parents. If there is
    none, or if its project contains none of the models, it is the config nearest to the models. A config that is not
    obvious is named in a note on stderr.

    Raises:
        UsageError: the models belong to several projects.
    """
    if options.config is not None:
        return options.config
    here = find_config(options.start)
    configs = {path: _find_own_configs(options.start / path) for path in paths}
    if here is not None:
        return _choose_config(here, configs, options)
    found = {config for own in configs.values() for config in own}
    if len(found) > 1:
        raise _several_projects_error(found)
    nearest = next(iter(found), None)
    if nearest is not None:
        _print_note(f"using `{_relative_name(nearest)}`, the config nearest to the models", options)
    return nearest


def _choose_config(here: Path, configs: Mapping[str | Path, set[Path | None]], options: CommonOptions) -> Path:
    """Return the config of the working directory, or another one if only its project contains the models."""
    current, start = here.resolve(), options.start
    others = {path: own - {None, current} for path, own in configs.items()}
    if not any(others.values()):
        return here
    projects = {config: _load_leniently(config) for config in {here, *itertools.chain(*others.values())} if config}
    selected = {path: _find_selection(projects[here], path, start) for path in configs}
    elsewhere = {
        path: {config for config in own if config and _find_selection(projects[config], path, start) == "selected"}
        for path, own in others.items()
        if selected[path] != "selected"
    }
    nearest = {config for own in elsewhere.values() for config in own}
    if len(nearest) == 1 and "selected" not in selected.values():
        _print_note(f"using `{_relative_name(*nearest)}`, the config nearest to the models", options)
        return nearest.pop()
    if any(own and selected[path] == "refused" for path, own in elsewhere.items()):
        raise _several_projects_error({current, *nearest})
    if names := _name_configs(nearest):
        skipped = f"models that belong to {join_phrases(names)} are skipped"
        _print_note(f"{skipped}; to check them, add `--config {names[0][1:]}", options)
    if names := _name_configs(own for path, it in others.items() if selected[path] == "selected" for own in it):
        hint = f"to use {names[0]}, add `--config {names[0][1:]}"
        _print_note(f"using `{_relative_name(current)}` also for models that have their own config; {hint}", options)
    return here


def _load_leniently(config: Path) -> Project | None:
    """Load a config that may not be used; return None if it is invalid."""
    try:
        return load_config(config)
    except ConfigError:
        return None


def _find_selection(
    project: Project | None, path: str | Path, start: Path
) -> Literal["selected", "ignored", "refused"]:
    """Return whether a path selects models. With an invalid config, it does, so that the error is shown."""
    try:
        models = project is None or project.models([str(path)], base=start, absent=True)
    except UsageError:
        return "refused"
    except ConfigError:
        return "selected"
    return "selected" if models else "ignored"


def _several_projects_error(configs: Collection[Path | None]) -> UsageError:
    names = _name_configs(configs)
    listed = join_phrases([*names, *(["no config"] if None in configs else [])])
    message = f"the models belong to several projects: {listed}"
    return UsageError(message, hint=f"select one project at a time, for example with `--config {names[0][1:]}")


def _name_configs(configs: Iterable[Path | None]) -> list[str]:
    return sorted({f"`{_relative_name(config)}`" for config in configs if config is not None})


def _find_own_configs(path: Path) -> set[Path | None]:
    """Return the config nearest to a file or folder. If a folder has none, return the configs of the models in it."""
    folder = Path(os.path.realpath(path if path.is_dir() else path.parent))
    config = find_config(folder)
    if config is not None or not path.is_dir():
        return {config}
    folders = {file.parent for file in folder.rglob("*.onnx") if not _is_hidden(file, folder)}
    return {find_config(it) for it in folders} or {None}


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts[:-1])


def _relative_name(path: Path) -> str:
    current = Path.cwd().resolve()
    return (path.relative_to(current) if path.is_relative_to(current) else path).as_posix()


def _print_note(text: str, options: CommonOptions) -> None:
    if not options.quiet:
        click.echo(escape_log_line(f"note: {text}"), err=True)


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
