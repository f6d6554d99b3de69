"""Large tensors and lists that are omitted when a model is parsed.

This module records where their data is in the file, and reads the data if it is needed.

A tensor with omitted data has an additional entry in `external_data`; its `data_location` is unchanged. An attribute
with an omitted list keeps only a few elements; the position of the list is in `doc_string`. The list of a `Constant`
is replaced by a tensor with omitted data, so that its shape is known.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onnxgate.core.files import open_regular
from onnxgate.model.facts import DEFAULT_DOMAIN, canonical_domain
from onnxgate.model.reading.file_format import FileWindow, UnreadableModel, iter_fields
from onnxgate.model.reading.omitted_texts import find_omitted_text
from onnxgate.model.reading.view import ModelView, NodeView, iter_node_subgraphs

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TensorProto

OMITTED_KEY = f"onnxgate.omitted.{os.urandom(8).hex()}"
"""Key that marks omitted data in a parsed model. It is random in each process, so that no file can contain it."""
_ML_DOMAIN = "ai.onnx.ml"
CONSTANT_LISTS = {"value_floats": "floats", "value_ints": "ints", "value_strings": "strings"}
"""Field of AttributeProto that contains the list, for each attribute of `Constant` that is a list."""
_CONSTANT_TYPES = {"value_floats": 1, "value_ints": 7, "value_strings": 8}
"""Element type of a `Constant`, for each attribute that is a list. Source: the ONNX specification."""
_LIST_FIELD = 0
"""Number that `OmittedData` has instead of the field of a tensor if the data is the list of an attribute."""
_NODE_LISTS = (
    *("nodes_falsenodeids", "nodes_featureids", "nodes_hitrates", "nodes_missing_value_tracks_true", "nodes_modes"),
    *("nodes_nodeids", "nodes_treeids", "nodes_truenodeids", "nodes_values"),
)
_ENCODED = ("strings", "int64s", "floats")
Operator = tuple[str, str]
"""Domain and name of an operator. The default domain is "ai.onnx"."""
CONSTANT: Operator = (DEFAULT_DOMAIN, "Constant")
NO_OPERATOR: Operator = (DEFAULT_DOMAIN, "")
_NO_NAMES: frozenset[str] = frozenset()
OMITTED_LISTS: dict[Operator, frozenset[str]] = {
    (_ML_DOMAIN, "TreeEnsembleClassifier"): frozenset(
        (*_NODE_LISTS, "class_ids", "class_nodeids", "class_treeids", "class_weights")
    ),
    (_ML_DOMAIN, "TreeEnsembleRegressor"): frozenset(
        (*_NODE_LISTS, "target_ids", "target_nodeids", "target_treeids", "target_weights")
    ),
    (_ML_DOMAIN, "TreeEnsemble"): frozenset(
        (
            *("leaf_targetids", "nodes_falseleafs", "nodes_falsenodeids", "nodes_featureids"),
            *("nodes_missing_value_tracks_true", "nodes_trueleafs", "nodes_truenodeids", "tree_roots"),
        )
    ),
    (_ML_DOMAIN, "SVMClassifier"): frozenset(("coefficients", "support_vectors")),
    (_ML_DOMAIN, "SVMRegressor"): frozenset(("coefficients", "support_vectors")),
    (_ML_DOMAIN, "LinearClassifier"): frozenset(("coefficients",)),
    (_ML_DOMAIN, "LinearRegressor"): frozenset(("coefficients",)),
    (_ML_DOMAIN, "LabelEncoder"): frozenset(f"{role}_{kind}" for role in ("keys", "values") for kind in _ENCODED),
    (_ML_DOMAIN, "CategoryMapper"): frozenset(("cats_int64s", "cats_strings")),
    (_ML_DOMAIN, "DictVectorizer"): frozenset(("int64_vocabulary", "string_vocabulary")),
    (_ML_DOMAIN, "Imputer"): frozenset(("imputed_value_floats", "imputed_value_int64s")),
    (_ML_DOMAIN, "Scaler"): frozenset(("offset", "scale")),
    (DEFAULT_DOMAIN, "StringNormalizer"): frozenset(("stopwords",)),
    (DEFAULT_DOMAIN, "TfIdfVectorizer"): frozenset(("ngram_indexes", "pool_int64s", "pool_strings", "weights")),
    CONSTANT: frozenset(CONSTANT_LISTS),
}
"""Attributes whose lists are omitted, for each operator that onnx defines. Those of other operators are always omitted.

