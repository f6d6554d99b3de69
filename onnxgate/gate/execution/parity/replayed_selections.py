"""Comparison after the same items were selected.

If rounding errors decide which items a node selects, all later values depend on them, such as the boxes of a detector.
The source therefore runs again and records its selections; the model then selects the same items. The scores of the
selected items, and boxes that suppress others, are compared too. Without a source, the runs of the model select the
items that one of them selected.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from onnxgate.core.findings import IncompleteCheck, Stage, runtime_sort_key
from onnxgate.core.jobs import CaseResult, Completed, ExportResult, InputCase, Observation, RunResult, SourceSelection
from onnxgate.core.text import join_quoted
from onnxgate.evidence.parity import SELECTED, Comparison, Difference, find_mismatches
from onnxgate.gate.execution.parity.aligned_selections import (
    ModelValues,
    WrongSelection,
    align_selections,
    check_selections,
)
from onnxgate.gate.execution.parity.extra_runs import ExtraRuns, NoOutputsError, SourceRuns, UnmeasurableError
from onnxgate.model.reading.file_format import UnreadableModel
from onnxgate.model.reading.structure import read_structure
from onnxgate.model.subgraphs.instrumented_models import expose_values
from onnxgate.model.subgraphs.replayed_selections import (
    InlinedModel,
    ReplayedSelection,
    count_other_selections,
    inline_suppressions,
    list_selections,
    replay_selections,
)
from onnxgate.numerics.streams import load_array
from onnxgate.stages.parity.output_comparison import ParityModel
from onnxgate.stages.parity.ranked_comparison import ILL_CONDITIONED, UNSTABLE
from onnxgate.stages.parity.stage import ParityEvidence
from onnxgate.stages.runtime import ObservedRun

if TYPE_CHECKING:
    from onnx import ModelProto

MIN_DIFFERING_SHARES = {0: 0.0, 1: 0.05}
"""Minimum share of items that differ for another reason than selections that are not replayed, by their number.

Source: chosen. After one suppression (SSDlite with random weights, 6 inputs), no item of a correct model differs. After
two (Faster R-CNN), up to 12 % do; more than one use `MIN_CASCADED_SHARE`.
"""
MIN_CASCADED_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class ReplayedRuns:
    """Runs of the model at `path` with the selections of the source, whose outputs are `eager`, by case.

    Without a source, all runs have the selections of the runtime `latest`, and `eager` is None. `original` is the model
    in which `selections` were replaced; it has no `If` nodes that suppress boxes.
    """

    original: InlinedModel
    selections: Sequence[ReplayedSelection]
    path: Path
    cases: tuple[InputCase, ...]
    runs: tuple[ObservedRun, ...]
    latest: str
    eager: Mapping[str, CaseResult] | None
    wrong: Mapping[str, Sequence[WrongSelection]]  # by case

    @property
    def added(self) -> frozenset[str]:
        """Names of the inputs and outputs that the source does not have."""
        return frozenset(name for it in self.selections for name in (it.replayed, *it.added))

    def add_wrong_selections(self, comparison: Comparison, output: str) -> Comparison:
        """Return the comparison with the source's wrong selections as the first differences of an output."""
        runs = dict.fromkeys((it.case, it.optimization) for it in comparison.differences)
        added = [
            Difference(
                output=output,
                case=case,
                optimization=optimization,
                agrees=False,
                metric="differing items",
                value=float(it.choices.count),
                bound=0.0,
                bound_from="type",
                detail=f"{it.choices.detail}; {it.choices.count} of {it.items} items differ",
                compared=it.selection.indices,
                note=SELECTED,
            )
            for case, optimization in runs
            for it in self.wrong.get(case, ())
        ]
        return msgspec.structs.replace(comparison, differences=(*added, *comparison.differences))

    def replay(self, model: Path, folder: Path) -> Path | None:
        """Write a copy of another export of the model with the same selections; None if it has others.

        Raises:
            OSError: the model cannot be copied.
        """
        folder.mkdir(parents=True)
        inlined = inline_suppressions(model, read_structure(model), folder / "inlined")
        selections = {selection.indices: selection for selection in list_selections(inlined.proto)}
        if not all(selection.indices in selections for selection in self.selections):
            return None
        chosen = [selections[it.indices].with_names_of(it) for it in self.selections]
        return replay_selections(inlined.path, inlined.proto, chosen, folder / "replayed")


CompareRuns = Callable[[ParityModel, ReplayedRuns], ParityEvidence]
"""Compares all outputs of runs; returns no comparisons if they remain undecided."""


