"""Tree ensembles, written tree by tree, so that only one tree is in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper

from bench.corpora.streams import field_header

FEATURES, CLASSES = 20, 3
_DEPTH = 12
_TREE_BYTES = 323_000
"""Approximate size of one tree of depth `_DEPTH`, in bytes."""
_GRAPH, _NODE, _ATTRIBUTE = 7, 1, 5
"""Fields of ModelProto, GraphProto and NodeProto. Source: onnx.proto."""
_FLOATS_TAG, _INTS_TAG, _STRINGS_TAG = 7 << 3 | 5, 8 << 3, 9 << 3 | 2
"""Tags of the list fields in AttributeProto; they are not packed, so each item has a tag. Source: onnx.proto."""
_LARGEST_INT = 1 << 21

Items = Callable[[int], bytes]
"""Returns the serialized items of the tree with this number; equal numbers result in equal bytes."""


@dataclass(frozen=True, slots=True)
class _List:
    """A list attribute with items for each tree."""

    name: str
    kind: int
    items: Items

    def head(self) -> bytes:
        """Return the serialized attribute without its items."""
        return bytes(AttributeProto(name=self.name, type=self.kind).SerializeToString(deterministic=True))

    def pieces(self, trees: int) -> Iterator[bytes]:
        """Yield the serialized attribute in pieces."""
        yield self.head()
        yield from map(self.items, range(trees))


def write_ensemble(path: Path, size_bytes: int, depth: int = _DEPTH) -> int:
    """Write a classifier of complete trees with about `size_bytes` bytes; return its exact size."""
    trees = max(1, round(size_bytes / _TREE_BYTES * 2 ** (_DEPTH - depth)))
    model, node = _model(), _node()
    graph = bytes(model.graph.SerializeToString(deterministic=True))
    model.ClearField("graph")
    node_bytes = bytes(node.SerializeToString(deterministic=True))
    lists = _lists(depth, trees)
    sizes = [sum(map(len, each.pieces(trees))) for each in lists]
    node_size = len(node_bytes) + sum(len(field_header(_ATTRIBUTE, size)) + size for size in sizes)
    node_header = field_header(_NODE, node_size)
    with path.open("wb") as file:
        file.write(model.SerializeToString(deterministic=True))
        file.write(field_header(_GRAPH, len(graph) + len(node_header) + node_size) + graph)
        file.write(node_header + node_bytes)
        for attribute, size in zip(lists, sizes, strict=True):
            file.write(field_header(_ATTRIBUTE, size))
            file.writelines(attribute.pieces(trees))
        return file.tell()


def _model() -> ModelProto:
    """Return the model without its node."""
    inputs = [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["batch", FEATURES])]
    outputs = [
        helper.make_tensor_value_info("label", TensorProto.INT64, ["batch"]),
        helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", CLASSES]),
    ]
    graph = helper.make_graph([], "forest", inputs, outputs)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8, producer_name="onnxgate-bench")


def _node() -> NodeProto:
    """Return the node without its long lists."""
    return helper.make_node(
        "TreeEnsembleClassifier",
        ["features"],
        ["label", "probabilities"],
        name="ensemble",
        domain="ai.onnx.ml",
        post_transform="NONE",
        classlabels_int64s=list(range(CLASSES)),
    )


def _lists(depth: int, trees: int) -> list[_List]:
    """Return all long attributes. Nodes are numbered by level: the children of n are 2n + 1 and 2n + 2."""
    nodes = np.arange(2 ** (depth + 1) - 1)
    is_branch = nodes < 2**depth - 1
    leaves = nodes[~is_branch]
    modes = _strings([b"BRANCH_LEQ" if branch else b"LEAF" for branch in is_branch])
    hitrates = _floats(np.ones(nodes.size, "float32"))
    weights = _floats(np.full(leaves.size, 1 / trees, "float32"))

    def integers(name: str, values: Callable[[int], NDArray[np.int64]]) -> _List:
        return _List(name, AttributeProto.INTS, lambda tree: _ints(values(tree)))

    def same(name: str, kind: int, data: bytes) -> _List:
        return _List(name, kind, lambda tree: data)

    def draw(tree: int, seed: int) -> np.random.Generator:
        return np.random.default_rng((seed, tree))

    def thresholds(tree: int) -> bytes:
        return _floats(draw(tree, 1).random(nodes.size, "float32") * is_branch.astype("float32"))

    return [
        integers("nodes_treeids", lambda tree: np.full(nodes.size, tree)),
        same("nodes_nodeids", AttributeProto.INTS, _ints(nodes)),
        integers("nodes_featureids", lambda tree: draw(tree, 0).integers(0, FEATURES, nodes.size) * is_branch),
        _List("nodes_values", AttributeProto.FLOATS, thresholds),
        same("nodes_modes", AttributeProto.STRINGS, modes),
        same("nodes_truenodeids", AttributeProto.INTS, _ints((2 * nodes + 1) * is_branch)),
        same("nodes_falsenodeids", AttributeProto.INTS, _ints((2 * nodes + 2) * is_branch)),
        same("nodes_missing_value_tracks_true", AttributeProto.INTS, _ints(np.zeros_like(nodes))),
        same("nodes_hitrates", AttributeProto.FLOATS, hitrates),
        integers("class_treeids", lambda tree: np.full(leaves.size, tree)),
        same("class_nodeids", AttributeProto.INTS, _ints(leaves)),
        integers("class_ids", lambda tree: draw(tree, 2).integers(0, CLASSES, leaves.size)),
        same("class_weights", AttributeProto.FLOATS, weights),
    ]


def _floats(values: NDArray[np.float32]) -> bytes:
    """Serialize items of the field `floats`."""
    items = np.empty(values.size, [("tag", "u1"), ("value", "<f4")])
    items["tag"] = _FLOATS_TAG
    items["value"] = values
    return items.tobytes()


def _ints(values: NDArray[np.int64]) -> bytes:
    """Serialize items of the field `ints`, which are not negative: each is a tag and a varint of up to three bytes."""
    assert values.size == 0 or values.max() < _LARGEST_INT
    size = 1 + (values >= 1 << 7) + (values >= 1 << 14)
    place = np.arange(3)
    low_bits = values[:, None] >> 7 * place & 0x7F
    more_follows = place < size[:, None] - 1
    items = np.empty((values.size, 4), "u1")
    items[:, 0] = _INTS_TAG
    items[:, 1:] = low_bits | more_follows * 0x80
    return items[np.arange(4) <= size[:, None]].tobytes()


def _strings(values: list[bytes]) -> bytes:
    """Serialize items of the field `strings`, each shorter than 128 bytes."""
    return b"".join(bytes([_STRINGS_TAG, len(value)]) + value for value in values)
