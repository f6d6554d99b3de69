"""Shapes that contradict each other only after constants are folded."""

from __future__ import annotations

import onnx.parser
import pytest
from onnx.shape_inference import infer_shapes

from onnxgate.model.constant_folding import can_fold, folds_nodes, infer_folded_shapes
from onnxgate.model.onnx_functions import OnnxError
from onnxgate.model.reading.view import ModelView


def graph(body: str) -> onnx.ModelProto:
    """Return a model with float input x of shape (2, 3) and output y, whose declared shape is wrong."""
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3] x) => (float[9] y) {{ {body} y = Expand (x, n) }}'
    return onnx.parser.parse_model(text)


TWO_FOUR = [
    "a = Shape (x) b = Constant <value = int64[2] {0, 1}> () n = Add (a, b)",
    "a = Shape (x) i = Constant <value = int64 {0}> () f = Constant <value = int64[1] {4}> () g = Gather (a, i) "
    "z = Constant <value = int64[1] {0}> () u = Unsqueeze (g, z) n = Concat <axis = 0> (u, f)",
    "a = Shape <start = 0, end = 1> (x) f = Constant <value_ints = [4]> () n = Concat <axis = 0> (a, f)",
    "a = Shape (x) b = Constant <value_int = 3> () e = Equal (a, b) f = Constant <value_int = 4> () "
    "n = Where (e, f, a)",
    "s = Shape (x) a = Size (s) z = Constant <value = int64[1] {0}> () b = Unsqueeze (a, z) d = Add (b, b) "
    "n = Concat <axis = 0> (b, d)",
    "a = Constant <value_int = 2> () b = Constant <value_int = 5> () n = Range (a, b, a)",
    "a = Shape (x) b = Constant <value_ints = [-1]> () c = Constant <value_ints = [-3]> () d = Constant "
    "<value_ints = [2, 4]> () m = Div (b, c) n = Add (d, m)",
]


@pytest.mark.parametrize("body", TWO_FOUR)
def test_contradictions_are_found(body: str) -> None:
    """The shape that the nodes compute is (2, 4), to which x cannot be expanded."""
    model = graph(body)

    with pytest.raises(OnnxError, match="Incompatible dimensions"):
        infer_folded_shapes(model)
    assert can_fold(ModelView(model))
    assert folds_nodes(ModelView(model), model, infer_shapes(model))


@pytest.mark.parametrize("end", [0, 2])
def test_lists_stay_lists_without_axes_to_remove(end: int) -> None:
    """Squeeze without axes makes a scalar of a single size only, and Range requires scalars."""
    body = f"s = Shape <start = 0, end = {end}> (x) t = Squeeze (s) a = Constant <value_int = 1> () n = Range (a, t, a)"

    with pytest.raises(OnnxError, match="should be scalars"):
        infer_folded_shapes(graph(body))


def test_declared_shapes_are_ignored() -> None:
    """A wrong declared shape of an output is only a warning in runtimes."""
    infer_folded_shapes(graph("n = Shape (x)"))


def test_size_of_an_input_is_not_folded() -> None:
    """ONNX Runtime does not fold the size of an input of a known shape, and loads the model."""
    infer_folded_shapes(
        graph("a = Size (x) z = Constant <value = int64[1] {0}> () b = Unsqueeze (a, z) n = Concat <axis = 0> (b, b)")
    )


def test_negative_sizes_are_unknown() -> None:
    """ONNX Runtime takes a negative size of an input for an unknown one."""
    model = graph("n = Constant <value_ints = [2, 4]> ()")
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -1

    infer_folded_shapes(model)


@pytest.mark.parametrize("body", ["y = Add (x, x)", "c = Constant <value = float {1}> () y = Mul (x, c)"])
def test_models_without_shape_arithmetic_are_not_inferred_again(body: str) -> None:
    """Folding is skipped for models in which no operator has only constant inputs."""
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) {{ {body} }}'

    assert not can_fold(ModelView(onnx.parser.parse_model(text)))


@pytest.mark.parametrize(
    "body",
    [
        "s = Shape (x) y = Reshape (x, s)",
        "c = Constant <value = int64[1] {0}> () s = Shape (x) n = Gather (s, c) y = Expand (x, n)",
    ],
)
def test_unknown_sizes_are_not_inferred_again(body: str) -> None:
    """Folding is skipped for models in which the inferred shapes leave nothing to fold."""
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (float[N] y) {{ {body} }}'
    model = onnx.parser.parse_model(text)

    assert can_fold(ModelView(model))
    assert not folds_nodes(ModelView(model), model, infer_shapes(model))


def test_modulo_with_the_sign_of_the_dividend_is_not_folded() -> None:
    """With `fmod`, -5 modulo 3 is -2: the shape is (2, 3), as x has, and not (2, 6)."""
    infer_folded_shapes(
        graph(
            "a = Constant <value_ints = [-5]> () b = Constant <value_ints = [3]> () m = Mod <fmod = 1> (a, b) "
            "c = Constant <value_ints = [5]> () d = Add (m, c) e = Constant <value_ints = [2]> () "
            "n = Concat <axis = 0> (e, d)"
        )
    )
