"""Types that runtimes ignore, because another declaration of the same value applies.

Each model was loaded on ONNX Runtime 1.16.3, 1.20.1, 1.24.4, 1.31.1 and 1.32.0.
"""

from __future__ import annotations

import onnx.parser
import pytest
from onnx import ModelProto, TensorProto, helper

from onnxgate.model.reading.view import ModelView
from onnxgate.support import limits, operators
from onnxgate.support.matching.kernels import predict
from onnxgate.support.matching.type_inference import infer_model_types

STAMPS = '<ir_version: 8, opset_import: ["" : 17]> '


def verdict(model: ModelProto) -> str:
    """Return the predicted verdict of one release."""
    known = limits.get_limits("1.31.1")
    assert known is not None
    return predict(infer_model_types(ModelView(model)), operators.get_implementation("1.31.1"), known).verdict


@pytest.mark.parametrize(
    ("declared", "expected"), [("string a", "loads"), ("string c", "loads"), ("string m", "refused")]
)
def test_body_of_sequence_map(declared: str, expected: str) -> None:
    """The types of inputs and outputs of a body apply; only for other values, the listed type counts."""
    text = (
        "g (seq(float[2]) s) => (seq(float[2]) y) {"
        "y = SequenceMap (s) <body: graph = b (float[2] a) => (float[2] c) "
        f"<{declared}> {{ m = Neg (a) c = Neg (m) }}> }}"
    )

    assert expected == verdict(onnx.parser.parse_model(STAMPS + text))


@pytest.mark.parametrize(("element", "expected"), [(TensorProto.FLOAT, "loads"), (TensorProto.BOOL, "refused")])
def test_sparse_initializer(element: int, expected: str) -> None:
    """The type of a sparse initializer applies rather than the listed one."""
    model = onnx.parser.parse_model(STAMPS + "g (float[4] x) => (float[4] y) <double[4] b> { y = Add (x, b) }")
    sparse = model.graph.sparse_initializer.add(dims=[4])
    sparse.values.CopyFrom(helper.make_tensor("b", element, [1], [1]))
    sparse.indices.CopyFrom(helper.make_tensor("", TensorProto.INT64, [1], [0]))

    assert expected == verdict(model)


def test_copy_of_a_sparse_initializer() -> None:
    """Sparse initializers become dense tensors, also for nodes that use a copy."""
    model = onnx.parser.parse_model(STAMPS + "g (float[4] x) => (float[4] y) { c = Identity (b) y = Add (x, c) }")
    sparse = model.graph.sparse_initializer.add(dims=[4])
    sparse.values.CopyFrom(helper.make_tensor("b", TensorProto.FLOAT, [1], [1]))
    sparse.indices.CopyFrom(helper.make_tensor("", TensorProto.INT64, [1], [0]))

    assert "loads" == verdict(model)


def test_input_that_is_an_output_of_another_type() -> None:
    """The type of the input applies."""
    text = "g (seq(float[2]) s, int64 i) => (float[2] y, float[3] s) { e = SequenceErase (s, i) y = SequenceAt (e, i) }"

    assert "loads" == verdict(onnx.parser.parse_model(STAMPS + text))
