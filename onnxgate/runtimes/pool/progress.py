"""What a display of progress is told. Calls come from several threads."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from onnxgate.core.jobs import Benchmark, Export, Job, Load, Run

PREPARE_ACTIVITY = "prepare"
LOOK_UP_ACTIVITY = "look up"
"""Activities that are not jobs: an environment is prepared, or its wheels are looked up."""


class Progress(Protocol):
    """One thing at a time is started and finished per seat."""

    def started(self, seat: str, what: str) -> None:
        """`onnxruntime 1.18.1` begins with `prepare`, or with `run classifier.onnx`."""

    def finished(self, seat: str, what: str, outcome: str) -> None:
        """It is done: `ready`, `completed`, `refused`, `crashed`, `timed-out` or `unavailable`."""


class NoProgress:
    """Shows nothing."""

    def started(self, seat: str, what: str) -> None:
        """Shows nothing."""

    def finished(self, seat: str, what: str, outcome: str) -> None:
        """Shows nothing."""


class JobMeter:
    """Seconds of work, not of waiting for a turn; told from several threads."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, str], float] = defaultdict(float)
        self._lock = threading.Lock()
        self._here = threading.local()
        self._sources: dict[str, str] = {}

    @contextmanager
    def about(self, subject: str) -> Iterator[None]:
        """What this thread submits meanwhile is about that model, whatever file a job names."""
        before = getattr(self._here, "subject", "")
        self._here.subject = subject
        try:
            yield
        finally:
            self._here.subject = before

    def begin(self, seat: str, job: Job) -> Callable[[float], None]:
        """Who is told how many seconds a job took."""
        subject = self._subject(job)

        def took(seconds: float) -> None:
            with self._lock:
                self._seconds[subject, seat] += seconds

        return took if subject else lambda _: None

    def _subject(self, job: Job) -> str:
        """The model that a job is about, as an absolute path; "" where none can be told."""
        subject: str = getattr(self._here, "subject", "")
        if isinstance(job, Export):  # a second export is submitted by whoever finished the first ones
            return self._sources.setdefault(job.source, subject) if subject else self._sources.get(job.source, "")
        return subject or (job.model if isinstance(job, Load | Run | Benchmark) else "")

    def seconds(self) -> dict[str, dict[str, float]]:
        """By model and seat."""
        with self._lock:
            found: dict[str, dict[str, float]] = {}
            for (subject, seat), second in self._seconds.items():
                found.setdefault(subject, {})[seat] = second
            return found