onnx only checks that these lists have the right type, at least one element and, for some operators, equal
lengths (see `_EQUAL_LENGTHS`). It also reads the range of `ngram_indexes` and the length of the list of
`Constant`, which are kept. Other lists are complete, because onnx reads class labels, categories and intercepts.

Source: `defs/traditionalml` and `defs/nn` in onnx; measured with onnx 1.18 and 1.23."""
_EXTREMES = "ngram_indexes"
"""Attribute of which the lowest and the highest element are kept, which determine the shape of the output."""
_KEPT_ELEMENTS = 16
"""Maximum number of elements at the start of an omitted list that are kept. Inputs are generated from them."""
_EQUAL_LENGTHS = {
    (_ML_DOMAIN, "TreeEnsemble"): (("nodes_",), ("leaf_",)),
    (_ML_DOMAIN, "LabelEncoder"): (("keys_", "values_"),),
    (_ML_DOMAIN, "CategoryMapper"): (("cats_",),),
}
"""Name prefixes of the lists and tensors that onnx requires to be equally long, for each operator.

Source: shape inference of these operators in onnx."""
_COMPARED_PREFIXES = ("nodes_", "leaf_", "keys_", "values_")
_LIST_NUMBERS = (7, 8, 9)
"""Numbers of the AttributeProto fields that contain lists of plain values. Their elements are not packed.

Source: onnx.proto."""
LEADING_FIELDS = 3
"""Number of fields to read at the start of an attribute to find its name, its type and its list's first element."""
PIECE_BYTES = 128 * 1024
_MAX_STUB_BYTES = 2 * PIECE_BYTES
_LIST_FIELDS = {6: "floats", 7: "ints", 8: "strings"}
"""Name of the field that contains the list of an attribute, for each attribute type that is a list."""
_CORRUPTED = "a corrupted model (invalid protobuf message)"
_MAX_SPLITS = 16
"""Maximum number of positions at which to try to split a list: an encoded number has at most 11 bytes."""


class OmittedData(msgspec.Struct, frozen=True):
    """Position of a tensor's omitted data in the file, and the field that contains the data."""

    field: int
    offset: int
    length: int

    @property
    def is_list(self) -> bool:
        """Whether the data is the list of an attribute. The position is then that of the attribute."""
        return self.field == _LIST_FIELD


def find_omitted_data(tensor: TensorProto) -> tuple[OmittedData, ...]:
    """Return the positions of a tensor's omitted data; empty if the tensor is complete."""
    for entry in tensor.external_data:
        if entry.key == OMITTED_KEY:
            return tuple(OmittedData(*map(int, piece.split(":"))) for piece in entry.value.split(","))
    return ()


class OmittedList(msgspec.Struct, frozen=True):
    """Position of an attribute with an omitted list in the file, and the number of elements in the list."""

    count: int
    offset: int
    length: int
    name: str = ""  # of the attribute, if a tensor replaces it
    type: int = 0


def find_constant_list(tensor: TensorProto) -> OmittedList | None:
    """Return the position of the attribute if the tensor replaces the list of a `Constant`; otherwise None."""
    for piece in find_omitted_data(tensor):
        if piece.is_list:
            name = next(name for name, element in _CONSTANT_TYPES.items() if element == tensor.data_type)
            kind = next(number for number, field in _LIST_FIELDS.items() if field == CONSTANT_LISTS[name])
            return OmittedList(tensor.dims[0], piece.offset, piece.length, name, kind)
    return None


def find_omitted_list(attribute: AttributeProto) -> OmittedList | None:
    """Return the position of an attribute's omitted list; None if the attribute is complete."""
    text: object = attribute.doc_string
    if not isinstance(text, str) or not text.startswith(OMITTED_KEY):  # protobuf returns bytes if they are not UTF-8
        return None
    count, offset, length = map(int, text.split(":")[1:])
    return OmittedList(count, offset, length)


