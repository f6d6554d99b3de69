"""Find the project of a command, and create the request to check it."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from onnxgate import rules
from onnxgate.cli.shared.hint_commands import set_command_folder
from onnxgate.core.errors import ConfigError
from onnxgate.gate.request import Checkout, GateRequest, IgnorePolicy, RunCaches, Selection
from onnxgate.project.config.loader import find_config, load_config
from onnxgate.runtimes.environments.storage import support_dir

if TYPE_CHECKING:
    from pathlib import Path

    from onnxgate.cli.shared.options import CommonOptions
    from onnxgate.core.findings import Stage
    from onnxgate.project.config.project import Project, SelectedModel
    from onnxgate.project.lock.types import Lock
    from onnxgate.runtimes.pool import WorkerPool
    from onnxgate.runtimes.worker_spec import JobMeter


def load_project(options: CommonOptions) -> Project:
    """Load the project whose config is nearest to the current folder.

    Raises:
        ConfigError: there is none, or its config is invalid.
    """
    project = find_project(options)
    if project is None:
        raise ConfigError("there is no `onnxgate.toml` in this folder or its parents", hint="run `onnxgate init`")
    return project


def find_project(options: CommonOptions) -> Project | None:
    """Load the project whose config is nearest to the current folder; return None if there is none.

    Raises:
        ConfigError: its config is invalid.
    """
    path = options.config or find_config(options.start)
    if path is None:
        set_command_folder(options.start)
        return None
    return load_project_config(path)


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
