"""Inputs that decide shapes, axes or sizes of a node: the values that fit the shapes which the file declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from onnxgate.inputs.axis_sizes import evaluate_formula
from onnxgate.inputs.dataflow import DataflowGraph, ValueUse

Shape = tuple[int, ...]
ControlValues = tuple[float, ...]

REDUCTION_OPERATORS = tuple(
    f"Reduce{kind}" for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
)
MAX_TRIED_AXES = 6
"""Of so many axes at most it is tried which of them fit."""

MAX_CONTROL_VALUES = 1 << 20
"""Nothing that decides shapes, axes or sizes has more values."""
BEYOND_ANY_AXIS = 1 << 31
"""Beyond the end of any axis."""


@dataclass(frozen=True, slots=True)
class FixedValues:
    """The values themselves, in the order of memory."""

    values: ControlValues


@dataclass(frozen=True, slots=True)
class NodeShapes:
    """A node whose input decides something: its data's shape, its output's, and how many values there must be.

    A shape is None where the file does not declare it.
    """

    use: ValueUse
    taken: Shape | None
    given: Shape | None
    count: int
    others: tuple[Shape | None, ...]  # the shapes of all outputs
    past: Shape | None = None  # the shape of the fourth input


def find_control_values(
    use: ValueUse, graph: DataflowGraph, count: int, sizes: Mapping[str, int]
) -> FixedValues | None:
    """The values of an input of `count` elements that decides something of a node; None where they cannot be told."""
    find = _CONTROL_FINDERS.get((use.operator, use.position))
    if find is None or use.offset or use.scale != 1 or not use.node.output or count > MAX_CONTROL_VALUES:
        return None
    outputs = tuple(_resolve_shape(graph, name, sizes) for name in use.node.output)
    data, past = (_resolve_shape(graph, use.other(position), sizes) for position in (0, 3))
    values = find(NodeShapes(use, data, outputs[0], count, outputs, past))
    return FixedValues(tuple(values)) if values is not None and len(values) == count else None


def _resolve_shape(graph: DataflowGraph, name: str, sizes: Mapping[str, int]) -> Shape | None:
    dims = graph.dims(name)
    if dims is None:
        return None
    sizes_of_dims = [dim if isinstance(dim, int) else sizes.get(dim, evaluate_formula(dim, sizes)) for dim in dims]
    return None if "?" in dims else tuple(sizes_of_dims)


def _get_declared_shape(around: NodeShapes) -> Sequence[float] | None:
    return around.given


def _find_reduced_axes(around: NodeShapes) -> Sequence[float] | None:
    """The axes without which the data have the output's shape."""
    data, output = around.taken, around.given
    if data is None or output is None or not around.count <= len(data) <= MAX_TRIED_AXES:
        return None
    keeps = around.use.attribute("keepdims", 1)
    for axes in combinations(range(len(data)), around.count):
        if keeps and output == tuple(1 if axis in axes else size for axis, size in enumerate(data)):
            return axes
        if not keeps and output == tuple(size for axis, size in enumerate(data) if axis not in axes):
            return axes
    return None


def _find_squeezed_axes(around: NodeShapes) -> Sequence[float] | None:
    data = around.taken
    return None if data is None else [axis for axis, size in enumerate(data) if size == 1][: around.count]


def _find_unsqueezed_axes(around: NodeShapes) -> Sequence[float] | None:
    """The axes of 1 that the output has more than the data; the first ones where the file does not declare it."""
    output = around.given
    if output is None:
        return range(around.count)
    return [axis for axis, size in enumerate(output) if size == 1][: around.count]


def _find_split_sizes(around: NodeShapes) -> Sequence[float] | None:
    axis = around.use.attribute("axis")
    if any(shape is None for shape in around.others):
        return None
    return [shape[axis] for shape in around.others if shape]


def _find_scale_factors(around: NodeShapes) -> Sequence[float] | None:
    """How much larger the output is than the data, along each axis that is named."""
    data, output = around.taken, around.given
    if data is None or output is None or len(data) != len(output):
        return None
    pairs = list(zip(data, output, strict=True))
    chosen = [int(axis) for axis in around.use.listed("axes")] or range(len(pairs))
    return [pairs[axis][1] / pairs[axis][0] for axis in chosen if pairs[axis][0]]


def _find_resized_sizes(around: NodeShapes) -> Sequence[float] | None:
    output = around.given
    if output is None:
        return None
    chosen = [int(axis) for axis in around.use.listed("axes")] or range(len(output))
    return [output[axis] for axis in chosen]


def _get_full_region(around: NodeShapes) -> Sequence[float] | None:
    """The region that is all of the data: starts, then ends."""
    half = around.count // 2
    return [*[0.0] * half, *[1.0] * half]


def _find_padding(around: NodeShapes) -> Sequence[float] | None:
    """All that is added, at the end of each axis."""
    data, output = around.taken, around.given
    if data is None or output is None or len(data) != len(output) or around.count != 2 * len(data):
        return None
    return [*[0] * len(data), *(new - old for old, new in zip(data, output, strict=True))]


def _get_first_axes(around: NodeShapes) -> Sequence[float] | None:
    return range(around.count)


def _make_zeros(around: NodeShapes) -> Sequence[float] | None:
    return [0] * around.count


def _make_ones(around: NodeShapes) -> Sequence[float] | None:
    return [1] * around.count


def _find_slice_ends(around: NodeShapes) -> Sequence[float] | None:
    """As many places as the output has; all where the file does not declare it."""
    if around.given is None or len(around.given) < around.count:
        return [BEYOND_ANY_AXIS] * around.count
    return around.given[: around.count]


def _find_one_hot_depth(around: NodeShapes) -> Sequence[float] | None:
    """The size of the axis that the output has more than the indices."""
    axis = around.use.attribute("axis", -1)
    return None if around.given is None else [around.given[axis]] * around.count


def _find_cache_lengths(around: NodeShapes) -> Sequence[float] | None:
    """How many keys an attention sees in all: those of its cache and the new ones; its lengths are one less."""
    past, new = around.past, around.taken
    if past is None or new is None or len(past) != 4 or len(new) != 3:
        return None
    return [past[2] + new[1] - (1 if around.use.position == 5 else 0)] * around.count


_CONTROL_FINDERS: dict[tuple[str, int], Callable[[NodeShapes], Sequence[float] | None]] = {
    ("Reshape", 1): _get_declared_shape,
    ("AffineGrid", 1): lambda around: (around.given[0], 3, *around.given[1:-1]) if around.given else None,
    **{(name, 1): _find_reduced_axes for name in REDUCTION_OPERATORS},
    ("Squeeze", 1): _find_squeezed_axes,
    ("Unsqueeze", 1): _find_unsqueezed_axes,
    ("Split", 1): _find_split_sizes,
    ("Resize", 1): _get_full_region,
    ("Resize", 2): _find_scale_factors,
    ("Upsample", 1): _find_scale_factors,
    ("Resize", 3): _find_resized_sizes,
    ("CumSum", 1): _make_zeros,
    ("CumProd", 1): _make_zeros,
    ("Slice", 1): _make_zeros,
    ("Slice", 2): _find_slice_ends,
    ("Slice", 3): _get_first_axes,
    ("Slice", 4): _make_ones,
    ("Pad", 1): _find_padding,
    ("Pad", 3): _get_first_axes,
    ("CenterCropPad", 1): _find_resized_sizes,
    ("OneHot", 1): _find_one_hot_depth,
    ("com.microsoft.GroupQueryAttention", 5): _find_cache_lengths,
    ("com.microsoft.GroupQueryAttention", 6): _find_cache_lengths,
}
