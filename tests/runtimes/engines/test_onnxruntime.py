"""Real releases of ONNX Runtime in their locked environments."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import msgspec
import numpy as np
import onnx
import onnx.parser
import pytest

from onnxgate.core.errors import UnavailableError
from onnxgate.core.jobs import (
    CaseResult,
    Completed,
    Crashed,
    Failure,
    InputCase,
    Load,
    LoadResult,
    Observation,
    Optimization,
    Probe,
    ProbeResult,
    Refused,
    Run,
    RunResult,
    TimedOut,
    Unavailable,
)
from onnxgate.core.subprocesses import CommandRunner
from onnxgate.diagnostics.classification import failure_family
from onnxgate.project.lock.types import LockedPackage, LockedRuntime
from onnxgate.runtimes import worker_slots
from onnxgate.runtimes.environments.builder import Environments, find_interpreter
from onnxgate.runtimes.pool import PREPARE_ACTIVITY, Progress, WorkerPool
from onnxgate.runtimes.worker_spec import JobLimits, WorkerSpec
from tests.harness.models import write

Locked = tuple[LockedRuntime, tuple[LockedPackage, ...]]

pytestmark = pytest.mark.index

RELEASES = ("1.16.3", "1.18.1", "1.31.1")
CPU = ("CPUExecutionProvider",)

ADD = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N, 4] x) => (float[N, 4] y) { y = Add(x, x) }
"""
STRINGS = """
<ir_version: 8, opset_import: ["" : 17]>
g (string[N] x) => (string[N] y) { y = Identity(x) }
"""
ODD_TYPES = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N] x) => (seq(float[N]) s, bfloat16[N] b, float16[N] h, float w) {
    s = SequenceConstruct(x, x)
    b = Cast<to: int = 16>(x)
    h = Cast<to: int = 10>(x)
    w = ReduceSum<keepdims: int = 0>(x)
}
"""
ONLY_BFLOAT16 = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N] x) => (bfloat16[N] b) { b = Cast<to: int = 16>(x) }
"""
CLASSIFIER = """
<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
g (float[N, 2] x) => (seq(map(string, float)) p) {
    w = Constant <value: tensor = float[2, 2] {0.0, 0.5, 0.0, 0.5}> ()
    s = MatMul(x, w)
    n = Softmax(s)
    p = ai.onnx.ml.ZipMap <classlabels_strings: strings = ["cat", "dog"]> (n)
}
"""
FLOAT8 = """
<ir_version: 9, opset_import: ["" : 19]>
g (float[N] x) => (float8e4m3fn[N] b, float[N] y) { b = Cast<to: int = 17>(x)  y = Identity(x) }
"""
GATHER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N] x, int64[1] i) => (bfloat16[1] b, float[N] y) {
    z = Gather(x, i)
    b = Cast<to: int = 16>(z)
    y = Identity(x)
}
"""
ENDLESS = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[4] x) => (float[4] y) {
    trip = Constant <value: tensor = int64 {9223372036854775807}> ()
    yes = Constant <value: tensor = bool {1}> ()
    y = Loop (trip, yes, x) <body = body (int64 i, bool c, float[4] a) => (bool d, float[4] b) {
        d = Identity(c)
        b = Add(a, a)
    }>
}
"""
HUGE = """
<ir_version: 8, opset_import: ["" : 17]>
g (int64[1] n) => (float[N] y) {
    z = ConstantOfShape <value: tensor = float[1] {1.0}> (n)
    y = Add(z, z)
}
"""
NO_KERNEL = """
<ir_version: 8, opset_import: ["" : 17]>
g (double[1, 1, 4, 4] x, double[1, 1, 2, 2] w) => (double[1, 1, 3, 3] y) { y = Conv(x, w) }
"""
# Shape inference reads the rank of an input that has none. Source: onnxruntime 1.16.3 and 1.18.1 crash, 1.31.1 does
# not.
FALLS = """
<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
g (float[] table, int64[] q, int64[] k) => (float[] y) {
    y = com.microsoft.RelativePositionBias <max_distance: int = 128> (table, q, k)
}
"""


