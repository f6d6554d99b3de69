"""Session with one worker process. Workers are untrusted, so every reply is validated."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import msgspec

from onnxgate.core import jobs
from onnxgate.core.subprocesses import LineTooLongError, WorkerProcess, describe_exit_status
from onnxgate.runtimes.worker.failures import CONTROLS, ESCAPES

WORKER_FOLDER = Path(__file__).resolve().with_name("worker")
"""Folder of the program that runs in a worker process."""
READY_TIMEOUT_S = 60.0
INVALID_ANSWER = "an invalid response"
START_PHASE = "start"
"""Phase in which the worker and its engine are imported. Failures in this phase are not caused by the model."""
EXTENSIONS_PHASE = "extensions"
"""Phase in which custom operator libraries are registered. Failures in this phase are not caused by the model."""
MEMORY_EXCEEDED = "the job's memory limit was exceeded"
"""Error message of a worker that exits because it exceeded its memory limit."""
LOG_LIMIT = 4_000
Reply = jobs.Completed | jobs.Refused | jobs.Unavailable


class Event(msgspec.Struct, frozen=True):
    """One line from a worker: the start of a phase, or the reply."""

    id: int
    phase: str = ""
    reply: Reply | None = None
    notes: tuple[str, ...] = ()


class ProtocolError(Exception):
    """A line from the worker is invalid."""


_event_decoder = msgspec.json.Decoder(Event)


def parse_event(line: bytes, request: int) -> Event:
    """Decode a line that the worker sent for a request.

    Raises:
        ProtocolError: the line is malformed or belongs to a different request.
    """
    try:
        decoded = _event_decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ProtocolError(str(error)) from error
    if decoded.id != request:
        raise ProtocolError(f"the reply is for request {decoded.id}, expected {request}")
    return decoded


def validate_reply(reply: Reply, job: jobs.Job) -> Reply:
    """Return the reply if it is valid for the job.

    Raises:
        ProtocolError: the reply is invalid.
    """
    if not isinstance(reply, jobs.Completed):
        return reply
    if reply.result.tag != job.tag:
        raise ProtocolError(f"unexpected {type(reply.result).__name__} for a {type(job).__name__} job")
    match job, reply.result:
        case jobs.Run(), jobs.RunResult() as result:
            if len(result.cases) != len(job.cases):
                raise ProtocolError(f"results for {len(result.cases)} of {len(job.cases)} cases")
            for case in result.cases:
                if case.failure is None and len(case.outputs) != len(result.outputs):
                    raise ProtocolError(f"a case has {len(case.outputs)} of {len(result.outputs)} outputs")
                _check_files(case.outputs, Path(job.output))
        case jobs.Benchmark(), jobs.BenchmarkResult() as result:
            if len(result.model_s) != len(result.baseline_s) or len(result.model_mib) != len(result.baseline_mib):
                raise ProtocolError("the model and the baseline have different numbers of measurements")
            if not all(math.isfinite(time_s) and time_s > 0 for time_s in (*result.model_s, *result.baseline_s)):
                raise ProtocolError("a measured time is not positive")
        case jobs.Export(), jobs.ExportResult() as result:
            outputs = (path for case in (*result.eager, *result.eager64) for path in case.outputs)
            _check_files((result.model, *result.sample, *outputs), Path(job.output))
        case jobs.Trace(), jobs.TraceResult() as result:
            _check_files(result.values.values(), Path(job.output))
        case jobs.Inputs(), jobs.InputsResult() as result:
            _check_files((path for case in result.cases for path in case.values()), Path(job.output))
        case jobs.Harvest(), jobs.HarvestResult():
            _check_files([job.output], Path(job.output).parent)
    return reply


def _check_files(paths: Iterable[str | None], folder: Path) -> None:
    real = folder.resolve()
    for path in (Path(path) for path in paths if path is not None):
        try:
            is_inside = path.is_file() and path.resolve().is_relative_to(real)
        except (OSError, ValueError, RuntimeError):  # an invalid name, or circular links
            is_inside = False
        if not is_inside:
            raise ProtocolError("the reply names a file outside the output folder")


class WorkerSession:
    """Sends jobs to one worker, one at a time. If the reply is invalid or missing, the worker is killed."""

    def __init__(self, child: WorkerProcess, engine: str) -> None:
        self._child = child
        self._engine = engine
        self._request = 0
        self.notes: tuple[str, ...] = ()  # restrictions that could not be applied to the worker
        self.cannot_start = False  # the worker or engine cannot be imported, so all further jobs would fail

    @property
    def ended(self) -> bool:
        """Whether the worker has ended, so that the next job needs a new worker."""
        return not self._child.alive

    def end(self) -> None:
        """End the worker and all processes that it started."""
        self._child.end()

    def wait_until_ready(self) -> jobs.Unavailable | None:
        """Wait until the worker is ready, and return None; if it fails to start, return the reason."""
        try:
            event = self._first_event()
            if event is not None and event.phase == "rights":
                self.notes = event.notes
                event = self._first_event()
            if event is not None and event.phase == "ready":
                return None
        except (TimeoutError, LineTooLongError, ProtocolError):
            pass
        return self._not_started(describe_exit_status(self._child.end()))

    def _first_event(self) -> Event | None:
        line = self._child.receive(READY_TIMEOUT_S)
        return parse_event(line, 0) if line is not None else None

    def run(self, job: jobs.Job, time_s: float, memory_mib: int | None) -> jobs.Observation:
        """Run the job in the worker, and return its observation."""
        self._request += 1
        self._child.clear_log()
        request = {"id": self._request, "engine": self._engine, "memory_mib": memory_mib, "job": job}
        self._child.send(msgspec.json.encode(request))
        during, limit_s = START_PHASE, READY_TIMEOUT_S
        deadline = time.monotonic() + limit_s
        while True:
            try:
                line = self._child.receive(deadline - time.monotonic())
                if line is None:
                    status = describe_exit_status(self._child.end())
                    return self._unavailable(during, status) or jobs.Crashed(
                        signal=status, during=during, log=self._log()
                    )
                event = parse_event(line, self._request)
                if event.reply is not None:
                    return self._accept(validate_reply(event.reply, job), during)
            except TimeoutError:
                self._child.end()
                unavailable = self._unavailable(during, f"timed out after {limit_s:g} s")
                return unavailable or jobs.TimedOut(limit_s=time_s, during=during, log=self._log())
            except (LineTooLongError, ProtocolError):
                return self.reject_answer(during)
            if during == START_PHASE != event.phase:  # the time limit of the job starts after the engine is imported
                limit_s = time_s
                deadline = time.monotonic() + limit_s
            during = event.phase

    def reject_answer(self, during: str = "") -> jobs.Observation:
        """Kill the worker after an invalid response, and return a `Crashed` observation."""
        self._child.end()
        return jobs.Crashed(signal=INVALID_ANSWER, during=during, log=self._log())

    def _accept(self, reply: Reply, during: str) -> jobs.Observation:
        self.cannot_start = during == START_PHASE and isinstance(reply, jobs.Unavailable)
        if isinstance(reply, jobs.Refused) and reply.failure.text == MEMORY_EXCEEDED:
            self._child.end()  # the worker is exiting and must not get another job
        if isinstance(reply, jobs.Completed) and isinstance(reply.result, jobs.ExportResult) and not reply.result.log:
            return jobs.Completed(result=msgspec.structs.replace(reply.result, log=self._log()))
        return reply

    def _unavailable(self, during: str, reason: str) -> jobs.Unavailable | None:
        """Return the observation for a failure before the model is loaded; None if the failure occurs later."""
        if during == START_PHASE:
            return self._not_started(reason)
        if during == EXTENSIONS_PHASE:
            return jobs.Unavailable(reason=f"the extensions cannot be registered: {reason}")
        return None

    def _not_started(self, reason: str) -> jobs.Unavailable:
        self.cannot_start = True
        lines = self._log().splitlines()
        return jobs.Unavailable(reason=f"the worker process failed to start: {lines[-1] if lines else reason}")

    def _log(self) -> str:
        return clean_log(self._child.log())


def clean_log(log: str) -> str:
    """Return the end of a log without terminal escapes and control characters."""
    text = CONTROLS.sub("", ESCAPES.sub("", log.replace("\r\n", "\n"))).strip()
    return text if len(text) <= LOG_LIMIT else "…" + text[-LOG_LIMIT + 1 :]


def is_complete_npy_file(path: Path) -> bool:
    """Return whether a file is one complete array of numbers or strings."""
    try:
        with path.open("rb") as file:
            return is_complete_npy(file, path.stat().st_size)
    except OSError:
        return False


def is_complete_npy(file: IO[bytes], size_bytes: int) -> bool:
    """Return whether the file size matches the header and the data contains no Python objects."""
    from numpy.lib import format as npy

    try:
        read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[npy.read_magic(file)]
        shape, _, dtype = read_header(file)
    except Exception:  # noqa: BLE001 - numpy evaluates the header as Python, which can raise any error
        return False
    return not dtype.hasobject and math.prod(shape) * dtype.itemsize == size_bytes - file.tell()
