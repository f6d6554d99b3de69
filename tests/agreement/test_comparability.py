"""What a model's operators and types allow to conclude from a difference."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

from onnxgate.agreement.comparability import Comparability, comparability
from onnxgate.model.reading import read


def _of(tmp_path: Path, text: str) -> Comparability:
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> ' + text), path)
    reading = read(path, "m.onnx")
    return comparability(reading.facts, reading.proto)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("g (float[N] x) => (float[N] y) { y = Relu(x) }", Comparability()),
        ("g (float[N] x) => (float[N] y) { h = Cast<to = 10>(x)  y = Cast<to = 1>(h) }", Comparability(half=True)),
        ("g (float16[N] x) => (float16[N] y) <float16 w = {1}> { y = Add(x, w) }", Comparability(half=True)),
        ("g (float[N] x) => (float[N] y) { y = RandomNormalLike(x) }", Comparability(random=("RandomNormalLike",))),
        (
            "g (float[N] x) => (float[N] y) <float r = {0.5}, bool t = {1}> { y = Dropout(x, r, t) }",
            Comparability(random=("Dropout",)),
        ),
        ("g (float[N] x) => (float[N] y) <float r = {0.5}, bool t = {0}> { y = Dropout(x, r, t) }", Comparability()),
        ("g (float[N] x) => (float[N] y) { y = Dropout(x) }", Comparability()),
        (
            "g (float[N] x) => (uint8[N] y) <float s = {0.1}, uint8 z = {0}> { y = QuantizeLinear(x, s, z) }",
            Comparability(quantized=("QuantizeLinear",)),
        ),
        (
            "g (float[N, 4] x) => (float[N, 2] y) { y = com.microsoft.MatMulNBits<K = 4, N = 2>(x, x, x) }",
            Comparability(quantized=("com.microsoft.MatMulNBits",)),
        ),
    ],
)
def test_comparability(tmp_path: Path, text: str, expected: Comparability) -> None:
    """Random draws, training mode left in, steps of a quantisation, and 16 bits anywhere."""
    assert _of(tmp_path, text) == expected


def test_random_operator_in_a_branch_counts(tmp_path: Path) -> None:
    """Subgraphs are part of the model."""
    text = """g (float[N] x, bool c) => (float[N] y)
        { y = If(c) <then_branch = a () => (z) { z = Bernoulli(x) }, else_branch = b () => (w) { w = Relu(x) }> }"""

    assert _of(tmp_path, text).random == ("Bernoulli",)
