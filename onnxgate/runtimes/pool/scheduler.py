"""Worker pool: accepts jobs and returns observations from worker processes."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType

from onnxgate.core.jobs import Job, Observation
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.pool import sandbox
from onnxgate.runtimes.pool.job_queue import PoolState, QueuedJob, WorkerSlots, WorkerThread
from onnxgate.runtimes.pool.progress import JobMeter, NoProgress, Progress
from onnxgate.runtimes.worker_spec import JobLimits, WorkerSpec

WORKER_FOLDER = Path(__file__).resolve().parents[1] / "worker"
MIN_PARALLEL_BUILDS = 4
"""Minimum of parallel builds, also on fewer cores: most of a build is waiting for an index and a disk."""


class WorkerPool:
    """Runs jobs in one long-lived worker process per spec.

    A worker's jobs run in the order in which they were submitted; at most `jobs` workers run at the same time.
    Environments are created in parallel with jobs, several at once unless `jobs` is 1. The behaviour of a runtime is an
    observation, never an exception. When the pool is closed, or its process ends, all child processes end.

    Unless `limited` is False, engines run in a sandbox (`sandbox.py`).
    """

    def __init__(
        self,
        environments: Environments,
        jobs: int,
        limits: JobLimits | None = None,
        progress: Progress | None = None,
        *,
        worker: Path = WORKER_FOLDER,
        meter: JobMeter | None = None,
        limited: bool = True,
    ) -> None:
        self.meter = meter or JobMeter()
        self._limits = limits or JobLimits()
        self._closing = threading.Event()
        slots = WorkerSlots(max(1, jobs))
        making = threading.BoundedSemaphore(max(MIN_PARALLEL_BUILDS, jobs) if jobs > 1 else 1)
        self._office = PoolState(environments, slots, making, progress or NoProgress(), worker, self._closing, limited)
        self._desks: dict[WorkerSpec, WorkerThread] = {}
        self._lock = threading.Lock()

    def show(self, *folders: Path) -> None:
        """Let every engine started after this call read these folders; the files of a job are always readable."""
        self._office.readable.update(sandbox.readable_paths(folder.absolute() for folder in folders))

    @property
    def notes(self) -> tuple[str, ...]:
        """Restrictions that could not be applied, with the names of the workers."""
        said: dict[str, list[str]] = {}
        for seat, note in sorted(self._office.notes):
            said.setdefault(note, []).append(seat)
        return tuple(f"{', '.join(seats)}: {note}" for note, seats in said.items())

    def submit(self, seat: WorkerSpec, job: Job, *, limits: JobLimits | None = None) -> Future[Observation]:
        """Queue a job; may be called at any time, from any thread, until the pool is closed."""
        future: Future[Observation] = Future()
        with self._lock:
            if self._closing.is_set():
                raise RuntimeError("the host is closed")
            if seat not in self._desks:
                self._desks[seat] = WorkerThread(seat, self._office)
            self._desks[seat].put(QueuedJob(job, limits or self._limits, future, self.meter.begin(seat.name, job)))
        return future

    def close(self) -> None:
        """End every worker; queued jobs are cancelled, and running ones raise `CancelledError`."""
        with self._lock:
            self._closing.set()
            desks = tuple(self._desks.values())
        self._office.environments.close()
        ending = [threading.Thread(target=desk.end_worker, daemon=True) for desk in desks]
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join()
        for desk in desks:
            desk.join()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
