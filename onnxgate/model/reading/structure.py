"""Structure of a model: its messages without large weights, and iteration over graphs, nodes and tensors.

The result is an ordinary serialized `ModelProto` that protobuf itself parses. A tensor whose data was left out has an
entry of ours in `external_data`, while its `data_location` stays as it was; `pieces` reads it back. An attribute whose
list was left out has its first element only, and an entry of ours in `doc_string`; `restore_lists` reads it back.
"""

from __future__ import annotations

import enum
import hashlib
import os
from collections.abc import Iterable, Iterator
from itertools import islice
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


_ML_DOMAIN = "ai.onnx.ml"
_NODE_LISTS = (
    *("nodes_falsenodeids", "nodes_featureids", "nodes_hitrates", "nodes_missing_value_tracks_true", "nodes_modes"),
    *("nodes_nodeids", "nodes_treeids", "nodes_truenodeids", "nodes_values"),
)
OMITTED_LISTS: dict[str, frozenset[str]] = {
    "TreeEnsembleClassifier": frozenset((*_NODE_LISTS, "class_ids", "class_nodeids", "class_treeids", "class_weights")),
    "TreeEnsembleRegressor": frozenset(
        (*_NODE_LISTS, "target_ids", "target_nodeids", "target_treeids", "target_weights")
    ),
    "SVMClassifier": frozenset(("coefficients", "support_vectors")),
    "SVMRegressor": frozenset(("coefficients", "support_vectors")),
    "LinearClassifier": frozenset(("coefficients",)),
    "LinearRegressor": frozenset(("coefficients",)),
}
"""Operator of `ai.onnx.ml` -> attributes whose lists are omitted: onnx checks their type and that they have elements,
and reads neither the elements nor their number. Others are complete: onnx compares lengths in `TreeEnsemble` and
`LabelEncoder`, and reads class labels, categories, intercepts, n-grams and values of `Constant`.
Source: onnx's `defs/traditionalml`; measured with onnx 1.18 and 1.23."""
_LIST_FIELDS = {6: "floats", 7: "ints", 8: "strings"}
"""Type of an attribute -> its field."""
_LIST_NUMBERS = (7, 8, 9)
"""Their numbers. Source: onnx.proto; lists of attributes are not packed."""
_LEADING_FIELDS = 3
"""Name, type and the first element of a list."""
_PIECE_BYTES = 128 * 1024
_MAX_STUB_BYTES = 2 * _PIECE_BYTES
_MAX_SPLITS = 16
"""Bytes that are tried as the start of an element; of numbers at least each 11th is one."""


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
_NAME, _OPERATOR, _DOMAIN = 1, 4, 7
"""Fields of AttributeProto and NodeProto."""
_MAX_NAME_BYTES = 100
"""Names in `OMITTED_LISTS` are shorter."""
_NO_LISTS: frozenset[str] = frozenset()


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


class OmittedList(msgspec.Struct, frozen=True):
    """List of an attribute that was left out: how many elements it has, and where in the file the attribute lies."""

    count: int
    offset: int
    length: int


def find_omitted_list(attribute: AttributeProto) -> OmittedList | None:
    """Return the position of the omitted list; None if the attribute is complete."""
    text: object = attribute.doc_string
    if not isinstance(text, str) or not text.startswith(OMITTED_KEY):  # protobuf returns bytes that are not UTF-8
        return None
    return OmittedList(*map(int, text.split(":")[1:]))


def _iter_list_pieces(source: FileWindow, start: int, end: int) -> Iterator[AttributeProto]:
    """The attribute between `start` and `end` in consecutive pieces, each with some of the elements.

    Raises:
        DecodeError: the attribute is damaged, or one element is longer than a piece.
    """
    from onnx import AttributeProto

    fields = islice(iter_fields(source, start, end), _LEADING_FIELDS)
    tag = next((source.read(field.tag, field.tag + 1) for field in fields if field.number in _LIST_NUMBERS), b"")
    while start < end:
        content = source.read(start, min(start + _PIECE_BYTES, end))
        is_last = start + len(content) == end
        piece, size = (AttributeProto.FromString(content), len(content)) if is_last else _parse_elements(content, tag)
        yield piece
        start += size


