"""One node of a model as a model of its own: what the node is given becomes inputs, as far as it is no constant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxgate.model.copying import is_away
from onnxgate.model.structure import nodes_of, subgraphs, tensors

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto

CONSTANT_BYTES = 64 * 1024
"""Constants up to this size stay constants: shapes, axes, scales, which inference and constructors read."""
FunctionKey = tuple[str, str, str]  # domain, name, overload


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a node sees of its model."""

    imports: Mapping[str, int]  # what the node needs of them, by domain; "ai.onnx" is the default one
    type_of: Callable[[str], TypeProto | None]  # the type of a value, with its shape where that is known
    constants: Mapping[str, TensorProto | NodeProto]  # initializers, and nodes `Constant`, by the value's name
    functions: Mapping[FunctionKey, FunctionProto]  # the model's own


def cut(node: NodeProto, around: Surroundings, ir_version: int) -> bytes | None:
    """The model of the node alone, with all that it calls; None where that cannot be made.

    It cannot where the type of something that it is given is not known, or where its own data is not at hand.
    Inputs have the shapes that are known: without them `Shape` of a static input would not be folded.
    """
    from onnx import ModelProto

    model = ModelProto(ir_version=ir_version)
    model.graph.name = "alone"
    _import(model, around.imports)
    model.functions.extend(_reached([node], around.functions).values())
    for name in needed(node):
        if not _give(model.graph, name, around):
            return None
    model.graph.node.add().CopyFrom(node)
    for name in filter(None, node.output):
        _declare(model.graph, name, around.type_of(name))
    return None if any(is_away(tensor) for _, tensor in tensors(model)) else model.SerializeToString()


def needed(node: NodeProto) -> tuple[str, ...]:
    """The values that a node is given, each once: its inputs, then what its subgraphs take from outside."""
    captured = (name for attribute in node.attribute for graph in subgraphs(attribute) for name in _free(graph))
    return tuple(dict.fromkeys((*filter(None, node.input), *captured)))


def function_key(function: FunctionProto) -> FunctionKey:
    """How nodes call a local function."""
    return (function.domain or "ai.onnx", function.name, function.overload)


def called(node: NodeProto) -> FunctionKey:
    """The local function that a node calls, where the model has it."""
    return (node.domain or "ai.onnx", node.op_type, node.overload)


def _free(graph: GraphProto) -> Iterator[str]:
    """What a graph uses and does not make."""
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {sparse.values.name for sparse in graph.sparse_initializer}
    own |= {name for node in graph.node for name in node.output}
    used = (name for node in graph.node for name in needed(node))
    yield from (name for name in (*used, *(value.name for value in graph.output)) if name not in own)


def _import(model: ModelProto, imports: Mapping[str, int]) -> None:
    for domain, version in sorted(imports.items()):
        model.opset_import.add(domain="" if domain == "ai.onnx" else domain, version=version)


def _give(graph: GraphProto, name: str, around: Surroundings) -> bool:
    """Have the graph know a value; whether that was possible."""
    constant = around.constants.get(name)
    if constant is not None and constant.ByteSize() <= CONSTANT_BYTES and not _is_away_in(constant):
        holder = graph.node if hasattr(constant, "op_type") else graph.initializer
        holder.add().CopyFrom(constant)
        return True
    known = around.type_of(name)
    if known is None or known.WhichOneof("value") is None:
        return False
    graph.input.add(name=name, type=known)
    return True


def _declare(graph: GraphProto, name: str, known: TypeProto | None) -> None:
    """An output with its type; a shape that is wrong would be another fault."""
    value = graph.output.add(name=name)
    if known is not None:
        value.type.CopyFrom(known)
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")


def _is_away_in(constant: TensorProto | NodeProto) -> bool:
    if hasattr(constant, "op_type"):
        return any(is_away(attribute.t) for attribute in constant.attribute if attribute.HasField("t"))
    return is_away(constant)


def _reached(
    nodes: Iterable[NodeProto], functions: Mapping[FunctionKey, FunctionProto]
) -> dict[FunctionKey, FunctionProto]:
    """The local functions that nodes call, directly or not."""
    found: dict[FunctionKey, FunctionProto] = {}
    ahead = list(_every(nodes))
    while ahead:
        key = called(ahead.pop())
        if key in functions and key not in found:
            found[key] = functions[key]
            ahead += nodes_of(functions[key])
    return found


def _every(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Nodes, with those of their subgraphs."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in subgraphs(attribute):
                yield from _every(graph.node)
