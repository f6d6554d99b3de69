"""Worker pool: runs jobs in one worker process per `WorkerSpec`, and returns their observations."""

from __future__ import annotations

import contextlib
import os
import queue
import shlex
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from onnxgate.core.errors import UnavailableError
from onnxgate.core.jobs import Command, Job, Load, Observation, Probe, Run, Unavailable
from onnxgate.core.machine_faults import find_fault_in_text, find_machine_fault
from onnxgate.core.subprocesses import WorkerProcess, start_program
from onnxgate.model.reading.external_data import shorten_text
from onnxgate.project.engines import runs_on_node
from onnxgate.runtimes import sandbox
from onnxgate.runtimes.engine_program import PYTHON_FLAGS, EngineProgram, adapter_name
from onnxgate.runtimes.environments import node
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.environments.user_environment import check_user_environment
from onnxgate.runtimes.memory import estimate_job_bytes, measure_available_bytes, memory_limit_mib
from onnxgate.runtimes.protocol import WORKER_FOLDER, WorkerSession
from onnxgate.runtimes.sandbox import InvalidOutputError, Permissions, WorkerFolder
from onnxgate.runtimes.worker_slots import Priority, WorkerSlots
from onnxgate.runtimes.worker_spec import JobLimits, JobMeter, WorkerSpec

MIN_PARALLEL_BUILDS = 4
"""Minimum number of parallel builds, even on machines with fewer cores: a build mostly waits for network and disk."""
UNSANDBOXED_NOTE = "could not start in the sandbox; running unsandboxed"
USER_FLAG = "-s"  # sources need the user's settings, such as PYTHONPATH
PREPARE_ACTIVITY = "prepare"
LOOK_UP_ACTIVITY = "look up"
"""Names of activities that are not jobs: preparing an environment, and looking up its wheels."""


class Progress:
    """Progress receiver that ignores all calls. Subclasses must be thread-safe. A worker has one activity at a time."""

    def started(self, worker: str, activity: str) -> None:
        """Handle the start of a worker's activity, such as `run classifier.onnx` in `onnxruntime 1.18.1`."""

    def finished(self, worker: str, activity: str, outcome: str) -> None:
        """Handle the outcome of an activity.

        It is `completed`, `refused`, `crashed`, `timed-out` or `unavailable` or, for an environment, `created`,
        `created again` with the reason, `reused`, `ready` or `unavailable`.
        """


class WorkerPool:
    """Runs jobs in one long-lived worker process per `WorkerSpec`.

    A worker runs its jobs in the order of submission. At most `jobs` workers run at the same time, and their total
    estimated memory does not exceed the available memory. A worker is restarted after a large job and any following
    jobs with the same model. Environments are created in parallel with jobs, several at once unless `jobs` is 1.

    Failures of a runtime are observations, not exceptions. All child processes end when the pool is closed or
    onnxgate itself ends. Unless `limited` is False, engines run in a sandbox (`sandbox.py`).
    An engine of a user environment that cannot start there runs without it.
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
        measure_memory: Callable[[], int] = measure_available_bytes,
    ) -> None:
        self.meter = meter or JobMeter()
        self._limits = limits or JobLimits()
        slots = WorkerSlots(max(1, jobs), measure_memory)
        builds = threading.BoundedSemaphore(max(MIN_PARALLEL_BUILDS, jobs) if jobs > 1 else 1)
        self._state = PoolState(environments, slots, builds, progress or Progress(), worker, limited)
        self._threads: dict[WorkerSpec, WorkerThread] = {}
        self._lock = threading.Lock()

    def show(self, *folders: Path, models: Iterable[Path] = ()) -> None:
        """Make folders and models readable for engines that start after this call.

        The files of a job are always readable, but a worker that started without access to them must be restarted.
        """
        self._state.readable.update(str(folder.absolute()) for folder in folders)
        for model in models:
            self._state.readable.update(sandbox.list_model_files(str(model.absolute())))

    @property
    def environments(self) -> Environments:
        """Environments of the engines."""
        return self._state.environments

    @property
    def notes(self) -> tuple[str, ...]:
        """Restrictions that could not be applied, with the names of the workers."""
        workers: dict[str, list[str]] = {}
        for worker, note in sorted(self._state.notes):
            workers.setdefault(note, []).append(worker)
        return tuple(f"{', '.join(names)}: {note}" for note, names in workers.items())

    def submit(self, spec: WorkerSpec, job: Job, *, limits: JobLimits | None = None) -> Future[Observation]:
        """Queue a job. Safe to call from any thread until the pool is closed."""
        future: Future[Observation] = Future()
        with self._lock:
            if self._state.closing.is_set():
                raise RuntimeError("the worker pool is closed")
            if spec not in self._threads:
                self._threads[spec] = WorkerThread(spec, self._state)
            add_seconds = self.meter.begin(spec.name, job)
            self._threads[spec].put(QueuedJob(job, limits or self._limits, future, add_seconds))
        return future

    def close(self) -> None:
        """End all workers. Queued jobs are canceled, and running jobs raise `CancelledError`."""
        with self._lock:
            self._state.closing.set()
            workers = tuple(self._threads.values())
        self._state.environments.close()
        endings = [threading.Thread(target=worker.end_worker, daemon=True) for worker in workers]
        for thread in endings:
            thread.start()
        for thread in (*endings, *workers):
            thread.join()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class PoolState:
    """State that all worker threads share."""

    environments: Environments
    slots: WorkerSlots  # limits the number of running workers and their memory
    builds: threading.Semaphore  # limits the number of environments that are created in parallel
    progress: Progress
    worker: Path  # folder of the worker's code
    limited: bool  # engines run in a sandbox
    closing: threading.Event = field(default_factory=threading.Event)
    readable: set[str] = field(default_factory=set)  # folders and files that every engine may read
    notes: set[tuple[str, str]] = field(default_factory=set)  # worker name, restriction not applied
    turns: Mapping[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A queued job, and the future for its observation."""

    job: Job
    limits: JobLimits
    future: Future[Observation]
    add_seconds: Callable[[float], None]  # called with the run time in seconds