def _parse_elements(content: bytes, tag: bytes) -> tuple[AttributeProto, int]:
    """Parse the complete elements at the start of `content`, which begin with `tag`; return their size in bytes, too.

    A byte of an element can look like the start of another; only if all before it are complete does protobuf parse it.
    """
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from onnx import AttributeProto

    end = len(content)
    for _ in range(_MAX_SPLITS):
        end = content.rfind(tag, 0, end) if tag else 0
        if end <= 0:
            break
        try:
            return AttributeProto.FromString(content[:end]), end
        except DecodeError:
            continue
    raise DecodeError(f"no element ends in the last bytes of {len(content):,}")


def restore_lists(holders: Iterable[GraphProto | FunctionProto], path: Path) -> None:
    """Give the nodes of these graphs, and of the graphs inside them, their omitted lists, from the model's file.

    Raises:
        OSError, UnreadableModel: the file cannot be read, or has changed.
    """
    for holder in holders:
        for attribute in (attribute for node in holder.node for attribute in node.attribute):
            if omitted := find_omitted_list(attribute):
                attribute.CopyFrom(read_omitted_list(omitted, path))
            restore_lists(iter_subgraphs(attribute), path)


def read_omitted_list(omitted: OmittedList, path: Path) -> AttributeProto:
    """Read the whole attribute.

    Raises:
        OSError, UnreadableModel: the file cannot be read, or has changed.
    """
    pieces = iter_omitted_list(omitted, path)
    attribute = next(pieces)
    for piece in pieces:
        attribute.MergeFrom(piece)
    return attribute


def iter_omitted_list(omitted: OmittedList, path: Path) -> Iterator[AttributeProto]:
    """The attribute in consecutive pieces, each with some of the elements.

    Raises:
        OSError, UnreadableModel: the file cannot be read, or has changed.
    """
    from google.protobuf.message import DecodeError

    with open_regular(path) as file:
        try:
            yield from _iter_list_pieces(FileWindow(file), omitted.offset, omitted.offset + omitted.length)
        except DecodeError as error:
            raise UnreadableModel("a damaged model (its messages do not parse)") from error


def strip_weights(source: FileWindow, small_bytes: int = SMALL_BYTES, *, describes_lists: bool = True) -> bytes:
    """The file's bytes without the data of tensors, and the lists of attributes, that hold more than `small_bytes`.

    Raises:
        UnreadableModel: the file is not a sequence of complete messages.
    """
    stripper = _WeightStripper(source, small_bytes, describes_lists)
    return b"".join(stripper.message(MessageKind.MODEL, 0, source.size_bytes, 0))


class _WeightStripper:
    def __init__(self, source: FileWindow, small_bytes: int, describes_lists: bool) -> None:
        self._source = source
        self._small_bytes = small_bytes
        self._describes_lists = describes_lists

    def message(self, kind: MessageKind, start: int, end: int, depth: int) -> list[bytes]:
        """The parts of one message. Spans without anything large are copied whole, unread."""
        if depth > _MAX_DEPTH:
            raise UnreadableModel(f"a model nested more than {_MAX_DEPTH} messages deep")
        parts: list[bytes] = []
        copied = start
        plain = 0
        lists: frozenset[str] | None = None
        for field in iter_fields(self._source, start, end):
            is_large = field.end - field.start > self._small_bytes or kind is MessageKind.MODEL
            inside = _NESTED_MESSAGES[kind].get(field.number) if field.wire == LENGTH and is_large else None
            if inside is not None:
                if inside is MessageKind.TENSOR:
                    content = self._tensor(field.start, field.end)
                else:
                    if inside is MessageKind.ATTRIBUTE and lists is None:
                        lists = self._find_omitted_lists(start, end)
                    stub = self._describe_list(field.start, field.end, lists) if lists else b""
                    content = [stub] if stub else self.message(inside, field.start, field.end, depth + 1)
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

    def _find_omitted_lists(self, start: int, end: int) -> frozenset[str]:
        """Return the attributes of the node between `start` and `end` whose lists need not be held."""
        texts = {_OPERATOR: b"", _DOMAIN: b""}
        try:
            for field in iter_fields(self._source, start, end):
                if field.number in texts and field.wire == LENGTH:  # the last one counts
                    end_of_text = min(field.end, field.start + _MAX_NAME_BYTES)
                    texts[field.number] = self._source.read(field.start, end_of_text)
        except UnreadableModel:  # of several errors the first one in the file is reported
            return _NO_LISTS
        is_known = texts[_DOMAIN] == _ML_DOMAIN.encode()
        return OMITTED_LISTS.get(texts[_OPERATOR].decode(errors="replace"), _NO_LISTS) if is_known else _NO_LISTS

    def _describe_list(self, start: int, end: int, names: frozenset[str]) -> bytes:
        """The attribute with the first element of its list only; b"" if it is not a plain list of such a name."""
        from google.protobuf.message import DecodeError
        from onnx import AttributeProto

        name = self._read_attribute_name(start, end)
        if name not in names:
            return b""
        stub = AttributeProto()
        if not self._describes_lists:
            return bytes(AttributeProto(name=name).SerializeToString())
        counts = dict.fromkeys(_LIST_FIELDS.values(), 0)
        try:
            for piece in _iter_list_pieces(self._source, start, end):
                for name in counts:
                    elements = getattr(piece, name)
                    if elements and not counts[name]:
                        getattr(stub, name).append(elements[0])
                    counts[name] += len(elements)
                    piece.ClearField(name)
                stub.MergeFrom(piece)
                if stub.ByteSize() > _MAX_STUB_BYTES:
                    return b""
        except DecodeError:
            return b""
        held = {field.name for field, _ in stub.ListFields()}
        if stub.name not in names or held != {"name", "type", _LIST_FIELDS.get(stub.type)}:
            return b""
        stub.doc_string = f"{OMITTED_KEY}:{sum(counts.values())}:{start}:{end - start}"
        return bytes(stub.SerializeToString())

    def _read_attribute_name(self, start: int, end: int) -> str:
        """Return the name, which exporters write first; "" if it comes late."""
        for field in islice(iter_fields(self._source, start, end), _LEADING_FIELDS):
            if field.number == _NAME and field.wire == LENGTH and field.end - field.start <= _MAX_NAME_BYTES:
                return self._source.read(field.start, field.end).decode(errors="replace")
        return ""

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


