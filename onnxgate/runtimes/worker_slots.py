"""Admission of jobs: how many workers are busy at once, and how much memory they may need together."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from enum import IntEnum

from onnxgate.runtimes.memory import measure_available_bytes

LARGE_JOB_BYTES = 2**30
LARGE_JOB_SHARE = 32
"""A job that needs this part of the available memory, and `LARGE_JOB_BYTES`, is large."""
MEASURED_JOB_BYTES = 256 * 2**20
"""Before a job that needs this much, the available memory is measured again, which takes about a millisecond."""


class Priority(IntEnum):
    """Order in which waiting jobs get a worker slot."""

    AWAITED = 0  # other jobs depend on it
    USUAL = 1
    AHEAD = 2  # no other job depends on it yet


class WorkerSlots:
    """Limit on the number of busy workers and on the memory that they need together.

    Waiting jobs of a higher priority come first, and those of one priority in their order: a job that needs much is not
    overtaken by smaller ones. A large job runs alone, and a job that needs more than there is, too: it waits
    until nothing else runs, and is never refused.
    """

    def __init__(self, count: int, measure_memory: Callable[[], int] = measure_available_bytes) -> None:
        self._count = count
        self._measure_memory = measure_memory
        self._memory_bytes = measure_memory()
        self._running: list[int] = []  # what each running job needs, in bytes
        self._waiting: list[tuple[Priority, int]] = []  # with the number of arrivals before it
        self._arrivals = itertools.count()
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def occupy(self, priority: Priority = Priority.USUAL, needed_bytes: int = 0) -> Iterator[None]:
        """Wait for a slot and for the needed memory, and occupy both during the block."""
        with self._changed:
            self._wait((priority, next(self._arrivals)), needed_bytes)
            self._running.append(needed_bytes)
        try:
            yield
        finally:
            with self._changed:
                self._running.remove(needed_bytes)
                self._changed.notify_all()

    def is_large(self, needed_bytes: int) -> bool:
        """Return whether a job that needs so much runs alone."""
        return needed_bytes >= max(LARGE_JOB_BYTES, self._memory_bytes // LARGE_JOB_SHARE)

    def _wait(self, place: tuple[Priority, int], needed_bytes: int) -> None:
        self._waiting.append(place)
        try:
            self._changed.wait_for(lambda: place == min(self._waiting) and self._admits(needed_bytes))
            if needed_bytes >= MEASURED_JOB_BYTES and not self._running:
                self._memory_bytes = self._measure_memory()
        finally:
            self._waiting.remove(place)
            self._changed.notify_all()

    def _admits(self, needed_bytes: int) -> bool:
        if not self._running:
            return True
        if len(self._running) >= self._count or any(map(self.is_large, (*self._running, needed_bytes))):
            return False
        fits = sum(self._running) + needed_bytes <= self._memory_bytes
        return fits and (needed_bytes < MEASURED_JOB_BYTES or needed_bytes <= self._measure_memory())
