"""Outputs that depend on a selection of items: `TopK`, `NonMaxSuppression`, `NonZero`, `Compress` and `ArgMax`.

If two scores are nearly equal, rounding errors decide which item is selected, and in which order. Such outputs are
compared as sets of items.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from onnx import ModelProto, TensorProto

from onnxgate.core.process_pool import FailedCallError
from onnxgate.model.local_functions import inline_local_functions
from onnxgate.model.onnx_functions import OnnxError, ignore_error, infer_shapes
from onnxgate.model.reading.tensor_data import read_array
from onnxgate.model.reading.view import GraphView, ModelView, NodeView

SELECTING_OPERATORS = frozenset({"TopK", "NonMaxSuppression", "NonZero", "Compress"})
"""Operators whose outputs are lists of selected items."""
CHOOSING_OPERATORS = frozenset({"ArgMax", "ArgMin", "Hardmax"})
"""Operators that choose one of several elements at each position."""
_SHAPE_OPERATORS = frozenset({"Shape", "Size"})
_AXIS_PRESERVING_OPERATORS = frozenset(
    {
        *("Identity", "Cast", "CastLike", "Concat", "Slice", "Split", "Expand", "Where", "Clip", "Min", "Max", "Mod"),
        *(
            "Add",
            "Sub",
            "Mul",
            "Div",
            "Neg",
            "Abs",
            "Exp",
            "Log",
            "Sqrt",
            "Floor",
            "Ceil",
            "Round",
            "Sigmoid",
            "Softmax",
        ),
        *("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "And", "Or", "GatherElements"),
    }
)
"""Operators that keep the axis of the items, counted from the end."""


@dataclass(frozen=True, slots=True)
class RankedOutputs:
    """Outputs that list the same items, such as the boxes, scores and labels of detections.

    `axes` maps each output to the axis of the items, counted from the end; None if it is unknown. If `positional`, the
    outputs do not list items, but their elements depend on a selection. `is_ordered` is False if a selection lists its
    items in any order.
    """

    axes: Mapping[str, int | None]
    positional: bool = False
    is_ordered: bool = True


@dataclass(frozen=True, slots=True)
class _Selection:
    """The selections that a value depends on, and the axis of the items, counted from the end."""

    origins: frozenset[int]  # indices of nodes
    axis: int | None
    positional: bool = False


def find_ranked_outputs(model: ModelView) -> tuple[RankedOutputs, ...]:
    """Find the outputs that depend on a selection, and group those that list the same items."""
    if not any(node.operator[1] in SELECTING_OPERATORS | CHOOSING_OPERATORS for node in model.nodes()):
        return ()
    model = inline_local_functions(model)
    graph = _SelectionFlow(model)
    selections = {
        output.name: graph.selections[output.name]
        for output in model.proto.graph.output
        if output.name in graph.selections
    }
    listed = {name: it for name, it in selections.items() if not it.positional}
    positional = tuple(name for name, it in selections.items() if it.positional)
    unsorted = {index for index, node in enumerate(model.graphs[0].nodes) if _is_unsorted(node)}
    return (*_group(listed, unsorted), *(RankedOutputs({name: None}, positional=True) for name in positional))


def _is_unsorted(node: NodeView) -> bool:
    return node.operator[1] == "TopK" and _read_int(node, "sorted", 1) == 0


def _group(selections: Mapping[str, _Selection], unsorted: Collection[int]) -> Iterator[RankedOutputs]:
    """Group the outputs that depend on a common selection."""
    groups: list[tuple[set[int], dict[str, int | None]]] = []
    for name, selection in selections.items():
        joined = [group for group in groups if group[0] & selection.origins]
        origins = set(selection.origins).union(*(group[0] for group in joined))
        axes = {key: axis for group in joined for key, axis in group[1].items()}
        groups = [*(group for group in groups if group not in joined), (origins, {**axes, name: selection.axis})]
    return (RankedOutputs(axes, is_ordered=origins.isdisjoint(unsorted)) for origins, axes in groups)


class _SelectionFlow:
    """Follows selections through the nodes of the main graph."""

    def __init__(self, model: ModelView) -> None:
        graph = model.graphs[0]
        self.selections: dict[str, _Selection] = {}
        self._shapes = _infer_shapes(model.proto)
        self._constants = dict(_read_constants(graph))
        self._computed = {value.name for value in graph.proto.input} - {it.name for it in graph.proto.initializer}
        for index, node in enumerate(graph.nodes):
            if node.operator[1] not in _SHAPE_OPERATORS and not self._computed.isdisjoint(_list_read(node)):
                self._computed.update(filter(None, node.outputs))
                self._follow(index, node)

    def _follow(self, index: int, node: NodeView) -> None:
        selection = self._select(index, node) or self._carry(node)
        if selection is not None:
            self.selections.update(dict.fromkeys(filter(None, node.outputs), selection))

    def _select(self, index: int, node: NodeView) -> _Selection | None:
        """Return the selection that a node makes."""
        origins = frozenset({index})
        match node.operator[1]:
            case "TopK":
                return _Selection(origins, self._from_end(node.inputs[0], _read_int(node, "axis", -1)))
            case "NonMaxSuppression":
                return _Selection(origins, -2)
            case "NonZero":
                return _Selection(origins, -1)
            case "Compress":
                axis = _read_int(node, "axis", None)
                return _Selection(origins, -1 if axis is None else self._from_end(node.inputs[0], axis))
            case "ArgMax" | "ArgMin" | "Hardmax" if not self._inputs(node):
                return _Selection(origins, None, positional=True)
            case _ if node.graphs and any(map(_contains_selection, node.graphs)):
                return _Selection(origins, None)
        return None

    def _inputs(self, node: NodeView) -> list[tuple[int, _Selection]]:
        """Return the inputs that depend on a selection, by position; -1 for values that only subgraphs use."""
        captured = sorted(_list_read(node) - {*node.inputs})
        named = [*enumerate(node.inputs), *((-1, name) for name in captured)]
        return [(position, self.selections[name]) for position, name in named if name in self.selections]

    def _carry(self, node: NodeView) -> _Selection | None:
        """Return the selection that the outputs of a node inherit from its inputs."""
        inputs = self._inputs(node)
        if not inputs:
            return None
        operator, index = node.operator[1], dict(inputs).get(1)
        if operator in ("Gather", "GatherElements", "GatherND") and index is not None:
            return self._gather(node, index)
        axes = {selection.axis for _, selection in inputs} - {None}
        merged = _Selection(
            origins=frozenset().union(*(selection.origins for _, selection in inputs)),
            axis=axes.pop() if len(axes) == 1 else None,
            positional=all(selection.positional for _, selection in inputs),
        )
        if operator in _AXIS_PRESERVING_OPERATORS:
            return merged
        move = _AXIS_MOVES.get(operator)
        return replace(merged, axis=None) if move is None else move(self, node, merged)

    def _gather(self, node: NodeView, index: _Selection) -> _Selection:
        """Return the selection of values that are gathered by selected indices."""
        if index.positional or index.axis is None or node.operator[1] == "GatherElements":
            return index
        at = self._from_end(node.inputs[0], _read_int(node, "axis", 0)) if node.operator[1] == "Gather" else None
        return replace(index, axis=None if at is None else index.axis + at + 1)

    def _rank(self, name: str) -> int | None:
        shape = self._shapes.get(name)
        return None if shape is None else len(shape)

    def _first_axis(self, name: str) -> int | None:
        rank = self._rank(name)
        return None if rank is None else -rank

    def _from_end(self, name: str, axis: int | None) -> int | None:
        """Return an axis of a value, counted from the end."""
        rank = self._rank(name)
        if axis is None or axis < 0:
            return axis
        return None if rank is None else axis - rank

    # Operators that move the axis of the items

    def _transpose(self, node: NodeView, selection: _Selection) -> _Selection:
        perm, axis = _read_ints(node, "perm"), selection.axis
        if axis is None or len(perm) < -axis:
            return replace(selection, axis=None)
        return replace(selection, axis=perm.index(len(perm) + axis) - len(perm))

    def _unsqueeze(self, node: NodeView, selection: _Selection) -> _Selection:
        axes, rank = self._read_axes(node), self._rank(node.inputs[0])
        if axes is None or rank is None or selection.axis is None:
            return replace(selection, axis=None)
        new_rank = rank + len(axes)
        added = {axis % new_rank for axis in axes}
        kept = [axis for axis in range(new_rank) if axis not in added]
        return replace(selection, axis=kept[selection.axis] - new_rank)

    def _remove_axes(self, node: NodeView, selection: _Selection) -> _Selection:
        """Follow `Squeeze` and reductions: an output without the axis of the items does not list items."""
        axes, rank = self._read_axes(node), self._rank(node.inputs[0])
        if selection.axis is None or rank is None or axes is None:
            is_count = node.operator[1] == "ReduceSum"
            return replace(selection, axis=None, positional=selection.positional or is_count)
        removed = {axis % rank for axis in axes}
        if rank + selection.axis in removed:
            return replace(selection, axis=None, positional=True)
        if node.operator[1] != "Squeeze" and _read_int(node, "keepdims", 1):
            return selection
        return replace(selection, axis=selection.axis + sum(axis > rank + selection.axis for axis in removed))

    def _read_axes(self, node: NodeView) -> Sequence[int] | None:
        if node.operator[1] in CHOOSING_OPERATORS:
            return [_read_int(node, "axis", 0) or 0]
        if len(node.inputs) > 1 and node.inputs[1]:
            return self._constants.get(node.inputs[1])
        return _read_ints(node, "axes") or None


_AXIS_MOVES: dict[str, Callable[[_SelectionFlow, NodeView, _Selection], _Selection]] = {
    "Transpose": _SelectionFlow._transpose,
    "Unsqueeze": _SelectionFlow._unsqueeze,
    **dict.fromkeys(
        ("Squeeze", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ArgMax", "ArgMin"),
        _SelectionFlow._remove_axes,
    ),
}


def _infer_shapes(proto: ModelProto) -> dict[str, tuple[int, ...]]:
    """Return the shape of each value whose rank is known; unknown sizes are 0.

    Calls to local functions are not followed: they are inlined, or too many.
    """
    if proto.functions:
        copy = ModelProto()
        copy.CopyFrom(proto)
        proto = copy
        proto.ClearField("functions")
    try:
        proto = infer_shapes(proto, data_prop=True)
    except (OnnxError, FailedCallError) as error:
        ignore_error(error)
    graph = proto.graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.value_info, *graph.output, *graph.input):
        if value.type.tensor_type.HasField("shape"):
            shapes[value.name] = tuple(max(dim.dim_value, 0) for dim in value.type.tensor_type.shape.dim)
    return shapes


def _read_constants(graph: GraphView) -> Iterator[tuple[str, list[int]]]:
    """Yield the small constants of a graph that contain integers."""
    named = [(tensor.name, tensor) for tensor in graph.proto.initializer]
    for node in graph.nodes:
        if node.operator[1] == "Constant" and node.attributes and node.attributes[0].name == "value":
            named.append((node.outputs[0], node.attributes[0].t))
    for name, tensor in named:
        is_list = tensor.data_type == TensorProto.INT64 and len(tensor.dims) <= 1
        array = read_array(tensor) if is_list else None
        if array is not None:
            yield name, [int(value) for value in array.flat]


def _contains_selection(graph: GraphView) -> bool:
    return any(node.operator[1] in SELECTING_OPERATORS for node in graph.all_nodes())


def _list_read(node: NodeView) -> set[str]:
    """Return the names of the values that a node and its subgraphs use."""
    inner = (name for graph in node.graphs for it in graph.all_nodes() for name in it.inputs)
    outputs = (value.name for graph in node.graphs for value in graph.proto.output)
    return {*filter(None, node.inputs), *filter(None, inner), *outputs}


def _read_int(node: NodeView, name: str, default: int | None) -> int | None:
    return next((int(attribute.i) for attribute in node.attributes if attribute.name == name), default)


def _read_ints(node: NodeView, name: str) -> tuple[int, ...]:
    return next((tuple(attribute.ints) for attribute in node.attributes if attribute.name == name), ())
