"""The options that every command takes, as one value."""

from __future__ import annotations

import difflib
import functools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from onnxgate.core.errors import UsageError

if TYPE_CHECKING:
    from onnxgate.core.report import FailOn


EXIT_FAIL, EXIT_UNDECIDED = 1, 3
ANSWER_FORMATS = ("text", "json", "markdown")
"""Formats of what a command prints, unless it is a report or a log."""
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


def select_options(*names: str) -> Callable[[Command], Command]:
    """Return a decorator that adds these common options to a command, which gets them as `options: CommonOptions`."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def collected(*args: Any, **values: Any) -> Any:
            selected = {name: values.pop(name) for name in names}
            options = CommonOptions(**{**selected, "jobs": selected.get("jobs") or usable_cores()})
            return command(*args, options=options, **values)

        for name in reversed([name for name in _OPTIONS if name in names]):
            collected = _OPTIONS[name](collected)
        return collected  # type: ignore[return-value]

    return decorate


def common_options(command: Command) -> Command:
    """Add all common options to a click command; it gets them as `options: CommonOptions`."""
    return select_options(*_OPTIONS)(command)


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_FOLDER_TYPE = click.Path(exists=True, file_okay=False, path_type=Path)
_FILE_TYPE = click.Path(exists=True, dir_okay=False, path_type=Path)
_OPTIONS = {
    "directory": click.option("--directory", type=_FOLDER_TYPE, metavar="DIR", help="Work as if started in DIR."),
    "config": click.option(
        "--config", type=_FILE_TYPE, metavar="FILE", help="The config, instead of the nearest one upward."
    ),
    "offline": click.option(
        "--offline", is_flag=True, help="Fetch nothing: ask no package index, and have git fetch nothing."
    ),
    "jobs": click.option(
        "--jobs",
        type=click.IntRange(min=1),
        metavar="N",
        help="Runtimes worked on side by side (default: one per core).",
    ),
    "fail_on": click.option(
        "--fail-on",
        type=click.Choice(["error", "warning", "never"]),
        default="error",
        show_default=True,
        help="The lowest level that closes the gate.",
    ),
    "no_ignores": click.option("--no-ignores", is_flag=True, help="Show and count what the config ignores."),
    "quiet": click.option("-q", "--quiet", is_flag=True, help="Say the last line only."),
    "verbose": click.option("-v", "--verbose", is_flag=True, help="Say more: what was run, and where."),
}


def name_formats(formats: Iterable[str]) -> str:
    """Return `text, json or markdown`."""
    *names, last = formats
    return f"{', '.join(names)} or {last}"


def unknown_name_error(kind: str, name: str, known: Sequence[str]) -> UsageError:
    """Return a usage error for an unknown value of an option; it suggests the nearest known name."""
    near = difflib.get_close_matches(name, known, 1)
    suggestion = f"; did you mean `{near[0]}`" if near else ""
    return UsageError(f"unknown {kind} `{name}`{suggestion}", hint=f"one of {', '.join(known)}")


def output_option(formats: str) -> Callable[[Command], Command]:
    """Return the option `--output`; `formats` describes what it takes."""
    return click.option(
        "--output",
        "outputs",
        multiple=True,
        metavar="FORMAT[=FILE]",
        help=f"{formats}; to a file, or to standard output (default: text). Repeatable.",
    )