def describe_list(source: FileWindow, start: int, end: int, operator: Operator) -> AttributeProto | None:
    """Return the attribute between `start` and `end` without its list; None if it contains anything else.

    Raises:
        DecodeError: see `iter_list_pieces`.
    """
    from onnx import AttributeProto

    stub = AttributeProto()
    kept: dict[str, list[int | float | bytes]] = {field: [] for field in _LIST_FIELDS.values()}
    counts = dict.fromkeys(kept, 0)
    for piece in iter_list_pieces(source, start, end):
        for field, elements in kept.items():
            added = getattr(piece, field)
            if added and _EXTREMES in (stub.name, piece.name):
                both = [*elements, *added]
                elements[:] = sorted({min(both), max(both)})
            elif len(elements) < _KEPT_ELEMENTS:
                elements += added[: _KEPT_ELEMENTS - len(elements)]
            counts[field] += len(added)
            piece.ClearField(field)
        stub.MergeFrom(piece)
        if stub.ByteSize() + sum(len(text) for text in kept["strings"] if isinstance(text, bytes)) > _MAX_STUB_BYTES:
            return None
    field = _LIST_FIELDS.get(stub.type, "")
    fields = {descriptor.name for descriptor, _ in stub.ListFields()} | {name for name in counts if counts[name]}
    if not can_omit_list(operator, stub.name) or fields != {"name", "type", field}:
        return None
    if operator == CONSTANT:
        return _describe_constant(stub, counts, start, end)
    getattr(stub, field).extend(kept[field])
    stub.doc_string = f"{OMITTED_KEY}:{counts[field]}:{start}:{end - start}"
    return stub


def _describe_constant(stub: AttributeProto, counts: Mapping[str, int], start: int, end: int) -> AttributeProto | None:
    """Return the attribute `value` of a `Constant` with a tensor whose data is the list of the attribute `stub`."""
    field = CONSTANT_LISTS[stub.name]
    if _LIST_FIELDS[stub.type] != field:
        return None
    value = type(stub)(name="value", type=stub.TENSOR)
    value.t.dims.append(counts[field])
    value.t.data_type = _CONSTANT_TYPES[stub.name]
    value.t.external_data.add(key=OMITTED_KEY, value=f"{_LIST_FIELD}:{start}:{end - start}")
    return value


def iter_list_pieces(source: FileWindow, start: int, end: int) -> Iterator[AttributeProto]:
    """Yield the attribute between `start` and `end` in consecutive pieces, each with some of the list's elements.

    Raises:
        DecodeError: the attribute is damaged, or an element is longer than a piece.
    """
    from onnx import AttributeProto

    fields = islice(iter_fields(source, start, end), LEADING_FIELDS)
    tag = next((source.read(field.tag, field.tag + 1) for field in fields if field.number in _LIST_NUMBERS), b"")
    while start < end:
        content = source.read(start, min(start + PIECE_BYTES, end))
        is_last = start + len(content) == end
        piece, size = (AttributeProto.FromString(content), len(content)) if is_last else _parse_elements(content, tag)
        yield piece
        start += size


def _parse_elements(content: bytes, tag: bytes) -> tuple[AttributeProto, int]:
    """Parse the complete elements at the start of `content`, and return them with their size in bytes.

    Each element starts with `tag`. A byte inside an element can look like the start of another element, but protobuf
    parses only complete elements.
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
    raise DecodeError(f"no element ends within {len(content):,} bytes")


def can_omit_list(operator: Operator, name: str) -> bool:
    """Return whether the list of the operator's attribute with this name is omitted if it is long."""
    if not operator[0].startswith(DEFAULT_DOMAIN):  # onnx reads no attributes of operators that it does not define
        return bool(name)
    return name in OMITTED_LISTS.get(operator, _NO_NAMES)


