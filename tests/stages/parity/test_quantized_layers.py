"""The layers of a quantized model with the highest loss: tensor pairs, and the loss of each layer."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from numpy.typing import NDArray

from onnxgate.evidence.parity import Layer
from onnxgate.numerics import streams
from onnxgate.numerics.streams import load_array
from onnxgate.stages.parity.quantized_layers import TensorPair, find_worst_layers, pair_tensors

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> g (float[N, 2] x) => (float[N, 2] y) '
FLOAT = HEAD + "<float[2, 2] w = {1, 2, 3, 4}> { [fc] m = MatMul(x, w) [act] r = Relu(m) [out] y = Neg(r) }"
SCALES = "float s = {1}, uint8 z = {0}, int8 v = {0}"
QDQ = HEAD + (
    "<int8[2, 2] w_quantized = {1, 2, 3, 4}, SCALES> {"
    " xq = QuantizeLinear(x, s, z) xd = DequantizeLinear(xq, s, z)"
    " wd = DequantizeLinear(w_quantized, s, v) [fc] r = MatMul(xd, wd)"
    " rq = QuantizeLinear(r, s, z) rd = DequantizeLinear(rq, s, z) [out] y_QuantizeLinear_Input = Neg(rd)"
    " yq = QuantizeLinear(y_QuantizeLinear_Input, s, z) y = DequantizeLinear(yq, s, z) }"
).replace("SCALES", SCALES)
OPERATORS = HEAD + (
    "<int8[2, 2] w_quantized = {1, 2, 3, 4}, SCALES> {"
    " x_quantized = QuantizeLinear(x, s, z)"
    " [fc_quant] m_quantized = QLinearMatMul(x_quantized, s, z, w_quantized, s, v, s, z)"
    " m = DequantizeLinear(m_quantized, s, z) [act] r = Relu(m) [out] y = Neg(r) }"
).replace("SCALES", SCALES)

Array = NDArray[Any]


def pairs(text: str) -> tuple[TensorPair, ...]:
    """Return the tensor pairs of a quantized model and its float model."""
    return pair_tensors(onnx.parser.parse_model(text), onnx.parser.parse_model(FLOAT))


def test_values_that_are_quantized_and_back() -> None:
    """Inputs, weights and outputs are paired with their values before quantization, and fused activations are found."""
    actual = {pair.tensor: (pair.kind, pair.before, pair.after, pair.activation) for pair in pairs(QDQ)}

    assert actual == {
        "x": ("input", "x", "xd", ""),
        "w": ("weight", "", "wd", ""),
        "r": ("output", "r", "rd", "Relu"),
        "y": ("output", "y_QuantizeLinear_Input", "y", ""),
    }


def test_quantized_operators() -> None:
    """Quantized values are converted with the node's scale; other values are paired by name."""
    actual = {pair.tensor: (pair.after, pair.scale, pair.zero) for pair in pairs(OPERATORS)}

    assert actual == {"m": ("m_quantized", "s", "z"), "r": ("r", "", ""), "y": ("y", "", "")}


def worst(text: str, quantized: dict[str, Array], real: dict[str, Array]) -> list[tuple[str, str, float]]:
    """Return tensor, node and clipped share, worst first."""
    proto = onnx.parser.parse_model(FLOAT)
    layers = find_worst_layers(pairs(text), quantized, real, proto, lambda _: None)
    return [(layer.tensor, layer.node, layer.clipped) for layer in layers]


def test_loss_is_that_of_the_step_itself() -> None:
    """A loss that follows from an earlier layer is not attributed to the later ones."""
    x = np.linspace(1, 9, 8, dtype=np.float32).reshape(4, 2)
    w = np.array([[1, 2], [3, 4]], np.float32)
    real = {"x": x, "w": w, "m": x @ w, "r": x @ w, "y": -(x @ w)}
    clipped = np.minimum(x, 2)
    after = clipped @ w
    quantized = {"x": x, "xd": clipped, "wd": w, "r": after, "rd": after, "y_QuantizeLinear_Input": -after, "y": -after}

    assert worst(QDQ, quantized, real) == [("x", "fc", 0.75)]


def test_activation_in_the_step_is_no_loss() -> None:
    """Negative values that the float model also sets to 0 are not a loss."""
    x = np.linspace(-4, 4, 8, dtype=np.float32).reshape(4, 2)
    w = np.array([[1, 2], [3, 4]], np.float32)
    rectified = np.maximum(x @ w, 0)
    real = {"x": x, "w": w, "m": x @ w, "r": rectified, "y": -rectified}
    coarse = w + np.float32(0.3)
    made = x @ coarse
    kept = np.maximum(made, 0)
    quantized = {"x": x, "xd": x, "wd": coarse, "r": made, "rd": kept, "y_QuantizeLinear_Input": -kept, "y": -kept}

    assert worst(QDQ, quantized, real) == [("w", "fc", 0.0)]


