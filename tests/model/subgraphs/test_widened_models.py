"""Copies of float16 models that compute in float32."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import onnx.checker
from onnx import TensorProto, numpy_helper

from onnxgate.model.subgraphs.widened_models import write_widened_model
from tests.harness.models import parse

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float16[N] x, bool go) => (float16[N] y) <float16[1] w = {11878}> {
    c = Constant<value = float16[1] {16896}>()
    a = Mul(x, w)
    b = Cast<to = 10>(a)
    d = Add(b, c)
    y = If(go) <
        then_branch = then () => (float16[N] t) { t = Cast<to = 10>(d) },
        else_branch = otherwise () => (float16[N] e) { e = Identity(d) }
    >
}
"""


def test_every_float16_becomes_float32(tmp_path: Path) -> None:
    """Types, weights, constants and casts become float32, also in subgraphs; weights keep their value."""
    onnx.save(parse(TEXT, head=""), tmp_path / "m.onnx")
    is_written = write_widened_model(tmp_path / "m.onnx", tmp_path / "wide.onnx")
    model = onnx.load(tmp_path / "wide.onnx")
    onnx.checker.check_model(model, full_check=True)
    (weight,) = model.graph.initializer

    assert is_written
    assert np.float32(np.float16(0.1)) == numpy_helper.to_array(weight)[0]
    assert {TensorProto.FLOAT, TensorProto.BOOL} == {
        value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)
    }


def test_only_weights_of_the_source_are_exact(tmp_path: Path) -> None:
    """Weights that are not in the source change by one float16 step, except for exact numbers such as 3 and 0.5.

    15784 is the square root of 2, whose last bits are 0.
    """
    text = """g (float16[N, 3] x) => (float16[N, 3] y) <
        float16[3] known = {11878, 11879, 11881}, float16[3] computed = {15784, 16896, 14336}
    > { a = Mul(x, known) y = Mul(a, computed) }"""
    model = parse(text)
    onnx.save(model, tmp_path / "m.onnx")
    weights = [numpy_helper.to_array(tensor) for tensor in model.graph.initializer]
    write_widened_model(tmp_path / "m.onnx", tmp_path / "wide.onnx", [hashlib.sha256(weights[0].tobytes()).hexdigest()])
    wide = [numpy_helper.to_array(tensor) for tensor in onnx.load(tmp_path / "wide.onnx").graph.initializer]

    assert weights[0].tolist() == wide[0].tolist()
    assert [1, 0, 0] == [
        abs(int(np.float16(b).view(np.int16)) - int(a.view(np.int16))) for a, b in zip(weights[1], wide[1], strict=True)
    ]


def test_selected_rows_of_the_source_are_exact(tmp_path: Path) -> None:
    """A constant that consists of rows of an embedding, which a fixed shape selects, is not changed."""
    text = """g (float16[2, 2] x) => (float16[2, 2] y)
        <float16[2, 2] w = {11878, 11879, 11881, 11883}> { y = Add(x, w) }"""
    model = parse(text)
    onnx.save(model, tmp_path / "m.onnx")
    (weight,) = map(numpy_helper.to_array, model.graph.initializer)
    exact = [hashlib.sha256(row.tobytes()).hexdigest() for row in weight]
    write_widened_model(tmp_path / "m.onnx", tmp_path / "wide.onnx", exact)
    write_widened_model(tmp_path / "m.onnx", tmp_path / "changed.onnx", exact[:1])
    wide, changed = (
        numpy_helper.to_array(onnx.load(tmp_path / name).graph.initializer[0]) for name in ("wide.onnx", "changed.onnx")
    )

    assert weight.tolist() == wide.tolist()
    assert weight.tolist() != changed.tolist()
