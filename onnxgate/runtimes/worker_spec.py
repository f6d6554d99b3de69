"""Workers as the gate specifies, limits and measures them."""

from __future__ import annotations

import functools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from onnxgate.core.jobs import Export, Job, Load, Run, SessionJob
from onnxgate.model.reading.external_data import find_data_files
from onnxgate.model.reading.file_format import UnreadableModel
from onnxgate.model.reading.structure import read_light_view
from onnxgate.project.lock.types import LockedRuntime, PinnedPackage

DEFAULT_TIME_S = 300.0
MEMORY_FACTOR = 4
MEMORY_BASE_MIB = 4096


class JobLimits(msgspec.Struct, frozen=True):
    """Limits of one job. Without `memory_mib`, a model has the default for its size, a source has no limit."""

    time_s: float = DEFAULT_TIME_S
    memory_mib: int | None = None


class WorkerSpec(msgspec.Struct, frozen=True):
    """Specification of one worker. Equal specifications share one process."""

    name: str  # "onnxruntime 1.18.1"
    engine: str = ""  # engine whose adapter the worker uses; "" for none
    runtime: LockedRuntime | None = None
    packages: tuple[PinnedPackage, ...] = ()
    interpreter: Path | None = None  # or the folder of its environment, if a runtime is in a user environment
    environment: tuple[tuple[str, str], ...] = ()
    turn: str = ""  # workers with the same value run one job at a time; "" for no such limit

    @classmethod
    def of_runtime(
        cls, runtime: LockedRuntime, packages: Sequence[PinnedPackage], folder: Path | None = None
    ) -> WorkerSpec:
        """Return the spec of a locked runtime; of `packages`, only those that it pins count.

        `folder` is the config's: paths of user environments are relative to it.
        """
        if runtime.environment:
            path = environment_path(folder or Path(), runtime.environment)
            return cls(runtime.name, runtime.engine, runtime, interpreter=path)
        pins = {(pin, runtime.python) for pin in runtime.packages}
        own = (package for package in packages if (f"{package.name}=={package.version}", package.python) in pins)
        return cls(runtime.name, runtime.engine, runtime, tuple(own))


def environment_path(folder: Path, environment: str) -> Path:
    """Return the path of a user environment; `folder` is the config's."""
    return folder.absolute() / Path(environment).expanduser()


def default_memory_mib(size_bytes: int) -> int:
    """Return the memory limit for a model whose file and external data take `size_bytes`."""
    return MEMORY_FACTOR * -(-size_bytes // 2**20) + MEMORY_BASE_MIB


def memory_limit_mib(job: Job, limits: JobLimits) -> int | None:
    """Return the memory limit for a job."""
    if limits.memory_mib is not None or not isinstance(job, Load | Run):
        return limits.memory_mib
    try:
        status = Path(job.model).stat()
        with _content_size_lock:  # one reading for all threads that ask about the same model
            return default_memory_mib(_content_size_bytes(Path(job.model), status.st_mtime_ns, status.st_size))
    except OSError:
        return default_memory_mib(0)


_content_size_lock = threading.Lock()


@functools.lru_cache(maxsize=256)
def _content_size_bytes(path: Path, *_: int) -> int:
    """Return the size of a model's file and external data; an unreadable model has no external data."""
    try:
        data_files = find_data_files(read_light_view(path), path)
    except (UnreadableModel, OSError):
        data_files = {}
    return path.stat().st_size + sum(file.size_bytes for file in data_files.values())


class JobMeter:
    """Seconds of work per model and worker, without waiting times. Safe for several threads."""

    def __init__(self) -> None:
        self._seconds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._lock = threading.Lock()
        self._thread = threading.local()
        self._sources: dict[str, str] = {}

    @contextmanager
    def attribute_to(self, model: str) -> Iterator[None]:
        """Attribute the jobs that this thread submits in the block to that model, even if they name another file."""
        before = getattr(self._thread, "model", "")
        self._thread.model = model
        try:
            yield
        finally:
            self._thread.model = before

    def begin(self, worker: str, job: Job) -> Callable[[float], None]:
        """Return a callback for the number of seconds that the job takes."""
        model = self._model_of(job)

        def add_seconds(seconds: float) -> None:
            with self._lock:
                self._seconds[model][worker] += seconds

        return add_seconds if model else lambda _: None

    def _model_of(self, job: Job) -> str:
        """Return the model that a job belongs to, as an absolute path; "" if unknown."""
        model: str = getattr(self._thread, "model", "")
        if isinstance(job, Export):  # a second export is submitted by the thread that finished the first ones
            return self._sources.setdefault(job.source, model) if model else self._sources.get(job.source, "")
        return model or (job.model if isinstance(job, SessionJob) else "")

    def seconds(self) -> dict[str, dict[str, float]]:
        """Return the seconds by model and worker."""
        with self._lock:
            return {model: dict(workers) for model, workers in self._seconds.items()}
