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
from onnxgate.inputs.branches import MAX_EVALUATED_ELEMENTS, Branch, ChosenBranches
from onnxgate.inputs.case_selection import Choice
from onnxgate.inputs.cases import CaseGenerator, InputGenerationError, group_axes
from onnxgate.model.facts import ModelFacts
from onnxgate.model.reading.view import ModelView
from onnxgate.model.subgraphs.node_context import describe_nodes, find_source_line

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


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

    def find_unreached(self, runs: ModelRuns) -> tuple[UnreachedBranch, ...]:
        """Return the branches that no case reached, of those that a runtime ran or refused to run."""
        attempted = [self._cases[it.case.name] for it in runs.attempts if it.case.name in self._cases]
        if self._generator is None or select_worst_attempts(runs) or not attempted:
            return ()
        if not any(attempt.outcome == "completed" and attempt.case.name for attempt in runs.attempts):
            return ()
        cases = list({case.name: case for case in attempted}.values())
        search = self._generator.search_choices(cases[0].sizes, _load_small_arrays(cases[0]))
        if search is None:
            return ()
        results = [_evaluate(search, case) for case in cases]
        unreached = list_unreached(search.branches, results)
        if not unreached:
            return ()
        choices = dict(self._find_choices(search, cases[0], set().union(*(result.chosen for result in results))))
        return tuple(filter(None, (self._describe(search, branch, choices.get(branch)) for branch in unreached)))

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
        """Describe a branch; None if no input value decides whether it runs, so that it may never run."""
        conditional, truth = branch
        inputs = search.branches.dependencies(conditional).values
        if choice is None and not inputs:
            return None
        node = conditional.node
        return UnreachedBranch(
            node=node.name,
            words=describe_nodes(node.name, next(iter(node.outputs), "")),
            branch="then" if truth else "else",
            place=find_source_line(node.proto, self._root, self._folder),
            values=dict(choice.values) if choice is not None else {},
            sizes=dict(choice.sizes) if choice is not None else {},
            inputs=tuple(value.name for value in self._facts.inputs if value.name in inputs),
        )


def _evaluate(search: ChoiceSearch, case: InputCase) -> ChosenBranches:
    shapes = {name: tuple(np.load(path, mmap_mode="r").shape) for name, path in case.inputs.items()}
    return search.branches.choose(shapes, _load_small_arrays(case).get)


def _load_small_arrays(case: InputCase) -> Mapping[str, Array]:
    arrays = {name: np.load(path, mmap_mode="r", allow_pickle=False) for name, path in case.inputs.items()}
    return {name: array for name, array in arrays.items() if array.size <= MAX_EVALUATED_ELEMENTS}