def read_view(
    path: Path, *, large_bytes: int = LARGE_BYTES, small_bytes: int = SMALL_BYTES, describes_lists: bool = True
) -> ModelView:
    """View the model, without external data; from `large_bytes` on also without the data of its large tensors.

    To describe an omitted list, all its elements are read. Attributes whose lists are not described are empty.

    Raises:
        UnreadableModel: the file is not a model.
        OSError: the file cannot be opened.
    """
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    content, is_whole = _read_content(path, large_bytes, small_bytes, describes_lists)
    try:
        proto = ModelProto.FromString(content)
    except DecodeError as error:
        with open_regular(path) as file:
            strip_weights(FileWindow(file))  # raises a more exact error, if it finds one
        raise UnreadableModel("a damaged model (its messages do not parse)") from error
    if path.stat().st_size >= large_bytes and OMITTED_KEY.encode() in content:
        # Training information is compared as it is, and bodies of functions with such names could read the lists.
        restore_lists((graph for it in proto.training_info for graph in (it.initialization, it.algorithm)), path)
        if any(it.domain == _ML_DOMAIN and it.name in OMITTED_LISTS for it in proto.functions):
            restore_lists((proto.graph, *proto.functions), path)
    is_hashed = is_whole and len(content) < REMEMBERED_BYTES  # what was omitted is part of the file's digest
    return ModelView(proto, hashlib.sha256(content).hexdigest() if is_hashed else "")


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


def _read_content(path: Path, large_bytes: int, small_bytes: int, describes_lists: bool) -> tuple[bytes, bool]:
    """Return the serialized model, and whether that is the whole file."""
    with open_regular(path) as file:
        source = FileWindow(file)
        if source.size_bytes > MAX_PROTOBUF_BYTES:
            raise UnreadableModel(f"a file of {source.size_bytes:,} bytes, and a protobuf message ends before 2 GiB")
        if source.size_bytes < large_bytes:
            return source.read(0, source.size_bytes), True
        return strip_weights(source, small_bytes, describes_lists=describes_lists), False


def iter_subgraphs(attribute: AttributeProto) -> Iterator[GraphProto]:
    """The graphs that an attribute holds."""
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def iter_node_subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs that a node holds."""
    return (graph for attribute in node.attribute for graph in iter_subgraphs(attribute))


def iter_sparse_tensors(attribute: AttributeProto) -> Iterator[SparseTensorProto]:
    """The sparse tensors that an attribute holds."""
    if attribute.HasField("sparse_tensor"):
        yield attribute.sparse_tensor
    yield from attribute.sparse_tensors
