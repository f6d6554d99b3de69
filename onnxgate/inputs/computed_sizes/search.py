"""Values for small inputs from which the graph computes sizes, such as the height and width of a resized image.

They are found by evaluating the sizes for several values: `shape_inputs` only derives values that a node uses directly.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxgate.inputs.branches import EVALUATED_OPERATORS, BranchGraph, Shape
from onnxgate.inputs.computed_sizes.checks import Elements, SizedNode, count_faults, list_size_positions
from onnxgate.inputs.scopes import Scope, list_scopes
from onnxgate.model.facts import DEFAULT_DOMAIN, count_elements
from onnxgate.model.reading.view import NodeView

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

MAX_SIZE_ELEMENTS = 8
"""Maximum number of elements of an input whose elements may be sizes."""
FIRST_VALUES = (12, 16, 20, 24)
"""Values that are tried first. They ascend, so that the start of a slice is before its end, and are not equal."""
EQUAL_VALUES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Values that are tried for all elements."""
FURTHER_VALUES = (2, 3, 1, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 224, 256, 512, 0.5, 0.25, 0)
"""Values that are tried for single elements. The first ones change the size of an image, and are valid axes."""
TESTED_VALUES = ((1,), FIRST_VALUES, (64, 48, 32, 16))
"""Values that show whether a size changes with an input, also if it is divided by a number of pixels or by another one.
"""
MAX_DATA_SIZES = 32
"""Maximum number of sizes of data that are tried for single elements."""
MAX_EVALUATIONS = 512
"""Maximum number of evaluations of all sizes of a model."""
MAX_EVALUATED_SIZES = 4096
"""Maximum number of evaluated sizes over all evaluations."""
MAX_EXACT = 1 << 53
"""Maximum integer up to which float64 represents all integers."""
UNSIZED_OPERATORS = frozenset(
    (
        *("Shape", "Size", "ConstantOfShape", "And", "Or", "Xor"),
        *("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"),
    )
)
"""Evaluated operators whose results are not sizes if their inputs are."""
INDEXED_OPERATORS = frozenset(("Gather",))
"""Operators with indices. Indices alone are determined by the role of an input."""

SizedPlace = tuple[NodeView, Scope]
"""A node with inputs that determine sizes, and its scope."""


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

    `shapes` are the shapes of all inputs. `read` returns the elements of the other inputs, and `find_declared` the
    declared shape of a value, as far as it is known.
    """

    branches: BranchGraph
    shapes: Mapping[str, Shape]
    read: Callable[[str], Array | None]
    find_declared: Callable[[str], Elements]

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
        if not found:  # a failed run is not an error, even if these inputs are generated without regard to sizes
            return {it.name: _list_numbers(it.current) for it in inputs if it.current is not None}
        return {
            value.name: _list_numbers(found[value.name])
            for value in inputs
            if not (value.name in generated and np.array_equal(found[value.name], generated[value.name]))
        }

    def _is_size(self, value: SizeInput, inputs: Sequence[SizeInput], nodes: Sequence[SizedPlace]) -> bool:
        """Return whether a size changes with an input. Sizes that cannot be computed are assumed not to change."""
        seen = []
        for numbers in TESTED_VALUES:
            values = {it.name: _fill(it, FIRST_VALUES[:1]) for it in inputs}
            values[value.name] = _fill(value, numbers)
            sized = self._evaluate(values, nodes)
            seen.append([node.elements(at) for node in sized for at in list_size_positions(node.node)])
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

        def improve(start: Sequence[float], values: Sequence[float]) -> Sequence[float] | None:
            """Replace single elements until all sizes are valid; None if they are not, or without further attempts."""
            numbers, faults = start, count(start)
            for index, number in itertools.product((*range(len(start)), *range(len(start))), values):
                if not faults or left <= 0:
                    break
                changed = [*numbers[:index], number, *numbers[index + 1 :]]
                if (fewer := count(changed)) < faults:
                    numbers, faults = changed, fewer
            return None if faults else numbers

        first, *equal = _list_starts(inputs)
        for start, values in ((first, further), *((it, ()) for it in equal), *((it, further) for it in equal)):
            if left > 0 and (numbers := improve(start, values)) is not None:
                return fill(numbers)
        return {}

    def _list_data_sizes(self, inputs: Sequence[SizeInput], nodes: Sequence[SizedPlace]) -> list[int]:
        """Return the sizes of the data whose shape changes, and their numbers of elements."""
        values = {it.name: _fill(it, FIRST_VALUES) for it in inputs}
        shapes = [node.data for node in self._evaluate(values, nodes)]
        sizes = [size for shape in shapes if shape is not None for size in (*shape, count_elements(shape))]
        return [size for size in dict.fromkeys(sizes) if size not in FURTHER_VALUES][:MAX_DATA_SIZES]

    def _count_faults(self, values: Mapping[str, Array], nodes: Sequence[SizedPlace]) -> int:
        return sum(count_faults(node) for node in self._evaluate(values, nodes))

    def _evaluate(self, values: Mapping[str, Array], nodes: Sequence[SizedPlace]) -> Iterator[SizedNode]:
        evaluation = self.branches.evaluate(
            self.shapes, lambda name: values[name] if name in values else self.read(name)
        )
        return (
            SizedNode(node, scope, evaluation, self.find_declared(node.outputs[0]) if node.outputs else ())
            for node, scope in nodes
        )


def _fill(value: SizeInput, numbers: Sequence[float]) -> Array:
    """Return the elements of an input, within the limits of its type; the last number is repeated."""
    count = count_elements(value.shape)
    repeated = [*numbers, *[numbers[-1]] * (count - len(numbers))] if numbers else []
    elements, dtype = np.array(repeated[:count], np.float64), np.dtype(value.dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        elements = elements.clip(max(limits.min, -MAX_EXACT), min(limits.max, MAX_EXACT))
    return elements.astype(dtype).reshape(value.shape)


def _list_numbers(array: Array) -> tuple[float, ...]:
    return tuple(map(float, array.reshape(-1)))


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
                if any(node.inputs[at] in computed for at in list_size_positions(node)):
                    yield node, scope
                if node.operator[1] in EVALUATED_OPERATORS - UNSIZED_OPERATORS:
                    computed.update(node.outputs)
