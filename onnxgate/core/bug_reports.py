"""Unexpected errors: bug reports, and the boundary that limits an error about one model to this model."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from onnxgate import __version__
from onnxgate.core.errors import ISSUE_TRACKER_URL, OnnxgateError, describe_bug
from onnxgate.core.files import cache_dir
from onnxgate.core.findings import IncompleteCheck, Stage
from onnxgate.core.machine_faults import find_machine_fault

USAGE_EXIT_CODE = 2


class ErrorBoundary:
    """Context that catches an error about one model or file, so that all others are handled.

    `reason` and `hint` then describe the error; `reason` is "" if there was none. Interruptions, errors of the types
    `fatal`, and errors in the arguments, the config and the lock still end the command.
    """

    def __init__(self, *fatal: type[Exception]) -> None:
        self.reason = ""
        self.hint = ""
        self._fatal = fatal

    @property
    def text(self) -> str:
        """Return the reason and the hint as one text."""
        return "; ".join(filter(None, (self.reason, self.hint)))

    def __enter__(self) -> ErrorBoundary:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        is_usage_error = isinstance(error, OnnxgateError) and error.exit_code == USAGE_EXIT_CODE
        if not isinstance(error, Exception) or is_usage_error or isinstance(error, self._fatal):
            return False
        reason, self.hint = _explain_error(error)
        self.reason = reason or type(error).__name__  # never empty, which stands for no error
        return True


@contextmanager
def contain_errors(model: str, stages: Iterable[Stage], undone: list[IncompleteCheck]) -> Iterator[None]:
    """Turn an error about one model into an incomplete check of each stage; see `ErrorBoundary`."""
    with ErrorBoundary() as caught:
        yield
    if caught.reason:
        undone += (
            IncompleteCheck(stage, model, "", caught.reason, caught.hint, transient=True) for stage in sorted(stages)
        )


@contextmanager
def note_errors(subject: str, problems: list[str]) -> Iterator[None]:
    """Add an error about one model or file to `problems`; see `ErrorBoundary`."""
    with ErrorBoundary() as caught:
        yield
    if caught.reason:
        problems.append(f"{subject}: {caught.text}")


def _explain_error(error: Exception) -> tuple[str, str]:
    """Return the reason and a hint. Unexpected errors are written to a bug report."""
    if isinstance(error, OnnxgateError):
        return error.message, error.hint or ""
    if fault := find_machine_fault(error):
        return fault
    record = describe_bug(error)
    return record.message, keep_bug_report(record.traceback)


def keep_bug_report(traceback: str) -> str:
    """Write a bug report, and return a hint with its path."""
    try:
        path = write_bug_report(format_bug_report(traceback))
    except OSError as refused:
        return f"report this bug at {ISSUE_TRACKER_URL}; no bug report could be written ({refused})"
    return f"report this bug at {ISSUE_TRACKER_URL} and attach `{path}`"


def format_bug_report(traceback: str) -> str:
    """Return the text of a bug report: versions, command line and traceback."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    system = f"{platform.system()} {platform.machine()}"
    return "\n".join((f"onnxgate {__version__}", f"{python} on {system}", f"arguments: {sys.argv[1:]}", "", traceback))


def write_bug_report(text: str) -> Path:
    """Write a bug report to the cache and return its path. Equal reports share a file.

    Raises:
        OSError: the file cannot be written.
    """
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    path = cache_dir() / "bugs" / f"{digest[:12]}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
    return path
