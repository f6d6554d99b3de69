"""Grouping of a model's nodes into kinds."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser

from onnxgate.model.reading.view import ModelView
from onnxgate.model.subgraphs.reduced_models import extract_node
from onnxgate.stages.isolated_nodes import NodeKind, collect_node_kinds

HEAD = '<ir_version: 8, opset_import: ["" : 18, "mine" : 1, "com.microsoft" : 1]>\n'


def kinds(text: str) -> list[NodeKind]:
    """Return the node kinds of a model in ONNX text format."""
    return list(collect_node_kinds(ModelView(onnx.parser.parse_model(HEAD + text))))


def named(actual: list[NodeKind]) -> list[tuple[str, int]]:
    """Return each operator with the number of nodes of its kind."""
    return [(each.operation.name, len(each.nodes)) for each in actual]


def extract_first_node(single: NodeKind) -> onnx.ModelProto:
    """Return the first node as a separate model."""
    data = extract_node(single.first.proto, single.around, 8, Path("no file"))
    assert data is not None
    return onnx.ModelProto.FromString(data)


def test_equal_nodes_are_one_kind() -> None:
    """Nodes of the same operator with different types or attributes are different kinds."""
    actual = kinds(
        "g (float[2] x) => (float16[2] z) { a = Relu (x) b = Relu (a) c = Elu <alpha = 0.5> (b) d = Elu (c)"
        " e = Cast <to: int = 10> (d) z = Relu (e) }"
    )

    assert [("Relu", 2), ("Elu", 1), ("Elu", 1), ("Cast", 1), ("Relu", 1)] == named(actual)


def test_inner_nodes_come_first() -> None:
    """Inner nodes come before their node, with the outer values they use; equal names in two branches stay separate."""
    actual = kinds(
        "g (bool c, float[2, 3] x) => (float[N] y) { y = If (c) <"
        " then_branch = t () => (float[6] a) { s = Constant <value = int64[1] {6}> () a = Reshape (x, s) },"
        " else_branch = e () => (float[3] b) { s = Constant <value = int64[1] {3}> () i = Neg (x)"
        " j = Slice (i, s, s) b = Reshape (j, s) }> }"
    )

    assert ["Constant", "Reshape", "Neg", "Slice", "If"] == [each.operation.name for each in actual]
    assert ["x", "s"] == [value.name for value in extract_first_node(actual[1]).graph.input]
    assert ["c", "x"] == [value.name for value in extract_first_node(actual[-1]).graph.input]


def test_function_nodes_are_counted_once() -> None:
    """A function's nodes are counted once for all calls with the same types, with its own imports and constants."""
    actual = kinds(
        "g (float[1, 4] x) => (float[2, 2] z) { y = mine.Square (x) v = mine.Square (x) z = mine.Square (y) }"
        '<domain: "mine", opset_import: ["" : 14]> Square (a) => (b)'
        " { s = Constant <value = int64[2] {2, 2}> () b = Reshape (a, s) }"
    )
    reshape = extract_first_node(actual[1])

    assert [("Constant", 2), ("Reshape", 2)] == named(actual)
    assert [("", 14)] == [(opset.domain, opset.version) for opset in reshape.opset_import]
    assert ["Constant", "Reshape"] == [node.op_type for node in reshape.graph.node]
    assert ["a"] == [value.name for value in reshape.graph.input]


def test_only_used_domains_are_imported() -> None:
    """An extracted node imports only the domains it uses, plus ai.onnx for function bodies."""
    actual = kinds("g (float[2] x) => (float[2] z) { y = com.microsoft.Gelu (x) z = Relu (y) }")

    assert [{"": 18, "com.microsoft": 1}, {"": 18}] == [
        {opset.domain: opset.version for opset in extract_first_node(single).opset_import} for single in actual
    ]
