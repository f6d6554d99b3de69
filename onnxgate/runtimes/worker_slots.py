"""Limit on the number of busy workers and on their total memory."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from enum import IntEnum

from onnxgate.runtimes.memory import measure_available_bytes

LARGE_JOB_BYTES = 2**30
LARGE_JOB_SHARE = 32
"""A job is large if it needs at least 1/32 of the available memory, and at least `LARGE_JOB_BYTES`."""
MEASURED_JOB_BYTES = 256 * 2**20
"""Before a job that needs at least this much memory starts, the available memory is measured again (about 1 ms)."""


class Priority(IntEnum):
    """Priority of waiting jobs for worker slots."""

    AWAITED = 0  # other jobs depend on it
    USUAL = 1
    AHEAD = 2  # no other job depends on it yet


class WorkerSlots:
    """Slots for busy workers, which also limit their total memory.

    Waiting jobs are ordered by priority and then by arrival, so small jobs do not overtake large ones. Large jobs run
    alone. A job that needs more memory than is available also runs alone; it is not rejected.
    """

    def __init__(self, count: int, measure_memory: Callable[[], int] = measure_available_bytes) -> None:
        self._count = count
        self._measure_memory = measure_memory
        self._memory_bytes = measure_memory()
        self._running: list[int] = []  # estimated memory of each running job in bytes
        self._waiting: list[tuple[Priority, int]] = []  # priority and order of arrival
        self._arrivals = itertools.count()
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def occupy(self, priority: Priority = Priority.USUAL, needed_bytes: int = 0) -> Iterator[None]:
        """Wait until a slot and the needed memory are available, and occupy both during the block."""
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
        """Return whether a job that needs `needed_bytes` of memory runs alone."""
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
