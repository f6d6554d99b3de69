"""Models whose nodes select given items, so that rounding errors do not decide which items are selected."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from onnxgate.model.reading.view import iter_node_subgraphs
from onnxgate.model.subgraphs.instrumented_models import link_data
from onnxgate.model.subgraphs.reduced_models import list_needed_values

SELECTORS = frozenset({"TopK", "NonMaxSuppression", "ArgMax", "ArgMin"})
"""Operators whose selections can be replayed in the main graph."""
OTHER_SELECTIONS = frozenset({"NonMaxSuppression", "ArgMax", "ArgMin", "Hardmax"})
"""Operators whose selections may not be replayed, as are those of `TopK` nodes in subgraphs and local functions."""
MIN_OPSET = 11
"""First opset with `GatherElements`."""
MIN_OPSET_OF_AXES_INPUT = 13
"""First opset in which `axes` is an input of `Squeeze`."""


@dataclass(frozen=True, slots=True)
class ReplayedSelection:
    """A node whose indices are an input of the model. Its scores and boxes are outputs of the model."""

    operator: Literal["TopK", "NonMaxSuppression", "ArgMax"]  # `ArgMin` is `ArgMax` with the lowest scores
    scores: str  # the value that contains all scores
    indices: str  # the indices that the node selects in the unmodified model
    replayed: str  # input with the indices; for `ArgMax` with the reduced axis
    values: str  # the scores at these indices; for `NonMaxSuppression` all scores
    own: str  # the highest or lowest scores, as the node selects them; not for `NonMaxSuppression`
    axis: int = -1
    keepdims: bool = True  # `ArgMax`: whether the indices have the reduced axis
    largest: bool = True  # whether the node selects the highest scores
    boxes: str = ""  # `NonMaxSuppression`: the value that contains all boxes
    flat_boxes: str = ""  # the boxes with the shape (boxes, 4)
    limits: tuple[str, ...] = ()  # `NonMaxSuppression`: values with the number of boxes and the thresholds

    @property
    def own_indices(self) -> str:
        """The indices that the node selects in the model with replayed selections."""
        return f"{self.own} indices"

    @property
    def added(self) -> dict[str, Literal["scores", "boxes"]]:
        """Outputs of the model with replayed selections, and what they contain."""
        if self.boxes:
            return {self.flat_boxes: "boxes", self.values: "scores"}
        return {self.own: "scores", self.values: "scores"}

    def with_names_of(self, other: ReplayedSelection) -> ReplayedSelection:
        """Return the selection with the names of the values that replaying the other selection adds."""
        return replace(self, replayed=other.replayed, values=other.values, own=other.own, flat_boxes=other.flat_boxes)

    def name(self, output: str) -> str:
        """Return the value of the unmodified model that decides about an added output."""
        return self.boxes if output == self.flat_boxes else self.scores


def list_selections(proto: ModelProto) -> tuple[ReplayedSelection, ...]:
    """Return the selecting nodes of the main graph in file order; empty if the opset is too old to replay them."""
    if _read_opset(proto) < MIN_OPSET:
        return ()
    nodes = [node for node in proto.graph.node if node.op_type in SELECTORS and not node.domain]
    selections = (_describe_selection(node, number) for number, node in enumerate(nodes))
    return tuple(selection for selection in selections if selection is not None)


def _describe_selection(node: NodeProto, number: int) -> ReplayedSelection | None:
    """Return the selection of a node; None if no node uses its indices or they have another form than in PyTorch."""
    values, own = f"onnxgate:values {number}", f"onnxgate:own values {number}"
    replayed = f"onnxgate:replayed {number}"
    match node.op_type:
        case "TopK" if node.output[1:] and node.output[1]:
            axis, largest = _read_int(node, "axis", -1), bool(_read_int(node, "largest", 1))
            scores, indices = node.input[0], node.output[1]
            return ReplayedSelection("TopK", scores, indices, replayed, values, own, axis, largest=largest)
        case "ArgMax" | "ArgMin" as operator:
            axis, keepdims = _read_int(node, "axis", 0), bool(_read_int(node, "keepdims", 1))
            scores, indices, largest = node.input[0], node.output[0], operator == "ArgMax"
            return ReplayedSelection("ArgMax", scores, indices, replayed, values, own, axis, keepdims, largest)
        case "NonMaxSuppression" if not _read_int(node, "center_point_box", 0):
            boxes, scores, *limits = node.input
            return ReplayedSelection(
                operator="NonMaxSuppression",
                scores=scores,
                indices=node.output[0],
                replayed=replayed,
                values=values,
                own=own,
                boxes=boxes,
                flat_boxes=f"onnxgate:boxes {number}",
                limits=(*limits, "", "", "")[:3],
            )
    return None


def _read_int(node: NodeProto, name: str, default: int) -> int:
    return next((attribute.i for attribute in node.attribute if attribute.name == name), default)


def _read_opset(proto: ModelProto) -> int:
    return max((it.version for it in proto.opset_import if it.domain in ("", "ai.onnx")), default=0)


def count_other_selections(proto: ModelProto, replayed: Sequence[ReplayedSelection]) -> dict[str, int]:
    """Return how many selections that are not replayed follow each other before a value, if there are any."""
    inner = {*OTHER_SELECTIONS, "TopK"}
    selecting = {function.name for function in proto.functions if _has_node(function.node, inner)}
    known = {selection.indices for selection in replayed}
    counts: dict[str, int] = {}
    for node in proto.graph.node:
        graphs = iter_node_subgraphs(node)
        selects = node.op_type in OTHER_SELECTIONS | selecting or any(_has_node(graph.node, inner) for graph in graphs)
        selects = selects and known.isdisjoint(node.output)
        count = max((counts.get(name, 0) for name in list_needed_values(node)), default=0) + selects
        if count:
            counts.update(dict.fromkeys(filter(None, node.output), count))
    return counts


def _has_node(nodes: Iterable[NodeProto], operators: Collection[str]) -> bool:
    """Return whether one of these nodes, or a node in their subgraphs, is one of these operators."""
    return any(
        node.op_type in operators or any(_has_node(graph.node, operators) for graph in iter_node_subgraphs(node))
        for node in nodes
    )


def replay_selections(model: Path, proto: ModelProto, selections: Sequence[ReplayedSelection], folder: Path) -> Path:
    """Write a copy of a model in which these selections are inputs, to the new folder `folder`, and return its path.

    `proto` is the structure of the model.

    Raises:
        OSError: the data cannot be read, or the disk is full.
    """
    by_indices = {selection.indices: selection for selection in selections}
    copy = onnx.load(str(model), load_external_data=False)
    nodes = [*copy.graph.node]
    del copy.graph.node[:]
    for node in nodes:
        selection = next((by_indices[name] for name in node.output if name in by_indices), None)
        if selection is None:
            copy.graph.node.append(node)
            continue
        copy.graph.node.extend(_create_nodes(node, selection, _read_opset(copy)))
    for selection in selections:
        copy.graph.input.add(name=selection.replayed).type.tensor_type.elem_type = TensorProto.INT64
        for name in selection.added:
            copy.graph.output.add(name=name)
    _save_copy(copy, proto, model, folder)
    return folder / "model.onnx"


def _save_copy(copy: ModelProto, proto: ModelProto, model: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    onnx.save(copy, str(folder / "model.onnx"))
    link_data(proto, model, folder)


def _create_nodes(node: NodeProto, selection: ReplayedSelection, opset: int) -> Iterator[NodeProto]:
    """Yield the nodes that replace a selecting node."""
    make, own_indices, replayed = onnx.helper.make_node, selection.own_indices, selection.replayed
    own, scores = NodeProto(), selection.scores
    own.CopyFrom(node)
    if selection.operator == "NonMaxSuppression":
        flattened = {selection.flat_boxes: (selection.boxes, [-1, 4]), selection.values: (selection.scores, [-1])}
        for flat, (value, shape) in flattened.items():
            yield _create_constant(f"{flat} shape", shape)
            yield make("Reshape", [value, f"{flat} shape"], [flat])
        own.output[:] = [own_indices]  # no value depends on it
        yield own
        yield make("Identity", [replayed], [selection.indices])
        return
    gather, axis = "GatherElements", selection.axis
    if selection.operator == "TopK":
        own.output[:] = [selection.own, own_indices]
        yield own
    else:
        own.output[:] = [own_indices]
        kept = [attribute for attribute in own.attribute if attribute.name != "keepdims"]
        del own.attribute[:]
        own.attribute.extend(kept)
        yield own
        yield make(gather, [scores, own_indices], [selection.own], axis=axis)
    yield make(gather, [scores, replayed], [selection.values], axis=axis)
    if selection.operator == "TopK" and node.output[0]:
        yield make("Identity", [selection.values], [node.output[0]])
    if selection.keepdims:
        yield make("Identity", [replayed], [selection.indices])
    elif opset < MIN_OPSET_OF_AXES_INPUT:
        yield make("Squeeze", [replayed], [selection.indices], axes=[axis])
    else:
        yield _create_constant(f"{selection.own} axes", [axis])
        yield make("Squeeze", [replayed, f"{selection.own} axes"], [selection.indices])


def _create_constant(name: str, values: Sequence[int]) -> NodeProto:
    tensor = onnx.helper.make_tensor(name, TensorProto.INT64, [len(values)], values)
    return onnx.helper.make_node("Constant", [], [name], value=tensor)


@dataclass(frozen=True, slots=True)
class InlinedModel:
    """A copy of a model without some `If` nodes. It computes the same if their conditions have these values."""

    path: Path
    proto: ModelProto
    conditions: dict[str, bool]


def inline_suppressions(model: Path, proto: ModelProto, folder: Path) -> InlinedModel:
    """Inline the branches of `If` nodes that suppress boxes, in a copy of a model in the new folder `folder`.

    PyTorch exports `batched_nms` as such a node, whose other branch is for images without boxes. Return the model
    itself if it has no such nodes.

    Raises:
        OSError: the data cannot be read, or the disk is full.
    """
    chosen = _choose_branches(proto.graph)
    if not chosen:
        return InlinedModel(model, proto, {})
    copy = onnx.load(str(model), load_external_data=False)
    graph, nodes = copy.graph, [*copy.graph.node]
    used = {*(it.name for it in (*graph.input, *graph.initializer)), *(name for node in nodes for name in node.output)}
    del graph.node[:]
    for index, node in enumerate(nodes):
        if index not in chosen:
            graph.node.append(node)
            continue
        branch = _read_branch(node, chosen[index])
        names = {name: _choose_name(name, used) for name in _list_made(branch)}
        for tensor in branch.initializer:
            graph.initializer.add().CopyFrom(tensor)
            graph.initializer[-1].name = names[tensor.name]
        for inner in branch.node:
            added = graph.node.add()
            added.CopyFrom(inner)
            added.input[:] = [names.get(name, name) for name in inner.input]
            added.output[:] = [names.get(name, name) for name in inner.output]
        for value, name in zip(branch.output, node.output, strict=True):
            graph.node.append(onnx.helper.make_node("Identity", [names.get(value.name, value.name)], [name]))
    _save_copy(copy, proto, model, folder)
    conditions = {nodes[index].input[0]: is_taken for index, is_taken in chosen.items()}
    return InlinedModel(folder / "model.onnx", copy, conditions)


def _choose_branches(graph: GraphProto) -> dict[int, bool]:
    """Return the `If` nodes with a branch to inline, and whether that is the branch for a true condition.

    The branch suppresses boxes and has no subgraphs; the other branch does not.
    """
    computed = {name for node in graph.node for name in node.output}
    chosen: dict[int, bool] = {}
    by_condition: dict[str, bool] = {}
    for index, node in enumerate(graph.node):
        if node.op_type != "If" or node.input[0] not in computed:
            continue
        suppressing = [is_taken for is_taken in (True, False) if _suppresses(_read_branch(node, is_taken))]
        if len(suppressing) == 1 and by_condition.setdefault(node.input[0], suppressing[0]) == suppressing[0]:
            chosen[index] = suppressing[0]
    return {index: it for index, it in chosen.items() if not _has_subgraphs(_read_branch(graph.node[index], it))}


def _read_branch(node: NodeProto, is_taken: bool) -> GraphProto:
    name = "then_branch" if is_taken else "else_branch"
    return next((attribute.g for attribute in node.attribute if attribute.name == name), GraphProto())


def _suppresses(graph: GraphProto) -> bool:
    return _has_node(graph.node, {"NonMaxSuppression"})


def _has_subgraphs(graph: GraphProto) -> bool:
    return any(any(iter_node_subgraphs(node)) for node in graph.node)


def _list_made(graph: GraphProto) -> list[str]:
    """Return the names of the values that a graph defines."""
    made = [name for node in graph.node for name in node.output if name]
    return [*(tensor.name for tensor in graph.initializer), *made]


def _choose_name(name: str, used: set[str]) -> str:
    """Return an unused name, and mark it as used."""
    while name in used:
        name = f"{name} inlined"
    used.add(name)
    return name