class WorkerThread(threading.Thread):
    """Thread that runs the jobs of one worker spec in order. The first job starts the worker process."""

    def __init__(self, spec: WorkerSpec, pool: PoolState) -> None:
        super().__init__(name=spec.name, daemon=True)
        self._spec = spec
        self._pool = pool
        self._queue: queue.Queue[QueuedJob | None] = queue.Queue()
        self._session: WorkerSession | None = None
        self._session_lock = threading.Lock()
        self._interpreter: Path | None = None
        self._unavailable: Unavailable | None = None
        self._build_error: BaseException | None = None  # internal error while building the environment
        self._folder: WorkerFolder | None = None
        self._permissions = Permissions()  # permissions of the running worker
        self._limited = pool.limited and bool(spec.engine)
        self._turn = pool.turns[spec.turn] if spec.turn else contextlib.nullcontext()
        self.start()

    def put(self, queued: QueuedJob) -> None:
        """Add a job to the queue."""
        self._queue.put(queued)

    def end_worker(self) -> None:
        """End the worker and its current job. The pool is closing, so no other worker is started."""
        self._end_session()
        self._queue.put(None)

    def _end_session(self) -> None:
        with self._session_lock:
            if self._session is not None:
                self._session.end()

    def run(self) -> None:
        """Process jobs until the worker is ended."""
        try:
            while (queued := self._queue.get()) is not None:
                try:
                    self._process(queued)
                except BaseException as error:  # noqa: BLE001 - the future of every job must be completed
                    if not queued.future.done():
                        queued.future.set_exception(error)
        finally:
            if self._folder is not None:
                self._folder.close()

    def _process(self, queued: QueuedJob) -> None:
        """Wait for a slot and run the job. Exports have the highest priority, and toolchain probes the lowest."""
        is_probe = isinstance(queued.job, Probe)  # does not run user code
        priority = Priority.AHEAD if is_probe else Priority.AWAITED
        needed_bytes, slots = estimate_job_bytes(queued.job), self._pool.slots
        with contextlib.nullcontext() if is_probe else self._turn:
            self._prepare_once()
            with slots.occupy(priority if self._spec.turn else Priority.USUAL, needed_bytes):
                self._complete(queued)
                if slots.is_large(needed_bytes):
                    while (again := self._take_job_with_same_model(queued)) is not None:
                        self._complete(again)
                    self._end_session()  # allocators do not release the memory of a large model

    def _take_job_with_same_model(self, queued: QueuedJob) -> QueuedJob | None:
        """Take the next job from the queue if it loads the same model, so that the same process runs both."""
        if not isinstance(queued.job, Load | Run):
            return None
        with self._queue.mutex:
            ahead: QueuedJob | None = self._queue.queue[0] if self._queue.queue else None
            if ahead is None or not isinstance(ahead.job, Load | Run) or ahead.job.model != queued.job.model:
                return None
            self._queue.queue.popleft()
            return ahead

    def _prepare_once(self) -> None:
        """Create the environment once. The health check occupies a worker slot; the installation does not."""
        if self._interpreter is not None or self._unavailable is not None:
            return
        try:
            with self._pool.builds:
                prepared = self._prepare() if not self._pool.closing.is_set() else None
        except BaseException as error:  # noqa: BLE001 - raised by the future of the job
            self._build_error = error
            return
        if isinstance(prepared, Unavailable):
            self._unavailable = prepared
        else:
            self._interpreter = prepared

    def _prepare(self) -> Path | Unavailable:
        spec, progress, environments = self._spec, self._pool.progress, self._pool.environments
        if spec.engine and not self._program().is_file():
            return Unavailable(reason=f"this version of onnxgate does not support `{spec.engine}`")
        if spec.runtime is None:
            return spec.interpreter or Unavailable(reason=f"`{spec.name}` has no interpreter")
        progress.started(spec.name, PREPARE_ACTIVITY)
        try:
            if spec.interpreter:
                prepared = check_user_environment(spec.interpreter, spec.runtime, environments.commands)
            else:
                prepared = environments.prepare(spec.runtime, spec.packages, self._pool.slots.occupy())
        except UnavailableError as error:
            progress.finished(spec.name, PREPARE_ACTIVITY, "unavailable")
            return Unavailable(reason=error.message, hint=error.hint or "")
        name = spec.runtime.name
        outcome = "ready" if spec.interpreter else "created" if name in environments.created else "reused"
        if name in environments.changed:
            outcome = "created again, because its files have changed"
        progress.finished(spec.name, PREPARE_ACTIVITY, outcome)
        return prepared

    def _complete(self, queued: QueuedJob) -> None:
        if self._pool.closing.is_set():
            queued.future.cancel()
        if not queued.future.set_running_or_notify_cancel():
            return
        try:
            observation = self._observe(queued)
            if self._pool.closing.is_set():  # the observation was caused by closing the pool
                raise CancelledError
        except BaseException as error:  # noqa: BLE001 - raised by the future of the job
            queued.future.set_exception(error)
        else:
            queued.future.set_result(observation)

    def _observe(self, queued: QueuedJob) -> Observation:
        if self._build_error is not None:
            raise self._build_error
        if self._limited and (hidden := sandbox.find_hidden_data(queued.job)):
            return Unavailable(
                reason=f"external data `{shorten_text(hidden)}` is hidden, and the sandbox denies access to it",
                hint="rename the file, so that no part of its path begins with a dot",
            )
        session = self._unavailable or self._ready_session(queued)
        if isinstance(session, Unavailable):
            self._unavailable = session
            return session
        activity = queued.job.tag
        if isinstance(queued.job, Load | Run):
            activity += f" {Path(queued.job.model).name}"
            activity += "" if queued.job.optimization == "all" else f", optimization {queued.job.optimization}"
        if isinstance(queued.job, Command):
            self._pool.environments.commands.executed.append(shlex.join(queued.job.argv))
        self._pool.progress.started(self._spec.name, activity)
        began = time.monotonic()
        observation = self._run_or_restart(session, queued)
        queued.add_seconds(time.monotonic() - began)
        self._pool.progress.finished(self._spec.name, activity, observation.tag)
        return observation

    def _run_or_restart(self, session: WorkerSession, queued: QueuedJob) -> Observation:
        observation = self._run(session, queued)
        if self._limited:
            observation = sandbox.explain_denial(observation, queued.job, self._permissions)
        if not (session.cannot_start and isinstance(observation, Unavailable)):
            return observation
        if self._may_run_unsandboxed:
            unlimited = self._start_unlimited(queued, observation.reason)
            return unlimited if isinstance(unlimited, Unavailable) else self._run_or_restart(unlimited, queued)
        return self._give_up(observation)

    def _run(self, session: WorkerSession, queued: QueuedJob) -> Observation:
        job, time_s = queued.job, queued.limits.time_s
        memory_mib = memory_limit_mib(job, queued.limits)
        if self._folder is None or not self._spec.engine:
            return session.run(job, time_s, memory_mib)
        try:
            inner = self._folder.redirect(job)
            observation = self._folder.deliver(session.run(inner, time_s, memory_mib), inner, job)
        except InvalidOutputError:
            return session.reject_answer()
        except OSError as error:
            if fault := find_machine_fault(error, tempfile.gettempdir()):
                return Unavailable(reason=fault.message, hint=fault.hint)
            reason = f"the outputs of `{self._spec.name}` cannot be stored: {error.strerror or error}"
            return Unavailable(reason=reason)
        if isinstance(observation, Unavailable) and not observation.hint:
            fault = find_fault_in_text(observation.reason, tempfile.gettempdir())
            return Unavailable(reason=fault.message, hint=fault.hint) if fault else observation
        return observation

    def _ready_session(self, queued: QueuedJob) -> WorkerSession | Unavailable:
        """Return a worker that is ready and has the permissions for the job; start one if necessary."""
        memory_mib = memory_limit_mib(queued.job, queued.limits) if self._limited else None
        required = self._required_permissions([queued.job], memory_mib)
        if self._session is not None and not self._session.ended and self._permissions.covers(required):
            return self._session
        if self._interpreter is None:
            raise CancelledError  # the pool was closed before the environment was created
        with self._queue.mutex:  # so that one worker can run all queued jobs
            waiting = [later.job for later in self._queue.queue if later is not None]
        required |= self._required_permissions(waiting, None)
        return self._launch(self._interpreter, queued, required | Permissions(frozenset(self._pool.readable)))

    def _required_permissions(self, queued: Iterable[Job], memory_mib: int | None) -> Permissions:
        if not self._limited:
            return Permissions()
        return sandbox.required_permissions(queued, memory_mib, own=self._spec.interpreter is not None)

    @property
    def _may_run_unsandboxed(self) -> bool:
        """Whether the engine may be started without the sandbox: if it is part of the user's own environment.

        A locked package could otherwise leave the sandbox by failing to start in it.
        """
        return self._limited and self._spec.interpreter is not None

    def _start_unlimited(self, queued: QueuedJob, reason: str) -> WorkerSession | Unavailable:
        """Start a user's build without a sandbox if it failed to start in one. No model has been loaded yet."""
        self._limited = False
        if self._session is not None:
            self._session.end()
        session = self._ready_session(queued)
        if not isinstance(session, Unavailable):
            self._pool.notes.add((self._spec.name, f"{UNSANDBOXED_NOTE} ({reason})"))
        return session

    def _launch(self, interpreter: Path, queued: QueuedJob, permissions: Permissions) -> WorkerSession | Unavailable:
        try:
            folder = self._folder = self._folder or WorkerFolder()
            argv = self._argv(interpreter, permissions, folder)
            if not self._spec.engine:  # a toolchain
                self._pool.environments.commands.executed.append(shlex.join(argv))
            with self._session_lock:
                if self._pool.closing.is_set():
                    raise CancelledError
                if self._session is not None:
                    self._session.end()
                environment = self._environment(folder)
                process = start_program(argv, environment=environment, folder=folder.path, bound="group")
                self._session = WorkerSession(WorkerProcess(process), adapter_name(self._spec.engine))
                self._permissions = permissions
        except OSError as error:
            reason = f"`{interpreter.name}` of `{self._spec.name}` cannot be started: {error.strerror}"
            unavailable = Unavailable(reason=reason)
            return self._give_up(unavailable) if error.filename == str(interpreter) else unavailable
        refused = self._session.wait_until_ready()
        if refused is not None and self._may_run_unsandboxed and not self._pool.closing.is_set():
            return self._start_unlimited(queued, refused.reason)
        if refused is not None:
            refused = self._give_up(refused)
        self._pool.notes.update((self._spec.name, note) for note in self._session.notes)
        return refused or self._session

    def _program(self) -> Path:
        """Return the file that implements support for the engine."""
        worker, engine = self._pool.worker, self._spec.engine
        if runs_on_node(engine):
            return worker / "web" / "main.mjs"
        return worker / "adapters" / f"{adapter_name(engine)}.py"

    def _argv(self, prepared: Path, permissions: Permissions, folder: WorkerFolder) -> list[str]:
        if not self._spec.engine:
            return [str(prepared), USER_FLAG, *PYTHON_FLAGS, str(self._pool.worker / "__main__.py")]
        program = self._engine_program(prepared)
        return program.command(program.write_permissions(folder, permissions) if self._limited else None)

    def _engine_program(self, prepared: Path) -> EngineProgram:
        engine, worker = self._spec.engine, self._pool.worker
        if runs_on_node(engine):
            return self._pool.environments.node.program(engine, prepared, worker)
        return EngineProgram.of_python(engine, prepared, own=self._spec.interpreter is not None, worker=worker)

    def _environment(self, folder: WorkerFolder) -> Mapping[str, str]:
        spec = self._spec
        if self._limited:
            own = spec.interpreter is not None
            return {**sandbox.runtime_variables(os.environ, folder.path, own=own), **dict(spec.environment)}
        removed = node.NODE_VARIABLES if runs_on_node(spec.engine) else ()
        users = sandbox.source_variables(os.environ)
        passed = {name: value for name, value in users.items() if name not in removed}
        if spec.engine:
            passed = {**passed, **sandbox.private_folder_variables(folder.path)}
        return {**passed, **dict(spec.environment)}

    def _give_up(self, observation: Unavailable) -> Unavailable:
        """Stop running jobs in this worker, and mark its environment to be rebuilt by the next onnxgate run."""
        runtime = self._spec.runtime
        if runtime is not None and not runtime.environment and not self._pool.closing.is_set():
            self._pool.environments.discard(runtime, self._spec.packages)
            hint = observation.hint or "run the command again to rebuild the environment of this runtime"
            observation = Unavailable(reason=observation.reason, hint=hint)
        self._unavailable = observation
        return observation