@dataclass(frozen=True, slots=True)
class ReplayedComparison:
    """Compares ranked outputs of a model after selecting the same items as its source, or as one of its runs."""

    extra: ExtraRuns
    source: SourceRuns | None
    compare_runs: CompareRuns

    def compare(
        self,
        model: ParityModel,
        path: Path,
        proto: ModelProto,
        ran: Sequence[ObservedRun],
        reasons: Sequence[IncompleteCheck],
    ) -> tuple[ParityEvidence, ReplayedRuns | None]:
        """Return the comparisons of the model at `path`, and `reasons` without the outputs that were compared.

        Also return the runs that were compared, if there are any.
        """
        unchanged: ParityEvidence = (), tuple(reasons)
        outputs = [name for ranked in model.ranked for name in ranked.axes]
        if model.comparability.quantized or not _list_replaced(reasons, outputs, (ILL_CONDITIONED, UNSTABLE)):
            return unchanged, None
        replayed = self.run(path, proto, ran)
        if replayed is None:
            return unchanged, None
        selections, others = replayed.selections, count_other_selections(replayed.original.proto, replayed.selections)
        starts = (ILL_CONDITIONED, UNSTABLE) if others.keys().isdisjoint(outputs) else (ILL_CONDITIONED,)
        replaced = _list_replaced(reasons, outputs, starts)
        comparisons, missing = self.compare_runs(replace(model, noise=None), replayed) if replaced else ((), ())
        if not comparisons or not all(entry.by_design for entry in missing):
            return unchanged, None
        names = _Names({name: selection for selection in selections for name in selection.added}, outputs[0])
        complete = [replayed.add_wrong_selections(it, outputs[0]) for it in comparisons]
        if not (comparisons := _drop_inconclusive(complete, selections, others)):
            return unchanged, None
        left = [entry for entry in reasons if entry not in replaced]
        notes = dict.fromkeys(map(names.rename_in_note, missing))
        note = _describe(model, outputs, "the source" if replayed.eager is not None else replayed.latest)
        evidence = tuple(map(names.rename, comparisons)), (*left, note, *notes)
        return evidence, replayed

    def run(self, path: Path, proto: ModelProto, ran: Sequence[ObservedRun]) -> ReplayedRuns | None:
        """Repeat the completed runs with the selections of the source; None if this is not possible."""
        try:
            return self._run(path, proto, ran)
        except (OSError, UnreadableModel, NoOutputsError, UnmeasurableError):
            return None

    def _run(self, path: Path, proto: ModelProto, ran: Sequence[ObservedRun]) -> ReplayedRuns | None:
        """Repeat the completed runs with the selections of the source; None if these do not fit the model.

        If not all selections fit, only those of `TopK` are replayed.

        Raises:
            NoOutputsError: the model did not run.
            OSError: the model cannot be copied.
            UnmeasurableError: the source does not run in this check.
        """
        completed = self.extra.list_completed(ran)
        cases = {case.name: case for run in completed for case in run.job.cases}
        inlined = inline_suppressions(path, proto, self.extra.place())
        attempts = [(inlined, list_selections(inlined.proto))]
        if any(selection.operator != "TopK" for selection in attempts[0][1]):
            ranking = [selection for selection in list_selections(proto) if selection.operator == "TopK"]
            attempts.append((InlinedModel(path, proto, {}), tuple(ranking)))
        if not cases or not attempts[0][1]:
            return None
        sourced: dict[str, CaseResult] | None = None
        if self.source is not None:
            answer = self.source.run(tuple(cases.values()), selections=True)
            sourced = _read_source(answer, [*cases], len(proto.graph.output))
            if sourced.keys() != cases.keys():
                return None
        for original, selections in attempts:
            with suppress(NoOutputsError):
                replayed = self._replay(original, selections, completed, cases, sourced)
                if replayed is not None:
                    return replayed
        return None

    def _replay(
        self,
        original: InlinedModel,
        selections: Sequence[ReplayedSelection],
        completed: Sequence[ObservedRun],
        cases: Mapping[str, InputCase],
        sourced: Mapping[str, CaseResult] | None,
    ) -> ReplayedRuns | None:
        """Repeat the completed runs with these selections; None if the source has not the same ones."""
        latest = max(completed, key=lambda run: runtime_sort_key(run.runtime))
        known = {value.name for value in (*original.proto.graph.input, *original.proto.graph.initializer)}
        read = [name for selection in selections for name in (selection.indices, selection.scores, *selection.limits)]
        names = {name: None for name in (*read, *original.conditions) if name and name not in known}
        exposed = expose_values(original.proto, original.path, names, self.extra.place())
        usual = self.extra.start(latest.runtime, exposed, tuple(cases.values()), latest.job.optimization).outputs()
        values = ModelValues(original.proto, cases, usual)
        if not all(values.agree(name, value) for name, value in original.conditions.items()):
            return None
        chosen = {
            name: self._read_own(name, values, selections)
            if sourced is None
            else align_selections(name, values, selections, sourced[name].selections)
            for name in cases
        }
        aligned = {name: selected for name, selected in chosen.items() if selected is not None}
        if not selections or aligned.keys() != cases.keys():
            return None
        path = replay_selections(original.path, original.proto, selections, self.extra.place())
        replayed = {name: self._add_indices(case, selections, aligned[name]) for name, case in cases.items()}
        runs = tuple(self.extra.repeat(completed, path, replayed))
        eager = wrong = None
        if sourced is not None:
            eager = {
                name: CaseResult(outputs=(*sourced[name].outputs, *_list_added(selections, aligned[name])))
                for name in cases
            }
            wrong = {name: [*check_selections(name, values, selections, aligned[name])] for name in cases}
            pairs = (pair for name in cases for pair in zip(selections, aligned[name], strict=True))
            if any(one.largest != it.largest for one, it in pairs) and not any(wrong.values()):
                return None  # equal scores hide a wrong direction
        suppressed = {name for selection in selections if selection.boxes for name in selection.added}
        if not all(_is_complete(run, suppressed, eager or {}) for run in runs):
            return None
        return ReplayedRuns(
            original, selections, path, tuple(replayed.values()), runs, latest.runtime, eager, wrong or {}
        )

    def _read_own(
        self, case: str, values: ModelValues, selections: Sequence[ReplayedSelection]
    ) -> list[SourceSelection] | None:
        """Return the selections of the model itself; None if they are unknown."""
        own = []
        for selection in selections:
            indices = values.read(case, selection.indices)
            if indices is None:
                return None
            path = self.extra.create_folder() / "selected.npy"
            np.save(path, indices if selection.keepdims else np.expand_dims(indices, selection.axis))
            own.append(SourceSelection(operator=selection.operator, scores="", indices=str(path)))
        return own

    def _add_indices(
        self, case: InputCase, selections: Sequence[ReplayedSelection], selected: Sequence[SourceSelection]
    ) -> InputCase:
        """Return the case with the indices that the source selected."""
        indices = {selection.replayed: it.indices for selection, it in zip(selections, selected, strict=True)}
        for selection in selections:
            kept = load_array(indices[selection.replayed]) if selection.boxes else np.zeros((0, 0))
            if kept.ndim == 1:  # one image and one class
                path = self.extra.create_folder() / "selected.npy"
                np.save(path, np.stack([np.zeros_like(kept), np.zeros_like(kept), kept], axis=1))
                indices[selection.replayed] = str(path)
        return msgspec.structs.replace(case, inputs={**case.inputs, **indices})