@dataclasses.dataclass
class Bench:
    """One release and a working folder."""

    host: WorkerPool
    seat: WorkerSpec
    folder: Path

    def model(self, text: str) -> str:
        """Write a model file and return its path."""
        path = self.folder / f"{abs(hash(text))}.onnx"
        onnx.save(onnx.parser.parse_model(text), path)
        return str(path)

    def load(self, text: str, level: Optimization = "all") -> Observation:
        """Return the observation of loading a model."""
        return self.host.submit(self.seat, Load(model=self.model(text), optimization=level)).result(200)

    def run(self, text: str, *feeds: dict[str, object], limits: JobLimits | None = None) -> Observation:
        """Return the observation of running a model, with one case per feed."""
        return self.run_file(self.model(text), *feeds, limits=limits)

    def run_file(
        self, model: str, *feeds: dict[str, object], limits: JobLimits | None = None, level: Optimization = "all"
    ) -> Observation:
        """Return the observation of running a model file, with one case per feed."""
        output = self.folder / f"out{len(list(self.folder.iterdir()))}"
        output.mkdir()
        cases = tuple(self._case(f"case {index}", feed) for index, feed in enumerate(feeds))
        job = Run(model=model, cases=cases, output=str(output), optimization=level)
        return self.host.submit(self.seat, job, limits=limits).result(200)

    def _case(self, name: str, feed: dict[str, object]) -> InputCase:
        paths = {key: self.folder / f"{name} {key}.npy" for key in feed}
        for key, path in paths.items():
            np.save(path, np.asarray(feed[key]))
        return InputCase(name=name, origin="generated", inputs={key: str(path) for key, path in paths.items()})


def results(observation: Observation) -> tuple[CaseResult, ...]:
    """Return the case results of a completed run."""
    assert isinstance(observation, Completed), observation
    assert isinstance(observation.result, RunResult)
    assert observation.result.providers == CPU
    return observation.result.cases


def value(path: str | None) -> np.ndarray:
    """Return the array of an output file."""
    assert path is not None
    return np.load(path, allow_pickle=False)


def failure(case: CaseResult) -> Failure:
    """Return the failure of a case."""
    assert case.failure is not None, case
    return case.failure


@pytest.fixture(params=RELEASES)
def bench(request: pytest.FixtureRequest, host: WorkerPool, locked: Callable[..., Locked], tmp_path: Path) -> Bench:
    """Return a setup for one of the releases, with the Python version from the lock."""
    return _bench(host, locked(request.param), tmp_path)


def _bench(host: WorkerPool, locked: Locked, folder: Path) -> Bench:
    try:
        find_interpreter(locked[0].python, CommandRunner(), offline=True)
    except UnavailableError as error:
        pytest.skip(f"{error.message}: {error.hint}")
    return Bench(host, WorkerSpec.of_runtime(*locked), folder)


def test_a_model_is_loaded_and_run(bench: Bench) -> None:
    """A model loads at both optimization levels with the requested provider, and its outputs are correct."""
    feed = {"x": np.arange(8, dtype=np.float32).reshape(2, 4)}
    (case,) = results(bench.run(ADD, feed))

    assert Completed(result=LoadResult(providers=CPU)) == bench.load(ADD) == bench.load(ADD, "disabled")
    assert (feed["x"] * 2).tolist() == value(case.outputs[0]).tolist()
    assert np.float32 == value(case.outputs[0]).dtype


def test_worker_sees_only_its_environment(bench: Bench) -> None:
    """The worker sees only the locked release and the locked numpy."""
    packages = ("onnxruntime", "numpy", "onnx", "msgspec", "pytest")
    observation = bench.host.submit(bench.seat, Probe(packages=packages)).result(200)

    assert isinstance(observation, Completed)
    assert isinstance(observation.result, ProbeResult)
    assert bench.seat.runtime is not None
    pins = dict(pin.split("==") for pin in bench.seat.runtime.packages)
    assert pins == observation.result.packages
    assert observation.result.python.startswith("3.11.")


