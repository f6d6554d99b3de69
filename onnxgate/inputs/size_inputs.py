"""Values for small inputs from which the graph computes sizes, such as the height and width of a resized image.

They are found by evaluating the sizes for several values: `shape_inputs` only derives values that a node uses directly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxgate.inputs.branches import EVALUATED_OPERATORS, BranchGraph, Evaluation, Shape
from onnxgate.inputs.scopes import Scope, list_scopes, resolve
from onnxgate.inputs.shape_inputs import REDUCTION_OPERATORS
from onnxgate.model.facts import DEFAULT_DOMAIN, count_elements
from onnxgate.model.reading.view import NodeView

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

MAX_SIZE_ELEMENTS = 8
"""Maximum number of elements of an input whose elements may be sizes."""
FIRST_VALUES = (12, 16, 20, 24)
"""Values that are tried first. They ascend, so that the start of a slice is before its end, and are not equal."""
EQUAL_VALUES = (1, 2, 4, 8, 16, 32, 64)
"""Values that are tried for all elements."""
FURTHER_VALUES = (2, 3, 1, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 224, 256, 512, 0)
"""Values that are tried for single elements. The first ones change the size of an image, and are valid axes."""
MAX_EVALUATIONS = 256
"""Maximum number of evaluations of all sizes of a model."""
MAX_EVALUATED_SIZES = 4096
"""Maximum number of evaluated sizes over all evaluations."""
MAX_SIZE = 4096
"""Maximum size of an axis."""
MAX_FACTOR = 4
"""Maximum scale factor, padding or number of repetitions."""
MAX_RANGE = 1 << 16
"""Maximum number of elements of a `Range`."""
MAX_COUNT = 1 << 22
"""Maximum number of elements of a value of a computed size."""

TESTED_VALUES = (1, 12, 64)
"""Values that show whether a size changes with an input, also if it is divided by a number of pixels."""
MAX_DATA_SIZES = 32
"""Maximum number of sizes of data that are tried for single elements."""
UNSIZED_OPERATORS = frozenset(
    (
        "Shape",
        "Size",
        "ConstantOfShape",
        "Equal",
        "Less",
        "LessOrEqual",
        "Greater",
        "GreaterOrEqual",
        "And",
        "Or",
        "Xor",
    )
)
"""Evaluated operators whose results are not sizes if their inputs are."""
INDEXED_OPERATORS = frozenset(("Gather",))
"""Operators with indices. Indices alone are determined by the role of an input."""

SizedPlace = tuple[NodeView, Scope]
"""A node with inputs that determine sizes, and its scope."""
Elements = Sequence[float | None]
"""Elements of a value. None stands for one that cannot be computed."""


@dataclass(frozen=True, slots=True)
class SizedNode:
    """A node with inputs that determine the size of its output, and the evaluation of the model."""

    node: NodeView
    scope: Scope
    evaluation: Evaluation

    @property
    def data(self) -> Shape | None:
        """Shape of the first input of the node."""
        return self.evaluation.shape(self.node.inputs[0], self.scope) if self.node.inputs else None

    def attribute(self, name: str, default: int = 0) -> int:
        """Return the value of an integer attribute."""
        return next((int(it.i) for it in self.node.attributes if it.name == name), default)

    def has_attribute(self, name: str) -> bool:
        """Return whether the node has an attribute."""
        return any(it.name == name for it in self.node.attributes)

    def elements(self, position: int) -> Elements:
        """Return the elements of an input of the node; empty if even their number is unknown."""
        name = self.node.inputs[position] if position < len(self.node.inputs) else ""
        return self._elements(name, self.scope) if name else ()

    def _elements(self, name: str, scope: Scope) -> Elements:
        value = self.evaluation.value(name, scope)
        if value is not None:
            numbers = value.reshape(-1)[:MAX_SIZE_ELEMENTS].tolist() if value.dtype.kind in "biuf" else []
            return [float(number) for number in numbers]
        found = resolve(name, scope)
        node = found.producers.get(name) if found is not None else None
        if found is not None and node is not None:
            if node.operator[1] == "Concat":
                return [element for it in node.inputs for element in self._elements(it, found)]
            if node.operator[1] in ("Cast", "Identity") and node.inputs:
                return self._elements(node.inputs[0], found)
        shape = self.evaluation.shape(name, scope)
        return [None] * min(count_elements(shape), MAX_SIZE_ELEMENTS) if shape is not None else ()


@dataclass(frozen=True, slots=True)
class SizeInput:
    """An input whose elements may be sizes. `current` are its generated elements, if it has any.

    Its elements are only replaced if they are not valid, or if `is_replaced` is true.
    """

    name: str
    shape: Shape
    dtype: str
    current: Array | None = None
    is_replaced: bool = True


@dataclass(slots=True)
class SizeSearch:
    """A search for values of inputs from which sizes are computed.

    `shapes` are the shapes of all inputs. `read` returns the elements of the other inputs.
    """

    branches: BranchGraph
    shapes: Mapping[str, Shape]
    read: Callable[[str], Array | None]

    def find_values(self, inputs: Sequence[SizeInput]) -> dict[str, tuple[float, ...]]:
        """Return values of inputs in memory order, with which all sizes are valid, as far as they can be computed.

        Inputs that determine no size, and those that keep their generated elements, are left out.
        """
        nodes = list(_list_sized_nodes(self.branches, {value.name for value in inputs}))
        if all(node.operator[1] in INDEXED_OPERATORS for node, _ in nodes):
            return {}
        inputs = [value for value in inputs if self._is_size(value, inputs, nodes)]
        generated = {it.name: it.current for it in inputs if it.current is not None and not it.is_replaced}
        if not inputs or (len(generated) == len(inputs) and not self._count_faults(generated, nodes)):
            return {}
        found = self._search(inputs, nodes)
        return {
            value.name: tuple(map(float, found[value.name].reshape(-1)))
            for value in inputs
            if value.name in found
            and not (value.name in generated and np.array_equal(found[value.name], generated[value.name]))
        }

    def _is_size(self, value: SizeInput, inputs: Sequence[SizeInput], nodes: Sequence[SizedPlace]) -> bool:
        """Return whether a size changes with an input. Sizes that cannot be computed are assumed not to change."""
        seen = []
        for number in TESTED_VALUES:
            values = {it.name: _fill(it, FIRST_VALUES[:1]) for it in inputs}
            values[value.name] = _fill(value, [number])
            sized = self._evaluate(values, nodes)
            seen.append([node.elements(at) for node in sized for at in _list_positions(node.node)])
        return any(elements != seen[0] for elements in seen)

    def _search(self, inputs: Sequence[SizeInput], nodes: Sequence[SizedPlace]) -> dict[str, Array]:
        """Return values of all inputs with which all sizes are valid; nothing if there are none."""
        lengths = [count_elements(value.shape) for value in inputs]
        left = max(min(MAX_EVALUATIONS, MAX_EVALUATED_SIZES // len(nodes)), 1)

        def fill(numbers: Sequence[float]) -> dict[str, Array]:
            parts = iter(numbers)
            rows = [list(itertools.islice(parts, length)) for length in lengths]
            return {value.name: _fill(value, row) for value, row in zip(inputs, rows, strict=True)}

        def count(numbers: Sequence[float]) -> int:
            nonlocal left
            left -= 1
            return self._count_faults(fill(numbers), nodes)

        further = [*FURTHER_VALUES, *self._list_data_sizes(inputs, nodes)]
        for start in _list_starts(inputs):
            numbers, faults = start, count(start)
            for index, number in itertools.product(range(len(start)), further):
                if not faults or left <= 0:
                    break
                changed = [*numbers[:index], number, *numbers[index + 1 :]]
                if (fewer := count(changed)) < faults:
                    numbers, faults = changed, fewer
            if not faults:
                return fill(numbers)
            if left <= 0:
                break
        return {}

    def _list_data_sizes(self, inputs: Sequence[SizeInput], nodes: Sequence[SizedPlace]) -> list[int]:
        """Return the sizes of the data whose shape changes, and their numbers of elements."""
        values = {it.name: _fill(it, FIRST_VALUES) for it in inputs}
        shapes = [node.data for node in self._evaluate(values, nodes)]
        sizes = [size for shape in shapes if shape is not None for size in (*shape, count_elements(shape))]
        return [size for size in dict.fromkeys(sizes) if size not in FURTHER_VALUES][:MAX_DATA_SIZES]

    def _count_faults(self, values: Mapping[str, Array], nodes: Sequence[SizedPlace]) -> int:
        return sum(_count_faults(node) for node in self._evaluate(values, nodes))

    def _evaluate(self, values: Mapping[str, Array], nodes: Sequence[SizedPlace]) -> Iterator[SizedNode]:
        evaluation = self.branches.evaluate(
            self.shapes, lambda name: values[name] if name in values else self.read(name)
        )
        return (SizedNode(node, scope, evaluation) for node, scope in nodes)


def _fill(value: SizeInput, numbers: Sequence[float]) -> Array:
    """Return the elements of an input; the last number is repeated."""
    count = count_elements(value.shape)
    repeated = [*numbers, *[numbers[-1]] * (count - len(numbers))] if numbers else []
    return np.array(repeated[:count], value.dtype).reshape(value.shape)


def _list_starts(inputs: Sequence[SizeInput]) -> Iterator[list[float]]:
    """Yield values of the elements of all inputs, with which a search begins."""
    first: list[float] = []
    for value in inputs:
        numbers = map(float, value.current.reshape(-1)) if value.current is not None else ()
        count = count_elements(value.shape)
        usual = itertools.islice(itertools.cycle(FIRST_VALUES), len(first), len(first) + count)
        first += usual if value.is_replaced else numbers
    yield first
    for number in EQUAL_VALUES:
        yield [number] * len(first)


def _list_sized_nodes(branches: BranchGraph, names: set[str]) -> Iterator[SizedPlace]:
    """Yield the nodes with a size that is computed from these inputs by operators that can be evaluated."""
    computed = set(names)
    for scope in list_scopes(branches.main):
        for node in scope.graph.nodes:
            if computed.intersection(node.inputs) and node.operator[0] == DEFAULT_DOMAIN:
                if any(node.inputs[at] in computed for at in _list_positions(node)):
                    yield node, scope
                if node.operator[1] in EVALUATED_OPERATORS - UNSIZED_OPERATORS:
                    computed.update(node.outputs)


def _list_positions(node: NodeView) -> tuple[int, ...]:
    positions, _ = _CHECKS.get(node.operator[1], ((), None))
    return tuple(at for at in positions if at < len(node.inputs))


def _count_faults(node: SizedNode) -> int:
    """Return the number of invalid elements among the sizes of a node."""
    return _CHECKS[node.node.operator[1]][1](node)


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
    faults = _count_outside(scales, 1 / MAX_FACTOR, MAX_FACTOR) + _count_outside(sizes, 1, MAX_SIZE) + _is_large(sizes)
    if data is None or len(data) < 3 or node.has_attribute("axes"):
        return faults
    for elements, kept in ((scales, (1, 1)), (sizes, data[:2])):
        if len(elements) == len(data):
            faults += sum(it not in (None, size) for it, size in zip(elements, kept, strict=False))
    return faults + sum(bool(it) and size * (it or 0) < 1 for it, size in zip(scales, data, strict=False))


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
    return int(not 0 < count <= MAX_RANGE)


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


def _check_slice(node: SizedNode) -> int:
    """Count the axes of which a slice has no elements."""
    starts, ends, axes, steps = (node.elements(at) for at in range(1, 5))
    data = node.data
    faults = 0
    for index in range(max(len(starts), len(ends))):
        axis, step = (it[index] if index < len(it) else None for it in (axes, steps))
        at = int(axis) if axis is not None else index
        rank = len(data) if data is not None else 0
        size = data[at] if data is not None and -rank <= at < rank else MAX_SIZE
        faults += step == 0 or (axis is not None and data is not None and not -rank <= at < rank)
        start, end = (it[index] if index < len(it) else None for it in (starts, ends))
        first, last = (int(it) if it is not None else None for it in (start, end))
        faults += not len(range(*slice(first, last, int(step or 1)).indices(size)))
    return faults


def _check_split(node: SizedNode) -> int:
    sizes, data, axis = node.elements(1), node.data, node.attribute("axis")
    faults = _count_outside(sizes, 1, MAX_SIZE)
    if data is None or not -len(data) <= axis < len(data) or not sizes or None in sizes:
        return faults
    return faults + (sum(it or 0 for it in sizes) != data[axis])


def _check_pad(node: SizedNode) -> int:
    sizes = node.elements(1)
    limit = min(node.data or (MAX_FACTOR,), default=MAX_FACTOR)
    return _count_outside(sizes, 0, limit if node.has_attribute("mode") else MAX_SIZE) + _check_axes(3)(node)


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
    **{name: ((1,), _check_sizes(1)) for name in ("CenterCropPad", "AffineGrid", "OneHot", "SplitToSequence")},
    "ConstantOfShape": ((0,), _check_sizes(0)),
    "Col2Im": ((1, 2), _check_sizes(1, 2)),
    "DFT": ((1,), _check_sizes(1)),
    "STFT": ((1, 3), _check_sizes(1, 3)),
    "MelWeightMatrix": ((0, 1, 2), _check_sizes(0, 1, 2)),
}
"""For each operator, the positions of the inputs that determine sizes, and a check of their elements."""
