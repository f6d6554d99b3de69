"""Nodes with inputs that determine the size of their outputs, and checks whether these inputs are valid."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onnxgate.inputs.branches import Evaluation, Shape
from onnxgate.inputs.scopes import Scope, resolve
from onnxgate.inputs.shape_inputs import REDUCTION_OPERATORS
from onnxgate.model.facts import count_elements
from onnxgate.model.reading.view import NodeView

MAX_SHAPE_ELEMENTS = 8
"""Maximum number of elements of a shape that are read."""
MAX_PARTS = 8
"""Maximum number of consecutive nodes that take a part of a value, or join values, and are followed."""
MAX_SIZE = 4096
"""Maximum size of an axis."""
MAX_SMALL_SIZE = 64
"""Maximum size of an axis that is resized by more than `MAX_FACTOR`."""
MAX_FACTOR = 4
"""Maximum scale factor, padding or number of repetitions."""
MIN_RANGE = 2
"""Minimum number of elements of a `Range`. The only element of a shorter one may be 0."""
MAX_RANGE = 1 << 16
"""Maximum number of elements of a `Range`."""
MAX_COUNT = 1 << 22
"""Maximum number of elements of a value of a computed size."""

JOINING_OPERATORS = frozenset(("Cast", "Concat", "Identity"))
"""Operators whose result has known elements if some elements of their inputs are known."""

Elements = Sequence[float | None]
"""Elements of a value. None stands for one that cannot be computed."""


@dataclass(frozen=True, slots=True)
class SizedNode:
    """A node with inputs that determine the size of its output, and the evaluation of the model.

    `output` is the declared shape of its first output. `depth` is the number of nodes that take further parts of it.
    """

    node: NodeView
    scope: Scope
    evaluation: Evaluation
    output: Elements = ()
    depth: int = 0

    @property
    def data(self) -> Shape | None:
        """Shape of the first input of the node, also if it is a part of a value of a known shape."""
        if not self.node.inputs:
            return None
        shape = self.evaluation.shape(self.node.inputs[0], self.scope)
        found = resolve(self.node.inputs[0], self.scope) if shape is None else None
        source = found.producers.get(self.node.inputs[0]) if found is not None else None
        if found is None or source is None or source.operator[1] != "Slice" or self.depth == MAX_PARTS:
            return shape
        part = _find_slices(SizedNode(source, found, self.evaluation, depth=self.depth + 1))
        return None if part is None else tuple(map(len, part))

    def attribute(self, name: str, default: int = 0) -> int:
        """Return the value of an integer attribute."""
        return next((int(it.i) for it in self.node.attributes if it.name == name), default)

    def has_attribute(self, name: str) -> bool:
        """Return whether the node has an attribute."""
        return any(it.name == name for it in self.node.attributes)

    def elements(self, position: int) -> Elements:
        """Return the elements of an input of the node; empty if even their number is unknown."""
        name = self.node.inputs[position] if position < len(self.node.inputs) else ""
        return self._elements(name, self.scope, 0) if name else ()

    def _elements(self, name: str, scope: Scope, depth: int) -> Elements:
        value = self.evaluation.value(name, scope)
        if value is not None:
            numbers = value.reshape(-1)[:MAX_SHAPE_ELEMENTS].tolist() if value.dtype.kind in "biuf" else []
            return [float(number) for number in numbers]
        found = resolve(name, scope)
        node = found.producers.get(name) if found is not None else None
        if found is not None and node is not None and node.operator[1] in JOINING_OPERATORS:
            inputs = node.inputs[:MAX_SHAPE_ELEMENTS] if depth < MAX_PARTS // 2 else ()
            joined = [element for it in inputs for element in self._elements(it, found, depth + 1)]
            return joined[:MAX_SHAPE_ELEMENTS]
        shape = self.evaluation.shape(name, scope)
        return [None] * min(count_elements(shape), MAX_SHAPE_ELEMENTS) if shape is not None else ()


def list_size_positions(node: NodeView) -> tuple[int, ...]:
    """Return the positions of the inputs of a node that determine sizes."""
    positions, _ = _CHECKS.get(node.operator[1], ((), None))
    return tuple(at for at in positions if at < len(node.inputs))


def count_faults(node: SizedNode) -> int:
    """Return the number of invalid elements among the sizes of a node.

    Those that differ from declared sizes count twice, so that they are corrected first.
    """
    operator = node.node.operator[1]
    sizes = node.elements(_OUTPUT_SIZES[operator]) if operator in _OUTPUT_SIZES else ()
    pairs = zip(sizes, node.output, strict=True) if len(sizes) == len(node.output) else ()
    differing = sum(None not in pair and pair[0] not in (-1, 0, pair[1]) for pair in pairs)
    return 2 * differing + _CHECKS[operator][1](node)


def _count_outside(elements: Elements, low: float, high: float) -> int:
    return sum(element is not None and not low <= element <= high for element in elements)


def _is_large(elements: Elements) -> bool:
    return math.prod(abs(element or 1) for element in elements) > MAX_COUNT


def _check_sizes(*positions: int) -> Callable[[SizedNode], int]:
    """Return a check of inputs whose elements are sizes or counts."""

    def check(node: SizedNode) -> int:
        lists = [node.elements(at) for at in positions]
        return sum(_count_outside(elements, 1, MAX_SIZE) + _is_large(elements) for elements in lists)

    return check


def _check_resize(node: SizedNode) -> int:
    """Count invalid sizes and factors of `Resize`. The batch and channel axes of an image keep their sizes."""
    data = node.data
    scales, sizes = (node.elements(at) for at in (2, 3))
    faults = _count_outside(scales, 1 / MAX_FACTOR, MAX_FACTOR) + _count_outside(sizes, 1, MAX_SIZE)
    if data is None or len(data) < 3 or node.has_attribute("axes"):
        return faults + _is_large(sizes)
    for index, size in enumerate(data):
        scale, resized = (it[index] if len(it) == len(data) else None for it in (scales, sizes))
        if index < 2:
            faults += scale not in (None, 1) or resized not in (None, size)
        elif scale:
            faults += size * scale < 1
        elif resized:
            faults += resized > max(MAX_FACTOR * size, MAX_SMALL_SIZE)
    return faults


def _check_upsample(node: SizedNode) -> int:
    return _count_outside(node.elements(1), 1, MAX_FACTOR)


def _check_reshape(node: SizedNode) -> int:
    sizes, data = node.elements(1), node.data
    faults = _count_outside(sizes, -1, MAX_SIZE)
    if faults or data is None or not sizes or None in sizes:
        return faults
    known = [float(it) for it in sizes if it is not None]
    if not node.attribute("allowzero"):
        known = [it or (data[at] if at < len(data) else 0) for at, it in enumerate(known)]
    product, count = math.prod(it for it in known if it >= 0), count_elements(data)
    fits = product and not count % product if -1 in known else product == count
    return int(known.count(-1) > 1 or not fits)


def _check_expand(node: SizedNode) -> int:
    sizes, data = node.elements(1), node.data
    faults = _count_outside(sizes, 1, MAX_SIZE) + _is_large(sizes)
    pairs = zip(reversed(sizes), reversed(data or ()), strict=False)
    return faults + sum(it is not None and 1 not in (it, size) and it != size for it, size in pairs)


def _check_tile(node: SizedNode) -> int:
    repeats = node.elements(1)
    return _count_outside(repeats, 1, MAX_FACTOR) + _is_large([*repeats, *(node.data or ())])


def _check_range(node: SizedNode) -> int:
    bounds = [node.elements(at) for at in range(3)]
    if any(len(it) != 1 or it[0] is None for it in bounds):
        return 0
    start, limit, step = (it[0] or 0.0 for it in bounds)
    count = (limit - start) / step if step else math.nan
    return int(not MIN_RANGE <= count <= MAX_RANGE)


def _check_loop(node: SizedNode) -> int:
    return _count_outside(node.elements(0), 1, MAX_FACTOR)


def _check_top_k(node: SizedNode) -> int:
    data, axis = node.data, node.attribute("axis", -1)
    limit = data[axis] if data and -len(data) <= axis < len(data) else 1
    return _count_outside(node.elements(1), 1, limit)


def _check_gather(node: SizedNode) -> int:
    data, axis = node.data, node.attribute("axis")
    size = data[axis] if data and -len(data) <= axis < len(data) else 1
    return _count_outside(node.elements(1), -size, size - 1)


def _find_slices(node: SizedNode) -> list[range] | None:
    """Return the elements of each axis that a `Slice` node selects; None if this is unknown."""
    starts, ends, axes, steps = (node.elements(at) for at in range(1, 5))
    data = node.data
    if data is None or len(starts) != len(ends) or None in (*starts, *ends, *axes, *steps):
        return None
    parts = [range(size) for size in data]
    for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis = int(axes[index] or 0) if index < len(axes) else index
        step = int(steps[index] or 0) if index < len(steps) else 1
        if not step or not -len(data) <= axis < len(data):
            return None
        parts[axis] = parts[axis][int(start or 0) : int(end or 0) : step]
    return parts


def _check_slice(node: SizedNode) -> int:
    """Count the axes of which a slice has no elements."""
    parts = _find_slices(node)
    if parts is not None:
        return sum(not part for part in parts)
    starts, ends, _, steps = (node.elements(at) for at in range(1, 5))
    bounds = [(start, end) for start, end in zip(starts, ends, strict=False) if start is not None and end is not None]
    faults = sum(not 0 <= start < end for start, end in bounds if end >= 0)
    return faults + sum(end == 0 for end in ends) + sum(step == 0 for step in steps)


def _check_split(node: SizedNode) -> int:
    sizes, data, axis = node.elements(1), node.data, node.attribute("axis")
    faults = _count_outside(sizes, 1, MAX_SIZE)
    if data is None or not -len(data) <= axis < len(data) or not sizes or None in sizes:
        return faults
    return faults + (sum(it or 0 for it in sizes) != data[axis])


def _check_pad(node: SizedNode) -> int:
    sizes, data = node.elements(1), node.data
    if not node.has_attribute("mode") or data is None or len(sizes) != 2 * len(data):
        return _count_outside(sizes, 0, MAX_SIZE) + _check_axes(3)(node)
    return sum(it is not None and not 0 <= it < max(size, 1) for it, size in zip(sizes, (*data, *data), strict=True))


def _check_affine_grid(node: SizedNode) -> int:
    sizes, data = node.elements(1), node.data
    differs = bool(sizes and data) and sizes[0] not in (None, (data or (0,))[0])
    return _check_sizes(1)(node) + differs


def _check_axes(position: int) -> Callable[[SizedNode], int]:
    """Return a check of an input that contains axes."""

    def check(node: SizedNode) -> int:
        rank = len(node.data) if node.data is not None else 1
        return _count_outside(node.elements(position), -rank, rank - 1)

    return check


_CHECKS: dict[str, tuple[tuple[int, ...], Callable[[SizedNode], int]]] = {
    "Resize": ((2, 3), _check_resize),
    "Upsample": ((1,), _check_upsample),
    "Reshape": ((1,), _check_reshape),
    "Expand": ((1,), _check_expand),
    "Tile": ((1,), _check_tile),
    "Range": ((0, 1, 2), _check_range),
    "Loop": ((0,), _check_loop),
    "TopK": ((1,), _check_top_k),
    "Gather": ((1,), _check_gather),
    "Slice": ((1, 2, 3, 4), _check_slice),
    "Split": ((1,), _check_split),
    "Pad": ((1, 3), _check_pad),
    **{name: ((1,), _check_axes(1)) for name in (*REDUCTION_OPERATORS, "Squeeze", "Unsqueeze", "CumSum", "CumProd")},
    **{name: ((1,), _check_sizes(1)) for name in ("CenterCropPad", "OneHot", "SplitToSequence")},
    "AffineGrid": ((1,), _check_affine_grid),
    "ConstantOfShape": ((0,), _check_sizes(0)),
    "Col2Im": ((1, 2), _check_sizes(1, 2)),
    "DFT": ((1,), _check_sizes(1)),
    "STFT": ((1, 3), _check_sizes(1, 3)),
    "MelWeightMatrix": ((0, 1, 2), _check_sizes(0, 1, 2)),
}
"""For each operator, the positions of the inputs that determine sizes, and a check of their elements."""

_OUTPUT_SIZES = {"Reshape": 1, "Resize": 3, "Expand": 1, "ConstantOfShape": 0}
"""For each operator, the position of the input that contains the shape of its output."""
