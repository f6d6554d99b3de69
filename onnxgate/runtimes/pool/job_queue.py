"""Thread that runs the jobs of one worker spec in order, and starts its worker process."""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from onnxgate.core import subprocesses
from onnxgate.core.errors import UnavailableError
from onnxgate.core.jobs import Job, Load, Observation, Probe, Run, Unavailable
from onnxgate.project.engines import engine_family, runs_on_node
from onnxgate.project.lock.types import LockedRuntime
from onnxgate.runtimes.environments import node
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.pool import sandbox
from onnxgate.runtimes.pool import worker as pool_worker
from onnxgate.runtimes.pool.progress import Progress
from onnxgate.runtimes.pool.sandbox import InvalidOutputError, Permissions, WorkerFolder
from onnxgate.runtimes.worker_spec import JobLimits, WorkerSpec, memory_limit_mib

UNSANDBOXED_NOTE = "its engine does not start with limits, and runs without"
PYTHON_FLAGS = ("-B", "-X", "utf8")
ISOLATED_FLAG = "-I"  # an engine sees its environment only
USER_FLAG = "-s"  # a source sees the user's settings: PYTHONHASHSEED, PYTHONPATH


@dataclass(frozen=True, slots=True)
class PoolState:
    """State that all worker threads share."""

    environments: Environments
    slots: WorkerSlots  # limits how many workers run at once
    making: threading.Semaphore  # limits how many environments are created at once; most of that is waiting
    progress: Progress
    worker: Path  # the worker's folder
    closing: threading.Event
    limited: bool = True  # engines run in a sandbox; False: with the permissions of this process
    readable: set[str] = field(default_factory=set)  # folders that every engine may read
    notes: set[tuple[str, str]] = field(default_factory=set)  # worker name, restriction not applied
    turns: Mapping[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A queued job and the future of its observation."""

    job: Job
    limits: JobLimits
    future: Future[Observation]
    took: Callable[[float], None]  # called with the seconds that the job took


class WorkerThread:
    """A thread that runs the jobs of one worker spec. It starts nothing before the first job."""

    def __init__(self, seat: WorkerSpec, office: PoolState) -> None:
        self._seat = seat
        self._office = office
        self._tickets: queue.Queue[QueuedJob | None] = queue.Queue()
        self._talk: pool_worker.WorkerSession | None = None
        self._talk_lock = threading.Lock()
        self._interpreter: Path | None = None
        self._unavailable: Unavailable | None = None
        self._fault: BaseException | None = None  # of ours, while the environment was made
        self._room: WorkerFolder | None = None
        self._rights = Permissions()  # those of the worker that works now
        self._limited = office.limited and bool(seat.engine)
        self._turn = office.turns[seat.turn] if seat.turn else contextlib.nullcontext()
        self._thread = threading.Thread(target=self._serve, name=seat.name, daemon=True)
        self._thread.start()

    def put(self, ticket: QueuedJob) -> None:
        """Add a job to the queue."""
        self._tickets.put(ticket)

    def end_worker(self) -> None:
        """End the worker and its current job; the pool is already closing, so no other worker is started."""
        with self._talk_lock:
            if self._talk is not None:
                self._talk.end()
        self._tickets.put(None)

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    def _serve(self) -> None:
        try:
            self._serve_all()
        finally:
            if self._room is not None:
                self._room.close()

    def _serve_all(self) -> None:
        while (ticket := self._tickets.get()) is not None:
            try:
                self._take_up(ticket)
            except BaseException as error:  # noqa: BLE001 - the future of every job must be completed
                if not ticket.future.done():
                    ticket.future.set_exception(error)

    def _take_up(self, ticket: QueuedJob) -> None:
        runs_nothing_of_users = isinstance(ticket.job, Probe)
        turn = contextlib.nullcontext() if runs_nothing_of_users else self._turn
        with turn:
            self._get_ready()
            with self._office.slots.taken(self._rank(ticket)):
                self._attend(ticket)

    def _rank(self, ticket: QueuedJob) -> Priority:
        """Return the job's priority: exports, which runs depend on, come first, and probes of toolchains last."""
        if not self._seat.turn:
            return Priority.USUAL
        return Priority.AHEAD if isinstance(ticket.job, Probe) else Priority.AWAITED

    def _get_ready(self) -> None:
        """Create the environment unless that was done. Only its test takes a worker slot, not the installation."""
        if self._interpreter is not None or self._unavailable is not None:
            return
        try:
            with self._office.making:
                prepared = self._prepare() if not self._office.closing.is_set() else None
        except BaseException as error:  # noqa: BLE001 - raised by the future of the job
            self._fault = error
            return
        if isinstance(prepared, Unavailable):
            self._unavailable = prepared
        else:
            self._interpreter = prepared

    def _attend(self, ticket: QueuedJob) -> None:
        if self._office.closing.is_set():
            ticket.future.cancel()
        if not ticket.future.set_running_or_notify_cancel():
            return
        try:
            observation = self._observe(ticket)
            if self._office.closing.is_set():  # the closing pool caused the observation
                raise CancelledError
        except BaseException as error:  # noqa: BLE001 - raised by the future of the job
            ticket.future.set_exception(error)
        else:
            ticket.future.set_result(observation)

    def _observe(self, ticket: QueuedJob) -> Observation:
        if self._fault is not None:
            raise self._fault
        worker = self._unavailable or self._worker(ticket)
        if isinstance(worker, Unavailable):
            self._unavailable = worker
            return worker
        what = _describe_job(ticket.job)
        self._office.progress.started(self._seat.name, what)
        began = time.monotonic()
        observation = self._answer(worker, ticket)
        ticket.took(time.monotonic() - began)
        self._office.progress.finished(self._seat.name, what, pool_worker.outcome_name(observation))
        return observation

    def _answer(self, worker: pool_worker.WorkerSession, ticket: QueuedJob) -> Observation:
        observation = self._ask(worker, ticket)
        if not (worker.hopeless and isinstance(observation, Unavailable)):
            return observation
        if self._limited:
            without = self._worker_without_limits(ticket)
            return without if isinstance(without, Unavailable) else self._answer(without, ticket)
        return self._give_up(observation)

    def _ask(self, worker: pool_worker.WorkerSession, ticket: QueuedJob) -> Observation:
        job, limits = ticket.job, ticket.limits
        memory_mib = memory_limit_mib(job, limits)
        if self._room is None or not self._seat.engine:
            return worker.ask(job, limits.time_s, memory_mib)
        try:
            inside = self._room.inside(job)
            return self._room.deliver(worker.ask(inside, limits.time_s, memory_mib), inside, job)
        except InvalidOutputError:
            return worker.raved()
        except OSError as error:
            return Unavailable(reason=f"what `{self._seat.name}` writes cannot be stored: {error.strerror or error}")

    def _worker(self, ticket: QueuedJob) -> pool_worker.WorkerSession | Unavailable:
        """Return a worker that is ready and has the permissions for the job; start one if necessary."""
        need = self._needed(ticket, memory_limit_mib(ticket.job, ticket.limits)) if self._limited else Permissions()
        if self._talk is not None and not self._talk.over and self._rights.covers(need):
            return self._talk
        if self._interpreter is None:
            raise CancelledError  # the pool was closed before the environment was created
        return self._start(self._interpreter, ticket, self._all_needed(need))

    def _worker_without_limits(self, ticket: QueuedJob) -> pool_worker.WorkerSession | Unavailable:
        """Start a worker without a sandbox if it fails to start in one: no model is loaded yet, so none is to blame."""
        self._limited = False
        if self._talk is not None:
            self._talk.end()
        worker = self._worker(ticket)
        if not isinstance(worker, Unavailable):
            self._office.notes.add((self._seat.name, UNSANDBOXED_NOTE))
        return worker

    def _needed(self, ticket: QueuedJob, memory_mib: int | None) -> Permissions:
        return sandbox.required_permissions(ticket.job, memory_mib, own=self._seat.interpreter is not None)

    def _all_needed(self, need: Permissions) -> Permissions:
        """Add the permissions for the queued jobs, so that one worker can run them all."""
        with self._tickets.mutex:
            waiting = [ticket for ticket in self._tickets.queue if ticket is not None]
        for ticket in waiting if self._limited else ():
            need |= self._needed(ticket, None)
        return need | Permissions(frozenset(self._office.readable))

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
        if own:
            return environments.find_own(own, runtime)
        return environments.prepare(runtime, self._seat.packages, self._office.slots.taken())

    def _start(
        self, interpreter: Path, ticket: QueuedJob, kept: Permissions
    ) -> pool_worker.WorkerSession | Unavailable:
        try:
            self._room = self._room or WorkerFolder()
            argv = self._argv(interpreter, kept)
            with self._talk_lock:
                if self._office.closing.is_set():
                    raise CancelledError
                if self._talk is not None:
                    self._talk.end()
                child = subprocesses.WorkerProcess(
                    subprocesses.start_program(
                        argv, environment=self._environment(), folder=self._room.folder, bound="group"
                    )
                )
                self._talk, self._rights = pool_worker.WorkerSession(child, _adapter_name(self._seat.engine)), kept
        except OSError as error:
            reason = f"`{interpreter.name}` of `{self._seat.name}` cannot be started: {error.strerror}"
            unavailable = Unavailable(reason=reason)
            return self._give_up(unavailable) if error.filename == str(interpreter) else unavailable
        refused = self._talk.greet()
        if refused is not None and self._limited and not self._office.closing.is_set():
            return self._worker_without_limits(ticket)
        if refused is not None:
            refused = self._give_up(refused)
        self._office.notes.update((self._seat.name, note) for note in self._talk.notes)
        return refused or self._talk

    def _program(self) -> Path:
        """Return the program that supports the engine."""
        engine, worker = self._seat.engine, self._office.worker
        return (
            worker / "web" / "main.mjs" if runs_on_node(engine) else worker / "adapters" / f"{_adapter_name(engine)}.py"
        )

    def _argv(self, prepared: Path, kept: Permissions) -> list[str]:
        main = str(self._office.worker / "__main__.py")
        if runs_on_node(self._seat.engine):
            builder = self._office.environments.node
            argv = builder.argv(self._program(), prepared)
            kept |= Permissions(frozenset(builder.reads(prepared)))
            return (
                [sys.executable, ISOLATED_FLAG, "-S", *PYTHON_FLAGS, main, self._said(kept), *argv]
                if self._limited
                else argv
            )
        sight = ISOLATED_FLAG if self._seat.engine else USER_FLAG
        return [str(prepared), sight, *PYTHON_FLAGS, main, *([self._said(kept)] if self._limited else [])]

    def _said(self, kept: Permissions) -> str:
        assert self._room is not None  # `_start` has created it
        return str(self._room.say(kept))

    def _give_up(self, observation: Unavailable) -> Unavailable:
        """Run no more jobs here, and have the environment rebuilt by the next run."""
        runtime = self._seat.runtime
        if runtime is not None and not runtime.environment and not self._office.closing.is_set():
            self._office.environments.discard(runtime, self._seat.packages)
            hint = observation.hint or "run it again: its environment is then built anew"
            observation = Unavailable(reason=observation.reason, hint=hint)
        self._unavailable = observation
        return observation

    def _environment(self) -> Mapping[str, str]:
        seat = self._seat
        if self._limited:
            assert self._room is not None  # `_start` has created it
            own = seat.interpreter is not None
            return {**sandbox.runtime_variables(os.environ, self._room.folder, own=own), **dict(seat.environment)}
        users = sandbox.source_variables(os.environ)
        unwanted = node.NODE_VARIABLES if runs_on_node(seat.engine) else ()
        return {**{name: value for name, value in users.items() if name not in unwanted}, **dict(seat.environment)}


def _adapter_name(engine: str) -> str:
    return engine_family(engine).replace("-", "_")


def _describe_job(job: Job) -> str:
    kind = str(type(job).__struct_config__.tag)
    return f"{kind} {Path(job.model).name}" if isinstance(job, Load | Run) else kind


class Priority(IntEnum):
    """Order in which waiting jobs get a worker slot."""

    AWAITED = 0  # other jobs depend on it
    USUAL = 1
    AHEAD = 2  # no other job depends on it yet


class WorkerSlots:
    """Limit on the number of busy workers. Waiting jobs of a higher priority come first."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: Counter[Priority] = Counter()
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, rank: Priority = Priority.USUAL) -> Iterator[None]:
        """Wait for a slot, and occupy it during the block."""
        self._take(rank)
        try:
            yield
        finally:
            with self._changed:
                self._free += 1
                self._changed.notify_all()

    def _take(self, rank: Priority) -> None:
        with self._changed:
            self._waiting[rank] += 1
            self._changed.wait_for(
                lambda: self._free > 0 and not any(self._waiting[each] for each in Priority if each < rank)
            )
            self._waiting[rank] -= 1
            self._free -= 1
            self._changed.notify_all()
