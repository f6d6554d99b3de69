"""Structure of a model: its messages without large weights, and iteration over graphs, nodes and tensors.

The result is an ordinary serialized `ModelProto` that protobuf itself parses. A tensor whose data was left out has an
entry of ours in `external_data`, while its `data_location` stays as it was; `pieces` reads it back.
"""

from __future__ import annotations

import enum
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onnxgate.core.files import REMEMBERED_BYTES, open_regular
from onnxgate.model.facts import ELEMENT_TYPES, STRING
from onnxgate.model.reading.file_format import (
    LENGTH,
    FileWindow,
    UnreadableModel,
    encode_length_prefix,
    iter_fields,
)
from onnxgate.model.reading.view import ModelView

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto


OMITTED_KEY = f"onnxgate.omitted.{os.urandom(8).hex()}"
"""Differs from run to run, so that no file can hold it."""
SMALL_BYTES = 4096
"""Messages and tensor data up to this size are kept as they are. Whatever shape inference reads is smaller."""
_MAX_DEPTH = 100
"""Nesting that protobuf accepts. Source: protobuf's default recursion limit."""
_MAX_PLAIN_VALUES = 256
"""An attribute with more plain values than this holds numbers or strings, and no tensor or graph."""


class MessageKind(enum.Enum):
    """The messages that large weights may lie in."""

    MODEL = enum.auto()
    TRAINING = enum.auto()
    FUNCTION = enum.auto()
    GRAPH = enum.auto()
    NODE = enum.auto()
    ATTRIBUTE = enum.auto()
    SPARSE = enum.auto()
    TENSOR = enum.auto()


_NESTED_MESSAGES: dict[MessageKind, dict[int, MessageKind]] = {
    MessageKind.MODEL: {7: MessageKind.GRAPH, 20: MessageKind.TRAINING, 25: MessageKind.FUNCTION},
    MessageKind.TRAINING: {1: MessageKind.GRAPH, 2: MessageKind.GRAPH},
    MessageKind.FUNCTION: {7: MessageKind.NODE},
    MessageKind.GRAPH: {1: MessageKind.NODE, 5: MessageKind.TENSOR, 15: MessageKind.SPARSE},
    MessageKind.NODE: {5: MessageKind.ATTRIBUTE},
    MessageKind.ATTRIBUTE: {
        5: MessageKind.TENSOR,
        6: MessageKind.GRAPH,
        10: MessageKind.TENSOR,
        11: MessageKind.GRAPH,
        22: MessageKind.SPARSE,
        23: MessageKind.SPARSE,
    },
    MessageKind.SPARSE: {1: MessageKind.TENSOR, 2: MessageKind.TENSOR},
    MessageKind.TENSOR: {},
}
"""Field number -> message, as `onnx.proto` has them."""
RAW_DATA = 9
DATA_FIELDS = {
    4: "float_data",
    5: "int32_data",
    7: "int64_data",
    RAW_DATA: "raw_data",
    10: "double_data",
    11: "uint64_data",
}
"""Fields of TensorProto that hold a tensor's data in one run of bytes."""
_EXTERNAL_DATA = 13


class OmittedData(msgspec.Struct, frozen=True):
    """Data of a tensor that was left out: the field that it came from, and where in the file it lies."""

    field: int
    offset: int
    length: int


def find_omitted_data(tensor: TensorProto) -> tuple[OmittedData, ...]:
    """Return the positions of the omitted data; empty if the tensor is complete."""
    for entry in tensor.external_data:
        if entry.key == OMITTED_KEY:
            return tuple(OmittedData(*map(int, piece.split(":"))) for piece in entry.value.split(","))
    return ()


def strip_weights(source: FileWindow, small_bytes: int = SMALL_BYTES) -> bytes:
    """The file's bytes without the data of tensors that hold more than `small_bytes`.

    Raises:
        UnreadableModel: the file is not a sequence of complete messages.
    """
    return b"".join(_WeightStripper(source, small_bytes).message(MessageKind.MODEL, 0, source.size_bytes, 0))


