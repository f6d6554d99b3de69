"""Options that several commands share, passed to them as one object."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from onnxgate.core.errors import UsageError
from onnxgate.core.escape import escape_log_line
from onnxgate.core.text import lower_first, suggest_spelling

if TYPE_CHECKING:
    from onnxgate.core.report import FailOn


STARTED_S = time.monotonic()
EXIT_FAIL, EXIT_UNDECIDED = 1, 3
ANSWER_FORMATS = ("text", "json", "markdown")
"""Output formats of commands that print neither a report nor a log."""
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class CommonOptions:
    """Values of the shared options. Options that a command does not have keep their defaults."""

    directory: Path | None = None  # None: the working directory
    config: Path | None = None
    offline: bool = False
    jobs: int = 1
    fail_on: FailOn = "error"
    no_ignores: bool = False
    quiet: bool = False
    verbosity: int = 0  # number of `-v`

    @property
    def start(self) -> Path:
        """The folder to which PATHS are relative, and in which the search for a config starts."""
        return self.directory or Path.cwd()

    @property
    def verbose(self) -> bool:
        """Whether `-v` was given."""
        return self.verbosity > 0

    @property
    def elapsed_s(self) -> float:
        """Seconds that have passed since this process started to load the command."""
        return time.monotonic() - STARTED_S


_NO_TEXTS: Mapping[str, str] = {}


def common_options_without(
    *names: str, conditions: Mapping[str, str] = _NO_TEXTS, details: Mapping[str, str] = _NO_TEXTS
) -> Callable[[Command], Command]:
    """Return a decorator that adds the shared options, except those in `names`, to a click command.

    The command gets their values as `options: CommonOptions`. `conditions` contains text to put before the help of an
    option, and `details` text to put after it; both are keyed by option name.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def collected(*args: Any, **values: Any) -> Any:
            common = {name: values.pop(name) for name in _OPTIONS if name in values}
            common["jobs"] = common.get("jobs") or usable_cores()
            options = CommonOptions(**common)
            try:
                return command(*args, options=options, **values)
            finally:
                _print_damaged_entries(options)

        for name, option in reversed(_OPTIONS.items()):
            if name not in names:
                collected = option(collected)
            if name in conditions or name in details:
                added = collected.__click_params__[-1]  # type: ignore[attr-defined]
                added.help = f"{conditions[name]}: {lower_first(added.help)}" if name in conditions else added.help
                added.help = f"{added.help.removesuffix('.')}; {details[name]}." if name in details else added.help
        return collected  # type: ignore[return-value]

    return decorate


def _print_damaged_entries(options: CommonOptions) -> None:
    """With `-v`, print the cache entries that were damaged, and whose content was therefore computed again."""
    from onnxgate.core.cache_entries import take_damaged_entries  # keeps `--help` light

    for entry in take_damaged_entries():
        if options.verbose and not options.quiet:
            with suppress(OSError):  # the stream is closed or the disk is full; the exit status has the result
                click.echo(escape_log_line(f"damaged cache entry replaced: {entry}"), err=True)


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_FOLDER_TYPE = click.Path(exists=True, file_okay=False, path_type=Path)
_FILE_TYPE = click.Path(exists=True, dir_okay=False, path_type=Path)
_OPTIONS: dict[str, Callable[..., Any]] = {
    "directory": click.option(
        "--directory",
        type=_FOLDER_TYPE,
        metavar="DIR",
        help="Folder of the project or models; model paths are relative to this folder (default: the current folder).",
    ),
    "config": click.option(
        "--config",
        type=_FILE_TYPE,
        metavar="FILE",
        help="Config to use (default: the nearest config in the current folder or its parents).",
    ),
    "offline": click.option("--offline", is_flag=True, help="Do not access the network."),
    "jobs": click.option(
        "--jobs",
        type=click.IntRange(min=1),
        metavar="N",
        help="Number of jobs to run in parallel (default: one per CPU core).",
    ),
    "fail_on": click.option(
        "--fail-on",
        type=click.Choice(["error", "warning", "never"]),
        default="error",
        show_default=True,
        help="Lowest level at which a finding makes the check fail.",
    ),
    "no_ignores": click.option("--no-ignores", is_flag=True, help="Also report findings that the config ignores."),
    "quiet": click.option("-q", "--quiet", is_flag=True, help="Print only the last line of the output."),
    "verbosity": click.option(
        "-v",
        "--verbose",
        "verbosity",
        count=True,
        help="Print more details.",
    ),
}


ACTION_FORMATS = ("github", "summary", "comment")
"""Formats that the GitHub Action uses; the help omits them."""


def name_formats(formats: Iterable[str]) -> str:
    """Join the formats, such as `text, json or markdown`, without those of the GitHub Action."""
    *names, last = (name for name in formats if name not in ACTION_FORMATS)
    return f"{', '.join(names)} or {last}"


def unknown_name_error(kind: str, name: str, known: Sequence[str]) -> UsageError:
    """Return a usage error for an unknown value of an option, with the most similar known name."""
    shown = [name for name in known if name not in ACTION_FORMATS]
    return UsageError(f"unknown {kind} `{name}`{suggest_spelling(name, known)}", hint=f"available: {', '.join(shown)}")


def _take_single_target(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> str | None:
    """Return the only value of `--target`; None if it is not given.

    This check is needed because click would silently use the last of several values. An empty value, such as that of an
    unset variable in CI, must not select all releases.

    Raises:
        UsageError: it is empty, or given more than once.
    """
    if len(values) > 1:
        hint = (
            "combine the ranges, for example `--target 'onnxruntime>=1.18,<1.20'`, or run the "
            "command once for each range"
        )
        raise UsageError("`--target` can be given only once", hint=hint)
    if values and not values[0].strip():
        raise UsageError(
            "`--target` is empty", hint="specify a requirement such as `onnxruntime>=1.18`, or omit `--target`"
        )
    return values[0] if values else None


def target_option(help_text: str) -> Callable[[Command], Command]:
    """Return a click option `--target` that may be given once."""
    return click.option("--target", multiple=True, metavar="REQUIREMENT", callback=_take_single_target, help=help_text)


def output_option(formats: str) -> Callable[[Command], Command]:
    """Return a click option `--output`. `formats` lists the formats that its help mentions."""
    return click.option(
        "--output",
        "outputs",
        multiple=True,
        metavar="FORMAT[=FILE]",
        help=f"Write {formats} to FILE or standard output (default: text). Repeatable.",
    )
