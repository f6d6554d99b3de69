"""Workers that crash, hang, flood, lie or allocate too much: each affects only its own job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from onnxgate.core import subprocesses
from onnxgate.core.jobs import (
    Command,
    Completed,
    Crashed,
    Export,
    ExportResult,
    InputCase,
    Load,
    LoadResult,
    Observation,
    Probe,
    ProbeResult,
    Refused,
    Run,
    TimedOut,
    Unavailable,
)
from onnxgate.runtimes import pool
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.worker_slots import LARGE_JOB_BYTES
from onnxgate.runtimes.worker_spec import JobLimits, WorkerSpec
from onnxgate.stages.export_jobs import create_toolchain_spec

GOOD = Completed(result=LoadResult(providers=("Fake",)))


class Recorder:
    """Records the events of a progress display."""

    def __init__(self) -> None:
        self.events: list[tuple[str, ...]] = []

    def started(self, worker_spec: str, what: str) -> None:
        """Record the start of a job."""
        self.events.append(("started", worker_spec, what))

    def finished(self, worker_spec: str, what: str, outcome: str) -> None:
        """Record the end of a job."""
        self.events.append(("finished", worker_spec, what, outcome))


def load_model(host: WorkerPool, worker_spec: WorkerSpec, model: str) -> Observation:
    """Return the observation of loading a model."""
    return host.submit(worker_spec, Load(model=model)).result(60)


def pid_of(host: WorkerPool, worker_spec: WorkerSpec) -> int:
    """Return the id of the process that serves a worker specification."""
    observation = host.submit(worker_spec, Probe()).result(60)
    assert isinstance(observation, Completed)
    assert isinstance(observation.result, ProbeResult)
    return int(observation.result.python)


def has_ended(is_alive: Callable[[int], bool], pid: int) -> bool:
    """Return whether a process ends within ten seconds."""
    until = time.monotonic() + 10
    while is_alive(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not is_alive(pid)


def test_one_process_runs_all_jobs_of_a_worker_spec(fake_host: WorkerPool, fake: WorkerSpec) -> None:
    """All jobs of a worker specification run in one process."""
    pids = {pid_of(fake_host, fake) for _ in range(3)}

    assert len(pids) == 1


def test_a_segfault_costs_one_job(fake_host: WorkerPool, fake: WorkerSpec) -> None:
    """The observation contains the signal, the phase and the log; the next job gets a new worker."""
    jobs = [fake_host.submit(fake, Load(model=name)) for name in ("segfault", "good")]

    assert [Crashed(signal="SIGSEGV", during="load", log="about to fall"), GOOD] == [job.result(60) for job in jobs]


@pytest.mark.parametrize(
    ("model", "expected"), [("extension_falls", "SIGSEGV"), ("extension_hangs", "timed out after 2 s")]
)
def test_crash_of_an_extension_is_undecided(fake_host: WorkerPool, fake: WorkerSpec, model: str, expected: str) -> None:
    """A crash or hang while extensions are registered leaves the model undecided; the next job gets a new worker."""
    observation = load_model(fake_host, fake, model)

    assert Unavailable(reason=f"the extensions cannot be registered: {expected}") == observation
    assert load_model(fake_host, fake, "good") == GOOD


def test_a_worker_that_ends_by_itself_has_crashed(fake_host: WorkerPool, fake: WorkerSpec) -> None:
    """A worker that calls `os._exit` has crashed."""
    assert Crashed(signal="exit status 3", during="load", log="") == load_model(fake_host, fake, "exit_3")


def test_a_source_that_ends_the_program_is_refused(fake_host: WorkerPool, fake: WorkerSpec) -> None:
    """`sys.exit` is reported as a failure and does not end the worker."""
    before = pid_of(fake_host, fake)
    observation = load_model(fake_host, fake, "system_exit")

    assert isinstance(observation, Refused)
    assert (observation.failure.type, observation.failure.text) == ("SystemExit", "3")
    assert before == pid_of(fake_host, fake)


@pytest.mark.parametrize("model", ["hang", "hang_with_the_lock"])
def test_hanging_job_times_out(fake_host: WorkerPool, fake: WorkerSpec, tmp_path: Path, model: str) -> None:
    """A hanging job times out, even in native code that keeps the GIL; the next job works."""
    during = {"hang": "case one", "hang_with_the_lock": "load"}[model]

    assert TimedOut(limit_s=2, during=during, log="") == load_model(fake_host, fake, str(tmp_path / model))
    assert load_model(fake_host, fake, "good") == GOOD


def test_excessive_output_is_discarded(fake_host: WorkerPool, fake: WorkerSpec) -> None:
    """200 MB on both streams are read and discarded."""
    limits = JobLimits(time_s=60)

    assert fake_host.submit(fake, Load(model="flood"), limits=limits).result(60) == GOOD


def test_a_flood_of_phases_is_ended(fake_host: WorkerPool, fake: WorkerSpec) -> None:
    """The time limit applies regardless of how many messages a worker sends."""
    assert isinstance(load_model(fake_host, fake, "flood_of_phases"), TimedOut)
    assert load_model(fake_host, fake, "good") == GOOD


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits by the kernel are Linux's")
def test_memory_is_limited_per_job(fake_host: WorkerPool, fake: WorkerSpec) -> None:
    """The same worker refuses 2 GiB under a limit of 1 GiB and allocates it under a limit of 4 GiB."""
    before = pid_of(fake_host, fake)
    refused = load_model(fake_host, fake, "allocate")
    given = fake_host.submit(fake, Load(model="allocate"), limits=JobLimits(60, 4096)).result(60)

    assert isinstance(refused, Refused)
    assert refused.failure.memory
    assert Completed(result=LoadResult(providers=(str(2 * 2**30),))) == given
    assert before == pid_of(fake_host, fake)


def test_job_code_cannot_read_queued_jobs(fake_host: WorkerPool, fake: WorkerSpec) -> None:
    """Code that reads its standard input finds it empty and does not consume queued jobs."""
    jobs = [fake_host.submit(fake, Load(model=name)) for name in ("read_stdin", "good")]

    assert Completed(result=LoadResult(providers=("read ''",))) == jobs[0].result(60)
    assert jobs[1].result(60) == GOOD


def test_a_hostile_text_arrives_harmless(fake_host: WorkerPool, fake: WorkerSpec) -> None:
    """Escape sequences and surrogates are removed, and the length is limited."""
    observation = load_model(fake_host, fake, "raise_hostile")

    assert isinstance(observation, Refused)
    assert observation.failure.text.startswith("::error::\n?xxx")
    assert len(observation.failure.text) == 4_000


@pytest.mark.parametrize(
    "model", ["wrong_kind", "wrong_type", "overlong", "no_json", "no_utf8", "deep", "not_to_us", "twice"]
)
def test_invalid_response_is_a_crash(fake_host: WorkerPool, fake: WorkerSpec, model: str) -> None:
    """An invalid response is a crash of its own or of the next job, and never a pass."""
    first = load_model(fake_host, fake, model)
    if model == "twice":
        assert first == GOOD
        first = load_model(fake_host, fake, "hang")

    assert isinstance(first, Crashed)
    assert first.signal == "an invalid response"
    assert load_model(fake_host, fake, "good") == GOOD


@pytest.mark.parametrize("model", ["too_few_cases", "foreign_file", "no_file", "too_few_outputs"])
def test_missing_outputs_are_a_crash(fake_host: WorkerPool, fake: WorkerSpec, tmp_path: Path, model: str) -> None:
    """A run is accepted only with every case and every output, each in its expected place."""
    output = tmp_path / "output"
    output.mkdir()
    (tmp_path / "foreign.npy").touch()
    case = InputCase(name="one", origin="generated", inputs={})
    observation = fake_host.submit(fake, Run(model=model, cases=(case,), output=str(output))).result(60)

    assert Crashed(signal="an invalid response", during="load", log="") == observation


def test_a_worker_that_died_at_rest_is_replaced(fake_host: WorkerPool, fake: WorkerSpec) -> None:
    """The death of an idle worker is not attributed to a job."""
    os.kill(pid_of(fake_host, fake), signal.SIGKILL)
    time.sleep(0.5)

    assert load_model(fake_host, fake, "good") == GOOD


def test_children_of_a_worker_end_with_it(
    fake_host: WorkerPool, fake: WorkerSpec, is_alive: Callable[[int], bool]
) -> None:
    """Child processes of a job are killed when the worker crashes."""
    observation = load_model(fake_host, fake, "with_a_child")

    assert isinstance(observation, Crashed)
    assert has_ended(is_alive, json.loads(observation.log)["child"])


def test_seats_work_side_by_side(fake_host: WorkerPool, tmp_path: Path) -> None:
    """Two jobs that wait for each other complete on different workers."""
    worker_specs = [WorkerSpec(name, "fake", interpreter=Path(sys.executable)) for name in ("a", "b")]
    jobs = [fake_host.submit(seat, Load(model=str(tmp_path / "meet"))) for seat in worker_specs]

    assert [job.result(60) for job in jobs] == [GOOD, GOOD]


def test_slots_limit_concurrent_workers(fake_worker: Path, tmp_path: Path) -> None:
    """With one slot, two jobs that wait for each other do not run at the same time."""
    recorder = Recorder()
    limits = JobLimits(time_s=1)
    with WorkerPool(
        Environments(tmp_path, offline=True), 1, limits, recorder, worker=fake_worker, limited=False
    ) as host:
        worker_specs = [WorkerSpec(name, "fake", interpreter=Path(sys.executable)) for name in ("a", "b")]
        jobs = [host.submit(seat, Load(model=str(tmp_path / "meet"))) for seat in worker_specs]
        first, second = (job.result(60) for job in jobs)

    assert {TimedOut, Completed} == {type(first), type(second)}
    assert [event[0] for event in recorder.events] == ["started", "finished"] * 2


def test_workers_with_one_turn_run_one_at_a_time(fake_worker: Path, tmp_path: Path) -> None:
    """Workers with the same `turn` never run at the same time, regardless of the number of slots."""
    with WorkerPool(
        Environments(tmp_path, offline=True), 4, JobLimits(time_s=1), worker=fake_worker, limited=False
    ) as host:
        worker_specs = [WorkerSpec(name, "fake", interpreter=Path(sys.executable), turn="one") for name in ("a", "b")]
        jobs = [host.submit(seat, Load(model=str(tmp_path / "meet"))) for seat in worker_specs]
        first, second = (job.result(60) for job in jobs)

    assert {TimedOut, Completed} == {type(first), type(second)}


def test_jobs_of_a_worker_run_in_order(fake_worker: Path, tmp_path: Path, fake: WorkerSpec) -> None:
    """Jobs run in the order of submission, and the display is notified of each."""
    recorder = Recorder()
    with WorkerPool(Environments(tmp_path, offline=True), 2, None, recorder, worker=fake_worker) as host:
        jobs = [host.submit(fake, Load(model=name)) for name in ("exit_3", "good", "wrong_type")]
        for job in jobs:
            job.result(60)

    assert recorder.events[1::2] == [
        ("finished", "fake 1.0", "load exit_3", "crashed"),
        ("finished", "fake 1.0", "load good", "completed"),
        ("finished", "fake 1.0", "load wrong_type", "crashed"),
    ]


@pytest.mark.parametrize(
    ("worker_spec", "reason"),
    [
        (
            WorkerSpec("x", "fake", interpreter=Path("/nowhere/python")),
            "`python` of `x` cannot be started: No such",
        ),
        (WorkerSpec("x", interpreter=Path("/bin/false")), "the worker process failed to start: exit status 1"),
        (
            WorkerSpec("x", "unheard-of", interpreter=Path(sys.executable)),
            "this version of onnxgate does not support `unheard-of`",
        ),
        (
            WorkerSpec("x", "absent", interpreter=Path(sys.executable)),
            "ImportError: libwonder.so.3: cannot open",
        ),
        (WorkerSpec("x", "falling", interpreter=Path(sys.executable)), "the worker process failed to start: SIGILL"),
    ],
)
def test_worker_that_cannot_start_is_unavailable(fake_host: WorkerPool, worker_spec: WorkerSpec, reason: str) -> None:
    """Every job is unavailable with the same reason, and the start is not retried."""
    observations = [load_model(fake_host, worker_spec, "good") for _ in range(2)]

    assert isinstance(observations[0], Unavailable)
    assert observations[0].reason.startswith(reason)
    assert observations[0] == observations[1]


def test_worker_gets_its_environment_variables(fake_host: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The specification's variables are added, and variables that change a runtime's behavior are removed."""
    monkeypatch.setenv("ALLOW_RELEASED_ONNX_OPSET_ONLY", "0")
    worker_spec = WorkerSpec("x", "fake", interpreter=Path(sys.executable), environment=(("GREETING", "grüezi"),))
    observation = fake_host.submit(worker_spec, Probe()).result(60)

    assert isinstance(observation, Completed)
    assert isinstance(observation.result, ProbeResult)
    assert observation.result.packages["GREETING"] == "grüezi"
    assert "ALLOW_RELEASED_ONNX_OPSET_ONLY" not in observation.result.packages


