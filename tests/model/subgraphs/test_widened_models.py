"""Copies of float16 models that compute in float32."""

from __future__ import annotations

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
