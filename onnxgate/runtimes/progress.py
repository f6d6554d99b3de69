"""What a display of progress is told. Calls come from several threads."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """One thing at a time is started and finished per seat."""

    def started(self, seat: str, what: str) -> None:
        """`onnxruntime 1.18.1` begins with `prepare`, or with `run classifier.onnx`."""

    def finished(self, seat: str, what: str, outcome: str) -> None:
        """It is done: `ready`, `completed`, `refused`, `crashed`, `timed-out` or `unavailable`."""


class Silent:
    """Shows nothing."""

    def started(self, seat: str, what: str) -> None:
        """Shows nothing."""

    def finished(self, seat: str, what: str, outcome: str) -> None:
        """Shows nothing."""
