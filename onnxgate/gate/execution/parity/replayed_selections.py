"""Comparison with the source after the same items were selected.

If rounding errors decide which items `TopK` selects, all later values depend on them, such as the boxes of a detector.
The source therefore runs again and records its selections; the model then selects the same items. The scores of the
selected items are compared too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from onnxgate.core.findings import IncompleteCheck, Stage, runtime_sort_key
from onnxgate.core.jobs import CaseResult, Completed, ExportResult, InputCase, Observation, RunResult
from onnxgate.core.text import join_quoted
from onnxgate.evidence.parity import SELECTED, Comparison, Difference, find_mismatches
from onnxgate.gate.execution.parity.extra_runs import ExtraRuns, NoOutputsError, SourceRuns, UnmeasurableError
from onnxgate.model.subgraphs.instrumented_models import expose_values
from onnxgate.model.subgraphs.replayed_selections import (
    ReplayedSelection,
    count_other_selections,
    list_selections,
    replay_selections,
)
from onnxgate.numerics.streams import load_array
from onnxgate.stages.parity.output_comparison import ParityModel
from onnxgate.stages.parity.ranked_comparison import ILL_CONDITIONED, UNSTABLE
from onnxgate.stages.parity.run_outputs import RunOutputs
from onnxgate.stages.parity.stage import ParityEvidence
from onnxgate.stages.runtime import ObservedRun

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto

MIN_DIFFERING_SHARES = {0: 0.0, 1: 0.05}
"""Minimum share of items that differ for another reason than selections that are not replayed, by their number.

