"""One seat's jobs, in order, each with a worker that works."""

from __future__ import annotations

import contextlib
import os
import queue
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from pathlib import Path

from onnxgate.config.engines import family_of, runs_on_node
from onnxgate.errors import UnavailableError
from onnxgate.lock.types import LockedRuntime
from onnxgate.runtimes import node, process, talk
from onnxgate.runtimes.environments import Environments
from onnxgate.runtimes.jobs import Job, Load, Observation, Probe, Run, Unavailable
from onnxgate.runtimes.progress import Progress
from onnxgate.runtimes.seats import JobLimits, Seat, memory_limit_mib

# The first would change what a runtime takes, the second is another interpreter's.
# Source: measured, onnxruntime 1.28 to 1.31 load opset 27 with it.
UNWANTED = ("ALLOW_RELEASED_ONNX_OPSET_ONLY", "PYTHONHOME")
FLAGS = ("-B", "-X", "utf8")
ISOLATED = "-I"  # an engine sees its environment and nothing else
OWN = "-s"  # a source sees what its user set: PYTHONHASHSEED, PYTHONPATH


@dataclass(frozen=True, slots=True)
class Office:
    """What all desks share."""

    environments: Environments
    slots: threading.Semaphore  # how many may be busy at once
    progress: Progress
    worker: Path  # the worker's folder
    closing: threading.Event
    turns: Mapping[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))


@dataclass(frozen=True, slots=True)
class Ticket:
    """A job that waits, and who waits for it."""

    job: Job
    limits: JobLimits
    future: Future[Observation]
    took: Callable[[float], None]  # told how many seconds it was worked on


class Desk:
    """A thread that serves one seat. It starts nothing before the first job."""

    def __init__(self, seat: Seat, office: Office) -> None:
        self._seat = seat
        self._office = office
        self._tickets: queue.Queue[Ticket | None] = queue.Queue()
        self._talk: talk.Talk | None = None
        self._talk_lock = threading.Lock()
        self._interpreter: Path | None = None
        self._unavailable: Unavailable | None = None
        self._turn = office.turns[seat.turn] if seat.turn else contextlib.nullcontext()
        self._thread = threading.Thread(target=self._serve, name=seat.name, daemon=True)
        self._thread.start()

    def put(self, ticket: Ticket) -> None:
        """Line up."""
        self._tickets.put(ticket)

    def end_worker(self) -> None:
        """End the worker and what it is doing; `office.closing` is set by then, so that no other is started."""
        with self._talk_lock:
            if self._talk is not None:
                self._talk.end()
        self._tickets.put(None)

    def join(self) -> None:
        """Wait for the thread's end."""
        self._thread.join()

    def _serve(self) -> None:
        while (ticket := self._tickets.get()) is not None:
            runs_nothing_of_users = isinstance(ticket.job, Probe)
            turn = contextlib.nullcontext() if runs_nothing_of_users else self._turn
            with turn, self._office.slots:
                self._attend(ticket)

    def _attend(self, ticket: Ticket) -> None:
        if self._office.closing.is_set():
            ticket.future.cancel()
        if not ticket.future.set_running_or_notify_cancel():
            return
        try:
            observation = self._observe(ticket)
            if self._office.closing.is_set():  # what was seen then was our own doing
                raise CancelledError
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits for the job
            ticket.future.set_exception(error)
        else:
            ticket.future.set_result(observation)

    def _observe(self, ticket: Ticket) -> Observation:
        worker = self._unavailable or self._worker()
        if isinstance(worker, Unavailable):
            self._unavailable = worker
            return worker
        what = _what(ticket.job)
        self._office.progress.started(self._seat.name, what)
        limits = ticket.limits
        began = time.monotonic()
        observation = worker.ask(ticket.job, limits.time_s, memory_limit_mib(ticket.job, limits))
        ticket.took(time.monotonic() - began)
        self._office.progress.finished(self._seat.name, what, talk.outcome(observation))
        if worker.hopeless and isinstance(observation, Unavailable):
            self._give_up(observation)
        return observation

    def _worker(self) -> talk.Talk | Unavailable:
        """One that can be asked."""
        if self._talk is not None and not self._talk.over:
            return self._talk
        if self._interpreter is None:
            prepared = self._prepare()
            if isinstance(prepared, Unavailable):
                return prepared
            self._interpreter = prepared
        return self._start(self._interpreter)

    def _prepare(self) -> Path | Unavailable:
        seat, progress = self._seat, self._office.progress
        if seat.engine and not self._program().is_file():
            return Unavailable(reason=f"this onnxgate cannot run `{seat.engine}`")
        if seat.runtime is None:
            return seat.interpreter or Unavailable(reason=f"`{seat.name}` names no interpreter")
        progress.started(seat.name, "prepare")
        try:
            prepared = self._made_or_found(seat.runtime)
        except UnavailableError as error:
            progress.finished(seat.name, "prepare", "unavailable")
            return Unavailable(reason=error.message, hint=error.hint or "")
        progress.finished(seat.name, "prepare", "ready")
        return prepared

    def _made_or_found(self, runtime: LockedRuntime) -> Path:
        environments, own = self._office.environments, self._seat.interpreter
        return environments.find_own(own, runtime) if own else environments.prepare(runtime, self._seat.packages)

    def _start(self, interpreter: Path) -> talk.Talk | Unavailable:
        try:
            argv = self._argv(interpreter)
            with self._talk_lock:
                if self._office.closing.is_set():
                    raise CancelledError
                if self._talk is not None:
                    self._talk.end()
                child = process.Child(process.start(argv, self._environment(), Path(tempfile.gettempdir())))
                self._talk = talk.Talk(child, _adapter(self._seat.engine))
        except OSError as error:
            return Unavailable(
                reason=f"`{interpreter.name}` of `{self._seat.name}` cannot be started: {error.strerror}"
            )
        refused = self._talk.greet()
        if refused is not None:
            self._give_up(refused)
        return refused or self._talk

    def _program(self) -> Path:
        """What knows the seat's engine."""
        engine, worker = self._seat.engine, self._office.worker
        return worker / "web" / "main.mjs" if runs_on_node(engine) else worker / "adapters" / f"{_adapter(engine)}.py"

    def _argv(self, prepared: Path) -> list[str]:
        if runs_on_node(self._seat.engine):
            return self._office.environments.node.argv(self._program(), prepared)
        sight = ISOLATED if self._seat.engine else OWN
        return [str(prepared), sight, *FLAGS, str(self._office.worker / "__main__.py")]

    def _give_up(self, observation: Unavailable) -> None:
        """Ask this seat no more, and have its environment built anew by the next run."""
        self._unavailable = observation
        runtime = self._seat.runtime
        if runtime is not None and not runtime.environment and not self._office.closing.is_set():
            self._office.environments.discard(runtime, self._seat.packages)

    def _environment(self) -> Mapping[str, str]:
        own = dict(self._seat.environment)
        unwanted = (*UNWANTED, *(node.UNWANTED if runs_on_node(self._seat.engine) else ()))
        return {**{name: value for name, value in os.environ.items() if name not in unwanted}, **own}


def _adapter(engine: str) -> str:
    return family_of(engine).replace("-", "_")


def _what(job: Job) -> str:
    kind = str(type(job).__struct_config__.tag)
    return f"{kind} {Path(job.model).name}" if isinstance(job, Load | Run) else kind
