"""Axes of inputs that recurrent operators use as sequence or initial state. The operators determine their sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from onnxgate.inputs.axis_sizes import StateAxes, name_axes
from onnxgate.inputs.dataflow import DataflowGraph
from onnxgate.model.facts import ValueInfo
from onnxgate.model.reading.view import iter_node_subgraphs

if TYPE_CHECKING:
    from onnx import NodeProto

AxisKind = Literal["directions", "batch", "hidden", "time", "features", "other"]

STATE_INPUTS = {"LSTM": (0, 5, 6), "GRU": (0, 5), "RNN": (0, 5)}
"""For each operator, the indices of the sequence and of the initial states. Source: specifications of ONNX 1.21."""
_MAX_STEPS = 32
"""Maximum number of nodes between a model input and a recurrent operator."""
_SAME_AXES = frozenset({"Identity", "Cast", "Dropout", "Tanh", "Clip"})


@dataclass(slots=True)
class _Found:
    batch: dict[str, None] = field(default_factory=dict)
    sizes: dict[str, set[int]] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)


def find_state_axes(inputs: Sequence[ValueInfo], graph: DataflowGraph) -> StateAxes:
    """Return what recurrent operators require of the axes of the inputs that are their sequences or initial states."""
    named = {value.name: value for value in inputs}
    found = _Found()
    for node in graph.nodes(STATE_INPUTS):
        for position in STATE_INPUTS[node.op_type]:
            name = node.input[position] if position < len(node.input) else ""
            for origin, kinds in find_origins(name, _list_kinds(node, position), graph):
                value = named.get(origin)
                if value is not None and value.shape is not None and len(value.shape) == len(kinds):
                    _add_axes(value, kinds, _list_sizes(node, graph), found)
    sizes = {name: min(sizes) for name, sizes in found.sizes.items() if len(sizes) == 1}
    return StateAxes(tuple(found.batch), sizes, frozenset(found.others))


def _add_axes(value: ValueInfo, kinds: Sequence[AxisKind], required: Mapping[AxisKind, int], found: _Found) -> None:
    for dim, kind in zip(name_axes(value), kinds, strict=True):
        if isinstance(dim, int):
            continue
        if kind == "batch":
            found.batch[dim] = None
        else:
            found.others.add(dim)
            if kind in required:
                found.sizes.setdefault(dim, set()).add(required[kind])


def _list_kinds(node: NodeProto, position: int) -> tuple[AxisKind, ...]:
    """Return the axes of an input. With the attribute `layout` 1, the batch is the first axis."""
    first: AxisKind = "time" if position == 0 else "directions"
    last: AxisKind = "features" if position == 0 else "hidden"
    layout = next((attribute.i for attribute in node.attribute if attribute.name == "layout"), 0)
    return ("batch", first, last) if layout else (first, "batch", last)


def _list_sizes(node: NodeProto, graph: DataflowGraph) -> dict[AxisKind, int]:
    direction = next((attribute.s for attribute in node.attribute if attribute.name == "direction"), b"")
    hidden = next((int(attribute.i) for attribute in node.attribute if attribute.name == "hidden_size"), 0)
    features = (graph.dims(node.input[1]) or (0,))[-1]  # the weights have the shape (directions, rows, features)
    sizes: dict[AxisKind, int] = {"directions": 2 if direction == b"bidirectional" else 1}
    sizes |= {"hidden": hidden} if hidden > 0 else {}
    return sizes | {"features": features} if isinstance(features, int) and features > 0 else sizes


def find_origins(
    name: str, kinds: tuple[AxisKind, ...], graph: DataflowGraph, steps: int = _MAX_STEPS
) -> Iterator[tuple[str, tuple[AxisKind, ...]]]:
    """Yield the name and the axes of each value that a value is a part of, also through both branches of an `If`."""
    node = graph.producer(name)
    if node is not None and node.op_type == "If" and steps:
        position = list(node.output).index(name)
        for body in iter_node_subgraphs(node):
            if position < len(body.output):
                yield from find_origins(body.output[position].name, kinds, graph, steps // 2)
        return
    before = _undo(node, kinds, graph) if node is not None and node.input and steps else None
    if node is None or before is None:
        yield name, kinds
    else:
        yield from find_origins(node.input[0], before, graph, steps - 1)


def _undo(node: NodeProto, kinds: tuple[AxisKind, ...], graph: DataflowGraph) -> tuple[AxisKind, ...] | None:
    """Return the axes of the first input of a node whose output has the axes `kinds`; None if they are unknown."""
    rank, axes = len(kinds), list(_list_axes(node, graph))
    match node.op_type:
        case name if name in _SAME_AXES:
            return kinds
        case "Transpose":
            order = _list_ints(node, "perm") or list(reversed(range(rank)))
            return tuple(kinds[order.index(axis)] for axis in range(rank)) if sorted(order) == [*range(rank)] else None
        case "Unsqueeze" if axes:
            added = {axis % rank for axis in axes}
            return tuple(kind for axis, kind in enumerate(kinds) if axis not in added)
        case "Squeeze" if axes:
            return _insert(kinds, {axis % (rank + len(axes)) for axis in axes})
        case "Gather":
            axis = next(iter(_list_ints(node, "axis")), 0)
            is_single = graph.dims(node.input[1]) == ()
            return _insert(kinds, {axis % (rank + 1)}) if is_single else _replace(kinds, [axis])
        case "Split":
            return _replace(kinds, _list_ints(node, "axis") or [0])
        case "Slice":
            return _replace(kinds, axes)
    return None


def _insert(kinds: tuple[AxisKind, ...], added: set[int]) -> tuple[AxisKind, ...]:
    rest = iter(kinds)
    return tuple("other" if axis in added else next(rest) for axis in range(len(kinds) + len(added)))


def _replace(kinds: tuple[AxisKind, ...], axes: Sequence[int]) -> tuple[AxisKind, ...]:
    """Return the axes of a larger value, of which only a part was taken along `axes`; all axes if these are unknown."""
    cut = {axis % len(kinds) for axis in axes} if axes and kinds else set(range(len(kinds)))
    return tuple("other" if axis in cut else kind for axis, kind in enumerate(kinds))


def _list_axes(node: NodeProto, graph: DataflowGraph) -> Iterator[int]:
    """Yield the axes of an `Unsqueeze`, `Squeeze` or `Slice` node: an attribute in old opsets, then an input."""
    yield from _list_ints(node, "axes")
    position = 3 if node.op_type == "Slice" else 1
    if position < len(node.input):
        yield from map(int, graph.numbers(node.input[position]))


def _list_ints(node: NodeProto, name: str) -> list[int]:
    attribute = next((attribute for attribute in node.attribute if attribute.name == name), None)
    if attribute is None:
        return []
    return list(attribute.ints) or [int(attribute.i)]
