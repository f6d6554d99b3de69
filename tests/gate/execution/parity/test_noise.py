"""Changes of weights and inputs by one unit in the last place, and runs with them."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxgate.core.jobs import Failure, Job, Observation, Refused
from onnxgate.gate.execution.parity.extra_runs import ExtraRuns, UnmeasurableError
from onnxgate.gate.execution.parity.noise import NoiseMeter, change_rounding, write_changed_model
from onnxgate.model.numeric_traits import NumericTraits, detect_numeric_traits
from onnxgate.model.reading.fact_extraction import read_model
from onnxgate.project.lock.types import LockedRuntime
from onnxgate.project.plan import PlannedRuntime
from onnxgate.runtimes.worker_spec import JobLimits
from tests.harness.models import parse
from tests.harness.recorded_runs import case, done, ran, saved

RELEASES = ("1.31.1", "1.22.1", "1.18.1")
USUAL = np.array([1.0, 3.0], np.float32)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_each_number_becomes_a_neighbor(dtype: str) -> None:
    """About half of the numbers become larger and half smaller, by one unit in the last place."""
    values = np.random.default_rng(0).normal(size=(10, 100)).astype(dtype)
    changed = change_rounding(values, "seed")

    assert changed.dtype == values.dtype
    assert np.array_equal(np.abs(changed - values), np.abs(np.nextafter(values, changed) - values))
    assert 0.4 < (changed > values).mean() < 0.6
    assert (changed != values).all()


def test_special_numbers_are_kept() -> None:
    """Zeros, infinities, NaN and the largest numbers keep their value, because they may have a meaning."""
    values = np.array([0.0, np.inf, -np.inf, np.nan], np.float32)
    largest = np.full(8, np.finfo(np.float32).max)

    assert np.array_equal(values, change_rounding(values, "seed"), equal_nan=True)
    assert np.isfinite(change_rounding(largest, "seed")).all()


def test_changes_depend_only_on_the_seed() -> None:
    """The same seed gives the same changes on every machine."""
    values = np.ones(100, np.float32)

    assert np.array_equal(change_rounding(values, "a"), change_rounding(values, "a"))
    assert not np.array_equal(change_rounding(values, "a"), change_rounding(values, "b"))


def test_constants_and_bfloat16_weights_change(tmp_path: Path) -> None:
    """Weights may be stored in `Constant` nodes or in bfloat16; each number changes by one step."""
    model = parse(
        "g (float[9] x) => (float[9] y) { w = Constant<value = float[9] {1,2,3,4,5,6,7,8,9}>() y = Add(x, w) }"
    )
    bits = [0x3F80, 0, 0x7F80, 0xBF80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0]
    model.graph.initializer.extend(
        [
            helper.make_tensor("b", TensorProto.BFLOAT16, [9], np.array(bits, "<u2").tobytes(), True),
            TensorProto(name="c", data_type=TensorProto.BFLOAT16, dims=[9], int32_data=[it - 0x10000 for it in bits]),
        ]
    )
    onnx.save(model, tmp_path / "m.onnx")
    changed = onnx.load(write_changed_model(tmp_path / "m.onnx", tmp_path / "changed.onnx", 0))
    constant = numpy_helper.to_array(changed.graph.node[0].attribute[0].t)
    steps = [np.frombuffer(it.raw_data, "<u2").astype(int) - bits for it in changed.graph.initializer]

    assert [[1, 0, 0, 1, 1, 1, 1, 1, 1]] * 2 == np.abs(steps).tolist()
    assert TensorProto.BFLOAT16 == changed.graph.initializer[0].data_type
    assert (constant != np.arange(1, 10)).all()
    assert np.allclose(constant, np.arange(1, 10), rtol=1e-6)


def test_contradictory_weights_are_kept(tmp_path: Path) -> None:
    """Weights whose data does not fit their type and shape, which runtimes load if they are unused, do not change."""
    model = parse("g (float[9] x) => (float[9] y) <float[9] w = {1,2,3,4,5,6,7,8,9}> { y = Add(x, w) }")
    model.graph.initializer.extend(
        [
            TensorProto(name="short", data_type=TensorProto.FLOAT, dims=[9], float_data=[1.0] * 8),
            TensorProto(name="odd", data_type=TensorProto.BFLOAT16, dims=[9], raw_data=bytes(17)),
            TensorProto(name="segment", data_type=TensorProto.DOUBLE, dims=[9], segment=TensorProto.Segment(begin=1)),
        ]
    )
    onnx.save(model, tmp_path / "m.onnx")
    changed = onnx.load(write_changed_model(tmp_path / "m.onnx", tmp_path / "changed.onnx", 0))

    assert list(model.graph.initializer[1:]) == list(changed.graph.initializer[1:])
    assert model.graph.initializer[0] != changed.graph.initializer[0]


QUANTIZED = """g (float[4] x) => (float[4] y)
    <float s = {0.5}, float other = {0.25}, float w_scale = {0.125}, uint8 z = {128}, uint8[4] w = {1, 2, 3, 4}> {
    q = QuantizeLinear(x, s, z)
    a = DequantizeLinear(q, s, z)
    b = DequantizeLinear(w, w_scale, z)
    c = Mul(a, b)
    d = QuantizeLinear(c, other, z)
    y = DequantizeLinear(d, other, z)
}"""


def test_steps_of_activations_grow(tmp_path: Path) -> None:
    """Each quantized value is rounded differently, without clipping; the steps of weights are kept."""
    onnx.save(parse(QUANTIZED), tmp_path / "m.onnx")
    steps = []
    for seed in (0, 1):
        changed = onnx.load(write_changed_model(tmp_path / "m.onnx", tmp_path / f"{seed}.onnx", seed))
        steps.append({tensor.name: numpy_helper.to_array(tensor) for tensor in changed.graph.initializer})

    assert all(1 + 1 / 64 <= float(it["s"] / 0.5) <= 1 + 1 / 32 for it in steps)
    assert all(1 + 1 / 64 <= float(it["other"] / 0.25) <= 1 + 1 / 32 for it in steps)
    assert steps[0]["s"] != steps[1]["s"]
    assert [0.125, 0.125] == [float(it["w_scale"]) for it in steps]
    assert all((it["z"], it["w"].tolist()) == (128, [1, 2, 3, 4]) for it in steps)


def _planned(release: str) -> PlannedRuntime:
    runtime = LockedRuntime(engine="onnxruntime", release=release, python="3.11")
    return PlannedRuntime(runtime, ("server",), ("all",), ("CPUExecutionProvider",), required=True)


def _noise_on(folder: Path, *accepting: str) -> NoiseMeter:
    """Return the measurement on runtimes that add 1e-3 if the weights change; the others refuse the changed model."""

    def submit(planned: PlannedRuntime, _: Job, __: JobLimits | None) -> Future[Observation]:
        changed, future = saved(folder, USUAL + np.float32(1e-3)), Future[Observation]()
        is_accepted = planned.runtime.release in accepting
        refusal = Refused(failure=Failure(type="Fail", text="not supported"))
        future.set_result(done(changed, outputs=["y"]) if is_accepted else refusal)
        return future

    runtimes = {f"onnxruntime {release}": _planned(release) for release in RELEASES}
    extra = ExtraRuns(runtimes, submit, lambda: folder / f"run {len(list(folder.iterdir()))}")
    return NoiseMeter(None, ["y"], extra, NumericTraits())


def test_noise_is_measured_on_another_runtime(tmp_path: Path) -> None:
    """A runtime that did not run the model, or refuses it with other weights, does not end the measurement."""
    onnx.save(parse("g (float[2] x) => (float[2] y) { y = Identity(x) }"), tmp_path / "m.onnx")
    runtimes = [f"onnxruntime {release}" for release in RELEASES]
    usual = [ran(name, "all", done(saved(tmp_path, USUAL), outputs=["y"]), [case(1)]) for name in runtimes[1:]]
    noise = _noise_on(tmp_path, "1.18.1").measure(tmp_path / "m.onnx", usual, runtimes)

    assert noise.tolerances["y"].noise == pytest.approx(1e-3, rel=1e-3)
    with pytest.raises(UnmeasurableError, match=r"did not run on onnxruntime 1\.31\.1 and .*\(refused\)\)$"):
        _noise_on(tmp_path).measure(tmp_path / "m.onnx", usual, runtimes)


def test_noise_of_a_model_with_quantized_weights_is_a_tolerance(tmp_path: Path) -> None:
    """Runs of a model that only stores quantized weights are compared element by element."""
    text = """g (float[2, 1] x) => (float[2, 1] y) <int8[1, 1] q = {3}, float s = {0.5}>
        { w = DequantizeLinear(q, s)  y = MatMul(x, w) }"""
    onnx.save(parse(text), tmp_path / "m.onnx")
    reading = read_model(tmp_path / "m.onnx", "m.onnx")
    runtime = f"onnxruntime {RELEASES[0]}"
    usual = [ran(runtime, "all", done(saved(tmp_path, USUAL), outputs=["y"]), [case(1)])]
    meter = replace(_noise_on(tmp_path, RELEASES[0]), traits=detect_numeric_traits(reading.facts, reading.view))
    noise = meter.measure(tmp_path / "m.onnx", usual, [runtime])

    assert noise.tolerances["y"].noise == pytest.approx(1e-3, rel=1e-3)
    assert noise.accuracy == {}
