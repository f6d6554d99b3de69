"""Specification, limits and time measurement of workers."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from onnxgate.core.jobs import Export, Job, SessionJob
from onnxgate.project.lock.types import LockedRuntime, PinnedPackage

DEFAULT_TIME_S = 300.0


class JobLimits(msgspec.Struct, frozen=True):
    """Limits of one job. Without `memory_mib`, the limit depends on the model's size; sources have no memory limit."""

    time_s: float = DEFAULT_TIME_S
    memory_mib: int | None = None


class WorkerSpec(msgspec.Struct, frozen=True):
    """Specification of a worker. Jobs with equal specifications share one process."""

    name: str  # "onnxruntime 1.18.1"
    engine: str = ""  # engine whose adapter the worker uses; "" for none
    runtime: LockedRuntime | None = None
    packages: tuple[PinnedPackage, ...] = ()
    interpreter: Path | None = None  # for a user environment: its interpreter or folder
    environment: tuple[tuple[str, str], ...] = ()
    turn: str = ""  # workers with the same value run one at a time; "" for no such limit

    @classmethod
    def of_runtime(
        cls, runtime: LockedRuntime, packages: Sequence[PinnedPackage], folder: Path | None = None
    ) -> WorkerSpec:
        """Return the spec of a locked runtime. `packages` may contain packages of other runtimes.

        `folder` is the config's folder: paths of user environments are relative to it.
        """
        if runtime.environment:
            path = environment_path(folder or Path(), runtime.environment)
            return cls(runtime.name, runtime.engine, runtime, interpreter=path)
        pins = {(pin, runtime.python) for pin in runtime.packages}
        own = (package for package in packages if (f"{package.name}=={package.version}", package.python) in pins)
        return cls(runtime.name, runtime.engine, runtime, tuple(own))


def environment_path(folder: Path, environment: str) -> Path:
    """Return the path of a user environment, which is relative to the config's folder."""
    return folder.absolute() / Path(environment).expanduser()


class JobMeter:
    """Run time per model and worker in seconds, excluding waiting. Thread-safe."""

    def __init__(self) -> None:
        self._seconds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._lock = threading.Lock()
        self._thread = threading.local()
        self._sources: dict[str, str] = {}

    @contextmanager
    def attribute_to(self, model: str) -> Iterator[None]:
        """Count jobs that this thread submits in the block as jobs of `model`, even if they use a different file."""
        before = getattr(self._thread, "model", "")
        self._thread.model = model
        try:
            yield
        finally:
            self._thread.model = before

    def begin(self, worker: str, job: Job) -> Callable[[float], None]:
        """Return a function that adds the job's run time in seconds to the total of its model and worker."""
        model = self._model_of(job)

        def add_seconds(seconds: float) -> None:
            with self._lock:
                self._seconds[model][worker] += seconds

        return add_seconds if model else lambda _: None

    def _model_of(self, job: Job) -> str:
        """Return the model that a job belongs to, as an absolute path; "" if unknown."""
        model: str = getattr(self._thread, "model", "")
        if isinstance(job, Export):  # the second export is submitted by another thread
            return self._sources.setdefault(job.source, model) if model else self._sources.get(job.source, "")
        return model or (job.model if isinstance(job, SessionJob) else "")

    def seconds(self) -> dict[str, dict[str, float]]:
        """Return the run time in seconds by model and worker."""
        with self._lock:
            return {model: dict(workers) for model, workers in self._seconds.items()}
