"""Scheduling of waiting jobs, and limits on jobs that run at the same time."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from onnxgate.runtimes.worker_slots import LARGE_JOB_BYTES, Priority, WorkerSlots

GIB = 2**30
MIB = 2**20


class Concurrency:
    """Runs jobs in threads, and records the memory needs of those that run at the same time."""

    def __init__(self, slots: WorkerSlots) -> None:
        self.moments: list[tuple[int, ...]] = []
        self._slots = slots
        self._running: list[int] = []
        self._lock = threading.Lock()

    def run(self, needs: Sequence[int], duration_s: float = 0.005) -> None:
        """Run one job per need, and wait for all."""
        threads = [threading.Thread(target=self._work, args=(need, duration_s)) for need in needs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert not any(thread.is_alive() for thread in threads)

    def _work(self, need: int, duration_s: float) -> None:
        with self._slots.occupy(needed_bytes=need):
            with self._lock:
                self._running.append(need)
                self.moments.append(tuple(sorted(self._running)))
            time.sleep(duration_s)
            with self._lock:
                self._running.remove(need)


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until another thread makes the condition true."""
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.001)


def is_waiting(slots: WorkerSlots, priority: Priority) -> bool:
    """Return whether a job of this priority waits."""
    return any(rank == priority for rank, _ in slots._waiting)


def test_higher_priority_goes_first() -> None:
    """A job of higher priority starts first, regardless of how long others have waited."""
    slots, order, threads = WorkerSlots(1), list[Priority](), list[threading.Thread]()

    def work(rank: Priority) -> None:
        with slots.occupy(rank):
            order.append(rank)

    with slots.occupy():
        for rank in (Priority.AHEAD, Priority.USUAL, Priority.AWAITED):
            threads.append(threading.Thread(target=work, args=(rank,)))
            threads[-1].start()
            wait_until(lambda rank=rank: is_waiting(slots, rank))  # type: ignore[misc]
    for thread in threads:
        thread.join(10)

    assert order == [Priority.AWAITED, Priority.USUAL, Priority.AHEAD]


def test_a_failed_job_releases_its_slot() -> None:
    """No more jobs run than there are slots, and a failing job releases its slot."""
    slots, inside, most = WorkerSlots(2), list[int](), list[int]()

    def work(number: int) -> None:
        try:
            with slots.occupy(needed_bytes=number):
                inside.append(number)
                most.append(len(inside))
                time.sleep(0.005)
                inside.remove(number)
                raise ValueError
        except ValueError:
            pass

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert len(most) == 12
    assert max(most) == 2


def test_running_jobs_fit_into_memory() -> None:
    """The total need of the running jobs stays below the available memory."""
    concurrency = Concurrency(WorkerSlots(8, lambda: GIB))
    needs = [200 * MIB] * 12 + [300 * MIB] * 12
    random.Random(0).shuffle(needs)

    concurrency.run(needs)

    assert len(concurrency.moments) == len(needs)
    assert max(map(sum, concurrency.moments)) <= GIB
    assert max(map(len, concurrency.moments)) > 1


def test_large_job_runs_alone() -> None:
    """A large job runs alone even if two would fit, so that the measured peak is its own."""
    slots = WorkerSlots(4, lambda: 16 * GIB)
    concurrency = Concurrency(slots)
    large = LARGE_JOB_BYTES

    concurrency.run([large, 100 * MIB, large + 1, 100 * MIB, 100 * MIB])

    assert slots.is_large(large)
    assert not slots.is_large(large - 1)
    assert [moment for moment in concurrency.moments if max(moment) >= large and len(moment) > 1] == []
    assert sum(max(moment) >= large for moment in concurrency.moments) == 2


def test_large_depends_on_the_machine() -> None:
    """On a machine with much memory, models of some GB run concurrently."""
    slots = WorkerSlots(2, lambda: 512 * GIB)

    assert not slots.is_large(8 * GIB)
    assert slots.is_large(16 * GIB)


def test_job_beyond_all_memory_runs_alone() -> None:
    """A job that needs more than all memory runs alone instead of waiting forever."""
    concurrency = Concurrency(WorkerSlots(4, lambda: 0))

    concurrency.run([3 * GIB, 10, 10, 2 * GIB])

    assert sorted(concurrency.moments) == [(10,), (10,), (2 * GIB,), (3 * GIB,)]


def test_memory_is_measured_again() -> None:
    """Available memory is measured before each start, because other programs may have taken some."""
    available = [2 * GIB]
    slots = WorkerSlots(4, lambda: available[0])
    started = threading.Event()

    def work() -> None:
        with slots.occupy(needed_bytes=400 * MIB):
            started.set()

    waiting = threading.Thread(target=work)
    with slots.occupy(needed_bytes=100 * MIB):
        available[0] = 300 * MIB
        waiting.start()
        wait_until(lambda: is_waiting(slots, Priority.USUAL))
        time.sleep(0.05)
        assert not started.is_set()
    waiting.join(10)

    assert started.is_set()


def test_a_large_job_is_not_overtaken() -> None:
    """Small jobs submitted later wait for a large one, which would otherwise start last."""
    slots, order = WorkerSlots(4, lambda: 16 * GIB), list[int]()

    def work(need: int) -> None:
        with slots.occupy(needed_bytes=need):
            order.append(need)

    threads = [threading.Thread(target=work, args=(need,)) for need in (GIB, 1, 2)]
    with slots.occupy(needed_bytes=0):
        for count, thread in enumerate(threads, 1):
            thread.start()
            wait_until(lambda count=count: len(slots._waiting) + len(order) == count)  # type: ignore[misc]
    for thread in threads:
        thread.join(10)

    assert order[0] == GIB


def test_a_failed_measurement_blocks_no_other_job() -> None:
    """A job whose memory cannot be measured fails, and jobs of lower priority still start."""
    measurements = [GIB]
    slots, done = WorkerSlots(2, measurements.pop), threading.Event()

    def work() -> None:
        with slots.occupy(Priority.AHEAD):
            done.set()

    with slots.occupy(), pytest.raises(IndexError), slots.occupy(Priority.AWAITED, 300 * MIB):
        pass
    threading.Thread(target=work, daemon=True).start()

    assert done.wait(5)