def restore_needed_lists(model: ModelView, path: Path) -> None:
    """Restore the omitted attributes that later checks read.

    Such attributes are in training information, in calls to local functions, and in nodes with lists of different
    lengths that should be equal.

    Raises:
        OSError, UnreadableModel: the file cannot be read, or has changed.
    """
    proto = model.proto
    restore_lists((graph for it in proto.training_info for graph in (it.initialization, it.algorithm)), path)
    if called := {(canonical_domain(it.domain), it.name) for it in proto.functions}:
        for node in model.nodes():
            if node.operator[:2] in called:
                _restore_node(node.proto, path)
    for node in _list_compared(model):
        if not _has_equal_lengths(node):
            _restore_node(node.proto, path)


def restore_lists(holders: Iterable[GraphProto | FunctionProto], path: Path) -> None:
    """Restore the omitted attributes of all nodes in these graphs and their subgraphs from the model file.

    Raises:
        OSError, UnreadableModel: the file cannot be read, or has changed.
    """
    for holder in holders:
        for node in holder.node:
            _restore_node(node, path)
            restore_lists(iter_node_subgraphs(node), path)


def _restore_node(node: NodeProto, path: Path) -> None:
    from google.protobuf.message import DecodeError

    for attribute in node.attribute:
        if omitted := find_omitted_list(attribute):
            attribute.CopyFrom(read_omitted_list(omitted, path))
        elif constant := find_constant_list(attribute.t):
            attribute.CopyFrom(read_omitted_list(constant, path))
        elif place := find_omitted_text(attribute):
            with open_regular(path) as file:
                content = FileWindow(file).read(*place)
            try:
                attribute.CopyFrom(type(attribute).FromString(content))
            except DecodeError as error:
                raise UnreadableModel(_CORRUPTED) from error


def list_companion_tensors(model: ModelView) -> list[TensorProto]:
    """Return the tensors whose lengths onnx compares with the lengths of omitted lists."""
    nodes = (node for node in _list_compared(model) if any(map(find_omitted_list, node.attributes)))
    return [
        attribute.t
        for node in nodes
        for attribute in node.attributes
        if attribute.name.startswith(_COMPARED_PREFIXES) and attribute.HasField("t")
    ]


def shorten_companions(model: ModelView) -> None:
    """Shorten the tensors that `list_companion_tensors` returns to the length of the omitted lists."""
    for tensor in list_companion_tensors(model):
        tensor.dims[:] = [min(_KEPT_ELEMENTS, *tensor.dims)]


def _list_compared(model: ModelView) -> list[NodeView]:
    return [node for node in model.nodes() if node.operator[:2] in _EQUAL_LENGTHS]


def _has_equal_lengths(node: NodeView) -> bool:
    """Return whether all lists and tensors that onnx requires to be equally long are omitted and equally long."""
    for prefixes in _EQUAL_LENGTHS[node.operator[:2]]:
        lengths: set[tuple[int, ...]] = set()
        for attribute in (attribute for attribute in node.attributes if attribute.name.startswith(prefixes)):
            if omitted := find_omitted_list(attribute):
                lengths.add((omitted.count,))
            else:
                lengths.add(tuple(attribute.t.dims) if find_omitted_data(attribute.t) else ())
        if any(len(dims) != 1 for dims in lengths) or len(lengths) > 1:
            return False
    return True


def read_omitted_list(omitted: OmittedList, path: Path) -> AttributeProto:
    """Read the complete attribute from the model file.

    Raises:
        OSError, UnreadableModel: the file cannot be read, or has changed.
    """
    pieces = iter_omitted_list(omitted, path)
    attribute = next(pieces)
    for piece in pieces:
        attribute.MergeFrom(piece)
    return attribute


def iter_omitted_list(omitted: OmittedList, path: Path) -> Iterator[AttributeProto]:
    """Yield the attribute from the model file in consecutive pieces, each with some of the list's elements.

    Raises:
        OSError, UnreadableModel: the file cannot be read, or has changed.
    """
    from google.protobuf.message import DecodeError

    with open_regular(path) as file:
        try:
            yield from iter_list_pieces(FileWindow(file), omitted.offset, omitted.offset + omitted.length)
        except DecodeError as error:
            raise UnreadableModel(_CORRUPTED) from error
