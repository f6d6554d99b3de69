"""Errors about one model or file."""

from __future__ import annotations

import pytest

from onnxgate.core.bug_reports import ErrorBoundary, note_errors
from onnxgate.core.errors import OnnxgateError, StorageError, UsageError


@pytest.mark.parametrize("message", ["it is damaged", ""])
def test_a_caught_error_is_never_silent(message: str) -> None:
    """An error has a reason even if its text is empty."""
    problems: list[str] = []
    with note_errors("m.onnx", problems):
        raise OnnxgateError(message)

    assert problems == [f"m.onnx: {message or 'OnnxgateError'}"]


@pytest.mark.parametrize("error", [UsageError("no such option"), StorageError("the disk is full"), KeyboardInterrupt()])
def test_errors_that_end_the_command(error: BaseException) -> None:
    """Errors in the arguments, interruptions and selected types are not those of a model."""
    with pytest.raises(type(error)), ErrorBoundary(StorageError):
        raise error
