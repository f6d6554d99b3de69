"""Biases with another scale than the product, on real releases.

ONNX Runtime 1.18 ignores the stored scale of a bias when it fuses nodes, so a wrong scale changes optimized results.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import onnx.parser
import pytest

from onnxgate.evidence.parity import find_mismatches
from onnxgate.inputs.cases import generate_cases
from onnxgate.model.quantization_consistency import find_inconsistencies
from onnxgate.model.reading.fact_extraction import read_model
from tests.gate.mismatch_search.search_bench import Bench, compared

pytestmark = pytest.mark.index
MODEL = (
    '<ir_version: 8, opset_import: ["" : 17]> g (float[4, 2, 3, 3] x) => ({outputs}) '
    "<float s = {{0.02}}, uint8 z = {{128}}, int8[2, 2, 1, 1] w = {{1, 2, 3, 4}}, float[2] k = {{0.5, 0.25}}, "
    "int32[2] b = {{{values}}}, float[2] u = {{0.16, 0.08}}, int32[2] i = {{0, 0}}, float t = {{0.05}}, "
    "uint8 o = {{{point}}}, int64[2] n = {{4, 18}}> "
    "{{ q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) e = DequantizeLinear<axis = {axis}>(w, k) "
    "f = DequantizeLinear<axis = 0>(b, u, i) c = {operator}(d, e, f) {rest} }}"
)
QUANTIZED = "p = QuantizeLinear({}, t, o) y = DequantizeLinear(p, t, o)"


@pytest.mark.parametrize(
    ("operator", "values", "rest", "point", "is_fused"),
    [
        ("Conv", "50, 60", QUANTIZED.format("c"), 0, True),
        ("Conv", "0, 0", QUANTIZED.format("c"), 0, False),
        ("Conv", "50, 60", "r = Relu(c) " + QUANTIZED.format("r"), 0, True),
        ("Conv", "50, 60", "r = Relu(c) " + QUANTIZED.format("r"), 128, False),
        ("Conv", "50, 60", "r = Reshape(c, n) " + QUANTIZED.format("r"), 128, True),
        ("Conv", "50, 60", "r = Sigmoid(c) " + QUANTIZED.format("r"), 0, False),
        ("Conv", "50, 60", "y = Relu(c)", 0, False),
        ("Conv", "50, 60", QUANTIZED.format("c") + " v = Neg(c)", 0, False),
        ("ConvTranspose", "50, 60", QUANTIZED.format("c"), 0, False),
    ],
)
def test_a_wrong_scale_is_reported_if_it_changes_results(
    bench: Callable[..., Bench], tmp_path: Path, operator: str, values: str, rest: str, point: int, is_fused: bool
) -> None:
    """The static check finds the bias if, and only if, the optimizer ignores its scale."""
    outputs = "float[a, b, c, d] y, float[a, b, c, d] v" if " v = " in rest else "float y"
    axis = 1 if operator == "ConvTranspose" else 0
    text = MODEL.format(operator=operator, values=values, rest=rest, point=point, outputs=outputs, axis=axis)
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(text), str(path))
    reading = read_model(path, "m.onnx")
    running = bench("1.18.1")
    cases = generate_cases(reading.facts, reading.view, {}, running.place())
    comparisons, _ = compared(running, path, cases)
    differing = {comparison.pair for comparison in comparisons if find_mismatches(comparison)}
    faults = list(find_inconsistencies(reading.view, path))

    assert (is_fused, {"optimization"} if is_fused else set()) == (bool(faults), differing)
