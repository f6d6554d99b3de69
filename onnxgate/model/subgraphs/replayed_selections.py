"""Models whose `TopK` nodes select given items, so that rounding errors do not decide which items are selected."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from onnx import ModelProto, TensorProto

from onnxgate.model.subgraphs.instrumented_models import link_data
from onnxgate.model.subgraphs.reduced_models import list_needed_values

if TYPE_CHECKING:
    from onnx import NodeProto

OTHER_SELECTIONS = frozenset({"NonMaxSuppression", "ArgMax", "ArgMin", "Hardmax"})
"""Operators whose selections are not replayed, as are those of `TopK` nodes in subgraphs and local functions."""
MIN_OPSET = 11
"""First opset with `GatherElements`."""


@dataclass(frozen=True, slots=True)
class ReplayedSelection:
    """A `TopK` node whose indices are an input of the model. Both kinds of values are outputs of the model."""

    scores: str  # the value that contains all scores
    indices: str  # the indices that the node selects in the unmodified model
    replayed: str  # input with the indices
    values: str  # the scores at these indices
    own: str  # the highest scores, sorted, as the node selects them
    axis: int

    @property
    def added(self) -> tuple[str, str]:
        """Outputs of the model with replayed selections."""
        return self.own, self.values


def list_selections(proto: ModelProto) -> tuple[ReplayedSelection, ...]:
    """Return the `TopK` nodes of the main graph in file order; empty if the opset is too old to replay them."""
    opset = max((it.version for it in proto.opset_import if it.domain in ("", "ai.onnx")), default=0)
    nodes = [node for node in proto.graph.node if node.op_type == "TopK" and not node.domain and node.output[1:]]
    if opset < MIN_OPSET or not all(node.output[1] for node in nodes):
        return ()
    return tuple(
        ReplayedSelection(
            scores=node.input[0],
            indices=node.output[1],
            replayed=f"onnxgate:replayed {number}",
            values=f"onnxgate:values {number}",
            own=f"onnxgate:own values {number}",
            axis=next((attribute.i for attribute in node.attribute if attribute.name == "axis"), -1),
        )
        for number, node in enumerate(nodes)
    )


def count_other_selections(proto: ModelProto) -> dict[str, int]:
    """Return how many selections that are not replayed follow each other before a value, if there are any."""
    inner = {*OTHER_SELECTIONS, "TopK"}
    selecting = {function.name for function in proto.functions if _has_node(function.node, inner)}
    counts: dict[str, int] = {}
    for node in proto.graph.node:
        graphs = [graph for attribute in node.attribute for graph in (attribute.g, *attribute.graphs)]
        selects = node.op_type in OTHER_SELECTIONS | selecting or any(_has_node(graph.node, inner) for graph in graphs)
        count = max((counts.get(name, 0) for name in list_needed_values(node)), default=0) + selects
        if count:
            counts.update(dict.fromkeys(filter(None, node.output), count))
    return counts


def _has_node(nodes: Iterable[NodeProto], operators: Collection[str]) -> bool:
    """Return whether one of these nodes, or a node in their subgraphs, is one of these operators."""
    return any(
        node.op_type in operators
        or any(_has_node(graph.node, operators) for it in node.attribute for graph in (it.g, *it.graphs))
        for node in nodes
    )


def replay_selections(model: Path, proto: ModelProto, folder: Path) -> Path:
    """Write a copy of a model in which all selections are inputs, to the new folder `folder`, and return its path.

    `proto` is the structure of the model.

    Raises:
        OSError: the data cannot be read, or the disk is full.
    """
    selections = {selection.indices: selection for selection in list_selections(proto)}
    copy = onnx.load(str(model), load_external_data=False)
    nodes = [*copy.graph.node]
    del copy.graph.node[:]
    for node in nodes:
        selection = selections.get(node.output[1]) if node.op_type == "TopK" and node.output[1:] else None
        if selection is None:
            copy.graph.node.append(node)
            continue
        values, indices = node.output
        node.output[:] = [selection.own, f"{selection.own} indices"]
        make = onnx.helper.make_node
        copy.graph.node.extend(
            (
                node,
                make("GatherElements", [selection.scores, selection.replayed], [selection.values], axis=selection.axis),
                make("Identity", [selection.replayed], [indices]),
                *([make("Identity", [selection.values], [values])] if values else []),
            )
        )
        copy.graph.input.add(name=selection.replayed).type.tensor_type.elem_type = TensorProto.INT64
        for name in selection.added:
            copy.graph.output.add(name=name)
    folder.mkdir(parents=True)
    onnx.save(copy, str(folder / "model.onnx"))
    link_data(proto, model, folder)
    return folder / "model.onnx"
