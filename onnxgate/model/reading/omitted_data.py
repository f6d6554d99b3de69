"""Large tensors and lists that are omitted when a model is parsed.

This module records where their data is in the file, and reads the data if it is needed.

A tensor with omitted data has an additional entry in `external_data`; its `data_location` is unchanged. An attribute
with an omitted list keeps only the first element; the position of the list is in `doc_string`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onnxgate.core.files import open_regular
from onnxgate.model.reading.file_format import FileWindow, UnreadableModel, iter_fields
from onnxgate.model.reading.view import ModelView, NodeView, iter_node_subgraphs

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TensorProto

OMITTED_KEY = f"onnxgate.omitted.{os.urandom(8).hex()}"
"""Key that marks omitted data in a parsed model. It is random in each process, so that no file can contain it."""
_ML_DOMAIN = "ai.onnx.ml"
_NODE_LISTS = (
    *("nodes_falsenodeids", "nodes_featureids", "nodes_hitrates", "nodes_missing_value_tracks_true", "nodes_modes"),
    *("nodes_nodeids", "nodes_treeids", "nodes_truenodeids", "nodes_values"),
)
_NO_NAMES: frozenset[str] = frozenset()
OMITTED_LISTS: dict[str, frozenset[str]] = {
    "TreeEnsembleClassifier": frozenset((*_NODE_LISTS, "class_ids", "class_nodeids", "class_treeids", "class_weights")),
    "TreeEnsembleRegressor": frozenset(
        (*_NODE_LISTS, "target_ids", "target_nodeids", "target_treeids", "target_weights")
    ),
    "TreeEnsemble": frozenset(
        (
            *("leaf_targetids", "nodes_falseleafs", "nodes_falsenodeids", "nodes_featureids"),
            *("nodes_missing_value_tracks_true", "nodes_trueleafs", "nodes_truenodeids", "tree_roots"),
        )
    ),
    "SVMClassifier": frozenset(("coefficients", "support_vectors")),
    "SVMRegressor": frozenset(("coefficients", "support_vectors")),
    "LinearClassifier": frozenset(("coefficients",)),
    "LinearRegressor": frozenset(("coefficients",)),
}
"""Attributes whose lists are omitted, for each operator of `ai.onnx.ml`.

onnx only checks that these lists have the right type, at least one element and, for `TreeEnsemble`, equal lengths (see
`shorten_ensembles`). Other lists are kept, because onnx compares lengths in `LabelEncoder`, and reads class labels,
categories, intercepts, n-grams and values of `Constant`.

Source: `defs/traditionalml` in onnx; measured with onnx 1.18 and 1.23."""
_ENSEMBLE = (_ML_DOMAIN, "TreeEnsemble")
_ENSEMBLE_PREFIXES = ("nodes_", "leaf_")
"""Name prefixes of list attributes. onnx requires equal lengths for lists with the same prefix.

Source: shape inference of `TreeEnsemble` in onnx."""
_LIST_NUMBERS = (7, 8, 9)
"""Numbers of the AttributeProto fields that contain lists of plain values. Their elements are not packed.

Source: onnx.proto."""
LEADING_FIELDS = 3
"""Number of fields to read at the start of an attribute to find its name, its type and its list's first element."""
PIECE_BYTES = 128 * 1024
_MAX_SPLITS = 16
"""Maximum number of positions at which to try to split a list: an encoded number has at most 11 bytes."""


class OmittedData(msgspec.Struct, frozen=True):
    """Position of a tensor's omitted data in the file, and the field that contains the data."""

    field: int
    offset: int
    length: int


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


def find_omitted_list(attribute: AttributeProto) -> OmittedList | None:
    """Return the position of an attribute's omitted list; None if the attribute is complete."""
    text: object = attribute.doc_string
    if not isinstance(text, str) or not text.startswith(OMITTED_KEY):  # protobuf returns bytes if they are not UTF-8
        return None
    return OmittedList(*map(int, text.split(":")[1:]))


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


def list_omitted_names(domain: str, operator: str) -> frozenset[str]:
    """Return the names of the operator's attributes that may contain long lists, which are omitted."""
    return OMITTED_LISTS.get(operator, _NO_NAMES) if domain == _ML_DOMAIN else _NO_NAMES


def restore_needed_lists(model: ModelView, path: Path) -> None:
    """Restore the omitted attribute lists that later checks read.

    Such lists are in training information, in models with local functions named like an operator with omitted lists,
    and in tree ensembles with lists of different lengths.

    Raises:
        OSError, UnreadableModel: the file cannot be read, or has changed.
    """
    proto = model.proto
    restore_lists((graph for it in proto.training_info for graph in (it.initialization, it.algorithm)), path)
    if any(it.domain == _ML_DOMAIN and it.name in OMITTED_LISTS for it in proto.functions):
        restore_lists((proto.graph, *proto.functions), path)
    for node in _list_ensembles(model):
        if not _has_equal_lengths(node):
            _restore_node(node.proto, path)


def restore_lists(holders: Iterable[GraphProto | FunctionProto], path: Path) -> None:
    """Restore the omitted attribute lists of all nodes in these graphs and their subgraphs from the model file.

    Raises:
        OSError, UnreadableModel: the file cannot be read, or has changed.
    """
    for holder in holders:
        for node in holder.node:
            _restore_node(node, path)
            restore_lists(iter_node_subgraphs(node), path)


def _restore_node(node: NodeProto, path: Path) -> None:
    for attribute in node.attribute:
        if omitted := find_omitted_list(attribute):
            attribute.CopyFrom(read_omitted_list(omitted, path))


def list_ensemble_tensors(model: ModelView) -> list[TensorProto]:
    """Return the tensors of `TreeEnsemble` nodes with omitted lists; onnx compares the lengths of tensors and lists."""
    nodes = (node for node in _list_ensembles(model) if any(map(find_omitted_list, node.attributes)))
    attributes = (attribute for node in nodes for attribute in node.attributes)
    return [it.t for it in attributes if it.name.startswith(_ENSEMBLE_PREFIXES) and it.HasField("t")]


def shorten_ensembles(model: ModelView) -> None:
    """Shorten the tensors that `list_ensemble_tensors` returns to one element, like the omitted lists."""
    for tensor in list_ensemble_tensors(model):
        tensor.dims[:] = [1]


def _list_ensembles(model: ModelView) -> list[NodeView]:
    return [node for node in model.nodes() if node.operator[:2] == _ENSEMBLE]


def _has_equal_lengths(node: NodeView) -> bool:
    """Return whether the lists and tensors of a `TreeEnsemble` are omitted and have equal lengths, as onnx requires."""
    for prefix in _ENSEMBLE_PREFIXES:
        lengths: set[tuple[int, ...]] = set()
        for attribute in (attribute for attribute in node.attributes if attribute.name.startswith(prefix)):
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
            raise UnreadableModel("a corrupted model (invalid protobuf message)") from error
