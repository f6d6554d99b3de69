"""Session with one worker process: requests, replies, crashes and timeouts."""

from __future__ import annotations

import time

import msgspec

from onnxgate.core.jobs import Completed, Crashed, ExportResult, Job, Observation, Refused, TimedOut, Unavailable
from onnxgate.core.subprocesses import LineTooLongError, WorkerProcess, describe_exit_status
from onnxgate.runtimes import protocol

READY_TIMEOUT_S = 60.0
INVALID_ANSWER = "answered nonsense"
START_PHASE = "start"
"""The phase in which the worker or its engine is imported: failures in it are not caused by the model."""
EXTENSIONS_PHASE = "extensions"
"""The phase in which libraries of custom operators are registered: failures in it are not caused by the model."""

MEMORY_EXCEEDED = "the job's memory limit was exceeded"
"""Error text of a worker that watches its own memory, sent before it ends itself."""


class WorkerSession:
    """Sends jobs to one worker, one at a time. The worker is ended after anything other than a reply."""

    def __init__(self, child: WorkerProcess, engine: str) -> None:
        self._child = child
        self._engine = engine
        self._request = 0
        self.notes: tuple[str, ...] = ()  # restrictions that could not be applied to the worker
        self.hopeless = False  # worker or engine cannot be imported here: all further jobs would fail

    @property
    def over(self) -> bool:
        """True if the next job needs another worker."""
        return not self._child.alive

    def end(self) -> None:
        """End the worker and all processes that it started."""
        self._child.end()

    def greet(self) -> Unavailable | None:
        """Wait until the worker is ready; return None if it is."""
        try:
            event = self._first_event()
            if event is not None and event.phase == "rights":
                self.notes = event.notes
                event = self._first_event()
            if event is not None and event.phase == "ready":
                return None
        except (TimeoutError, LineTooLongError, protocol.ProtocolError):
            pass
        return self._not_started(describe_exit_status(self._child.end()))

    def _first_event(self) -> protocol.Event | None:
        line = self._child.receive(READY_TIMEOUT_S)
        return protocol.parse_event(line, 0) if line is not None else None

    def raved(self) -> Observation:
        """Return the observation for a job with an invalid answer."""
        return self._raved("")

    def ask(self, job: Job, time_s: float, memory_mib: int | None) -> Observation:
        """Run the job in the worker, and return its observation."""
        self._request += 1
        self._child.clear_log()
        self._child.send(_encode_request(self._request, self._engine, memory_mib, job))
        return self._listen(job, time_s)

    def _listen(self, job: Job, time_s: float) -> Observation:
        during, deadline = START_PHASE, time.monotonic() + READY_TIMEOUT_S
        while True:
            try:
                line = self._child.receive(deadline - time.monotonic())
                if line is None:
                    return self._died(during)
                event = protocol.parse_event(line, self._request)
                if event.reply is not None:
                    return self._take(protocol.validate_reply(event.reply, job), during)
            except TimeoutError:
                return self._late(during, time_s)
            except (LineTooLongError, protocol.ProtocolError):
                return self._raved(during)
            if during == START_PHASE != event.phase:  # the time limit of the job starts after the engine is imported
                deadline = time.monotonic() + time_s
            during = event.phase

    def _take(self, reply: protocol.Reply, during: str) -> Observation:
        self.hopeless = during == START_PHASE and isinstance(reply, Unavailable)
        if isinstance(reply, Refused) and reply.failure.text == MEMORY_EXCEEDED:
            self._child.end()  # it is ending, and must not get another job
        if isinstance(reply, Completed) and isinstance(reply.result, ExportResult) and not reply.result.log:
            log = protocol.clean_log(self._child.log())
            return Completed(result=msgspec.structs.replace(reply.result, log=log))
        return reply

    def _died(self, during: str) -> Observation:
        words = describe_exit_status(self._child.end())
        if during == START_PHASE:
            return self._not_started(words)
        if during == EXTENSIONS_PHASE:
            return _extensions_unavailable(words)
        return Crashed(signal=words, during=during, log=self._log())

    def _late(self, during: str, time_s: float) -> Observation:
        self._child.end()
        if during == START_PHASE:
            return self._not_started(f"no end within {READY_TIMEOUT_S:g} s")
        if during == EXTENSIONS_PHASE:
            return _extensions_unavailable(f"no end within {time_s:g} s")
        return TimedOut(limit_s=time_s, during=during, log=self._log())

    def _raved(self, during: str) -> Observation:
        self._child.end()
        return Crashed(signal=INVALID_ANSWER, during=during, log=self._log())

    def _not_started(self, words: str) -> Unavailable:
        self.hopeless = True
        lines = self._log().splitlines()
        return Unavailable(reason=f"its worker does not start: {lines[-1] if lines else words}")

    def _log(self) -> str:
        return protocol.clean_log(self._child.log())


def _extensions_unavailable(words: str) -> Unavailable:
    return Unavailable(reason=f"its extensions cannot be registered: {words}")


def _encode_request(request: int, engine: str, memory_mib: int | None, job: Job) -> bytes:
    return msgspec.json.encode({"id": request, "engine": engine, "memory_mib": memory_mib, "job": job})


def outcome_name(observation: Observation) -> str:
    """Return the name of an observation for a progress display."""
    return str(type(observation).__struct_config__.tag)