def test_strings_go_in_and_out(bench: Bench) -> None:
    """String tensors are passed in both directions without pickle."""
    (case,) = results(bench.run(STRINGS, {"x": np.array(["", "grüezi", "日本"])}))

    assert value(case.outputs[0]).tolist() == ["", "grüezi", "日本"]


def test_sequences_and_bfloat16_become_arrays(bench: Bench) -> None:
    """A sequence is followed by its layout, and bfloat16 values are returned as float32."""
    feed = {"x": np.array([1, 2.5], np.float32)}
    (case,) = results(bench.run(ODD_TYPES, feed))
    (only,) = results(bench.run(ONLY_BFLOAT16, feed))

    assert [value(path).tolist() for path in case.outputs] == [
        [[1.0, 2.5], [1.0, 2.5]],
        ["sequence of 2", "shape [2]", "shape [2]"],
        [1.0, 2.5],
        [1.0, 2.5],
        3.5,
    ]
    assert [value(path).dtype for path in (case.outputs[2], only.outputs[0])] == [np.float32, np.float32]
    assert value(only.outputs[0]).tolist() == [1.0, 2.5]


def test_probabilities_of_a_classifier_are_an_array(bench: Bench) -> None:
    """The probabilities of a scikit-learn classifier, one map per row, are returned as an array."""
    (case,) = results(bench.run(CLASSIFIER, {"x": np.ones((3, 2), np.float32)}))
    values, layout = (value(path) for path in case.outputs)

    assert values.shape == (3, 2)
    assert values[0].tolist() == pytest.approx([1 / (1 + np.e), np.e / (1 + np.e)])
    assert layout.tolist() == ["sequence of 3", *["map of 2", "'cat'", "'dog'"] * 3]


def test_unsupported_output_type_is_omitted(bench: Bench) -> None:
    """A float8 output is omitted without failing the case; the other output is returned."""
    (case,) = results(bench.run(FLOAT8, {"x": np.array([1, 2], np.float32)}))

    assert case.outputs[0] is None
    assert value(case.outputs[1]).tolist() == [1.0, 2.0]


def test_nodes_of_omitted_outputs_are_run(bench: Bench) -> None:
    """The node that computes an omitted output is still executed and can fail."""
    feed = {"x": np.ones(4, np.float32), "i": np.array([9])}
    (case,) = results(bench.run(GATHER, feed))

    assert "indices element out of data bounds" in failure(case).text


def test_one_failing_case_does_not_stop_the_next(bench: Bench) -> None:
    """Each case has its own result, in order; the message is the runtime's, without paths of its build."""
    good, bad = {"x": np.ones((1, 4), np.float32)}, {"x": np.ones((1, 3), np.float32)}
    cases = results(bench.run(ADD, good, bad, good))

    assert [case.failure is None for case in cases] == [True, False, True]
    assert failure_family(failure(cases[1]).text) == "run_shape"
    assert "onnxruntime_src" not in failure(cases[1]).text


def test_refusal_contains_no_local_path(bench: Bench) -> None:
    """The message contains no path, so that two machines report the same text."""
    observation = bench.load(ADD.replace("ir_version: 8", "ir_version: 99"))

    assert isinstance(observation, Refused)
    assert failure_family(observation.failure.text) == "ir"
    assert "Load model from " in observation.failure.text
    assert "/" not in observation.failure.text
    assert not observation.failure.memory


def test_session_uses_the_requested_level(bench: Bench) -> None:
    """At level `all` BatchNormalization is fused into Conv, which rounds differently; each level is reproducible."""
    feed = {"x": np.random.default_rng(0).standard_normal((1, 3, 16, 16), dtype=np.float32)}
    model = _conv_and_normalisation(bench.folder / "model.onnx")
    levels: tuple[Optimization, ...] = ("all", "disabled", "all", "disabled")
    one, other, *again = (value(results(bench.run_file(model, feed, level=level))[0].outputs[0]) for level in levels)

    assert one.tobytes() != other.tobytes()
    assert np.abs(one - other).max() < 1e-4
    assert [one.tobytes(), other.tobytes()] == [each.tobytes() for each in again]


