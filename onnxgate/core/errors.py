"""Errors that end a command. A runtime that rejects a model is an observation, not an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from onnxgate.core.escape import escape_unprintable
from onnxgate.core.text import truncate

ISSUE_TRACKER_URL = "https://github.com/onnxgate/onnxgate/issues"
OPTIONAL_TARGET_HINT = ", or set `required = false` for the affected target"
"""End of a hint about a runtime that a machine does not support. It does not apply to targets that are optional."""


class OnnxgateError(Exception):
    """An error that ends the command. `message` starts in lower case and has no period; `hint` describes the fix."""

    exit_code = 3

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class FileError(OnnxgateError):
    """The config or the lock is invalid; `problems` lists all errors in it.

    `line` is the line of the error, and `lines` those of the problems; 0 if the error has no line. `file` is set by
    `locate_errors`.
    """

    exit_code = 2
    file: Path | None = None

    def __init__(
        self,
        message: str,
        *,
        problems: tuple[str, ...] = (),
        lines: tuple[int, ...] = (),
        line: int = 0,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.problems = problems
        self.lines = lines or (0,) * len(problems)
        self.line = line


@contextmanager
def locate_errors(file: Path) -> Iterator[None]:
    """Add the path of the file to the errors that reading it raises."""
    try:
        yield
    except FileError as error:
        error.file = error.file or file
        raise


class UsageError(OnnxgateError):
    """Command-line arguments are invalid or cannot be combined."""

    exit_code = 2


class ConfigError(FileError):
    """`onnxgate.toml` is invalid; `problems` lists all errors in it."""


class LockError(FileError):
    """`onnxgate.lock` is missing, unreadable or newer than this onnxgate; `problems` lists the errors in it."""


class ResolutionError(OnnxgateError):
    """A requirement could not be resolved to exact releases. The requirement or the environment may be the cause."""

    exit_code = 3


class UnavailableError(OnnxgateError):
    """A locked environment could not be created on this machine; the message contains the reason."""

    exit_code = 3


class StorageError(OnnxgateError):
    """A file cannot be written: the disk is full, or the folder is not writable."""

    exit_code = 3


ERROR_FILE_VARIABLE = "ONNXGATE_ERROR_FILE"
"""Environment variable with the path of a file to which a command writes its `ErrorRecord` as JSON, for the action."""


class FileProblem(NamedTuple):
    """One error in a file; `line` is 0 if it has none."""

    text: str
    line: int = 0


class ErrorRecord(NamedTuple):
    """The error that ended a command. `traceback` is empty unless the error is a bug in onnxgate."""

    message: str
    hint: str = ""
    file: str = ""
    line: int = 0
    problems: tuple[FileProblem, ...] = ()
    traceback: str = ""


def render_error(record: ErrorRecord) -> Iterator[str]:
    """Yield the lines that report an error. Values are escaped: they could contain text that looks like a message."""
    yield f"error: {escape_unprintable(record.message)}"
    for problem in record.problems:
        yield f"  {escape_unprintable(problem.text)}"
    if record.hint:
        yield f"hint: {escape_unprintable(record.hint)}"


def describe_bug(error: Exception) -> ErrorRecord:
    """Return the record of an error that onnxgate did not expect."""
    import traceback  # slow to import, and rarely needed

    message = f"this is a bug in onnxgate: {type(error).__name__}: {truncate(' '.join(str(error).split()))}"
    trace = "".join(traceback.format_exception(error))
    return ErrorRecord(message, f"report this bug at {ISSUE_TRACKER_URL}", traceback=trace)
