"""Engines other than ONNX Runtime in their locked environments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from campaigns.conformance.engine_loads import find_spec
from onnxgate.core.jobs import CaseResult, Completed, Crashed, InputCase, Observation, Refused, Run, RunResult
from onnxgate.project.lock.lock_file import load_lock
from onnxgate.project.lock.types import LockedPackage, LockedRuntime
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.worker_spec import JobLimits, WorkerSpec

Locked = tuple[LockedRuntime, tuple[LockedPackage, ...]]
Runs = Callable[[str, str, dict[str, np.ndarray]], Observation]

pytestmark = pytest.mark.index

LOCK = Path(__file__).parents[3] / "fixtures" / "locks" / "engines.lock"
OPENVINO, TRACT, ONNX, OPENCV = "openvino", "tract", "onnx", "opencv-python-headless"
OLD_TRACT = "tract==0.21.8"

ADD = '<ir_version: 8, opset_import: ["" : 17]> g (float[N, 4] x) => (float[N, 4] y) { y = Add(x, x) }'
TWO = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N, 4] b, float[N, 4] a) => (float[N, 4] z, int64[N, 4] k, float[N, 4] y) <float[4] w = {1, 2, 3, 4}> {
    y = Sub(a, b)
    s = Mul(a, w)
    z = Add(s, b)
    k = Cast<to = 7>(z)
}
"""
TYPES = """
<ir_version: 8, opset_import: ["" : 17]>
g (string[N] s, float16[3] h, double[3] d, bool[2] q) => (string[1] s2, float16[3] h2, bfloat16[3] b2, bool[2] q2) {
    last = Constant<value = int64[1] {1}>()
    s2 = Gather(s, last)
    h2 = Add(h, h)
    b2 = Cast<to = 16>(d)
    q2 = Not(q)
}
"""
SEQUENCE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N] x) => (seq(float[N]) s, float[N] y) { s = SequenceConstruct(x, x)  y = Neg(x) }
"""
NUMBERS = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N, 2] b, float[N, 2] a) => (
    float[N, 2] y, float16[N, 2] h, double[N, 2] d, bool[N, 2] q, uint8[N, 2] u, int32[N, 2] i, float s
) {
    y = Sub(a, b)
    h = Cast<to = 10>(y)
    d = Cast<to = 11>(y)
    q = Cast<to = 9>(y)
    u = Cast<to = 2>(y)
    i = Cast<to = 6>(y)
    s = ReduceMax<keepdims = 0>(y)
}
"""
CUSTOM = """
<ir_version: 8, opset_import: ["" : 17, "my.domain" : 1]>
g (float[N, 4] x) => (float[N, 4] y) { [first] y = my.domain.Twist(x) }
"""


@pytest.fixture(scope="module")
def locked() -> Callable[[str], Locked]:
    """Return a function that finds the locked release of an engine."""
    lock = load_lock(LOCK)
    runtimes = {runtime.engine: runtime for target in lock.targets.values() for runtime in target.runtimes}

    def find(engine: str) -> Locked:
        return runtimes[engine], lock.packages

    return find


@pytest.fixture
def run(cache: Path, locked: Callable[[str], Locked], tmp_path: Path) -> Iterator[Runs]:
    """Yield a function that runs a model in ONNX text format on an engine, or on a release of it, with one case."""
    with WorkerPool(Environments(cache, offline=False), 2, JobLimits(time_s=60)) as host:

        def cached(engine: str, text: str, feeds: dict[str, np.ndarray]) -> Observation:
            model, output = tmp_path / "model.onnx", tmp_path / "out"
            onnx.save(onnx.parser.parse_model(text), model)
            output.mkdir()
            inputs = {name: str(tmp_path / f"{name}.npy") for name in feeds}
            for name, value in feeds.items():
                np.save(inputs[name], value)
            case = InputCase(name="c", origin="user", inputs=inputs)
            job = Run(model=str(model), cases=(case,), output=str(output), providers=())
            name, _, release = engine.partition("==")
            spec = find_spec(name, release) if release else WorkerSpec.of_runtime(*locked(engine))
            return host.submit(spec, job).result(300)

        yield cached


def values(observation: Observation) -> dict[str, np.ndarray | None]:
    """Return the outputs by name."""
    assert isinstance(observation, Completed), observation
    result = observation.result
    assert isinstance(result, RunResult)
    (case,) = result.cases
    assert case.failure is None, case.failure
    paths = zip(result.outputs, case.outputs, strict=True)
    return {name: np.load(path) if path else None for name, path in paths}