def _conv_and_normalisation(path: Path) -> str:
    random = np.random.default_rng(1)
    shapes = {"w": (8, 3, 3, 3), "scale": (8,), "bias": (8,), "mean": (8,), "var": (8,)}
    weights = {name: random.random(shape, dtype=np.float32) + np.float32(0.1) for name, shape in shapes.items()}
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w"], ["c"]),
        onnx.helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["y"]),
    ]
    ends = {name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("x", "y")}
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = onnx.helper.make_graph(nodes, "g", [ends["x"]], [ends["y"]], tensors)
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return str(path)


def test_a_missing_kernel_is_refused(bench: Bench) -> None:
    """Every release refuses a node without a kernel, at both levels."""
    observations = [bench.load(NO_KERNEL), bench.load(NO_KERNEL, "disabled")]

    assert [
        failure_family(observation.failure.text) for observation in observations if isinstance(observation, Refused)
    ] == ["no_kernel"] * 2


def test_crash_affects_one_job(bench: Bench) -> None:
    """A crash affects only its own job; the next model is still tested."""
    falls, good = bench.load(FALLS), bench.load(ADD)
    crash = Crashed(signal="SIGSEGV", during="load", log="")

    assert (crash == falls) is (bench.seat.name != "onnxruntime 1.31.1"), falls
    assert isinstance(falls, Crashed | Refused)
    assert Completed(result=LoadResult(providers=CPU)) == good


def test_a_model_that_never_ends_is_timed_out(bench: Bench) -> None:
    """A model that never ends times out, and the next model runs."""
    endless = bench.run(ENDLESS, {"x": np.ones(4, np.float32)}, limits=JobLimits(time_s=2))
    (case,) = results(bench.run(ADD, {"x": np.ones((1, 4), np.float32)}))

    assert TimedOut(limit_s=2, during="case case 0", log="") == endless
    assert case.failure is None


def test_a_model_that_asks_for_200_gb_fails_for_memory(bench: Bench) -> None:
    """Only the case that allocates 200 GB fails."""
    few, many = {"n": np.array([10])}, {"n": np.array([50_000_000_000])}
    cases = results(bench.run(HUGE, few, many, few))

    assert [case.failure is None for case in cases] == [True, False, True]
    assert failure(cases[1]).memory
    assert "Failed to allocate memory for requested buffer of size 200000000000" in failure(cases[1]).text


def test_the_limit_is_the_job_s_and_not_the_machine_s(bench: Bench) -> None:
    """Allocating 300 MB fails under a limit of 256 MiB and succeeds under the default limit."""
    feed = {"n": np.array([40_000_000])}
    (refused,) = results(bench.run(HUGE, feed, limits=JobLimits(time_s=60, memory_mib=256)))
    (given,) = results(bench.run(HUGE, feed))

    assert failure(refused).memory
    assert given.failure is None


def test_an_input_that_cannot_be_read_is_not_the_model_s_fault(bench: Bench) -> None:
    """An unreadable input leaves the job undecided, and the worker stays usable."""
    broken = bench.folder / "x.npy"
    broken.write_bytes(b"\x93NUMPY")
    case = InputCase(name="one", origin="user", inputs={"x": str(broken)})
    job = Run(model=bench.model(ADD), cases=(case,), output=str(bench.folder))
    observation = bench.host.submit(bench.seat, job).result(200)

    assert isinstance(observation, Unavailable)
    assert observation.reason.startswith("input `x.npy` cannot be read: ")
    assert Completed(result=LoadResult(providers=CPU)) == bench.load(ADD)


def test_a_provider_that_is_not_there(bench: Bench) -> None:
    """The job is undecided, although the engine would only warn and use another provider; the worker stays usable."""
    job = Load(model=bench.model(ADD), providers=("CUDAExecutionProvider", *CPU))
    observation = bench.host.submit(bench.seat, job).result(200)

    assert isinstance(observation, Unavailable)
    assert observation.reason.startswith("this build has no `CUDAExecutionProvider`; available: `")
    assert "`CPUExecutionProvider`" in observation.reason
    assert Completed(result=LoadResult(providers=CPU)) == bench.load(ADD)


