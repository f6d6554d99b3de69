"""Memory of workers: limits, estimates per job, and the memory available on this machine."""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from onnxgate.core.files import open_regular
from onnxgate.core.jobs import Benchmark, Command, Export, InputCase, Inputs, Job, Load, Probe, Run, Trace
from onnxgate.model.reading.external_data import find_data_files, is_hidden, is_in_folder
from onnxgate.model.reading.file_format import LENGTH, FileWindow, UnreadableModel, iter_fields
from onnxgate.model.reading.structure import LIGHT_BYTES, SMALL_BYTES, read_view
from onnxgate.runtimes.worker_spec import JobLimits

MEMORY_FACTOR = 4
MEMORY_LIST_FACTOR = 20
MEMORY_BASE_MIB = 4096

WORKER_BYTES = 128 * 2**20
"""Memory of a worker without a large model: the interpreter, the engine, and a model smaller than `LIGHT_BYTES`."""
WEIGHT_FACTOR = 2
"""Bytes of memory that a runtime needs per byte of weights.

Source: 512 MiB of `MatMul` weights took 2.1 times their size in onnxruntime 1.18.1 and 1.1 to 1.4 times in 1.31.1, and
1.1 times if stored as external data. Peak resident memory, measured 2026-11-23.
"""
LIST_FACTOR = 13
"""Bytes of memory that a runtime needs per byte of attribute lists, whose elements it converts to objects.

Source: a `TreeEnsembleClassifier` of 197 MB took 12.8 times its size in onnxruntime 1.18.1 and 12.0 times in 1.31.1.
Peak resident memory, measured 2026-11-23.
"""
FRAMEWORK_BYTES = 448 * 2**20
"""Memory of a process that exports a small model.

Source: exporting each of the two quickstart models with torch 2.13.0 took 400 MiB, including 218 MiB for importing
torch. Peak resident memory of the worker, measured 2026-11-23. The same is assumed for all frameworks and commands.
"""
EXPORT_FACTOR = 3
"""Bytes of memory that an export needs per byte of weights.

Source: `Linear` layers of 64, 256 and 512 MiB took 632, 1208 and 1977 MiB with torch 2.13.0: 3.0 times their size plus
440 MiB. Peak resident memory of the worker, measured 2026-11-23.
"""
UNKNOWN_MEMORY_BYTES = 8 * 2**30
"""Assumed available memory on systems that do not report it."""


class ModelSize(NamedTuple):
    """Sizes of one model in bytes, and its external data."""

    content: int  # file and external data
    lists: int = 0  # attribute lists in the file, as in tree ensembles
    data_files: tuple[str, ...] = ()  # paths of the external data that runtimes may read
    hidden_data: tuple[str, ...] = ()  # locations of external data that may contain credentials


