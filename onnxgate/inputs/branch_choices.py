"""Values and sizes of inputs that choose the branches of `If` and `Loop` nodes, found by evaluating the conditions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxgate.inputs.axis_sizes import DTYPES, element_type, resolve_shape
from onnxgate.inputs.branches import Branch, BranchGraph, ChosenBranches, Conditional, Shape
from onnxgate.inputs.case_selection import Choice, Number
from onnxgate.inputs.dataflow import COMPARISONS, DataflowGraph, ValueUse
from onnxgate.inputs.roles import CategoryRole, IndexRole, LengthRole, MaskRole, PlainRole, Role
from onnxgate.model.facts import ValueInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

SAMPLE_RATES = (8000, 16000, 22050, 24000, 32000, 44100, 48000)
"""Usual sample rates in Hz, in ascending order.

A model that compares an input with a number in their range may require one of them.
"""
MAX_VALUES = 16
"""Maximum number of values of one input that are evaluated."""
MAX_EVALUATIONS = 128
"""Maximum number of evaluations of all conditions of a model."""
MAX_VISITED_NODES = 200_000
"""Maximum number of nodes whose shapes are inferred, over all evaluations with other sizes."""
MAX_CHOICES = 8
"""Maximum number of choices, and so of additional input cases."""
MAX_PROBED_SIZE = 512


@dataclass(frozen=True, slots=True)
class ChoiceSearch:
    """A search for choices that reach further branches.

    `inputs` are the inputs of the model and `roles` their roles. `draw` returns the elements of an input of a shape,
    if they are few. `find_role` returns the role of an input that follows from a part of its uses.
    """

    branches: BranchGraph
    graph: DataflowGraph
    inputs: Sequence[ValueInfo]
    roles: Mapping[str, Role]
    draw: Callable[[ValueInfo, Shape], Array | None]
    find_role: Callable[[ValueInfo, Callable[[ValueUse], bool]], Role]

    def evaluate(self, choice: Choice) -> ChosenBranches:
        """Return the branches that a choice reaches."""
        shapes = {value.name: resolve_shape(value, choice.sizes) for value in self.inputs}
        named = {value.name: value for value in self.inputs}

        def read(name: str) -> Array | None:
            if name in choice.values:
                return np.full(shapes[name], choice.values[name], DTYPES[element_type(named[name])])
            return self.draw(named[name], shapes[name]) if name in named else None

        return self.branches.evaluate(shapes, read).choose()

    def list_candidates(self) -> dict[str, list[Number]]:
        """Return the values to try for each input with one element that a condition depends on, best ones first.

        The first value of an input is used in all cases. An input without one keeps its generated value there.
        """
        needed: dict[str, dict[float, None]] = {}
        for conditional in self.branches.conditionals:
            depends = self.branches.dependencies(conditional)
            for name in depends.values if depends.is_exact else ():
                needed.setdefault(name, {}).update(dict.fromkeys(depends.constants))
        values = (value for value in self.inputs if value.name in needed and self._is_choosable(value))
        return {value.name: self._list_values(value, needed[value.name]) for value in values}

    def _is_choosable(self, value: ValueInfo) -> bool:
        shape = value.shape
        known = isinstance(self.roles.get(value.name), (PlainRole, IndexRole, MaskRole, LengthRole, CategoryRole))
        has_one = shape is not None and (len(shape) <= 1 or all(dim == 1 for dim in shape))
        return known and has_one and element_type(value) != "string"

    def _list_values(self, value: ValueInfo, constants: Iterable[float]) -> list[Number]:
        element = element_type(value)
        if element == "bool":
            return [True, False]
        equal, bounds = (list(_list_compared(self.graph, value.name, is_equal=it)) for it in (True, False))
        compared = [*equal, *bounds]
        is_rate = any(min(SAMPLE_RATES) <= number <= max(SAMPLE_RATES) for number in compared)
        rates = SAMPLE_RATES if is_rate else ()
        others = [*compared, *map(Fraction, constants)]
        others += [Fraction(role.low) for role in self._list_branch_roles(value) if isinstance(role, IndexRole)]
        near = [number + step for number in others for step in (0, 1, -1)]
        numbers: dict[int | Fraction, None] = dict.fromkeys((*equal, *rates, *near, 0, 1))
        if "int" not in element:
            limit = Fraction(float(np.finfo(np.dtype(DTYPES[element])).max))
            return [float(number) for number in numbers if abs(Fraction(number)) <= limit][:MAX_VALUES]
        role = self.find_role(value, lambda use: id(use.node) not in self.branches.enclosing)
        return [number for it in numbers if (number := self._fit(value, role, it)) is not None][:MAX_VALUES]

    def _list_branch_roles(self, value: ValueInfo) -> list[Role]:
        """Return the role of an input in each branch that uses it."""
        enclosing = self.branches.enclosing
        uses = [use for use in self.graph.uses(value.name) if id(use.node) in enclosing]

        def find_role_in(branch: tuple[Branch, ...]) -> Role:
            return self.find_role(value, lambda use: enclosing.get(id(use.node)) == branch)

        return [find_role_in(branch) for branch in dict.fromkeys(enclosing[id(use.node)] for use in uses)]

    def is_valid(self, choice: Choice, reached: ChosenBranches) -> bool:
        """Return whether the nodes of the branches that a choice reaches accept its values, such as their indices."""

        def runs(use: ValueUse) -> bool:
            around = self.branches.enclosing.get(id(use.node), ())
            return all(it in reached.chosen or it[0] in reached.unknown for it in around)

        values = (value for value in self.inputs if value.name in choice.values)
        integers = (value for value in values if "int" in element_type(value))
        return all(
            self._fit(value, self.find_role(value, runs), Fraction(choice.values[value.name])) is not None
            for value in integers
        )

    def _fit(self, value: ValueInfo, role: Role, number: float | Fraction) -> Number | None:
        """Return a number as an integer that an input of this role can have; None if it cannot."""
        limits = np.iinfo(DTYPES[element_type(value)])
        if number != int(number) or not limits.min <= number <= limits.max:
            return None
        match role:
            case IndexRole(low, high):
                return int(number) if low <= number < high else None
            case LengthRole(limit):
                return int(number) if 0 <= number <= limit else None
            case CategoryRole(values):
                return int(number) if number in values else None
        return int(number)

    def has_preferred(self, name: str) -> bool:
        """Return whether an input is compared for equality, so that its generated value would choose no branch."""
        return next(_list_compared(self.graph, name, is_equal=True), None) is not None

    def find_start(self, sizes: Mapping[str, int], candidates: Mapping[str, Sequence[Number]]) -> Choice:
        """Return the choice for all cases: the first candidate of each input that is compared for equality."""
        kinds = {value.name: element_type(value) for value in self.inputs}
        preferred = {
            name: next((number for number in values if self._is_valid_alone(name, number, sizes)), values[0])
            for name, values in candidates.items()
            if values and "int" in kinds[name] and self.has_preferred(name)
        }
        return Choice(preferred, sizes)

    def _is_valid_alone(self, name: str, number: Number, sizes: Mapping[str, int]) -> bool:
        choice = Choice({name: number}, sizes)
        return self.is_valid(choice, self.evaluate(choice))

    def extend(
        self, start: Choice, reached: set[Branch], candidates: Mapping[str, Sequence[Number]]
    ) -> Iterator[tuple[Choice, frozenset[Branch]]]:
        """Yield choices of values that reach further branches, and these branches, which are added to `reached`."""
        pending, count = [start], 0
        reached |= self.branches.skipped_loops  # no case has to skip a body
        while pending:
            base = pending.pop(0)
            for name, number in ((name, number) for name, numbers in candidates.items() for number in numbers):
                if base.values.get(name) == number or count == MAX_EVALUATIONS:
                    continue
                count += 1
                choice = Choice({**base.values, name: number}, base.sizes)
                result = self.evaluate(choice)
                if (found := result.chosen - reached) and self.is_valid(choice, result):
                    reached |= found
                    pending.append(choice)
                    yield choice, found

    def resize(
        self, start: Choice, reached: set[Branch], axes: Sequence[Sequence[str]]
    ) -> Iterator[tuple[Choice, frozenset[Branch]]]:
        """Yield choices of sizes that reach further branches, as `extend`. The axes of each group change together."""
        constants = [
            number
            for conditional in self.branches.conditionals
            for number in self.branches.dependencies(conditional).constants
        ]
        sizes = dict.fromkeys(
            (1, 2, *(int(it + step) for it in constants for step in (0, 1) if 1 <= it < MAX_PROBED_SIZE))
        )
        reached |= self.branches.skipped_loops
        limit = min(MAX_EVALUATIONS, MAX_VISITED_NODES // max(self.branches.count_nodes(), 1))
        for group, size in itertools.islice(itertools.product(axes, sizes), limit):
            choice = Choice(start.values, {**start.sizes, **dict.fromkeys(group, size)})
            if choice.sizes != start.sizes and (found := self.evaluate(choice).chosen - reached):
                reached |= found
                yield choice, found


def is_compared(graph: DataflowGraph, name: str, number: Number) -> bool:
    """Return whether a node compares an input with this value for equality."""
    return any(number == compared for compared in _list_compared(graph, name, is_equal=True))


def _list_compared(graph: DataflowGraph, name: str, *, is_equal: bool) -> Iterator[Fraction]:
    """Yield the values of an input at which a node compares it with a constant, also after simple arithmetic."""
    for use in graph.uses(name):
        if use.operator in COMPARISONS and (use.operator == "Equal") == is_equal and use.value.scale:
            for number in graph.numbers(use.input_name(1 - use.position)):
                if math.isfinite(number):
                    yield (Fraction(number) - use.value.offset) / use.value.scale


def list_unreached(graph: BranchGraph, results: Sequence[ChosenBranches]) -> tuple[Branch, ...]:
    """Return the branches that no set of inputs chose, although one of them reached their node.

    Nodes whose condition cannot be evaluated for one of the sets are left out.
    """
    unknown: set[Conditional] = set().union(*(result.unknown for result in results))
    chosen: set[Branch] = set().union(*(result.chosen for result in results))
    known = (conditional for conditional in graph.conditionals if conditional not in unknown)
    pairs = ((conditional, truth) for conditional in known for truth in (True, False))
    pairs = (pair for pair in pairs if pair not in graph.skipped_loops)
    return tuple((node, truth) for node, truth in pairs if (node, truth) not in chosen and (node, not truth) in chosen)