@pytest.mark.parametrize(("release", "python", "numpy"), [("1.19.2", "3.8", "1.24.4"), ("1.8.1", "3.8", "1.23.5")])
def test_the_worker_runs_under_python_3_8(
    host: WorkerPool, locked: Callable[..., Locked], tmp_path: Path, release: str, python: str, numpy: str
) -> None:
    """The worker runs under Python 3.8, the oldest version that supported runtimes need."""
    bench = _bench(host, locked(release, python, numpy), tmp_path)
    old = ADD.replace("ir_version: 8", "ir_version: 7").replace('"" : 17', '"" : 13')
    (case,) = results(bench.run(old, {"x": np.ones((1, 4), np.float32)}))
    observation = bench.host.submit(bench.seat, Probe()).result(200)

    assert value(case.outputs[0]).tolist() == [[2.0] * 4]
    assert isinstance(observation, Completed)
    assert isinstance(observation.result, ProbeResult)
    assert observation.result.python.startswith("3.8.")


def test_an_unavailable_runtime_is_an_observation(locked: Callable[..., Locked], tmp_path: Path) -> None:
    """The observation contains the environment's reason and hint."""
    runtime, packages = locked("1.18.1")
    elsewhere = msgspec.structs.replace(WorkerSpec.of_runtime(runtime, packages), packages=())
    with WorkerPool(Environments(tmp_path, offline=True), 1) as host:
        observation = host.submit(elsewhere, Probe()).result(60)

    assert isinstance(observation, Unavailable)
    assert observation.reason == "the lock has no wheel for `numpy==1.26.4` on Python 3.11"
    assert observation.hint


class RunningJobs(Progress):
    """Records which workers run a job at the same time, and their activities."""

    def __init__(self) -> None:
        self.moments: list[dict[str, str]] = []
        self._running: dict[str, str] = {}

    def started(self, worker: str, activity: str) -> None:
        """Record the busy workers."""
        if activity != PREPARE_ACTIVITY:
            self._running[worker] = activity
            self.moments.append(dict(self._running))

    def finished(self, worker: str, activity: str, outcome: str) -> None:
        """Record that the worker is idle."""
        self._running.pop(worker, None)


def write_sparse_model(path: Path) -> Path:
    """Write a model with 256 MiB of weights, stored as zeros in a sparse external file."""
    size = 8192
    weight = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[size, size])
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="w.bin")
    (path.parent / "w.bin").touch()
    os.truncate(path.parent / "w.bin", 4 * size * size)
    text = f"""
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[N, {size}] x) => (float[N, {size}] y) {{ y = MatMul(x, w) }}
    """
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(weight)
    return write(path, model)


def test_large_models_are_loaded_one_at_a_time(
    cache: Path, locked: Callable[..., Locked], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small models run concurrently on two releases; a large model runs alone."""
    monkeypatch.setattr(worker_slots, "LARGE_JOB_BYTES", 512 * 2**20)  # below what 256 MiB of weights need
    running = RunningJobs()
    small, large = (
        write(tmp_path / "small.onnx", onnx.parser.parse_model(ADD)),
        write_sparse_model(tmp_path / "large.onnx"),
    )
    specs = [WorkerSpec.of_runtime(*locked(release)) for release in ("1.18.1", "1.31.1")]
    environments = Environments(cache, offline=False)
    with WorkerPool(environments, 2, progress=running, measure_memory=lambda: 4 * 2**30) as host:
        jobs = [
            host.submit(spec, Load(model=str(model), optimization=level))
            for model in (small, large, small, large)
            for level in get_args(Optimization)
            for spec in specs
        ]
        observations = [job.result(120) for job in jobs]

    assert all(isinstance(observation, Completed) for observation in observations)
    loads_of_large = [
        moment for moment in running.moments if any(it.startswith("load large.onnx") for it in moment.values())
    ]
    assert len(loads_of_large) == 8
    assert all(len(moment) == 1 for moment in loads_of_large)
