"""Equal operations can have different results in different contexts."""

from __future__ import annotations

import onnx.parser
import pytest

from onnxgate.model.reading.view import ModelView
from onnxgate.support import limits, operators
from onnxgate.support.matching.kernels import predict
from onnxgate.support.matching.type_inference import UNKNOWN_OVERLOAD, infer_model_types

RELEASE = "1.23.2"
STAMPS = '<ir_version: 10, opset_import: ["" : 18, "local" : 1]>'


def problems(model: onnx.ModelProto, release: str = RELEASE) -> list[str]:
    """Return the gap of each node, in order."""
    prediction = predict(
        infer_model_types(ModelView(model)), operators.get_implementation(release), limits.get_limits(release)
    )
    return [f"{found.node.name}: {found.miss.rule if found.miss else found.unknown}" for found in prediction.found]


def test_function_must_import_its_domains() -> None:
    """An operation is accepted in the graph but rejected in a function that does not import its domain."""
    text = (
        "g (float[N] x) => (float[N] z) { [outer] y = com.microsoft.Gelu (x) [call] z = local.Do (y) }"
        '<domain: "local", opset_import: ["" : 18]> Do (X) => (Y) { [inner] Y = com.microsoft.Gelu (X) }'
    )

    assert ["inner: unknown-domain"] == problems(onnx.parser.parse_model(STAMPS + text))


@pytest.mark.parametrize(("release", "expected"), [("1.26.0", UNKNOWN_OVERLOAD), ("1.27.0", "unknown-domain")])
def test_missing_overload(release: str, expected: str) -> None:
    """Releases before 1.27 call the function although its overload differs; newer ones refuse the model."""
    text = (
        "g (float[N] x) => (float[N] z) { [call] y = local.Do (x) [none] z = local.Do (y) }"
        '<domain: "local", opset_import: ["" : 18]> Do (X) => (Y) { [inner] Y = Relu (X) }'
    )
    model = onnx.parser.parse_model(STAMPS + text)
    model.graph.node[1].overload = "another"

    assert [f"none: {expected}"] == problems(model, release)


@pytest.mark.parametrize(("release", "expected"), [("1.26.0", "unknown"), ("1.27.0", "loads")])
def test_overloads_select_functions(release: str, expected: str) -> None:
    """Releases before 1.27 call the last function of a name."""
    text = (
        "g (float[N] x) => (float[N] y) { y = local.Do (x) }"
        '<domain: "local", opset_import: ["" : 18]> Do (X) => (Y) { Y = Relu (X) }'
        '<domain: "local", opset_import: ["" : 18]> Do (X) => (Y) { Y = Not (X) }'
    )
    model = onnx.parser.parse_model(STAMPS + text)
    model.functions[1].overload = "another"
    known = limits.get_limits(release)
    assert known is not None

    assert (
        expected == predict(infer_model_types(ModelView(model)), operators.get_implementation(release), known).verdict
    )


def test_each_node_of_a_kind_is_named() -> None:
    """Nodes in subgraphs are included."""
    text = (
        "g (double[N, 2, 2] x, bool c) => (double[N] y, double[N] z)"
        "{ [a] y = Det (x) [if] z = If (c) <then_branch = t () => (double[N] u) { [b] u = Det (x) },"
        " else_branch = e () => (double[N] v) { [c] v = Det (x) }> }"
    )

    assert ["a: missing-kernel", "b: missing-kernel", "c: missing-kernel"] == problems(
        onnx.parser.parse_model(STAMPS + text)
    )


def test_argument_of_an_unknown_type() -> None:
    """An argument whose type is unknown is not absent: ONNX Runtime ignores the opset that the function imports."""
    text = (
        "g (float[N] x) => (float[N] y) { h = local.Old (x) y = local.New (h) }"
        '<domain: "local", opset_import: ["" : 1]> Old (X) => (Y) { Y = Abs (X) }'
        '<domain: "local", opset_import: ["" : 18]> New (X) => (Y) { Y = Exp (X) }'
    )

    expected = [": the type of input 1, output 1 of `Exp` is unknown"]
    assert expected == problems(onnx.parser.parse_model(STAMPS + text), "1.31.1")