@pytest.mark.parametrize("engine", [OPENVINO, TRACT, ONNX, OPENCV])
def test_names_and_order(run: Runs, engine: str) -> None:
    """Inputs are passed by name, and outputs are in the order of the graph."""
    a, b = np.ones((2, 4), np.float32), np.full((2, 4), 3, np.float32)
    actual = values(run(engine, TWO, {"a": a, "b": b}))
    z = a * np.arange(1, 5, dtype=np.float32) + b

    assert list(actual) == ["z", "k", "y"]
    assert [each.dtype for each in actual.values() if each is not None] == [np.float32, np.int64, np.float32]
    for name, expected in (("z", z), ("k", z.astype(np.int64)), ("y", a - b)):
        np.testing.assert_array_equal(actual[name], expected)


@pytest.mark.parametrize("engine", [OPENVINO, ONNX])
def test_types(run: Runs, engine: str) -> None:
    """Strings, float16 and booleans keep their types; bfloat16 is returned as float32."""
    feeds = {
        "s": np.array(["cat", "é"]),
        "h": np.ones(3, np.float16),
        "d": np.array([1.0, -2.5, 3.140625]),
        "q": np.array([True, False]),
    }
    actual = values(run(engine, TYPES, feeds))
    expected = {
        "s2": np.array(["é"]),
        "h2": np.full(3, 2, np.float16),
        "b2": feeds["d"].astype(np.float32),
        "q2": np.array([False, True]),
    }

    assert list(actual) == list(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value)
        assert actual[name] is not None
        assert actual[name].dtype.kind == value.dtype.kind


@pytest.mark.parametrize("engine", [TRACT, OLD_TRACT])
def test_types_of_tract(run: Runs, engine: str) -> None:
    """Outputs keep their types. The Python package of old releases reads all values as float32."""
    a, b = np.array([[1, 5], [9, 7]], np.float32), np.array([[1, 3], [4, 7]], np.float32)
    actual = values(run(engine, NUMBERS, {"a": a, "b": b}))
    types = {"y": "float32", "h": "float16", "d": "float64", "q": "bool", "u": "uint8", "i": "int32"}

    assert list(actual) == [*types, "s"]
    for name, dtype in types.items():
        assert str(getattr(actual[name], "dtype", "")) == dtype
        np.testing.assert_array_equal(actual[name], (a - b).astype(dtype))
    np.testing.assert_array_equal(actual["s"], np.array(5, np.float32))


def test_containers(run: Runs) -> None:
    """The reference evaluator returns a sequence as values and layout, like ONNX Runtime."""
    actual = values(run(ONNX, SEQUENCE, {"x": np.ones(3, np.float32)}))

    assert list(actual) == ["s", "s (layout)", "y"]
    np.testing.assert_array_equal(actual["s"], np.ones((2, 3), np.float32))


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        (OPENVINO, "No conversion rule found for operations: my.domain.Twist"),
        (TRACT, 'Translating node #1 "first" Unimplemented(Twist) ToTypedTranslator'),
        (OLD_TRACT, 'Translating node #1 "first" Unimplemented(Twist) ToTypedTranslator'),
        (ONNX, "Node type 'Twist' from domain 'my.domain' is unknown, known functions: []."),
    ],
)
def test_refusals(run: Runs, engine: str, text: str) -> None:
    """The message is the engine's own, without its source files, line numbers and backtraces."""
    observation = run(engine, CUSTOM, {"x": np.ones((1, 4), np.float32)})

    assert isinstance(observation, Refused)
    assert observation.failure.text.startswith(text)
    assert ".cpp" not in observation.failure.text
    assert "backtrace" not in observation.failure.text


def test_refused_by_opencv(run: Runs) -> None:
    """OpenCV 5.0.0 either names the unsupported operator or crashes; both are valid results."""
    observation = run(OPENCV, CUSTOM, {"x": np.ones((1, 4), np.float32)})

    assert isinstance(observation, Refused | Crashed)
    assert not isinstance(observation, Refused) or 'of type "my.domain.Twist"' in observation.failure.text


def test_openvino_computes_in_float32(run: Runs) -> None:
    """OpenVINO is set to float32, because it would use bfloat16 on CPUs that support it and lose precision."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[64, 64] x, float[64, 64] w) => (float[64, 64] y) { y = MatMul(x, w) }
    """
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
    actual = values(run(OPENVINO, text, {"x": x, "w": w}))

    np.testing.assert_allclose(actual["y"], x.astype(np.float64) @ w, atol=1e-4)


def test_a_case_that_fails(run: Runs) -> None:
    """An input that cannot be passed to the engine is a failure of its case."""
    observation = run(
        TRACT, ADD.replace("float", "string").replace("Add(x, x)", "Identity(x)"), {"x": np.array([["a"]])}
    )

    assert isinstance(observation, Completed | Refused)
    if isinstance(observation, Completed):
        assert isinstance(observation.result, RunResult)
        (case,) = observation.result.cases
        assert isinstance(case, CaseResult)
        assert case.failure is not None
