"""Turn errors into messages on stderr and an exit status."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from onnxgate.cli.shared.hint_commands import append_command_folder, prefix_command_folder
from onnxgate.core.errors import (
    ERROR_FILE_VARIABLE,
    ISSUE_TRACKER_URL,
    ErrorRecord,
    FileError,
    FileProblem,
    OnnxgateError,
    StorageError,
    describe_bug,
    render_error,
)
from onnxgate.core.escape import escape_log_line
from onnxgate.core.machine_faults import WRITE_HINTS, MachineFault, find_machine_fault
from onnxgate.core.text import lower_first

EXIT_BUG = 3
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141  # status of a program that SIGPIPE ended


_record_file = ""
"""File for the record of the error, which the action reads; "" for none."""


@contextmanager
def report_errors() -> Iterator[None]:
    """Turn exceptions into messages on stderr and an exit status."""
    global _record_file
    _record_file = os.environ.pop(ERROR_FILE_VARIABLE, "")  # not for programs that the command starts
    try:
        install_signal_handlers()
        _open_streams()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        yield
    except BrokenPipeError:
        _discard_output()
        sys.exit(EXIT_BROKEN_PIPE)
    except (KeyboardInterrupt, click.Abort):
        print_error("interrupted")
        sys.exit(EXIT_INTERRUPTED)
    except click.ClickException as error:
        message = io.StringIO()
        error.show(file=message)
        print_error(message.getvalue())
        _write_record(ErrorRecord(lower_first(error.format_message())))
        sys.exit(error.exit_code)
    except OnnxgateError as error:
        sys.exit(report_error(error))
    except Exception as error:  # noqa: BLE001 - the last resort, and it is written down
        fault = _find_output_fault(error) or find_machine_fault(error)
        if fault:
            report_error(StorageError(fault.message, hint=fault.hint))
        else:
            print_error(*_report_bug(error))
        _discard_output()
        sys.exit(EXIT_BUG)
    finally:
        ignore_signals()


def print_error(*lines: str) -> None:
    """Write lines to stderr, with escaped sequences that a terminal or GitHub's runner would interpret."""
    with suppress(OSError):  # the stream is closed or the disk is full; the exit status has the result
        for line in "\n".join(lines).splitlines():
            click.echo(escape_log_line(line), err=True)


def _find_output_fault(error: Exception) -> MachineFault | None:
    """Return the fault if standard output could not be written; the error itself does not name a file."""
    import traceback

    if not isinstance(error, OSError) or error.errno not in WRITE_HINTS:
        return None
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not any(frame.f_code is click.echo.__code__ and not frame.f_locals.get("err") for frame in frames):
        return None
    reason = os.strerror(error.errno).lower()
    return MachineFault(f"cannot write to standard output: {reason}", WRITE_HINTS[error.errno])


def report_error(error: OnnxgateError) -> int:
    """Print an error, write its record, and return its exit status."""
    record = ErrorRecord(error.message, prefix_command_folder(error.hint) if error.hint else "")
    if isinstance(error, FileError):
        problems = map(append_command_folder, error.problems)
        record = record._replace(
            file=str(error.file.absolute()) if error.file else "",
            line=error.line,
            problems=tuple(map(FileProblem, problems, error.lines)),
        )
    print_error(*render_error(record))
    _write_record(record)
    return error.exit_code


def _write_record(record: ErrorRecord) -> None:
    """Write an error to the file that the action reads, if there is one."""
    if _record_file:
        import json  # only for the action

        with suppress(OSError):  # the action also shows the output
            Path(_record_file).write_text(json.dumps(record), encoding="utf-8")


def _report_bug(error: Exception) -> Iterator[str]:
    """Write a bug report. Yield output lines with its path or, if it cannot be written, with its text."""
    from onnxgate.core.bug_reports import format_bug_report, write_bug_report

    record = describe_bug(error)
    _write_record(record)
    yield f"error: {record.message}"
    text = format_bug_report(record.traceback)
    try:
        yield f"hint: report this bug at {ISSUE_TRACKER_URL} and attach `{write_bug_report(text)}`"
    except OSError as refused:
        yield f"the bug report could not be written ({refused}):"
        yield text


def _open_streams() -> None:
    """Open closed standard streams on the null device, so that no other file gets their descriptors."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            null_device = os.open(os.devnull, os.O_RDWR)
            if null_device != descriptor:
                os.dup2(null_device, descriptor)
                os.close(null_device)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", errors="backslashreplace"))


def _discard_output() -> None:
    """Discard buffered output, because writing it at exit would fail."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


SIGNAL_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
GRACE_S = 20
"""Time limit for stopping jobs and removing temporary files after a signal."""

_RETRY_DELAY_S = 0.01
_received_signals: list[int] = []
_original_unraisablehook = sys.unraisablehook


def install_signal_handlers() -> None:
    """Make termination signals raise `KeyboardInterrupt`, except signals that are ignored (as under `nohup`)."""
    for number in (getattr(signal, name, None) for name in SIGNAL_NAMES):
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            try:
                signal.signal(number, _handle_signal)
            except ValueError:  # not in the main thread: the embedding program handles signals
                return
    sys.unraisablehook = _handle_unraisable


def ignore_signals() -> None:
    """Ignore further signals, because a signal during exit would replace the exit status."""
    for number in (getattr(signal, name, None) for name in SIGNAL_NAMES):
        if number is not None and signal.getsignal(number) is _handle_signal:
            signal.signal(number, signal.SIG_IGN)


def _handle_signal(number: int, _: FrameType | None) -> NoReturn:
    if _received_signals:
        _exit_now()
    _received_signals.append(number)
    _raise_interrupt()


def _raise_interrupt(*_: object) -> NoReturn:
    _set_alarm(GRACE_S, lambda *_: _exit_now())
    raise KeyboardInterrupt


def _handle_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """If Python discarded an interrupt because it occurred in a callback that cannot raise, raise it again soon."""
    if not (
        _received_signals and unraisable.exc_type is KeyboardInterrupt and _set_alarm(_RETRY_DELAY_S, _raise_interrupt)
    ):
        _original_unraisablehook(unraisable)


def _set_alarm(after_s: float, handler: Callable[[int, FrameType | None], object]) -> bool:
    if not hasattr(signal, "setitimer"):
        return False
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, after_s)
    return True


def _exit_now() -> NoReturn:
    """Exit immediately. Workers detect this, and the next onnxgate command removes temporary files."""
    try:
        os.write(2, b"interrupted\n")
    finally:
        os._exit(EXIT_INTERRUPTED)
