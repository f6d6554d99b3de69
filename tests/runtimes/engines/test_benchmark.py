"""Benchmarks of a model against its baseline on real releases: measured ratios and reasons for failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxgate.core.findings import Place
from onnxgate.core.jobs import Benchmark, BenchmarkResult, Completed, InputCase, Observation
from onnxgate.evidence.policy import Raced
from onnxgate.gate.execution import benchmark
from onnxgate.project.lock.types import LockedPackage, LockedRuntime
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.worker_spec import JobLimits, WorkerSpec

pytestmark = pytest.mark.index

WIDTH = 512
ROUNDS = 60


def chain(path: Path, length: int, *, first: str = "x") -> Path:
    """Write a model that multiplies its input by `length` matrices of 1 MiB each."""
    random = np.random.default_rng(0)
    names = [first, *(f"v{index}" for index in range(1, length)), "y"]
    weights = [(random.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32) for _ in range(length)]
    tensors = [onnx.numpy_helper.from_array(weight, f"w{index}") for index, weight in enumerate(weights)]
    nodes = [onnx.helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(length)]
    given, made = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", WIDTH]) for name in (first, "y")
    )
    graph = onnx.helper.make_graph(nodes, "g", [given], [made], tensors)
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


class BenchmarkSetup:
    """One release on which models are benchmarked."""

    def __init__(self, host: WorkerPool, worker_spec: WorkerSpec, folder: Path) -> None:
        self._host, self._worker_spec, self.folder = host, worker_spec, folder

    def case(self, width: int = WIDTH) -> InputCase:
        """Return an input case; the models accept it if `width` is WIDTH."""
        path = self.folder / f"x{width}.npy"
        np.save(path, np.ones((3, width), np.float32))
        return InputCase(name=f"width {width}", origin="generated", inputs={"x": str(path)})

    def race(
        self, model: Path, baseline: Path, *cases: InputCase, rounds: int = ROUNDS, memory_runs: int = 0
    ) -> Observation:
        """Return the observation of one benchmark."""
        job = Benchmark(
            model=str(model),
            baseline=str(baseline),
            cases=cases or (self.case(),),
            rounds=rounds,
            memory_runs=memory_runs,
            time_s=20,
        )
        return self._host.submit(self._worker_spec, job).result(200)

    def raced(self, *arguments: Path, **more: int) -> BenchmarkResult:
        """Return the measurements of a benchmark that must succeed."""
        observation = self.race(*arguments, **more)  # type: ignore[arg-type]
        assert isinstance(observation, Completed), observation
        assert isinstance(observation.result, BenchmarkResult)
        assert observation.result.reason == ""
        return observation.result


@pytest.fixture(params=["1.16.3", "1.31.1"])
def setup(
    request: pytest.FixtureRequest,
    cache: Path,
    locked: Callable[..., tuple[LockedRuntime, tuple[LockedPackage, ...]]],
    tmp_path: Path,
) -> Iterator[BenchmarkSetup]:
    """Yield a benchmark setup for one of the releases."""
    with WorkerPool(Environments(cache, offline=False), 2, JobLimits(time_s=60)) as host:
        yield BenchmarkSetup(host, WorkerSpec.of_runtime(*locked(request.param)), tmp_path)


def _verdict(measure: str, figures: benchmark.MeasuredRatio, budget: float) -> str:
    return Raced(
        model="m.onnx",
        place=Place("m.onnx"),
        runtime="",
        measure=measure,  # type: ignore[arg-type]
        baseline="",
        case="",
        budget=budget,
        ratio=figures.ratio,
        low=figures.low,
        high=figures.high,
        negligible=figures.negligible,
    ).verdict


def test_three_times_the_work_exceeds_budgets(setup: BenchmarkSetup) -> None:
    """A model with three times the work exceeds both budgets; with the models swapped the time ratio is a third."""
    long, short = chain(setup.folder / "long.onnx", 60), chain(setup.folder / "short.onnx", 20)
    result, turned = setup.raced(long, short, memory_runs=2), setup.raced(short, long)

    assert (len(result.model_s), len(result.baseline_s), result.case) == (ROUNDS, ROUNDS, f"width {WIDTH}")
    assert _verdict("time", benchmark.compute_time_ratio(result), 1.5) == "over"
    assert _verdict("memory", benchmark.compute_memory_ratio(result, 1.5), 1.5) == "over"
    assert benchmark.compute_time_ratio(turned).high < 0.67
    assert min(result.baseline_mib) > 19  # twenty weights of 1 MiB


def test_equal_models_stay_within_budgets(setup: BenchmarkSetup) -> None:
    """Two benchmarks of equal models stay within the budgets, even on a busy machine."""
    one, other = chain(setup.folder / "one.onnx", 5), chain(setup.folder / "other.onnx", 5)
    actual = [setup.raced(one, other, memory_runs=1) for _ in range(2)]

    assert [_verdict("time", benchmark.compute_time_ratio(each), 1.2) for each in actual] == ["within"] * 2
    assert [_verdict("memory", benchmark.compute_memory_ratio(each, 1.2), 1.2) for each in actual] == ["within"] * 2


def test_zero_rounds_are_not_measured(setup: BenchmarkSetup) -> None:
    """A benchmark with 0 rounds measures no time, and one with 0 memory_runs measures no memory."""
    model = chain(setup.folder / "one.onnx", 1)
    timed, weighed = setup.raced(model, model), setup.raced(model, model, rounds=0, memory_runs=1)

    assert (len(timed.model_s), timed.model_mib) == (ROUNDS, ())
    assert (weighed.model_s, len(weighed.model_mib), len(weighed.baseline_mib)) == ((), 1, 1)


def test_first_case_that_both_can_run(setup: BenchmarkSetup) -> None:
    """The benchmark skips cases that do not run on both models."""
    model = chain(setup.folder / "one.onnx", 1)
    observation = setup.race(model, model, setup.case(3), setup.case(), rounds=1)

    assert isinstance(observation, Completed)
    assert isinstance(observation.result, BenchmarkResult)
    assert observation.result.case == f"width {WIDTH}"


def _reason(observation: Observation) -> str:
    assert isinstance(observation, Completed), observation
    assert isinstance(observation.result, BenchmarkResult)
    return observation.result.reason


def test_races_that_cannot_be(setup: BenchmarkSetup) -> None:
    """The result gives the reason if no case runs, the inputs do not match or the baseline is not a valid model."""
    model, other = chain(setup.folder / "one.onnx", 1), chain(setup.folder / "two.onnx", 1, first="z")
    (setup.folder / "broken.onnx").write_bytes(b"\xff" * 99)

    assert _reason(setup.race(model, model, setup.case(3))) == "no input case runs on both the model and the baseline"
    assert _reason(setup.race(model, other)) == "the input cases contain no value for input `z`"
    assert _reason(setup.race(model, setup.folder / "broken.onnx")).startswith("the baseline does not load: ")