def test_loss_of_a_quantized_operator() -> None:
    """The loss of a quantized operator is that of its output beyond that of its inputs."""
    x = np.linspace(1, 9, 8, dtype=np.float32).reshape(4, 2)
    w = np.array([[1, 2], [3, 4]], np.float32)
    real = {"x": x, "w": w, "m": x @ w, "r": x @ w, "y": -(x @ w)}
    steps = np.minimum(np.round(x @ w), 20)
    quantized = {"m_quantized": steps.astype(np.uint8), "s": np.float32(1), "z": np.uint8(0), "r": steps, "y": -steps}

    assert worst(OPERATORS, quantized, real) == [("m", "fc", 0.0)]


def test_no_loss_reports_no_layer() -> None:
    """Without a loss, no layer is reported."""
    same = {name: np.ones((2, 2), np.float32) for name in ("x", "xd", "w", "wd", "r", "rd", "y")}

    assert worst(QDQ, same, same) == []


X = (
    TensorPair("x", -1, "input", "xd", "x"),
    TensorPair("x", -1, "input", "xd", "x", "Relu"),
    TensorPair("x", -1, "input", "xd", "x", "Clip"),
    TensorPair("x", -1, "input", "xq", scale="s", zero="z"),
)


def compute_in_one_piece(pair: TensorPair, quantized: dict[str, Array], real: dict[str, Array]) -> tuple[float, float]:
    """Return decibels and clipped share of a pair by their definitions, from whole arrays."""
    after, before = quantized[pair.after], quantized.get(pair.before, real["x"])
    if pair.activation:
        bounds = (0, None) if pair.activation == "Relu" else (real["x"].min(), real["x"].max())
        before = np.clip(before, *bounds)
    clipped = 0.0
    if pair.scale:
        after = (after.astype(np.float64) - quantized["z"].item()) * quantized["s"].item()
    else:
        levels = np.unique(after)
        step = np.diff(levels).min()
        clipped = ((before > levels[-1] + step) | (before < levels[0] - step)).mean()
    finite = np.isfinite(before) & np.isfinite(after)
    a, b = after[finite].astype(np.float64), before[finite].astype(np.float64)
    return 10 * np.log10(np.square(b).sum() / np.square(a - b).sum()), clipped


@pytest.mark.parametrize("pair", X, ids=("plain", "rectified", "clipped", "steps"))
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("has_infinities", [False, True])
def test_large_values_have_the_figures_of_small_ones(
    monkeypatch: pytest.MonkeyPatch, pair: TensorPair, dtype: str, has_infinities: bool
) -> None:
    """Chunks have three elements; some contain no finite element."""
    monkeypatch.setattr(streams, "CHUNK_ELEMENTS", 3)
    draw = np.random.default_rng(1)
    x = draw.normal(size=(5, 4)).astype(dtype)
    xd = (np.clip(np.round(x / 0.25), -3, 3) * 0.25).astype(dtype)
    steps = np.clip(np.round(x / 0.25), -3, 3).astype(np.int8)
    if has_infinities:
        x[1, 2:] = x[2, :3] = np.inf
    quantized = {"x": x, "xd": xd, "xq": steps, "s": np.array(0.25, np.float32), "z": np.array(0, np.int8)}
    real = {"x": x if has_infinities else np.abs(x) + x}

    (layer,) = find_worst_layers([pair], quantized, real, onnx.parser.parse_model(FLOAT), lambda _: None)
    lost_db, clipped = compute_in_one_piece(pair, quantized, real)

    assert layer.lost_here_db == pytest.approx(lost_db, abs=0.006)
    assert layer.clipped == pytest.approx(clipped, abs=0.0006)


def test_steps_with_a_scale_for_each_channel() -> None:
    """Values with a scale per channel have no figures, because the axis of the scales is unknown."""
    quantized = {"xq": np.ones((2, 2), np.int8), "s": np.ones(2, np.float32), "z": np.zeros(1, np.int8)}
    proto = onnx.parser.parse_model(FLOAT)

    assert find_worst_layers(X[3:], quantized, {"x": np.full((2, 2), 3, np.float32)}, proto, lambda _: None) == ()


def test_large_values_need_little_memory(tmp_path: Path) -> None:
    """Values of 40 MB are compared in much less memory than one of them takes."""
    x = np.random.default_rng(0).normal(size=(2500, 4000)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "xd.npy", np.clip(np.round(x * 8), -4, 4) / np.float32(8))
    del x
    proto, layers = onnx.parser.parse_model(FLOAT), list[Layer]()
    tracemalloc.start()
    try:
        values = {name: load_array(tmp_path / f"{name}.npy") for name in ("x", "xd")}
        layers += find_worst_layers(X[1:2], values, values, proto, lambda _: None)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert [layer.tensor for layer in layers] == ["x"]
    assert peak_bytes < 32 * 2**20
