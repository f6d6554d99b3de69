"""Workers' specifications: a locked runtime or a user's interpreter, and limits per job."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxgate.core.jobs import Job, Load, Run
from onnxgate.model.reading.external_data import find_data_files
from onnxgate.model.reading.file_format import UnreadableModel
from onnxgate.model.reading.structure import read_light_structure
from onnxgate.project.lock.types import LockedRuntime, PinnedPackage

DEFAULT_TIME_S = 300.0
MEMORY_FACTOR = 4
MEMORY_BASE_MIB = 4096


@dataclass(frozen=True, slots=True)
class JobLimits:
    """Limits of one job. Without `memory_mib`, a model has the default for its size, a source has no limit."""

    time_s: float = DEFAULT_TIME_S
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerSpec:
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
        pins = frozenset(runtime.packages)
        own = [
            package
            for package in packages
            if f"{package.name}=={package.version}" in pins and package.python == runtime.python
        ]
        return cls(runtime.name, runtime.engine, runtime, tuple(own))

    @classmethod
    def of_interpreter(
        cls,
        name: str,
        interpreter: Path,
        environment: Mapping[str, str] | None = None,
        *,
        engine: str = "",
        turn: str = "",
    ) -> WorkerSpec:
        """Return the spec of an existing interpreter: the toolchain's, or one with a user's own build of an engine."""
        variables = tuple(sorted((environment or {}).items()))
        return cls(name, engine, interpreter=interpreter, environment=variables, turn=turn)


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
        data_files = find_data_files(read_light_structure(path), path)
    except (UnreadableModel, OSError):
        data_files = {}
    return path.stat().st_size + sum(file.size_bytes for file in data_files.values())