Source: chosen. After one suppression (SSDlite with random weights, 6 inputs), no item of a correct model differs. After
two (Faster R-CNN), up to 12 % do; more than one use `MIN_CASCADED_SHARE`.
"""
MIN_CASCADED_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class ReplayedRuns:
    """Runs of the model at `path` with the selections of the source, whose outputs are `eager`, by case."""

    path: Path
    cases: tuple[InputCase, ...]
    runs: tuple[ObservedRun, ...]
    eager: Mapping[str, CaseResult]


CompareRuns = Callable[[ParityModel, ReplayedRuns], ParityEvidence]
"""Compares all outputs of runs; returns no comparisons if they remain undecided."""


@dataclass(frozen=True, slots=True)
class ReplayedComparison:
    """Compares ranked outputs of a model after selecting the same items as its source."""

    extra: ExtraRuns
    source: SourceRuns
    compare_runs: CompareRuns

    def compare(
        self,
        model: ParityModel,
        path: Path,
        proto: ModelProto,
        ran: Sequence[ObservedRun],
        reasons: Sequence[IncompleteCheck],
    ) -> ParityEvidence:
        """Return the comparisons of the model at `path`, and `reasons` without the outputs that were compared."""
        outputs = [name for ranked in model.ranked for name in ranked.axes]
        selections, others = list_selections(proto), count_other_selections(proto)
        starts = (ILL_CONDITIONED, UNSTABLE) if others.keys().isdisjoint(outputs) else (ILL_CONDITIONED,)
        replaced = [entry for entry in reasons if _lists_only(entry, outputs, starts)]
        if not replaced or not selections or model.comparability.quantized:
            return (), tuple(reasons)
        try:
            replayed = self._run(path, proto, selections, ran)
        except (OSError, NoOutputsError, UnmeasurableError):
            replayed = None
        if replayed is None:
            return (), tuple(reasons)
        comparisons, missing = self.compare_runs(replace(model, noise=None), replayed)
        if not comparisons or not all(entry.by_design for entry in missing):
            return (), tuple(reasons)
        if not (comparisons := _drop_inconclusive(comparisons, selections, others)):
            return (), tuple(reasons)
        names = _Names({name: selection for selection in selections for name in selection.added}, outputs[0])
        left = [entry for entry in reasons if entry not in replaced]
        notes = dict.fromkeys(map(names.rename_in_note, missing))
        return tuple(map(names.rename, comparisons)), (*left, _describe(model, outputs), *notes)

    def _run(
        self, path: Path, proto: ModelProto, selections: Sequence[ReplayedSelection], ran: Sequence[ObservedRun]
    ) -> ReplayedRuns | None:
        """Repeat the completed runs with the selections of the source; None if these do not fit the model.

        Raises:
            NoOutputsError: the model did not run.
            OSError: the model cannot be copied.
            UnmeasurableError: the source does not run in this check.
        """
        completed = self.extra.list_completed(ran)
        cases = {case.name: case for run in completed for case in run.job.cases}
        sourced = _read_source(
            self.source.run(tuple(cases.values()), selections=True), [*cases], len(proto.graph.output)
        )
        if not cases or sourced.keys() != cases.keys():
            return None
        latest = max(completed, key=lambda run: runtime_sort_key(run.runtime))
        names = {selection.indices: None for selection in selections}
        if len(selections) > 1:  # the scores show which of them the source selects
            inputs = {value.name for value in proto.graph.input}
            names |= {selection.scores: None for selection in selections if selection.scores not in inputs}
        exposed = expose_values(proto, path, names, self.extra.place())
        usual = self.extra.start(latest.runtime, exposed, tuple(cases.values()), latest.job.optimization).outputs()
        chosen = _align(usual, selections, sourced)
        if chosen is None:
            return None
        path = replay_selections(path, proto, self.extra.place())
        replayed = {name: _add_indices(case, selections, chosen[name]) for name, case in cases.items()}
        eager = {
            name: CaseResult(outputs=(*sourced[name].outputs, *(it.values for it in chosen[name] for _ in range(2))))
            for name in cases
        }
        runs = tuple(self.extra.repeat(completed, path, replayed))
        return ReplayedRuns(path, tuple(replayed.values()), runs, eager) if all(map(_is_complete, runs)) else None


@dataclass(frozen=True, slots=True)
class _Selected:
    """Files with the values and indices that the source selected."""

    values: str
    indices: str


@dataclass(frozen=True, slots=True)
class _SourceRun:
    """Outputs of the source for one case, and its selections in the order of their execution."""

    outputs: tuple[str | None, ...]
    selected: tuple[_Selected, ...]


def _read_source(answer: Observation, cases: Sequence[str], count: int) -> dict[str, _SourceRun]:
    """Return the results of the source by case; `count` is the number of outputs of the model."""
    match answer:
        case Completed(result=ExportResult(eager=results)):
            pass
        case _:
            return {}
    runs = {}
    for name, result in zip(cases, results, strict=False):
        outputs, added = result.outputs[:count], [path for path in result.outputs[count:] if path is not None]
        if result.failure is None and len(outputs) == count and not len(added) % 2:
            runs[name] = _SourceRun(outputs, tuple(map(_Selected, added[::2], added[1::2])))
    return runs


def _align(
    usual: RunOutputs, selections: Sequence[ReplayedSelection], sourced: Mapping[str, _SourceRun]
) -> dict[str, list[_Selected]] | None:
    """Find the selection of the source for each of the model; None if it is not unambiguous.

    It has the same shape. Several of the same shape are in the same order, unless the scores show another order.
    """
    aligned: dict[str, list[_Selected]] = {}
    for case, source in sourced.items():
        files = [usual.paths.get((case, selection.indices)) for selection in selections]
        shapes = [load_array(file).shape for file in files if file is not None]
        selected = [(it, load_array(it.indices).shape) for it in source.selected]
        fitting = [(it, shape) for it, shape in selected if shape in shapes]
        if None in files or [shape for _, shape in fitting] != shapes:
            return None
        scores = [usual.paths.get((case, selection.scores)) for selection in selections]
        chosen = [it for it, _ in fitting]
        for shape in dict.fromkeys(shapes):
            places = [place for place, other in enumerate(shapes) if other == shape]
            same = [chosen[place] for place in places]
            order = _order_by_scores([(selections[place], scores[place]) for place in places], same)
            for place, number in zip(places, order, strict=True):
                chosen[place] = same[number]
        aligned[case] = chosen
    return aligned


def _order_by_scores(
    selections: Sequence[tuple[ReplayedSelection, str | None]], selected: Sequence[_Selected]
) -> Sequence[int]:
    """Return which of the source's selections of one shape has the scores of each of the model's selections.

    A tool may have moved the nodes of a model. The order of the source is returned if the scores do not show another.
    """
    numbers = range(len(selected))
    if len(selected) < 2 or any(path is None for _, path in selections):
        return numbers
    errors = np.array(
        [[_compare_scores(load_array(path or ""), one.axis, it) for it in selected] for one, path in selections]
    )
    best = [row if errors[row, row] <= errors[row].min() else int(errors[row].argmin()) for row in numbers]
    return best if sorted(best) == [*numbers] else numbers


def _compare_scores(scores: NDArray[Any], axis: int, selected: _Selected) -> float:
    """Return the largest difference between the selected scores of the model and of the source."""
    try:
        ours = np.take_along_axis(scores, load_array(selected.indices), axis).astype(np.float64)
    except (IndexError, ValueError):
        return math.inf
    theirs = load_array(selected.values).astype(np.float64)
    with np.errstate(invalid="ignore"):
        difference = np.where(ours == theirs, 0.0, np.abs(ours - theirs))
    return float(np.where(np.isnan(difference), math.inf, difference).max(initial=0.0))


def _add_indices(case: InputCase, selections: Sequence[ReplayedSelection], chosen: Sequence[_Selected]) -> InputCase:
    """Return the case with the indices that the source selected."""
    indices = {it.replayed: selected.indices for it, selected in zip(selections, chosen, strict=True)}
    return msgspec.structs.replace(case, inputs={**case.inputs, **indices})


def _lists_only(entry: IncompleteCheck, outputs: Sequence[str], starts: Sequence[str]) -> bool:
    """Return whether an incomplete check is about items of these outputs that rounding errors determine."""
    return any(
        entry.cause.startswith(start) and {*entry.cause.removeprefix(start).split()} <= {*outputs} for start in starts
    )


def _drop_inconclusive(
    comparisons: Sequence[Comparison], selections: Sequence[ReplayedSelection], others: Mapping[str, int]
) -> tuple[Comparison, ...]:
    """Return the comparisons without mismatches that a selection may cause that is not replayed.

    `others` are the numbers of such selections before each value. Return no comparisons if no other mismatch remains.
    """
    scores = {name: selection.scores for selection in selections for name in selection.added}
    mismatches = [mismatch for comparison in comparisons for mismatch in find_mismatches(comparison)]
    counts = {id(it): others.get(scores.get(it.output, it.output), 0) for it in mismatches}
    unclear = [
        it for it in mismatches if _share_of_items(it) < MIN_DIFFERING_SHARES.get(counts[id(it)], MIN_CASCADED_SHARE)
    ]
    if not unclear:
        return tuple(comparisons)
    if len(unclear) == len(mismatches):
        return ()
    left = (tuple(it for it in comparison.differences if it not in unclear) for comparison in comparisons)
    pairs = zip(comparisons, left, strict=True)
    return tuple(msgspec.structs.replace(comparison, differences=differences) for comparison, differences in pairs)


def _share_of_items(mismatch: Difference) -> float:
    items = next((figure.value for figure in mismatch.figures if figure.metric == "items"), 0.0)
    return mismatch.value / items if mismatch.metric == "differing items" and items else 0.0


def _is_complete(run: ObservedRun) -> bool:
    """Return whether a run has results for all cases."""
    match run.observation:
        case Completed(result=RunResult(cases=cases)):
            return all(case.failure is None for case in cases)
        case _:
            return False


@dataclass(frozen=True, slots=True)
class _Names:
    """Names of compared values: the values of a selection count as its scores, which an output depends on."""

    selections: Mapping[str, ReplayedSelection]
    output: str

    def rename(self, comparison: Comparison) -> Comparison:
        """Return the comparison with the names of the unmodified model."""
        differences = tuple(
            msgspec.structs.replace(
                difference, output=self.output, compared=self.selections[difference.output].scores, note=SELECTED
            )
            if difference.output in self.selections
            else difference
            for difference in comparison.differences
        )
        return msgspec.structs.replace(comparison, differences=differences)

    def rename_in_note(self, entry: IncompleteCheck) -> IncompleteCheck:
        """Return the entry with the scores instead of an output that was added."""
        reason = entry.reason
        for name, selection in self.selections.items():
            reason = reason.replace(f"output `{name}`", f"value `{selection.scores}`")
        return replace(entry, reason=reason)


def _describe(model: ParityModel, outputs: Sequence[str]) -> IncompleteCheck:
    reason = (
        f"rounding errors decide which items output{'s' if len(outputs) > 1 else ''} {join_quoted(outputs)} "
        f"{'list' if len(outputs) > 1 else 'lists'}, so the model was compared after selecting the same items as the "
        f"source; the scores of these items were also compared"
    )
    return IncompleteCheck(Stage.PARITY, model.path, "", reason, by_design=True)