def test_a_source_sees_what_its_user_set(fake_worker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers with the same hash seed agree; `sys.path` contains the user's folders, but not the worker's."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "theirs"))
    worker_spec = WorkerSpec("toolchain", interpreter=Path(sys.executable), environment=(("PYTHONHASHSEED", "7"),))
    seen = [
        _export(WorkerPool(Environments(tmp_path, offline=True), 1, worker=fake_worker), worker_spec) for _ in range(2)
    ]

    assert seen[0] == seen[1]
    assert seen[0]["path"].count(str(tmp_path / "theirs")) == 1
    assert str(fake_worker) not in seen[0]["path"]
    assert not seen[0]["wire"]


def test_an_engine_sees_only_its_environment(
    fake_host: WorkerPool, fake: WorkerSpec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """PYTHONPATH does not affect an engine."""
    (tmp_path / "json.py").write_text("raise SystemExit('not for you')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    assert load_model(fake_host, fake, "good") == GOOD


def _export(host: WorkerPool, worker_spec: WorkerSpec) -> dict[str, Any]:
    with host:
        job = Export(source="x.py:build", output="/nowhere", folder="/nowhere", opset=None, ir_version_max=None)
        observation = host.submit(worker_spec, job).result(60)
    assert isinstance(observation, Completed)
    assert isinstance(observation.result, ExportResult)
    return dict(json.loads(observation.result.log))


def test_a_crash_comes_with_its_own_log(fake_host: WorkerPool, fake: WorkerSpec) -> None:
    """The log does not contain output of earlier jobs."""
    load_model(fake_host, fake, "flood")
    time.sleep(0.3)

    assert load_model(fake_host, fake, "exit_3") == Crashed(signal="exit status 3", during="load", log="")


def test_end_of_the_log_is_kept() -> None:
    """The log keeps the end of the output, regardless of its length."""
    script = "import os; os.write(2, b'x' * 10**7 + b'the end')"
    child = subprocesses.WorkerProcess(subprocesses.start_program([sys.executable, "-c", script], bound="group"))
    end_of_lines = child.receive(30)
    child.end()

    assert end_of_lines is None
    assert len(child.log()) == subprocesses.LOG_LIMIT_BYTES
    assert child.log().endswith("xthe end")


def test_closing_ends_running_and_cancels_waiting_jobs(
    fake_worker: Path, tmp_path: Path, fake: WorkerSpec, is_alive: Callable[[int], bool]
) -> None:
    """Closing the pool ends running jobs and cancels waiting ones, without reporting a timeout."""
    with WorkerPool(Environments(tmp_path, offline=True), 2, worker=fake_worker, limited=False) as host:
        pid = pid_of(host, fake)
        jobs = [host.submit(fake, Load(model=str(tmp_path / name))) for name in ("hang_with_the_lock", "good")]
        _wait_for(tmp_path / "pid")

    for job in jobs:
        with pytest.raises(CancelledError):
            job.result(0)
    assert has_ended(is_alive, pid)


@pytest.mark.parametrize(
    ("end", "limited"), [(signal.SIGKILL, False), (signal.SIGKILL, True), (signal.SIGINT, True), (signal.SIGTERM, True)]
)
def test_worker_ends_with_its_pool(
    fake_worker: Path, tmp_path: Path, is_alive: Callable[[int], bool], end: signal.Signals, *, limited: bool
) -> None:
    """The worker ends with its pool's process, even in native code that keeps the GIL."""
    script = f"""
        import sys
        from pathlib import Path
        from onnxgate.runtimes.environments.builder import Environments
        from onnxgate.runtimes.pool import WorkerPool
        from onnxgate.runtimes.worker_spec import WorkerSpec
        from onnxgate.core.jobs import Load, Probe
        fake = WorkerSpec("fake 1.0", "fake", interpreter=Path(sys.executable))
        folder = Path({str(tmp_path)!r})
        worker = Path({str(fake_worker)!r})
        with WorkerPool(Environments(folder, offline=True), 2, worker=worker, limited={limited}) as host:
            host.show(folder)
            pid = host.submit(fake, Probe()).result().result.python
            hanging = host.submit(fake, Load(model=str(folder / "hang_with_the_lock")))
            while not hanging.running():
                pass
            (folder / "pid.partial").write_text(pid)
            (folder / "pid.partial").rename(folder / "pid")
            hanging.result()
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    gate = subprocess.Popen([sys.executable, "-c", dedent(script)], env=environment, stderr=subprocess.DEVNULL)
    try:
        worker = int(_wait_for(tmp_path / "pid").read_text())
        gate.send_signal(end)
        gate.wait(20)
    finally:
        gate.kill()
        gate.wait()

    assert has_ended(is_alive, worker)


def _wait_for(path: Path) -> Path:
    until = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < until, f"{path.name} never came"
        time.sleep(0.01)
    return path


def test_a_worker_is_ended_after_a_large_job(fake_worker: Path, fake: WorkerSpec, tmp_path: Path) -> None:
    """Allocators keep much of a large model's memory, so the next job gets a new process."""
    (tmp_path / "good").touch()
    environments, limits = Environments(tmp_path, offline=True), JobLimits(time_s=2)
    with WorkerPool(environments, 2, limits, worker=fake_worker, limited=False, measure_memory=lambda: 2**31) as host:
        before = pid_of(host, fake)

        assert load_model(host, fake, str(tmp_path / "good")) == GOOD
        assert before == pid_of(host, fake)

        os.truncate(tmp_path / "good", LARGE_JOB_BYTES // 2)  # weights count twice

        assert load_model(host, fake, str(tmp_path / "good")) == GOOD
        assert before != pid_of(host, fake)


def test_a_large_model_is_loaded_again_by_the_same_process(
    fake_worker: Path, fake: WorkerSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next optimization level of a large model uses the same process, and no other model runs in between."""
    (tmp_path / "good").touch()
    os.truncate(tmp_path / "good", LARGE_JOB_BYTES // 2)  # weights count twice
    starts, recorder, loads = list[object](), Recorder(), list[Future[Observation]]()
    start_program = pool.start_program
    monkeypatch.setattr(
        pool, "start_program", lambda argv, **named: starts.append(argv) or start_program(argv, **named)
    )
    workers = [WorkerSpec(f"{name} 1.0", "fake", interpreter=fake.interpreter) for name in ("one", "other")]
    environments, limits = Environments(tmp_path, offline=True), JobLimits(time_s=2)
    with WorkerPool(
        environments, 2, limits, recorder, worker=fake_worker, limited=False, measure_memory=lambda: 2**31
    ) as host:

        def load(spec: WorkerSpec, levels: int) -> None:
            future = host.submit(spec, Load(model=str(tmp_path / "good")))
            future.add_done_callback(lambda _: load(spec, levels - 1) if levels > 1 else None)
            loads.append(future)

        for spec in workers:
            load(spec, 3)
        until = time.monotonic() + 60
        while len(loads) < 6 and time.monotonic() < until:
            time.sleep(0.01)
        observations = [future.result(60) for future in loads]

    names = [event[1] for event in recorder.events if event[0] == "started"]

    assert observations == [GOOD] * 6
    assert names in (["one 1.0"] * 3 + ["other 1.0"] * 3, ["other 1.0"] * 3 + ["one 1.0"] * 3)
    assert len(starts) == 2


def test_jobs_beyond_available_memory_run_one_at_a_time(tmp_path: Path) -> None:
    """Jobs that need more than the available memory run one at a time and complete."""
    toolchains = [create_toolchain_spec(Path(sys.executable), name) for name in ("toolchain", "second export")]
    command = Command(argv=(sys.executable, "-c", "pass"), folder=str(tmp_path))
    jobs = [command, Probe(exporters=("json",)), Probe(), command]
    with WorkerPool(Environments(tmp_path, offline=True), 4, measure_memory=lambda: 2**20) as host:
        answers = [host.submit(spec, job) for job in jobs for spec in toolchains]

        assert all(isinstance(answer.result(60), Completed) for answer in answers)
