"""Decoder of a worker's lines. Workers are untrusted: a reply that does not fit its job is an error."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import msgspec

from onnxgate.core.jobs import (
    Benchmark,
    BenchmarkResult,
    Command,
    CommandResult,
    Completed,
    Export,
    ExportResult,
    Harvest,
    HarvestResult,
    Inputs,
    InputsResult,
    Job,
    Load,
    LoadResult,
    Probe,
    ProbeResult,
    Refused,
    Result,
    Run,
    RunResult,
    Trace,
    TraceResult,
    Unavailable,
)

LOG_LIMIT = 4_000
RESULT_TYPES: dict[type[Job], type[Result]] = {
    Load: LoadResult,
    Run: RunResult,
    Benchmark: BenchmarkResult,
    Probe: ProbeResult,
    Harvest: HarvestResult,
    Inputs: InputsResult,
    Export: ExportResult,
    Trace: TraceResult,
    Command: CommandResult,
}
Reply = Completed | Refused | Unavailable
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Event(msgspec.Struct, frozen=True):
    """One line: the beginning of a phase, or the reply."""

    id: int
    phase: str = ""
    reply: Reply | None = None
    notes: tuple[str, ...] = ()


class ProtocolError(Exception):
    """A line or reply of the worker is invalid."""


_event_decoder = msgspec.json.Decoder(Event)


def parse_event(line: bytes, request: int) -> Event:
    """Decode a line that answers the current request.

    Raises:
        ProtocolError: it is malformed, or answers another request.
    """
    try:
        decoded = _event_decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ProtocolError(str(error)) from error
    if decoded.id != request:
        raise ProtocolError(f"it answers request {decoded.id} of {request}")
    return decoded


def validate_reply(reply: Reply, job: Job) -> Reply:
    """Return the reply if it fits the job.

    Raises:
        ProtocolError: it does not.
    """
    if not isinstance(reply, Completed):
        return reply
    match job, reply.result:
        case Load(), LoadResult():
            pass
        case Run(), RunResult() as result:
            _check_run(job, result)
        case Benchmark(), BenchmarkResult() as result:
            _check_benchmark(result)
        case Export(), ExportResult() as result:
            _check_files(_export_files(result), Path(job.output))
        case Trace(), TraceResult() as result:
            _check_files(result.values.values(), Path(job.output))
        case Inputs(), InputsResult() as result:
            _check_files((path for case in result.cases for path in case.values()), Path(job.output))
        case Harvest(), HarvestResult():
            _check_files([job.output], Path(job.output).parent)
        case _ if not isinstance(reply.result, RESULT_TYPES[type(job)]):
            raise ProtocolError(f"a {type(reply.result).__name__} is no answer to a {type(job).__name__}")
    return reply


def _check_run(job: Run, result: RunResult) -> None:
    if len(result.cases) != len(job.cases):
        raise ProtocolError(f"{len(result.cases)} of {len(job.cases)} cases are answered")
    for case in result.cases:
        if case.failure is None and len(case.outputs) != len(result.outputs):
            raise ProtocolError(f"a case has {len(case.outputs)} of {len(result.outputs)} outputs")
        _check_files(case.outputs, Path(job.output))


def _check_benchmark(result: BenchmarkResult) -> None:
    if len(result.model_s) != len(result.baseline_s) or len(result.model_mib) != len(result.baseline_mib):
        raise ProtocolError("a race has more of one than of the other")
    if not all(math.isfinite(model_) and model_ > 0 for model_ in (*result.model_s, *result.baseline_s)):
        raise ProtocolError("a run took no time")


def _export_files(result: ExportResult) -> Iterable[str | None]:
    yield result.model
    yield from result.sample
    for case in (*result.eager, *result.eager64):
        yield from case.outputs


def _check_files(paths: Iterable[str | None], folder: Path) -> None:
    real = folder.resolve()
    for path in paths:
        if path is not None and not _is_inside(Path(path), real):
            raise ProtocolError("it names a file that it did not write")


def _is_inside(path: Path, folder: Path) -> bool:
    try:
        return path.is_file() and path.resolve().is_relative_to(folder)
    except (OSError, ValueError, RuntimeError):  # an invalid name, or links in a circle
        return False


def clean_log(log: str) -> str:
    """Return the end of a log, without terminal escapes and control characters."""
    text = _CONTROLS.sub("", _ESCAPES.sub("", log.replace("\r\n", "\n"))).strip()
    return text if len(text) <= LOG_LIMIT else "…" + text[-LOG_LIMIT + 1 :]


def is_complete_npy_file(path: Path) -> bool:
    """Return whether a file is one complete array of numbers or strings."""
    try:
        with path.open("rb") as file:
            return is_complete_npy(file, path.stat().st_size)
    except OSError:
        return False


def is_complete_npy(file: IO[bytes], size_bytes: int) -> bool:
    """Return whether the data is as long as its header requires, and contains no Python objects."""
    from numpy.lib import format as npy

    try:
        read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[npy.read_magic(file)]
        shape, _, dtype = read_header(file)
    except Exception:  # noqa: BLE001 - numpy parses the header as Python, which can raise many errors
        return False
    return not dtype.hasobject and math.prod(shape) * dtype.itemsize == size_bytes - file.tell()
