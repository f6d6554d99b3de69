"""Values for inputs that determine shapes, axes or sizes of a node, derived from the declared shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from onnxgate.inputs.axis_sizes import find_dim
from onnxgate.inputs.dataflow import DataflowGraph, ValueUse

Shape = tuple[int, ...]

REDUCTION_OPERATORS = tuple(
    f"Reduce{kind}" for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
)
MAX_TRIED_AXES = 6
"""Maximum rank of a tensor for which each combination of axes is tried to find the axes that a node reduces."""

MAX_CONTROL_VALUES = 1 << 20
"""Maximum number of values in a model input that determines shapes, axes or sizes."""
BEYOND_ANY_AXIS = 1 << 31
"""A slice end beyond the end of any axis, so that the slice contains all remaining elements."""


@dataclass(frozen=True, slots=True)
class FixedValues:
    """The only values that are valid for a model input, in memory order."""

    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class NodeShapes:
    """A node, the shapes of its data and outputs, and the number of values to derive for one of its inputs.

    A shape is None if the model does not declare it.
    """

    use: ValueUse
    data: Shape | None
    output: Shape | None
    count: int
    outputs: tuple[Shape | None, ...]  # shapes of all outputs
    cache: Shape | None = None  # shape of the fourth input


def find_control_values(
    use: ValueUse, graph: DataflowGraph, count: int, sizes: Mapping[str, int]
) -> FixedValues | None:
    """Return the `count` values of an input that determines a shape; None if they cannot be derived."""
    find = _CONTROL_FINDERS.get((use.operator, use.position))
    if find is None or use.value.offset or use.value.scale != 1 or not use.node.output or count > MAX_CONTROL_VALUES:
        return None
    outputs = tuple(_resolve_shape(graph, name, sizes) for name in use.node.output)
    data, cache = (_resolve_shape(graph, use.input_name(position), sizes) for position in (0, 3))
    values = find(NodeShapes(use, data, outputs[0], count, outputs, cache))
    return FixedValues(tuple(values)) if values is not None and len(values) == count else None


def _resolve_shape(graph: DataflowGraph, name: str, sizes: Mapping[str, int]) -> Shape | None:
    """Return the declared shape of a value; None if the size of an axis is unknown."""
    shape = [find_dim(dim, sizes) for dim in graph.dims(name) or ()]
    is_known = graph.dims(name) is not None and None not in shape
    return tuple(size for size in shape if size is not None) if is_known else None


def _find_reduced_axes(node: NodeShapes) -> Sequence[float] | None:
    """Return the axes that a node must reduce to get the output shape from the data shape."""
    data, output = node.data, node.output
    if data is None or output is None or not node.count <= len(data) <= MAX_TRIED_AXES:
        return None
    keeps = node.use.attribute("keepdims", 1)
    for axes in combinations(range(len(data)), node.count):
        if keeps and output == tuple(1 if axis in axes else size for axis, size in enumerate(data)):
            return axes
        if not keeps and output == tuple(size for axis, size in enumerate(data) if axis not in axes):
            return axes
    return None


def _find_unsqueezed_axes(node: NodeShapes) -> Sequence[float] | None:
    """Return the axes of size 1 in the output shape; if the shape is not declared, return the first axes."""
    return range(node.count) if node.output is None else _find_unit_axes(node.output, node.count)


def _find_unit_axes(shape: Shape, count: int) -> Sequence[float]:
    return [axis for axis, size in enumerate(shape) if size == 1][:count]


def _find_split_sizes(node: NodeShapes) -> Sequence[float] | None:
    axis = node.use.attribute("axis")
    if any(shape is None for shape in node.outputs):
        return None
    return [shape[axis] for shape in node.outputs if shape]


def _find_scale_factors(node: NodeShapes) -> Sequence[float] | None:
    """Return the ratio of output size to data size for each resized axis.

    These are the axes in the attribute `axes` or, by default, all axes.
    """
    data, output = node.data, node.output
    if data is None or output is None or len(data) != len(output):
        return None
    pairs = list(zip(data, output, strict=True))
    chosen = [int(axis) for axis in node.use.listed("axes")] or range(len(pairs))
    return [pairs[axis][1] / pairs[axis][0] for axis in chosen if pairs[axis][0]]


def _find_resized_sizes(node: NodeShapes) -> Sequence[float] | None:
    output = node.output
    if output is None:
        return None
    chosen = [int(axis) for axis in node.use.listed("axes")] or range(len(output))
    return [output[axis] for axis in chosen]


def _get_full_region(node: NodeShapes) -> Sequence[float] | None:
    """Return the region of interest of a `Resize` node that covers all data: first the starts, then the ends."""
    half = node.count // 2
    return [*[0.0] * half, *[1.0] * half]


def _find_padding(node: NodeShapes) -> Sequence[float] | None:
    """Return the padding at the end of each axis that results in the output shape."""
    data, output = node.data, node.output
    if data is None or output is None or len(data) != len(output) or node.count != 2 * len(data):
        return None
    return [*[0] * len(data), *(new - old for old, new in zip(data, output, strict=True))]


def _find_slice_ends(node: NodeShapes) -> Sequence[float] | None:
    """Return the ends of a slice, taken from the output shape; if it is not declared, return ends beyond any axis."""
    if node.output is None or len(node.output) < node.count:
        return [BEYOND_ANY_AXIS] * node.count
    return node.output[: node.count]


def _find_one_hot_depth(node: NodeShapes) -> Sequence[float] | None:
    """Return the depth of a `OneHot` node: the size of the axis that it adds to the output."""
    axis = node.use.attribute("axis", -1)
    return None if node.output is None else [node.output[axis]] * node.count


def _find_cache_lengths(node: NodeShapes) -> Sequence[float] | None:
    """Return the total number of cached and new keys of an attention node; for input 5, return this number minus 1."""
    cache, new = node.cache, node.data
    if cache is None or new is None or len(cache) != 4 or len(new) != 3:
        return None
    return [cache[2] + new[1] - (1 if node.use.position == 5 else 0)] * node.count


_CONTROL_FINDERS: dict[tuple[str, int], Callable[[NodeShapes], Sequence[float] | None]] = {
    ("Reshape", 1): lambda node: node.output,
    ("AffineGrid", 1): lambda node: (node.output[0], 3, *node.output[1:-1]) if node.output else None,
    **{(name, 1): _find_reduced_axes for name in REDUCTION_OPERATORS},
    ("Squeeze", 1): lambda node: None if node.data is None else _find_unit_axes(node.data, node.count),
    ("Unsqueeze", 1): _find_unsqueezed_axes,
    ("Split", 1): _find_split_sizes,
    ("Resize", 1): _get_full_region,
    ("Resize", 2): _find_scale_factors,
    ("Upsample", 1): _find_scale_factors,
    ("Resize", 3): _find_resized_sizes,
    ("CumSum", 1): lambda node: [0] * node.count,
    ("CumProd", 1): lambda node: [0] * node.count,
    ("Slice", 1): lambda node: [0] * node.count,
    ("Slice", 2): _find_slice_ends,
    ("Slice", 3): lambda node: range(node.count),
    ("Slice", 4): lambda node: [1] * node.count,
    ("Pad", 1): _find_padding,
    ("Pad", 3): lambda node: range(node.count),
    ("CenterCropPad", 1): _find_resized_sizes,
    ("OneHot", 1): _find_one_hot_depth,
    ("com.microsoft.GroupQueryAttention", 5): _find_cache_lengths,
    ("com.microsoft.GroupQueryAttention", 6): _find_cache_lengths,
}