def default_memory_mib(size: ModelSize) -> int:
    """Return the memory limit in MiB for a model with these sizes."""
    lists_mib = (MEMORY_LIST_FACTOR - MEMORY_FACTOR) * -(-size.lists // 2**20)
    return MEMORY_FACTOR * -(-size.content // 2**20) + lists_mib + MEMORY_BASE_MIB


def memory_limit_mib(job: Job, limits: JobLimits) -> int | None:
    """Return the memory limit for a job in MiB; None for no limit."""
    if limits.memory_mib is not None or not isinstance(job, Load | Run):
        return limits.memory_mib
    return default_memory_mib(measure_model(job.model))


def estimate_job_bytes(job: Job) -> int:
    """Estimate the memory that a worker needs for a job. For an export, the estimate depends on the committed model."""
    match job:
        case Load(model=model):
            return WORKER_BYTES + _estimate_model_bytes(model)
        case Run(model=model, cases=cases):
            return WORKER_BYTES + _estimate_model_bytes(model) + _measure_inputs(cases)
        case Benchmark(model=model, baseline=baseline, cases=cases):
            models = _estimate_model_bytes(model) + _estimate_model_bytes(baseline)
            return WORKER_BYTES + models + _measure_inputs(cases)
        case Export(committed=model) | Trace(committed=model) | Command(committed=model):
            return FRAMEWORK_BYTES + (_estimate_model_bytes(model, EXPORT_FACTOR) if model else 0)
        case Inputs():
            return FRAMEWORK_BYTES
        case Probe(exporters=frameworks) if frameworks:
            return FRAMEWORK_BYTES
        case _:
            return WORKER_BYTES


def _estimate_model_bytes(model: str, weight_factor: int = WEIGHT_FACTOR) -> int:
    size = measure_model(model)
    return weight_factor * (size.content - size.lists) + LIST_FACTOR * size.lists


def _measure_inputs(cases: Sequence[InputCase]) -> int:
    """Return the size in bytes of the largest input case."""
    return max((sum(map(_file_size, case.inputs.values())) for case in cases), default=0)


def _file_size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def measure_model(model: str) -> ModelSize:
    """Return the sizes of a model; 0 if the file does not exist."""
    try:
        status = Path(model).stat()
        with _measuring:  # other threads that need the same model wait and reuse the result
            return _read_model_size(Path(model), status.st_mtime_ns, status.st_size)
    except OSError:
        return ModelSize(0)


_measuring = threading.Lock()


@functools.lru_cache(maxsize=256)
def _read_model_size(path: Path, *_: int) -> ModelSize:
    """Return the sizes of a model; only the file size if the model cannot be read."""
    size_bytes = path.stat().st_size
    try:
        if size_bytes < LIGHT_BYTES and not _names_data_files(path):
            return ModelSize(size_bytes)
        data_files = find_data_files(read_view(path, large_bytes=LIGHT_BYTES, describes_lists=False), path)
        lists = _measure_lists(path) if size_bytes >= LIGHT_BYTES else 0
    except (UnreadableModel, OSError):
        return ModelSize(size_bytes)
    present = [file for file in data_files.values() if "\0" not in file.location and is_in_folder(path, file.location)]
    hidden = tuple(file.location for file in present if is_hidden(path, file.location))
    readable = tuple(str(file.path) for file in present if file.location not in hidden)
    return ModelSize(size_bytes + sum(file.size_bytes for file in data_files.values()), lists, readable, hidden)


def _names_data_files(path: Path) -> bool:
    """Return whether a model may have external data. Search for the key "location" instead of parsing the model."""
    with open_regular(path) as file:
        return b"location" in file.read()


_NESTED_MESSAGES: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {6: "graph", 11: "graph"},
}
_LIST_FIELDS = frozenset({7, 8, 9})
"""Field numbers of floats, ints and strings in an attribute. Source: `onnx.proto`."""


def _measure_lists(path: Path) -> int:
    """Return the total size in bytes of attributes that are long lists of numbers or strings."""
    with open_regular(path) as file:
        source = FileWindow(file)
        return sum(_iter_list_sizes(source, "model", 0, source.size_bytes))


def _iter_list_sizes(source: FileWindow, kind: str, start: int, end: int) -> Iterator[int]:
    for field in iter_fields(source, start, end):
        if kind == "attribute" and field.number in _LIST_FIELDS:
            yield end - start
            return
        inside = _NESTED_MESSAGES[kind].get(field.number)
        if inside is not None and field.wire == LENGTH and field.end - field.start > SMALL_BYTES:
            yield from _iter_list_sizes(source, inside, field.start, field.end)


def measure_available_bytes(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the memory in bytes that is available for new processes, within the limits of the control groups.

    Inactive file cache counts as available. Source: the chapter on memory in the kernel's documentation of control
    groups, versions 1 and 2.
    """
    available = [UNKNOWN_MEMORY_BYTES]
    with contextlib.suppress(OSError, ValueError, KeyError):
        available = [1024 * int(_read_table(proc / "meminfo")["MemAvailable:"])]
    for folder in _list_control_groups(proc, cgroups):
        for limit, usage, inactive in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            with contextlib.suppress(OSError, ValueError):  # "max", or no memory controller
                free = int((folder / limit).read_text()) - int((folder / usage).read_text())
                with contextlib.suppress(OSError, ValueError, KeyError):  # some kernels do not provide these statistics
                    free += int(_read_table(folder / "memory.stat")[inactive])
                available.append(free)
    return max(min(available), 0)


def _list_control_groups(proc: Path, cgroups: Path) -> Iterator[Path]:
    """Yield the folders of this process's control groups that limit memory, and their parents."""
    try:
        text = (proc / "self" / "cgroup").read_text(errors="surrogateescape")
    except OSError:
        return
    for _, controllers, group in re.findall("^(.*?):(.*?):(.*)$", text, re.MULTILINE):
        if controllers and "memory" not in controllers.split(","):
            continue
        root = cgroups / "memory" if controllers else cgroups
        folder = root / group.lstrip("/")
        # In a container, the path may be the host's and not exist here; the container's group is then the root.
        yield from (it for it in (folder, *folder.parents) if it.is_relative_to(root))


def _read_table(path: Path) -> dict[str, str]:
    """Map the first word of each line to the second."""
    return {words[0]: words[1] for line in path.read_text().splitlines() if len(words := line.split()) > 1}
