"""Progress callbacks of the pool, and seconds of work per model. Calls come from several threads."""

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
    """Receiver of progress; each worker has one activity at a time."""

    def started(self, seat: str, what: str) -> None:
        """Report that `onnxruntime 1.18.1` begins with `prepare`, or with `run classifier.onnx`."""

    def finished(self, seat: str, what: str, outcome: str) -> None:
        """Report its outcome: `ready`, `completed`, `refused`, `crashed`, `timed-out` or `unavailable`."""


class NoProgress:
    """A receiver that ignores progress."""

    def started(self, seat: str, what: str) -> None:
        """Do nothing."""

    def finished(self, seat: str, what: str, outcome: str) -> None:
        """Do nothing."""


class JobMeter:
    """Seconds of work per model and worker, without waiting times. Safe for several threads."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, str], float] = defaultdict(float)
        self._lock = threading.Lock()
        self._here = threading.local()
        self._sources: dict[str, str] = {}

    @contextmanager
    def about(self, subject: str) -> Iterator[None]:
        """Attribute the jobs that this thread submits in the block to that model, even if they name another file."""
        before = getattr(self._here, "subject", "")
        self._here.subject = subject
        try:
            yield
        finally:
            self._here.subject = before

    def begin(self, seat: str, job: Job) -> Callable[[float], None]:
        """Return a callback for the number of seconds that the job takes."""
        subject = self._subject(job)

        def took(seconds: float) -> None:
            with self._lock:
                self._seconds[subject, seat] += seconds

        return took if subject else lambda _: None

    def _subject(self, job: Job) -> str:
        """Return the model that a job is about, as an absolute path; "" if unknown."""
        subject: str = getattr(self._here, "subject", "")
        if isinstance(job, Export):  # a second export is submitted by the thread that finished the first ones
            return self._sources.setdefault(job.source, subject) if subject else self._sources.get(job.source, "")
        return subject or (job.model if isinstance(job, Load | Run | Benchmark) else "")

    def seconds(self) -> dict[str, dict[str, float]]:
        """Return the seconds by model and worker."""
        with self._lock:
            found: dict[str, dict[str, float]] = {}
            for (subject, seat), second in self._seconds.items():
                found.setdefault(subject, {})[seat] = second
            return found