class _WeightStripper:
    def __init__(self, source: FileWindow, small_bytes: int) -> None:
        self._source = source
        self._small_bytes = small_bytes

    def message(self, kind: MessageKind, start: int, end: int, depth: int) -> list[bytes]:
        """The parts of one message. Spans without anything large are copied whole, unread."""
        if depth > _MAX_DEPTH:
            raise UnreadableModel(f"a model nested more than {_MAX_DEPTH} messages deep")
        parts: list[bytes] = []
        copied = start
        plain = 0
        for field in iter_fields(self._source, start, end):
            is_large = field.end - field.start > self._small_bytes or kind is MessageKind.MODEL
            inside = _NESTED_MESSAGES[kind].get(field.number) if field.wire == LENGTH and is_large else None
            if inside is not None:
                if inside is MessageKind.TENSOR:
                    content = self._tensor(field.start, field.end)
                else:
                    content = self.message(inside, field.start, field.end, depth + 1)
                parts += (
                    self._source.read(copied, field.tag),
                    encode_length_prefix(field.number, sum(map(len, content))),
                )
                parts += content
                copied = field.end
            elif kind is MessageKind.ATTRIBUTE and (plain := plain + 1) > _MAX_PLAIN_VALUES:
                break
        parts.append(self._source.read(copied, end))
        return parts

    def _tensor(self, start: int, end: int) -> list[bytes]:
        parts: list[bytes] = []
        omitted: list[OmittedData] = []
        copied = start
        for index, field in enumerate(iter_fields(self._source, start, end)):
            large = field.wire == LENGTH and field.end - field.start > self._small_bytes
            if large and field.number in DATA_FIELDS:
                parts.append(self._source.read(copied, field.tag))
                omitted.append(OmittedData(field.number, field.start, field.end - field.start))
                copied = field.end
            elif not omitted and index > _MAX_PLAIN_VALUES:  # strings, or numbers that are not packed
                break
        parts.append(self._source.read(copied, end))
        return [*parts, *_encode_omitted_data(omitted)] if omitted else parts


def _encode_omitted_data(omitted: list[OmittedData]) -> list[bytes]:
    raw = [piece for piece in omitted if piece.field == RAW_DATA][-1:]  # not repeated: the last one counts
    omitted = [piece for piece in omitted if piece.field != RAW_DATA] + raw
    value = ",".join(f"{piece.field}:{piece.offset}:{piece.length}" for piece in omitted).encode()
    entry = (
        encode_length_prefix(1, len(OMITTED_KEY)) + OMITTED_KEY.encode() + encode_length_prefix(2, len(value)) + value
    )
    return [encode_length_prefix(_EXTERNAL_DATA, len(entry)) + entry]


LARGE_BYTES = 50 * 1000 * 1000
"""Files of this size and more are read without their weights."""
LIGHT_BYTES = 8 * 1000 * 1000
"""The same for static checks."""
FIRST_IR_WITHOUT_INPUTS = 4
"""From here on an initializer need not be an input too. Source: IR.md of ONNX."""
MAX_PROTOBUF_BYTES = 2**31 - 1
"""Source: protobuf refuses messages of 2 GiB and more, and with it every runtime."""


def read_view(path: Path, *, large_bytes: int = LARGE_BYTES, small_bytes: int = SMALL_BYTES) -> ModelView:
    """View the model, without external data; from `large_bytes` on also without the data of its large tensors.

    Raises:
        UnreadableModel: the file is not a model.
        OSError: the file cannot be opened.
    """
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from onnx import ModelProto

    content = _read_content(path, large_bytes, small_bytes)
    try:
        proto = ModelProto.FromString(content)
    except DecodeError as error:
        with open_regular(path) as file:
            strip_weights(FileWindow(file))  # raises a more exact error, if it finds one
        raise UnreadableModel("a damaged model (its messages do not parse)") from error
    is_small = len(content) < min(large_bytes, REMEMBERED_BYTES)
    return ModelView(proto, hashlib.sha256(content).hexdigest() if is_small else "")


def read_structure(path: Path, *, large_bytes: int = LARGE_BYTES, small_bytes: int = SMALL_BYTES) -> ModelProto:
    """Read the messages of a model; see `read_view`."""
    return read_view(path, large_bytes=large_bytes, small_bytes=small_bytes).proto


def read_light_view(path: Path) -> ModelView:
    """View the model for static checks: plain weights from `LIGHT_BYTES` on are omitted.

    If an omitted tensor is anything else, which onnx's checker would read, the model is read as by `read_view`.

    Raises:
        UnreadableModel: the file is not a model.
        OSError: the file cannot be opened.
    """
    light = read_view(path, large_bytes=LIGHT_BYTES)
    is_light = LIGHT_BYTES <= path.stat().st_size < LARGE_BYTES
    return read_view(path) if is_light and not _omits_only_plain_weights(light) else light


