"""Types of a model's values, inferred from the file and the operators."""

from __future__ import annotations

import onnx.parser

from campaigns.fuzz.scaled_models import nodes_of_own_scale
from onnxgate.model.reading.view import ModelView
from onnxgate.support.matching.operations import TypedNode
from onnxgate.support.matching.type_inference import infer_model_types, infer_node_types
from tests.harness.timing import measure_cpu_s

STAMPS = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1, "local" : 1]>'


def typed(text: str) -> dict[str, TypedNode]:
    """Return the nodes of the model by operator."""
    return {
        node.operation.name: node
        for node in infer_model_types(ModelView(onnx.parser.parse_model(STAMPS + text))).all_nodes()
    }


def test_types_pass_through_operators_that_onnx_does_not_know() -> None:
    """After an operator of ONNX Runtime, inference continues with the types of its schema."""
    nodes = typed(
        "g (float16[N, 8] x) => (double[N, 8] z) {"
        " a = com.microsoft.Gelu (x) b = Neg (a) c = com.microsoft.QuickGelu (b) d = Abs (c)"
        " z = Cast <to: int = 11> (d) }"
    )

    assert ("tensor(float16)",) == nodes["Abs"].operation.inputs
    assert ("tensor(float16)",) == nodes["Cast"].operation.inputs
    assert ("tensor(double)",) == nodes["Cast"].operation.outputs


def test_values_after_an_unknown_operator_are_unknown() -> None:
    """Values after an unknown operator have an unknown type, which is never guessed."""
    nodes = typed("g (float[N] x) => (float[N] z) { u = local.Do (x) v = Neg (u) z = Relu (x) }")

    assert ("",) == nodes["Neg"].operation.inputs
    assert ("",) == nodes["Neg"].operation.outputs


def test_subgraphs_see_outer_types() -> None:
    """Nodes of a branch are inside their If node, and see the types of outer values."""
    nodes = typed(
        "g (bool c, double[N] x) => (double[N] y) { y = If (c) <"
        " then_branch = t () => (double[N] a) { q = Sqrt (x) a = Exp (q) },"
        " else_branch = e () => (double[N] b) { b = Neg (x) }> }"
    )

    assert [node.operation.name for node in nodes["If"].inner] == ["Sqrt", "Exp", "Neg"]
    assert ("tensor(double)",) == nodes["Exp"].operation.inputs


def test_local_functions_are_entered_with_the_types_of_each_call() -> None:
    """Attributes are substituted, and omitted arguments are empty."""
    nodes = typed(
        "g (int64[N] x) => (double[N] y) { y = local.Scale <to: int = 11> (x) }"
        '<domain: "local", opset_import: ["" : 17]> Scale <to> (X, bias) => (Y)'
        " { C = Cast <to: int = @to> (X) Y = Clip (C, bias) }"
    )

    assert nodes["Scale"].calls
    assert "local.Scale" == nodes["Clip"].within
    assert ("tensor(double)", None) == nodes["Clip"].operation.inputs


def test_an_argument_of_unknown_type_is_not_an_omitted_one() -> None:
    """A function's nodes have an input for each argument of the call, whatever is known of it."""
    nodes = typed(
        "g (float[N] x) => (float[N] y) { u = local.Do (x) y = local.Sum (x, u) }"
        '<domain: "local", opset_import: ["" : 17]> Sum (A, B) => (C) { C = Add (A, B) }'
    )

    assert ("tensor(float)", "") == nodes["Add"].operation.inputs


def test_a_function_that_calls_itself_ends() -> None:
    """Type inference ends for a recursive function, which runtimes reject."""
    text = "g (float[N] x) => (float[N] y) { y = local.Again (x) }"
    function = '<domain: "local", opset_import: ["" : 17, "local" : 1]> Again (X) => (Y) { Y = local.Again (X) }'

    assert infer_model_types(ModelView(onnx.parser.parse_model(STAMPS + text + function))).nodes


def test_a_static_shape_is_known() -> None:
    """Runtimes fold Shape if all dimensions are fixed; one symbolic dimension prevents it."""
    assert typed("g (float[2, 3] x) => (int64[2] y) { y = Shape (x) }")["Shape"].operation.static
    assert not typed("g (float[2, M] x) => (int64[2] y) { y = Shape (x) }")["Shape"].operation.static


def test_own_scales_take_linear_time() -> None:
    """All initializers were searched for the scale of each node: four times the nodes took ten times as long."""
    few, many = (nodes_of_own_scale(count) for count in (4000, 16_000))

    assert measure_cpu_s(lambda: infer_node_types(many)) < 7 * measure_cpu_s(lambda: infer_node_types(few))
