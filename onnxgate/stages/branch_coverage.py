"""Branches of `If` nodes that none of the input cases of a model reached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxgate.core.jobs import InputCase
from onnxgate.evidence.runtime import ModelRuns, UnreachedBranch, select_worst_attempts
from onnxgate.inputs.axis_sizes import list_leading_axes, list_named_axes
from onnxgate.inputs.branch_choices import ChoiceSearch, list_unreached
from onnxgate.inputs.branches import MAX_EVALUATED_ELEMENTS, NO_VALUES, Branch, ChosenBranches
from onnxgate.inputs.case_selection import Choice
from onnxgate.inputs.cases import CaseGenerator, InputGenerationError, group_axes
from onnxgate.model.facts import ModelFacts
from onnxgate.model.reading.view import ModelView
from onnxgate.model.subgraphs.node_context import describe_nodes, find_source_line

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

ObservedValues = Mapping[str, Mapping[str, "Array"]]  # by case and name
NO_OBSERVATIONS: ObservedValues = {}


class BranchCoverage:
    """Finds the branches of one model that were not reached. `root` and `folder` are those of `ExecutedModel`."""

    def __init__(
        self, facts: ModelFacts, view: ModelView, cases: Sequence[InputCase], root: Path, folder: Path
    ) -> None:
        self._facts, self._root, self._folder = facts, root, folder
        self._cases = {case.name: case for case in cases}
        self._generator: CaseGenerator | None = None
        if any(node.operator[1] == "If" for node in view.nodes()):
            try:
                self._generator = CaseGenerator(facts, view, {})
            except InputGenerationError:  # an input without a known shape
                return

    def list_computed_conditions(self, runs: ModelRuns) -> tuple[str, ...]:
        """Return the values in the main graph that choose branches and that only a runtime can compute."""
        cases = self._list_attempted(runs)
        search = self._search(cases)
        if search is None:
            return ()
        unknown = set().union(*(_evaluate(search, case).unknown for case in cases))
        nodes = (it for it in search.branches.conditionals if it in unknown and search.branches.is_in_main_graph(it))
        return tuple(dict.fromkeys(it.condition for it in nodes if not search.branches.dependencies(it).is_exact))

    def find_unreached(
        self, runs: ModelRuns, observed: ObservedValues = NO_OBSERVATIONS
    ) -> tuple[UnreachedBranch, ...]:
        """Return the branches that no case reached, of those that a runtime ran or refused to run.

        `observed` are values that the runtime computed, by case and name.
        """
        cases = self._list_attempted(runs)
        search = self._search(cases)
        if search is None:
            return ()
        results = [_evaluate(search, case, observed.get(case.name, {})) for case in cases]
        unreached = list_unreached(search.branches, results)
        if not unreached:
            return ()
        choices = dict(self._find_choices(search, cases[0], set().union(*(result.chosen for result in results))))
        return tuple(filter(None, (self._describe(search, branch, choices.get(branch)) for branch in unreached)))

    def _list_attempted(self, runs: ModelRuns) -> list[InputCase]:
        """Return the cases that a runtime ran or refused to run; empty if it ran none."""
        if select_worst_attempts(runs) or not any(it.outcome == "completed" and it.case.name for it in runs.attempts):
            return []
        names = dict.fromkeys(attempt.case.name for attempt in runs.attempts)
        return [self._cases[name] for name in names if name in self._cases]

    def _search(self, cases: Sequence[InputCase]) -> ChoiceSearch | None:
        if self._generator is None or not cases:
            return None
        return self._generator.search_choices(cases[0].sizes, _load_small_arrays(cases[0]))

    def _find_choices(
        self, search: ChoiceSearch, case: InputCase, reached: set[Branch]
    ) -> Iterator[tuple[Branch, Choice]]:
        """Yield branches with the values or sizes that choose them, in contrast to the given case."""
        names = list_named_axes(self._facts.inputs)
        if not set(names) <= case.sizes.keys():
            return
        start = Choice(case.chosen, case.sizes)
        names = [name for name in names if name not in case.guessed]  # probes of these have failed
        axes = group_axes(names, list_leading_axes(self._facts.inputs))
        for choice, found in search.extend(start, reached, search.list_candidates()):
            values = {name: value for name, value in choice.values.items() if case.chosen.get(name) != value}
            yield from ((branch, Choice(values)) for branch in found)
        for choice, found in search.resize(start, reached, axes):
            sizes = {name: size for name, size in choice.sizes.items() if case.sizes[name] != size}
            yield from ((branch, Choice(sizes=sizes)) for branch in found)

    def _describe(self, search: ChoiceSearch, branch: Branch, choice: Choice | None) -> UnreachedBranch | None:
        """Describe a branch; None if only constants and shapes decide whether it runs, so that it may never run."""
        conditional, truth = branch
        depends = search.branches.dependencies(conditional)
        if choice is None and not depends.values and depends.is_exact:
            return None
        node = conditional.node
        return UnreachedBranch(
            node=node.name,
            words=describe_nodes(node.name, next(iter(node.outputs), "")),
            branch="then" if truth else "else",
            place=find_source_line(node.proto, self._root, self._folder),
            values=dict(choice.values) if choice is not None else {},
            sizes=dict(choice.sizes) if choice is not None else {},
            inputs=tuple(value.name for value in self._facts.inputs if value.name in depends.values),
        )


def _evaluate(search: ChoiceSearch, case: InputCase, observed: Mapping[str, Array] = NO_VALUES) -> ChosenBranches:
    shapes = {name: tuple(np.load(path, mmap_mode="r").shape) for name, path in case.inputs.items()}
    return search.branches.choose(shapes, _load_small_arrays(case).get, observed)


def _load_small_arrays(case: InputCase) -> Mapping[str, Array]:
    arrays = {name: np.load(path, mmap_mode="r", allow_pickle=False) for name, path in case.inputs.items()}
    return {name: array for name, array in arrays.items() if array.size <= MAX_EVALUATED_ELEMENTS}