def _omits_only_plain_weights(model: ModelView) -> bool:
    """Return whether all omitted data are initializers in one piece, of a known type, that are not inputs."""
    graphs = [graph.proto for graph in model.graphs]
    inputs = {value.name for graph in graphs for value in graph.input}
    weights = [tensor for graph in graphs for tensor in graph.initializer if find_omitted_data(tensor)]
    omitted = sum(bool(find_omitted_data(tensor)) for tensor in model.declared)
    return omitted == len(weights) and all(
        tensor.name not in inputs
        and model.proto.ir_version >= FIRST_IR_WITHOUT_INPUTS
        and tensor.data_type in ELEMENT_TYPES
        and tensor.data_type != STRING
        and len(find_omitted_data(tensor)) == 1
        for tensor in weights
    )


def _read_content(path: Path, large_bytes: int, small_bytes: int) -> bytes:
    with open_regular(path) as file:
        source = FileWindow(file)
        if source.size_bytes > MAX_PROTOBUF_BYTES:
            raise UnreadableModel(f"a file of {source.size_bytes:,} bytes, and a protobuf message ends before 2 GiB")
        if source.size_bytes < large_bytes:
            return source.read(0, source.size_bytes)
        return strip_weights(source, small_bytes)


def iter_graphs(model: ModelProto) -> Iterator[GraphProto]:
    """The main graph and all graphs inside it and inside local functions, outer ones first."""
    yield model.graph
    for holder in (model.graph, *model.functions):
        yield from _iter_graphs_below(holder)


def _iter_graphs_below(holder: GraphProto | FunctionProto) -> Iterator[GraphProto]:
    for node in holder.node:
        for attribute in node.attribute:
            if attribute.HasField("g") or attribute.graphs:  # most have neither, and this runs often
                for graph in iter_subgraphs(attribute):
                    yield graph
                    yield from _iter_graphs_below(graph)


def iter_subgraphs(attribute: AttributeProto) -> Iterator[GraphProto]:
    """The graphs that an attribute holds."""
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def iter_node_subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs that a node holds."""
    return (graph for attribute in node.attribute for graph in iter_subgraphs(attribute))


def iter_scopes(model: ModelProto) -> Iterator[GraphProto | FunctionProto]:
    """All that holds nodes: every graph and every local function."""
    yield from iter_graphs(model)
    yield from model.functions


def iter_nodes(model: ModelProto) -> Iterator[NodeProto]:
    """Every node, those of subgraphs and of local functions included."""
    for holder in iter_scopes(model):
        yield from holder.node


def iter_function_nodes(function: FunctionProto) -> Iterator[NodeProto]:
    """Every node of a local function, those of its subgraphs included."""
    yield from function.node
    for graph in _iter_graphs_below(function):
        yield from graph.node


def iter_tensors(model: ModelProto) -> Iterator[tuple[str, TensorProto]]:
    """Every tensor with the name that a reader knows it by: its own, or the output of the Constant that holds it."""
    return _iter_tensors_of(list(iter_graphs(model)), model)


def _iter_tensors_of(graphs: list[GraphProto], model: ModelProto) -> Iterator[tuple[str, TensorProto]]:
    for graph in graphs:
        for tensor in graph.initializer:
            yield tensor.name, tensor
        for sparse in graph.sparse_initializer:
            yield from ((sparse.values.name, part) for part in (sparse.values, sparse.indices))
    for holder in (*graphs, *model.functions):
        for node in holder.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t.name or _first_output(node), attribute.t
                for tensor in attribute.tensors:
                    yield tensor.name or _first_output(node), tensor
                if attribute.HasField("sparse_tensor") or attribute.sparse_tensors:  # this runs often
                    for sparse in iter_sparse_tensors(attribute):
                        yield from ((_first_output(node), part) for part in (sparse.values, sparse.indices))


def _first_output(node: NodeProto) -> str:
    return str(next(filter(None, node.output), node.name))


def iter_sparse_tensors(attribute: AttributeProto) -> Iterator[SparseTensorProto]:
    """The sparse tensors that an attribute holds."""
    if attribute.HasField("sparse_tensor"):
        yield attribute.sparse_tensor
    yield from attribute.sparse_tensors
