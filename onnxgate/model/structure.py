"""The structure of a model's file: everything but large weights, however large the file is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.model.opening import open_regular
from onnxgate.model.slim import SMALL_BYTES, pieces, slim
from onnxgate.model.types import ELEMENT_TYPES, STRING
from onnxgate.model.wire import Source, Truncated, UnreadableModel

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto

__all__ = ["LARGE_BYTES", "Truncated", "UnreadableModel", "pieces", "read_structure"]

LARGE_BYTES = 50 * 1000 * 1000
"""Files of this size and more are read without their weights."""
LIGHT_BYTES = 8 * 1000 * 1000
"""The same where a model is only judged."""
FIRST_IR_WITHOUT_INPUTS = 4
"""From here on an initializer need not be an input too. Source: IR.md of ONNX."""
PROTOBUF_BYTES = 2**31 - 1
"""Source: protobuf refuses messages of 2 GiB and more, and with it every runtime."""


def read_structure(path: Path, *, large_bytes: int = LARGE_BYTES, small_bytes: int = SMALL_BYTES) -> ModelProto:
    """The model, without external data; from `large_bytes` on also without the data of its large tensors.

    Raises:
        UnreadableModel: the file is no model.
        OSError: the file cannot be opened.
    """
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from onnx import ModelProto

    content = _content(path, large_bytes, small_bytes)
    try:
        proto = ModelProto.FromString(content)
    except DecodeError as error:
        raise _why_not(path) from error
    _require_text(proto)
    return proto


def read_lightly(path: Path) -> ModelProto:
    """The model for those who only judge it: from `LIGHT_BYTES` on without the data of plain large weights.

    Where one of those that were left out is more than that, which onnx's checker would look into, it is read as
    `read_structure` does.

    Raises:
        UnreadableModel: the file is no model.
        OSError: the file cannot be opened.
    """
    light = read_structure(path, large_bytes=LIGHT_BYTES)
    if path.stat().st_size >= LARGE_BYTES or _is_plain(light):
        return light
    return read_structure(path)


def _is_plain(model: ModelProto) -> bool:
    """Whether all that was left out are initializers of one run of data, of a known type, that are no inputs."""
    found = list(graphs(model))
    inputs = {value.name for graph in found for value in graph.input}
    weights = [tensor for graph in found for tensor in graph.initializer if pieces(tensor)]
    omitted = sum(bool(pieces(tensor)) for _, tensor in _tensors_of(found, model))
    return omitted == len(weights) and all(
        tensor.name not in inputs and model.ir_version >= FIRST_IR_WITHOUT_INPUTS and _is_of_numbers(tensor)
        for tensor in weights
    )


def _is_of_numbers(tensor: TensorProto) -> bool:
    return tensor.data_type != STRING and tensor.data_type in ELEMENT_TYPES and len(pieces(tensor)) == 1


def _content(path: Path, large_bytes: int, small_bytes: int) -> bytes:
    with open_regular(path) as file:
        source = Source(file)
        if source.size_bytes > PROTOBUF_BYTES:
            raise UnreadableModel(f"a file of {source.size_bytes:,} bytes, and a protobuf message ends before 2 GiB")
        if source.size_bytes < large_bytes:
            return source.read(0, source.size_bytes)
        return slim(source, small_bytes)


def _why_not(path: Path) -> UnreadableModel:
    try:
        with open_regular(path) as file:
            slim(Source(file))
    except UnreadableModel as reason:
        return reason
    return UnreadableModel("a damaged model (its messages do not parse)")


def graphs(model: ModelProto) -> Iterator[GraphProto]:
    """The main graph and all graphs inside it and inside local functions, outer ones first."""
    yield from _graphs_from(model.graph)
    for function in model.functions:
        yield from _graphs_below(function)


def _graphs_from(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    yield from _graphs_below(graph)


def _graphs_below(holder: GraphProto | FunctionProto) -> Iterator[GraphProto]:
    for node in holder.node:
        for attribute in node.attribute:
            if attribute.HasField("g") or attribute.graphs:  # most hold neither, and this is asked of all, often
                for graph in subgraphs(attribute):
                    yield from _graphs_from(graph)


def subgraphs(attribute: AttributeProto) -> Iterator[GraphProto]:
    """The graphs that an attribute holds."""
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def holders(model: ModelProto) -> Iterator[GraphProto | FunctionProto]:
    """All that holds nodes: every graph and every local function."""
    yield from graphs(model)
    yield from model.functions


def nodes(model: ModelProto) -> Iterator[NodeProto]:
    """Every node, those of subgraphs and of local functions included."""
    for holder in holders(model):
        yield from holder.node


def nodes_of(function: FunctionProto) -> Iterator[NodeProto]:
    """Every node of a local function, those of its subgraphs included."""
    yield from function.node
    for graph in _graphs_below(function):
        yield from graph.node


def tensors(model: ModelProto) -> Iterator[tuple[str, TensorProto]]:
    """Every tensor with the name that a reader knows it by: its own, or the output of the Constant that holds it."""
    return _tensors_of(list(graphs(model)), model)


def _tensors_of(found: list[GraphProto], model: ModelProto) -> Iterator[tuple[str, TensorProto]]:
    for graph in found:
        for tensor in graph.initializer:
            yield tensor.name, tensor
        for sparse in graph.sparse_initializer:
            yield from _sparse(sparse.values.name, sparse)
    for node in (node for holder in (*found, *model.functions) for node in holder.node):
        for attribute in node.attribute:
            if attribute.HasField("t") or attribute.HasField("sparse_tensor") or _repeated_tensors(attribute):
                yield from _attribute_tensors(node, attribute)


def _repeated_tensors(attribute: AttributeProto) -> bool:
    return bool(attribute.tensors or attribute.sparse_tensors)


def _attribute_tensors(node: NodeProto, attribute: AttributeProto) -> Iterator[tuple[str, TensorProto]]:
    name = next(filter(None, node.output), node.name)
    if attribute.HasField("t"):
        yield attribute.t.name or name, attribute.t
    for tensor in attribute.tensors:
        yield tensor.name or name, tensor
    if attribute.HasField("sparse_tensor"):
        yield from _sparse(name, attribute.sparse_tensor)
    for sparse in attribute.sparse_tensors:
        yield from _sparse(name, sparse)


def _sparse(name: str, sparse: SparseTensorProto) -> Iterator[tuple[str, TensorProto]]:
    yield name, sparse.values
    yield name, sparse.indices


def _require_text(model: ModelProto) -> None:
    """Strings that are not UTF-8 come back from protobuf as bytes, and fail wherever they are used."""
    for text in _texts(model):
        if not isinstance(text, str):
            raise UnreadableModel(f"a damaged model (the name {text!r} is not UTF-8)")


def _texts(model: ModelProto) -> Iterator[object]:
    yield from (model.producer_name, model.producer_version)
    for imported in model.opset_import:
        yield imported.domain
    for entry in model.metadata_props:
        yield from (entry.key, entry.value)
    for function in model.functions:
        yield from (function.name, function.domain, function.overload)
        yield from (*function.input, *function.output, *function.attribute)
        yield from (imported.domain for imported in function.opset_import)
    found = list(graphs(model))
    for graph in found:
        yield from _graph_texts(graph)
    for holder in (*found, *model.functions):
        for node in holder.node:
            yield from _node_texts(node)
    for _, tensor in _tensors_of(found, model):
        yield tensor.name
        for entry in tensor.external_data:
            yield from (entry.key, entry.value)


def _graph_texts(graph: GraphProto) -> Iterator[object]:
    yield graph.name
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield value.name
        for dim in value.type.tensor_type.shape.dim:
            yield dim.dim_param


def _node_texts(node: NodeProto) -> Iterator[object]:
    yield from (node.op_type, node.domain, node.name, node.overload, *node.input, *node.output)
    for entry in node.metadata_props:
        yield from (entry.key, entry.value)
    for attribute in node.attribute:
        yield attribute.name
        yield attribute.ref_attr_name
