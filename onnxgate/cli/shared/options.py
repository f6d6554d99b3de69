"""The options that every command takes, as one value."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from onnxgate.core.report import FailOn
    from onnxgate.project.config.project import Project


Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class CommonOptions:
    """The options that every command has."""

    directory: Path | None = None  # where the search for the config begins; None: the working directory
    config: Path | None = None
    offline: bool = False
    jobs: int = 1
    fail_on: FailOn = "error"
    no_ignores: bool = False
    quiet: bool = False
    verbose: bool = False

    @property
    def start(self) -> Path:
        """The folder in which the search for a config begins, and to which PATHS are relative."""
        return self.directory or Path.cwd()


def common_options(command: Command) -> Command:
    """Give a click command the common options; it gets them as `options: CommonOptions`."""

    @functools.wraps(command)
    def collected(
        *args: Any,
        directory: Path | None,
        config: Path | None,
        offline: bool,
        jobs: int | None,
        fail_on: FailOn,
        no_ignores: bool,
        quiet: bool,
        verbose: bool,
        **rest: Any,
    ) -> Any:
        options = CommonOptions(
            directory=directory,
            config=config,
            offline=offline,
            jobs=jobs or usable_cores(),
            fail_on=fail_on,
            no_ignores=no_ignores,
            quiet=quiet,
            verbose=verbose,
        )
        return command(*args, options=options, **rest)

    for option in reversed(_OPTIONS):
        collected = option(collected)
    return collected  # type: ignore[return-value]


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_FOLDER_TYPE = click.Path(exists=True, file_okay=False, path_type=Path)
_FILE_TYPE = click.Path(exists=True, dir_okay=False, path_type=Path)
_OPTIONS = (
    click.option("--directory", type=_FOLDER_TYPE, metavar="DIR", help="Work as if started in DIR."),
    click.option("--config", type=_FILE_TYPE, metavar="FILE", help="The config, instead of the nearest one upward."),
    click.option("--offline", is_flag=True, help="Fetch nothing: ask no package index, and have git fetch nothing."),
    click.option(
        "--jobs",
        type=click.IntRange(min=1),
        metavar="N",
        help="Runtimes worked on side by side (default: one per core).",
    ),
    click.option(
        "--fail-on",
        type=click.Choice(["error", "warning", "never"]),
        default="error",
        show_default=True,
        help="The lowest level that closes the gate.",
    ),
    click.option("--no-ignores", is_flag=True, help="Show and count what the config ignores."),
    click.option("-q", "--quiet", is_flag=True, help="Say the last line only."),
    click.option("-v", "--verbose", is_flag=True, help="Say more: what was run, and where."),
)

output_option = click.option(
    "--output",
    "outputs",
    multiple=True,
    metavar="FORMAT[=FILE]",
    help="text, json or markdown; to a file, or to standard output (default: text). Repeatable.",
)
"""The `--output` option of commands that only print an answer."""


def load_project(options: CommonOptions) -> Project:
    """Load the nearest project.

    Raises:
        ConfigError: there is none, or its config is wrong.
    """
    from onnxgate.core.errors import ConfigError

    project = find_project(options)
    if project is None:
        raise ConfigError("there is no `onnxgate.toml` here or above", hint="run `onnxgate init`")
    return project


def find_project(options: CommonOptions) -> Project | None:
    """Load the nearest project; return None if there is none.

    Raises:
        ConfigError: its config is wrong.
    """
    from onnxgate import rules
    from onnxgate.project.config.loader import find_config, load_config

    path = options.config or find_config(options.start)
    return load_config(path, rule_ids=frozenset(rules.by_id)) if path is not None else None
