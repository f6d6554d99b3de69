"""Activations that quantization tools remove, and whether the quantized range replaces them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from onnxgate.evidence.parity import MissingActivation
from onnxgate.model.reading.structure import read_view
from onnxgate.stages.parity.quantized_activations import RemovedActivation, find_removed_activations

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> g (float[N, 2, H, W] x) => (float[N, 2, H, W] y) '
WEIGHTS = "float[2, 2, 1, 1] w = {1, 2, 3, 4}, float lo = {0}, float hi = {6}, float min = {-3}"


def find(
    folder: Path,
    activation: str,
    quantizer: str,
    *,
    own: str = "[conv] r = Conv(x, w)",
    real: str = "[conv] c = Conv(x, w)",
) -> list[RemovedActivation]:
    """Return the activations that the range of the quantizer does not replace.

    `quantizer` contains the type and value of the zero point, and the scale. `own` and `real` compute the values in
    both models.
    """
    element, point, scale = quantizer.split()
    texts = {
        "f.onnx": f"<{WEIGHTS}> {{ {real} [act] r = {activation} y = Neg(r) }}",
        "q.onnx": f"<{WEIGHTS}, {element} z = {{{point}}}, float s = {{{scale}}}> {{ {own} "
        "r_QuantizeLinear_Output = QuantizeLinear(r, s, z) "
        "r_DequantizeLinear_Output = DequantizeLinear(r_QuantizeLinear_Output, s, z) "
        "y = Neg(r_DequantizeLinear_Output) }",
    }
    for name, text in texts.items():
        onnx.save(onnx.parser.parse_model(HEAD + text), folder / name)
    quantized, path = folder / "q.onnx", folder / "f.onnx"
    return list(find_removed_activations(read_view(quantized), quantized, read_view(path), path))


@pytest.mark.parametrize(
    ("activation", "quantizer", "count"),
    [
        ("Relu(c)", "uint8 0 0.1", 0),
        ("Relu(c)", "uint8 1 0.1", 1),
        ("Relu(c)", "int8 -128 0.1", 0),
        ("Relu(c)", "int8 0 0.1", 1),
        ("Relu(c)", "uint16 0 0.1", 0),
        ("Clip(c, lo, hi)", "uint8 0 0.0235294", 0),
        ("Clip(c, lo, hi)", "uint8 1 0.0235294", 1),
        ("Clip(c, lo, hi)", "uint8 0 0.0247058", 1),  # 5 % too large
        ("Clip(c, lo, hi)", "uint8 0 0.02", 0),  # the calibration data may have been smaller
        ("Clip(c, lo, hi)", "uint8 0 0.03125", 0),  # a power of two
        ("Clip(c, min, hi)", "uint8 85 0.0352941", 0),
        ("Clip(c, min, hi)", "uint8 86 0.0352941", 0),  # a rounded limit
        ("Clip(c, min, hi)", "uint8 90 0.0352941", 1),
    ],
)
def test_quantized_range_replaces_an_activation(tmp_path: Path, activation: str, quantizer: str, count: int) -> None:
    """All quantized values must be values that the activation returns."""
    assert count == len(find(tmp_path, activation, quantizer))


@pytest.mark.parametrize(
    ("own", "real", "count"),
    [
        ("[conv] r = Conv(x, w)", "[conv] k = Conv(x, w) [norm] c = BatchNormalization(k, w, w, w, w)", 1),
        ("[conv] c = Conv(x, w) [act] r = Relu(c)", "[conv] c = Conv(x, w)", 0),
        ("[conv] r = com.microsoft.FusedConv(x, w)", "[conv] c = Conv(x, w)", 0),
        ("[other] r = Conv(x, w)", "[conv] c = Conv(x, w)", 0),
        ("[mul] r = Mul(x, x)", "[conv] c = Conv(x, w)", 0),
    ],
    ids=["normalization merged", "kept", "fused", "another node", "another operator"],
)
def test_activation_was_removed(tmp_path: Path, own: str, real: str, count: int) -> None:
    """An activation was removed only if the same node is quantized without it."""
    assert count == len(find(tmp_path, "Relu(c)", "uint8 1 0.1", own=own, real=real))


@pytest.mark.parametrize(
    ("values", "value"),
    [([0.0, 3.0], None), ([-0.1, 3.0], -0.1), ([np.nan, 0.2], None)],
    ids=["in range", "negative", "not finite"],
)
def test_values_decide(tmp_path: Path, values: list[float], value: float | None) -> None:
    """An activation that would change no value is not missed."""
    (removed,) = find(tmp_path, "Relu(c)", "uint8 1 0.1")
    missing = value and MissingActivation(tensor="r", node="act", operator="Relu", value=value, limit=0.0)

    assert missing == removed.find_excess(np.array(values))


def test_values_above_a_limit(tmp_path: Path) -> None:
    """Values may exceed the upper limit of `Clip` by one step."""
    (removed,) = find(tmp_path, "Clip(c, lo, hi)", "uint8 0 0.0247058")
    found = [removed.find_excess(np.array([0.0, value])) for value in (6.02, 6.2)]

    assert found == [None, MissingActivation(tensor="r", node="act", operator="Clip", value=6.2, limit=6.0)]
