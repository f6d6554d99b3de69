"""A provider that a build lists but a session does not use."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from onnxgate.core.jobs import Completed, Failure, InputCase, Load, Refused, Run, RunResult, Unavailable
from onnxgate.project.lock.types import LockedPackage, LockedRuntime
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.protocol import WORKER_FOLDER
from onnxgate.runtimes.worker_spec import JobLimits, WorkerSpec
from tests.runtimes.engines.test_onnxruntime import ADD, CPU, Bench

pytestmark = pytest.mark.index

CUDA = ("CUDAExecutionProvider", *CPU)
SAID = "the session has no `CUDAExecutionProvider`; available: `CPUExecutionProvider`"


@pytest.fixture(params=["1.18.1", "1.31.1"])
def bench(
    request: pytest.FixtureRequest,
    cache: Path,
    locked: Callable[..., tuple[LockedRuntime, tuple[LockedPackage, ...]]],
    tmp_path: Path,
) -> Iterator[Bench]:
    """Yield a CPU build patched to list CUDA, so that its sessions behave like those of a GPU build without a GPU.

    Source: onnxruntime-gpu 1.23.2 on a machine without CUDA lists the provider, warns, and runs on the CPU.
    """
    worker = tmp_path / "doctored"
    shutil.copytree(WORKER_FOLDER, worker, ignore=shutil.ignore_patterns("__pycache__"))
    adapter = worker / "adapters" / "onnxruntime.py"
    code, ask = adapter.read_text(encoding="utf-8"), "ort.get_available_providers()"
    assert ask in code
    adapter.write_text(code.replace(ask, f"[*{ask}, 'CUDAExecutionProvider']"), encoding="utf-8")
    (tmp_path / "work").mkdir()
    with WorkerPool(Environments(cache, offline=False), 2, JobLimits(time_s=60), worker=worker) as host:
        yield Bench(host, WorkerSpec.of_runtime(*locked(request.param)), tmp_path / "work")


def _run(bench: Bench, providers: tuple[str, ...]) -> Run:
    np.save(bench.folder / "x.npy", np.ones((3, 4), np.float32))
    (bench.folder / "out").mkdir()
    case = InputCase(name="one", origin="generated", inputs={"x": str(bench.folder / "x.npy")})
    return Run(model=bench.model(ADD), cases=(case,), output=str(bench.folder / "out"), providers=providers)


def test_a_session_without_the_provider_runs_nothing(bench: Bench) -> None:
    """The model does not run, because CPU results would be mistaken for CUDA results."""
    observation = bench.host.submit(bench.seat, _run(bench, CUDA)).result(200)

    assert Refused(failure=Failure(type="ProviderNotUsedError", text=SAID)) == observation
    assert list((bench.folder / "out").iterdir()) == []


def test_loading_with_missing_provider_is_undecided(bench: Bench) -> None:
    """The job is undecided, because the session cannot show whether the model loads with the provider."""
    observation = bench.host.submit(bench.seat, Load(model=bench.model(ADD), providers=CUDA)).result(200)

    assert Unavailable(reason=SAID) == observation


def test_the_processor_is_always_there(bench: Bench) -> None:
    """The same build runs a job that requests only the CPU provider."""
    observation = bench.host.submit(bench.seat, _run(bench, CPU)).result(200)

    assert isinstance(observation, Completed)
    assert isinstance(observation.result, RunResult)
    assert observation.result.providers == CPU
