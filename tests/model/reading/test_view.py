"""A view contains the same content as its messages, in the same order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from onnx import FunctionProto, GraphProto, ModelProto, TensorProto, helper, parser

from campaigns.fuzz.mutation_kinds import mutant
from onnxgate.model.reading.file_format import UnreadableModel
from onnxgate.model.reading.structure import read_view
from onnxgate.model.reading.view import ModelView

NESTED = """
    <ir_version: 8, opset_import: ["" : 18, "local" : 1]>
    g (float[2] x, bool c) => (float[2] y) {
        k = Constant <value_floats = [1.0, 2.0]> ()
        a = If (c) <
            then_branch = one () => (float[2] p) { p = Add (x, k) },
            else_branch = two () => (float[2] q) {
                q = If (c) <then_branch = three () => (float[2] r) { r = Neg (x) },
                            else_branch = four () => (float[2] s) { s = Abs (x) }>
            }
        >
        y = local.twice (a)
    }
    <domain: "local", opset_import: ["" : 18]>
    twice (v) => (w) { w = Add (v, v) }
"""


def _iter_graphs_below(holder: GraphProto | FunctionProto) -> Iterator[GraphProto]:
    for node in holder.node:
        for attribute in node.attribute:
            for graph in [attribute.g] * attribute.HasField("g") + list(attribute.graphs):
                yield graph
                yield from _iter_graphs_below(graph)


def collect_names(model: ModelProto) -> tuple[list[str], list[tuple[object, ...]], list[TensorProto]]:
    """Return names of graphs, fields of nodes, and tensors, collected without a view."""
    graphs = [model.graph, *_iter_graphs_below(model.graph)]
    graphs += [graph for function in model.functions for graph in _iter_graphs_below(function)]
    scopes = [*graphs, *model.functions]
    nodes = [
        (node.name, node.domain or "ai.onnx", node.op_type, node.overload, tuple(node.input), tuple(node.output))
        for scope in scopes
        for node in scope.node
    ]
    tensors = [part for graph in graphs for part in graph.initializer]
    tensors += [it for graph in graphs for sparse in graph.sparse_initializer for it in (sparse.values, sparse.indices)]
    for attribute in (attribute for scope in scopes for node in scope.node for attribute in node.attribute):
        tensors += [attribute.t] * attribute.HasField("t") + list(attribute.tensors)
        sparse = [attribute.sparse_tensor] * attribute.HasField("sparse_tensor") + list(attribute.sparse_tensors)
        tensors += [part for it in sparse for part in (it.values, it.indices)]
    return [graph.name for graph in graphs], nodes, tensors


def view(model: ModelView) -> tuple[list[str], list[tuple[object, ...]], list[TensorProto]]:
    """Return the same content, collected from a view."""
    nodes = [(node.name, *node.operator, node.inputs, node.outputs) for node in model.nodes()]
    return [graph.proto.name for graph in model.graphs], nodes, [tensor for _, tensor in model.tensors]


def by_content(tensors: list[TensorProto]) -> list[bytes]:
    """Return the tensors in a canonical order."""
    return sorted(tensor.SerializeToString() for tensor in tensors)


def test_a_view_has_nested_graphs_and_functions() -> None:
    """Outer graphs come before inner ones, and local functions last."""
    model = parser.parse_model(NESTED)

    assert view(ModelView(model)) == collect_names(model)
    assert [graph.proto.name for graph in ModelView(model).graphs] == ["g", "one", "two", "three", "four"]


@pytest.mark.parametrize("seed", range(3))
def test_view_of_a_damaged_model_is_complete(seed: int, tmp_path: Path) -> None:
    """A view of a corrupted model is complete, so that the checks read everything."""
    compared = 0
    for index in range(150):
        path = tmp_path / "m.onnx"
        path.write_bytes(mutant(seed, index).data)
        try:
            seen = read_view(path)
        except UnreadableModel:
            continue
        (graphs, nodes, tensors), (own_graphs, own_nodes, own_tensors) = collect_names(seen.proto), view(seen)
        assert (own_graphs, own_nodes) == (graphs, nodes)
        assert by_content(own_tensors) == by_content(tensors)
        compared += 1
    assert compared > 50


@pytest.mark.parametrize("place", ["producer", "graph", "node", "input", "attribute", "tensor", "dimension"])
def test_a_name_that_is_not_utf8_is_reported(place: str, tmp_path: Path) -> None:
    """A name that is not UTF-8 makes the file unreadable, so that no check has to handle it."""
    value = helper.make_tensor_value_info("x", 1, ["dimension"])
    node = helper.make_node("Relu", ["input"], ["y"], name="node")
    node.attribute.add(name="attribute", type="INT")
    graph = helper.make_graph([node], "graph", [value], [], [helper.make_tensor("tensor", 1, [1], [0.0])])
    content = helper.make_model(graph, producer_name="producer").SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(content.replace(place.encode(), b"\xff" * len(place)))

    with pytest.raises(UnreadableModel, match="is not valid UTF-8"):
        read_view(path)


def test_remarks_are_documentation_and_values_of_metadata() -> None:
    """Remarks include document strings and metadata values, which may contain paths of the exporting machine."""
    model = parser.parse_model(NESTED)
    model.doc_string = "of the model"
    model.metadata_props.add(key="k", value="of its metadata")
    model.graph.node[0].doc_string = "of a node"
    model.graph.node[0].metadata_props.add(key="k", value="of its node's metadata")
    model.functions[0].doc_string = "of a function"
    model.graph.value_info.add(name="a").metadata_props.add(key="k", value="of a value")

    assert sorted(map(str, ModelView(model).remarks)) == [
        "of a function",
        "of a node",
        "of a value",
        "of its metadata",
        "of its node's metadata",
        "of the model",
    ]
