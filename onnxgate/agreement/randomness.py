"""Which outputs of a model are drawn at random: those that a random operator reaches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
"""Operators whose results differ by design between two runs, or between two runtimes whatever their seed."""

SHAPES = frozenset({"Shape", "Size"})
"""Operators that look at no element."""

Drawn = frozenset[str]  # operators
Functions = Mapping[tuple[str, str], Drawn]
NOTHING: Drawn = frozenset()


def random_outputs(proto: ModelProto) -> dict[str, Drawn]:
    """The outputs of a model that random operators reach, with these operators."""
    training = _training(proto)
    functions = _functions(proto, training)
    reached = _reached(proto.graph, functions, training)
    return {each.name: reached[each.name] for each in proto.graph.output if reached.get(each.name)}


def _reached(graph: GraphProto, functions: Functions, training: frozenset[str]) -> dict[str, Drawn]:
    """What reaches each value of the main graph; nodes are in topological order."""
    reached: dict[str, Drawn] = {}
    for node in graph.node:
        before = NOTHING if node.op_type in SHAPES else NOTHING.union(*(reached.get(n, NOTHING) for n in _reads(node)))
        found = before | _draws(node, functions, training)
        reached.update(dict.fromkeys(filter(None, node.output), found))
    return reached


def _draws(node: NodeProto, functions: Functions, training: frozenset[str]) -> Drawn:
    """The random operators that a node is, calls or holds in its subgraphs."""
    found = functions.get((node.domain, node.op_type), NOTHING)
    trains = node.op_type == "Dropout" and training & set(node.input[2:])
    if node.domain in ("", "ai.onnx") and (node.op_type in RANDOM or trains):
        found |= {node.op_type}
    return found.union(*(_draws(inner, functions, training) for graph in _subgraphs(node) for inner in graph.node))


def _reads(node: NodeProto) -> set[str]:
    """What a node takes, and what its subgraphs take from outside; names are unique over both."""
    return set(node.input).union(*(_reads_of(graph) for graph in _subgraphs(node)))


def _reads_of(graph: GraphProto) -> set[str]:
    return {each.name for each in graph.output}.union(*map(_reads, graph.node))


def _subgraphs(node: NodeProto) -> Iterable[GraphProto]:
    from onnxgate.model.structure import subgraphs

    return [graph for attribute in node.attribute for graph in subgraphs(attribute)]


def _functions(proto: ModelProto, training: frozenset[str]) -> Functions:
    """What each local function draws, those that it calls included, in whatever order they are written."""
    found: dict[tuple[str, str], Drawn] = {}
    before = None
    while found != before:
        before = dict(found)
        for each in proto.functions:
            found[each.domain, each.name] = NOTHING.union(*(_draws(node, found, training) for node in each.node))
    return found


def _training(proto: ModelProto) -> frozenset[str]:
    """Constants that are true and tell a Dropout to train."""
    from onnx import numpy_helper

    from onnxgate.model.structure import nodes, tensors

    flags = {node.input[2] for node in nodes(proto) if node.op_type == "Dropout" and len(node.input) > 2}
    constants = [(name, tensor) for name, tensor in tensors(proto) if name and name in flags]
    return frozenset(name for name, tensor in constants if numpy_helper.to_array(tensor).any())