def _list_added(selections: Sequence[ReplayedSelection], selected: Sequence[SourceSelection]) -> Iterator[str]:
    """Yield the files of the source with the values of the outputs that replaying adds."""
    for selection, it in zip(selections, selected, strict=True):
        for part in selection.added.values():
            yield getattr(it, part)


def _read_source(answer: Observation, cases: Sequence[str], count: int) -> dict[str, CaseResult]:
    """Return the results of the source by case; `count` is the number of outputs of the model."""
    match answer:
        case Completed(result=ExportResult(eager=results)):
            pass
        case _:
            return {}
    named = zip(cases, results, strict=False)
    return {name: it for name, it in named if it.failure is None and len(it.outputs) == count}


def _list_replaced(
    reasons: Sequence[IncompleteCheck], outputs: Sequence[str], starts: Sequence[str]
) -> list[IncompleteCheck]:
    """Return the incomplete checks about items of these outputs that rounding errors determine."""
    return [
        entry
        for entry in reasons
        for start in starts
        if entry.cause.startswith(start) and {*entry.cause.removeprefix(start).split()} <= {*outputs}
    ]


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


def _is_complete(run: ObservedRun, inputs: Collection[str], eager: Mapping[str, CaseResult]) -> bool:
    """Return whether a run has results for all cases, and `inputs` of suppressions have the shapes of the source."""
    match run.observation:
        case Completed(result=RunResult(outputs=names, cases=results)):
            expected = [eager[case.name].outputs if eager else () for case in run.job.cases]
            return all(it.failure is None for it in results) and all(
                _have_same_shape(ours, theirs)
                for result, outputs in zip(results, expected, strict=True)
                for name, ours, theirs in zip(names, result.outputs, outputs, strict=False)
                if name in inputs
            )
        case _:
            return False


def _have_same_shape(first: str | None, second: str | None) -> bool:
    return first is not None and second is not None and load_array(first).shape == load_array(second).shape


@dataclass(frozen=True, slots=True)
class _Names:
    """Names of compared values: the values of a selection count as its scores, which an output depends on."""

    selections: Mapping[str, ReplayedSelection]
    output: str

    def rename(self, comparison: Comparison) -> Comparison:
        """Return the comparison with the names of the unmodified model."""
        differences = tuple(
            msgspec.structs.replace(
                difference,
                output=self.output,
                compared=self.selections[difference.output].name(difference.output),
                note=SELECTED,
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
            reason = reason.replace(f"output `{name}`", f"value `{selection.name(name)}`")
        return replace(entry, reason=reason)


def _describe(model: ParityModel, outputs: Sequence[str], selecting: str) -> IncompleteCheck:
    reason = (
        f"rounding errors decide which items output{'s' if len(outputs) > 1 else ''} {join_quoted(outputs)} "
        f"{'list' if len(outputs) > 1 else 'lists'}, so the model was compared after selecting the same items as "
        f"{selecting}; the scores of these items were also compared"
    )
    return IncompleteCheck(Stage.PARITY, model.path, "", reason, by_design=True)
