"""Branches of `If` nodes, and bodies of `Loop` nodes, that none of the input cases of a model reached."""

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
from onnxgate.inputs.cases import CaseGenerator, group_axes
from onnxgate.model.facts import ModelFacts
from onnxgate.model.subgraphs.node_context import describe_nodes, find_source_line

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

ObservedValues = Mapping[str, Mapping[str, "Array"]]  # by case and name
NO_OBSERVATIONS: ObservedValues = {}

MAX_STARTS = 8
"""Maximum number of cases from which a search for values or sizes that choose further branches starts."""


class BranchCoverage:
    """Finds the branches of one model that were not reached. `root` and `folder` are those of `ExecutedModel`.

    `generator` is None if inputs cannot be generated.
    """

    def __init__(
        self,
        facts: ModelFacts,
        generator: CaseGenerator | None,
        cases: Sequence[InputCase],
        root: Path,
        folder: Path,
    ) -> None:
        self._facts, self._generator, self._root, self._folder = facts, generator, root, folder
        self._cases = {case.name: case for case in cases}

    def list_computed_conditions(self, runs: ModelRuns) -> tuple[str, ...]:
        """Return the values in the main graph that choose branches and that only a runtime can compute."""
        cases = self._list_attempted(runs)
        search = self._search(cases)
        if search is None:
            return ()
        unknown = set().union(*(_evaluate(search, case).unknown for case in cases))
        nodes = (it for it in search.branches.conditionals if it in unknown and search.branches.is_in_main_graph(it))
        computed = (it for it in nodes if not search.branches.dependencies(it).is_exact)
        return tuple(dict.fromkeys(name for it in computed for name in it.conditions))

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
        reached: set[Branch] = set().union(*(result.chosen for result in results))
        choices: dict[Branch, Choice] = {}
        for case in cases[:MAX_STARTS]:
            choices |= dict(self._find_choices(case, reached)) if not choices.keys() >= {*unreached} else {}
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

    def _find_choices(self, case: InputCase, reached: set[Branch]) -> Iterator[tuple[Branch, Choice]]:
        """Yield branches with the values or sizes that choose them, in contrast to the given case."""
        names, search = list_named_axes(self._facts.inputs), self._search([case])
        if search is None or not set(names) <= case.sizes.keys():
            return
        start = Choice(case.chosen, case.sizes)
        names = [name for name in names if name not in case.guessed]  # probes of these have failed
        axes = group_axes(names, list_leading_axes(self._facts.inputs))
        given = {name: array.item() for name, array in _load_small_arrays(case).items() if array.size == 1}
        for choice, found in search.extend(start, reached, search.list_candidates()):
            for branch in found:
                needed = set().union(*(search.branches.dependencies(it).values for it in branch[0].enclosing))
                values = {**given, **choice.values}
                yield branch, Choice({name: values[name] for name in sorted(needed) if name in values})
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
            branch="body" if conditional.is_loop else "then" if truth else "else",
            place=find_source_line(node.proto, self._root, self._folder),
            values=dict(choice.values) if choice is not None else {},
            sizes=dict(choice.sizes) if choice is not None else {},
            inputs=tuple(value.name for value in self._facts.inputs if value.name in depends.values),
        )


def _evaluate(search: ChoiceSearch, case: InputCase, observed: Mapping[str, Array] = NO_VALUES) -> ChosenBranches:
    shapes = {name: tuple(np.load(path, mmap_mode="r").shape) for name, path in case.inputs.items()}
    return search.branches.evaluate(shapes, _load_small_arrays(case).get, observed).choose()


def _load_small_arrays(case: InputCase) -> Mapping[str, Array]:
    arrays = {name: np.load(path, mmap_mode="r", allow_pickle=False) for name, path in case.inputs.items()}
    return {name: array for name, array in arrays.items() if array.size <= MAX_EVALUATED_ELEMENTS}
