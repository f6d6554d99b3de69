"""Write reports in the requested formats, to files or to standard output."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import click
import msgspec
from msgspec.structs import replace

from onnxgate.cli.shared.hint_commands import append_command_folder, prefix_command_folder
from onnxgate.cli.shared.options import CommonOptions, unknown_name_error
from onnxgate.core.errors import StorageError, UsageError
from onnxgate.core.escape import escape_log_line
from onnxgate.core.files import follow_links
from onnxgate.core.machine_faults import HINTS, SPACE_HINT
from onnxgate.core.report import Report
from onnxgate.core.report_json import encode_json
from onnxgate.formats import RENDERERS, text
from onnxgate.gate.results.verdict import build_command
from onnxgate.project.config.loader import CONFIG_NAME
from onnxgate.project.config.project import LOCK_NAME
from onnxgate.runtimes.environments.storage import inputs_dir


class Sink(msgspec.Struct, frozen=True):
    """Format and destination of one `--output` option; `file` is None for standard output."""

    format: str
    file: Path | None = None


def parse_outputs(outputs: Sequence[str], formats: Sequence[str] = tuple(RENDERERS)) -> tuple[Sink, ...]:
    """Parse the `--output` options. If none of them writes to standard output, text is written there.

    Raises:
        UsageError: a format is unknown, two formats share standard output and one of them is machine-readable, or a
            file cannot be written.
        StorageError: the file is not writable, or its disk is full.
    """
    sinks = []
    for output in outputs:
        format_name, _, file = output.partition("=")
        if format_name not in formats:
            raise unknown_name_error("format", format_name, formats)
        sinks.append(Sink(format_name, None if file in ("", "-") else Path(file)))
    on_stdout = [sink.format for sink in sinks if sink.file is None]
    if not on_stdout:
        sinks.append(Sink("text"))
    data = [name for name in on_stdout if RENDERERS[name].is_data]
    if data and len(on_stdout) > 1:
        hint = f"write the {data[0]} output to a file: `--output {data[0]}=FILE`"
        raise UsageError(f"`{data[0]}` cannot share standard output with another format", hint=hint)
    for sink in sinks:
        if sink.file is not None:
            if sink.file.suffix == ".onnx" or sink.file.name in (CONFIG_NAME, LOCK_NAME):
                raise UsageError(f"`--output` would overwrite `{sink.file}`", hint="choose another file for the report")
            follow_links(sink.file)
            try:
                sink.file.parent.mkdir(parents=True, exist_ok=True)
                sink.file.write_text("", encoding="utf-8")  # an old report must not look like a new one
            except OSError as error:
                message = _unwritable_message(sink.file, error)
                remedy = HINTS.get(error.errno or 0)
                if remedy and error.errno not in (errno.ENOTDIR, errno.ENXIO):  # those are mistakes in the path
                    raise StorageError(message, hint=f"{remedy}, or choose another file") from error
                raise UsageError(message, hint="choose a file in a writable folder") from error
    return tuple(sinks)


def write_outputs(
    report: Report,
    sinks: Sequence[Sink],
    options: CommonOptions,
    config: Path | None = None,
    snippets: Mapping[str, Sequence[str]] | None = None,
    render_text: Callable[..., str] = text.format,
    render_markdown: Callable[[], str] | None = None,
) -> None:
    """Write the report to every destination in `sinks`.

    `config` is the config of the check; `snippets` and `render_text` are used for `text`, and `render_markdown` for
    `markdown` if it is given. Only text on standard output shows the local folder in which inputs are stored.

    Raises:
        StorageError: a file cannot be written. The other files are still written.
    """

    def render(sink: Sink, color: bool, width: int) -> str:
        if sink.format == "markdown" and render_markdown is not None:
            return render_markdown()
        if sink.format != "text":
            return RENDERERS[sink.format].render(report)
        local = sink.file is None and bool(report.replays)
        shown = _with_relative_replays(report, config) if local and config is not None else report
        return render_text(
            with_command_folder(shown) if sink.file is None else shown,
            color=color,
            width=width,
            quiet=options.quiet,
            verbosity=options.verbosity,
            inputs=inputs_dir() if local else text.STORED_INPUTS_PLACEHOLDER,
            snippets=snippets,
            elapsed_s=options.elapsed_s,
        )

    try:
        write_sinks(sinks, render)
    except StorageError as error:
        if report.exit in (1, 2):  # takes precedence over the unwritten report
            error.exit_code = report.exit
        raise


def write_answer(
    sinks: Sequence[Sink],
    answer: msgspec.Struct,
    render_text: Callable[..., str],
    render_markdown: Callable[[], str] | None = None,
) -> None:
    """Write the result of a command to each destination in its format.

    `render_text` is called with `color` and `width`.

    Raises:
        StorageError: a file cannot be written. The other files are still written.
    """

    def render(sink: Sink, color: bool, width: int) -> str:
        if sink.format == "json":
            return encode_json(answer)
        if sink.format == "markdown" and render_markdown is not None:
            return render_markdown()
        return render_text(color=color, width=width)

    write_sinks(sinks, render)


def _with_relative_replays(report: Report, config: Path) -> Report:
    """Return the report with reproduction commands that work in the current working directory."""
    folder = config.resolve().parent
    current = Path.cwd().resolve()
    if folder == current:
        return report
    path = (folder.relative_to(current) if folder.is_relative_to(current) else folder).as_posix()
    replays = [
        replace(replay, command=build_command(replay.model, replay.cases, replay.seed, config.name, path))
        for replay in report.replays
    ]
    return replace(report, replays=tuple(replays))


def with_command_folder(report: Report) -> Report:
    """Add to fixes and hints the folder in which their commands must be run, if it is not the working directory."""
    return replace(
        report,
        findings=tuple(replace(it, fix=prefix_command_folder(it.fix)) for it in report.findings),
        undecided=tuple(replace(it, hint=prefix_command_folder(it.hint)) for it in report.undecided),
        skipped=tuple(replace(it, hint=prefix_command_folder(it.hint)) for it in report.skipped),
    )


def write_sinks(sinks: Sequence[Sink], render: Callable[[Sink, bool, int], str]) -> None:
    """Write the result of `render` to each destination.

    Files are written first, because a closed pipe ends the process.

    `render` is called with the sink, whether color is allowed, and the terminal width (0 if there is no terminal).

    Raises:
        StorageError: a file cannot be written. The other files are still written.
    """
    unwritten: StorageError | None = None
    for sink in sorted(sinks, key=lambda sink: sink.file is None):
        if sink.file is None:
            click.echo(render(sink, uses_color(), terminal_width()), nl=False)
            continue
        try:
            _write_file(sink.file, render(sink, False, 0))
        except StorageError as error:
            unwritten = unwritten or error
    if unwritten is not None:
        raise unwritten


def _write_file(file: Path, text: str) -> None:
    """Write the complete text to the file. If that fails, leave the file empty: a partial report may look complete."""
    try:
        file.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        with contextlib.suppress(OSError):
            os.truncate(file, 0)
        remedy = HINTS.get(error.errno or 0, SPACE_HINT)
        raise StorageError(_unwritable_message(file, error), hint=f"{remedy}, or choose another file") from error


def _unwritable_message(file: Path, error: OSError) -> str:
    return f"the report file `{file}` cannot be written: {(error.strerror or str(error)).lower()}"


def print_lines(lines: Iterable[str]) -> None:
    """Print each line with its control characters escaped."""
    for line in lines:
        click.echo(escape_log_line(append_command_folder(line)))


def uses_color() -> bool:
    """Return whether standard output is a terminal that supports color, and `NO_COLOR` is not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width() -> int:
    """Return the width of the terminal; 0 for a pipe, where lines are not wrapped."""
    return shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 0
