"""Unexpected errors: bug reports, and the boundary that limits an error about one model to this model."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from onnxgate import __version__
from onnxgate.core.errors import ISSUE_TRACKER_URL, OnnxgateError, describe_bug
from onnxgate.core.files import cache_dir
from onnxgate.core.findings import IncompleteCheck, Stage
from onnxgate.core.machine_faults import find_machine_fault

USAGE_EXIT_CODE = 2


@contextmanager
def contain_errors(model: str, stages: Iterable[Stage], undone: list[IncompleteCheck]) -> Iterator[None]:
    """Turn an error about one model into an incomplete check of each stage, so that all other models are checked.

    Errors in the arguments, the config and the lock, and interruptions, still end the command.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - any error of this model
        reason, hint = explain_error(error)
        undone += (IncompleteCheck(stage, model, "", reason, hint, transient=True) for stage in sorted(stages))


@contextmanager
def note_errors(subject: str, problems: list[str]) -> Iterator[None]:
    """Add an error about one model or file to `problems`, so that all others are handled; see `contain_errors`."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - any error of this subject
        problems.append(f"{subject}: {describe_error(error)}")


def describe_error(error: Exception) -> str:
    """Return the reason and the hint of `explain_error` as one text."""
    return "; ".join(filter(None, explain_error(error)))


def explain_error(error: Exception) -> tuple[str, str]:
    """Return the reason why a check of one model could not be completed, and a hint. Unexpected errors are written to
    a bug report.

    Raises:
        OnnxgateError: the error is about the arguments, the config or the lock.
    """
    if isinstance(error, OnnxgateError):
        if error.exit_code == USAGE_EXIT_CODE:
            raise error
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
