"""Search for the origin of mismatches: the first node whose outputs differ."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onnxgate.core.errors import UnavailableError
from onnxgate.core.findings import IncompleteCheck, Stage
from onnxgate.core.jobs import CaseResult, Completed, Export, ExportResult, InputCase, Job, Observation, Optimization
from onnxgate.core.report import RATIO_METRICS
from onnxgate.evidence.parity import (
    SELECTED,
    SOURCE,
    Comparison,
    Difference,
    FirstDifference,
    find_mismatches,
    find_worst,
)
from onnxgate.gate.execution.parity.extra_runs import ExtraRuns
from onnxgate.gate.execution.parity.replayed_selections import ReplayedRuns
from onnxgate.gate.execution.started_models import StartedModel
from onnxgate.gate.request import ExecutionSettings
from onnxgate.model.reading.file_format import UnreadableModel
from onnxgate.model.reading.structure import read_structure
from onnxgate.numerics.first_difference import NO_DISTANCE, Distance
from onnxgate.runtimes.worker_spec import JobLimits
from onnxgate.stages.parity.first_difference import (
    DifferenceOrigin,
    SearchError,
    SearchSide,
    create_first_difference,
    create_search_mask,
    search_across_levels,
    search_origin,
)
from onnxgate.stages.parity.output_comparison import CaseOutput, OutputMask
from onnxgate.stages.parity.source_difference import (
    NoFirstNodeError,
    SourceProgram,
    create_fresh_export,
    describe_differing_weight,
    match_fresh_export,
    rename_inputs,
    search_program_values,
)
from onnxgate.stages.runtime import ObservedRun

if TYPE_CHECKING:
    from onnx import ModelProto


MAX_SEARCHES = 4
"""Maximum number of searches per model; similar mismatches share one search."""
SEARCH_TIME_S = 120.0
"""Time limit per model; no further search is started afterwards."""
JOB_TIME_S = 120.0
SAME_FAULT_RATIO = 2.0
"""Mismatches in the same outputs are treated as one fault if their magnitudes differ by less than this factor."""
PAIRS = ("source", "runtime", "optimization", "engine")
ERROR_METRICS = ("worst_abs", "mismatched elements", "differing items", "not finite")


@dataclass(frozen=True, slots=True)
class SearchedModel:
    """A model with mismatches, and the data needed to find their origins."""

    path: str
    absolute: Path
    proto: ModelProto
    root: Path  # repository root
    folder: Path  # config folder
    cases: Mapping[str, InputCase]
    eager: Mapping[str, CaseResult] | None
    fresh: Path | None  # export of this check
    source: Export | None  # export job of this check
    masks: Mapping[CaseOutput, OutputMask] = field(default_factory=dict)
    replayed: ReplayedRuns | None = None  # runs that selected the same items as the source

    def select_as_source(self, replayed: ReplayedRuns) -> SearchedModel:
        """Return the copy of the model that selected the same items as the source; this model if it is unreadable."""
        cases = {case.name: case for case in replayed.cases}
        try:
            proto = read_structure(replayed.path)
        except (OSError, UnreadableModel):
            return self
        return dataclasses.replace(
            self, absolute=replayed.path, proto=proto, cases=cases, eager=replayed.eager, replayed=replayed
        )


def create_searched_model(
    settings: ExecutionSettings,
    started: StartedModel,
    ran: Sequence[ObservedRun],
    masks: Mapping[CaseOutput, OutputMask],
) -> SearchedModel:
    """Collect the data that the search needs about a model that was run. The model is read with its weights."""
    prepared, exporting = started.prepared, started.prepared.exporting
    exported = exporting.source.result() if exporting and exporting.source else None
    result = exported.result if isinstance(exported, Completed) else None
    fresh = result.model if isinstance(result, ExportResult) else None
    return SearchedModel(
        path=prepared.path,
        absolute=prepared.planned.model.absolute,
        proto=read_structure(prepared.planned.model.absolute),
        root=settings.project.root,
        folder=settings.project.folder,
        cases={case.name: case for run in ran for case in run.job.cases},
        eager=started.sourced.eager,
        fresh=Path(fresh) if fresh is not None else None,
        source=exporting.planned.source if exporting else None,
        masks=masks,
    )


@dataclass(frozen=True, slots=True)
class MismatchSearch:
    """Search for the origins of mismatches; `run_in_toolchain` runs a job of the source."""

    extra: ExtraRuns
    run_in_toolchain: Callable[[Job], Observation]

    def locate(
        self, model: SearchedModel, comparisons: Sequence[Comparison]
    ) -> tuple[tuple[Comparison, ...], tuple[IncompleteCheck, ...]]:
        """Add the origin to each mismatch; also return why origins were not found."""
        ends_at = time.monotonic() + SEARCH_TIME_S
        named, undone = list(comparisons), list[IncompleteCheck]()
        for searches, group in enumerate(_group_similar(comparisons)):
            is_transient = False
            if searches < MAX_SEARCHES and time.monotonic() <= ends_at:
                origin, is_transient = self._try(model, comparisons[group[0]])
            else:
                origin = "the search limit for this model was already reached by the search for other mismatches"
                is_transient = searches < MAX_SEARCHES
            if isinstance(origin, dict):
                for index in group:
                    named[index] = msgspec.structs.replace(named[index], **origin)
                continue
            references = " or ".join(dict.fromkeys(comparisons[index].reference for index in group))
            runtimes = {comparisons[index].runtime for index in group}
            on = runtimes.pop() if len(runtimes) == 1 else ""
            reason = f"the first node that differs from {references} was not found: {origin}"
            undone.append(IncompleteCheck(Stage.PARITY, model.path, on, reason, by_design=True, transient=is_transient))
        return tuple(named), tuple(undone)

    def _try(self, model: SearchedModel, comparison: Comparison) -> tuple[dict[str, object] | str, bool]:
        """Return the origin as fields of a comparison, or why it is unknown.

        Also return whether this reason is transient.
        """
        try:
            return {"first": self._search(model, comparison)}, False
        except NoFirstNodeError as reason:
            return {"at_no_node": str(reason)}, False
        except (SearchError, UnavailableError) as reason:
            return str(reason), isinstance(reason.__cause__, OSError)
        except (OSError, ValueError, KeyError) as error:  # a failed search must not abort the check
            return f"{type(error).__name__}: {error}", isinstance(error, OSError)

    def _search(self, model: SearchedModel, comparison: Comparison) -> FirstDifference:
        mismatch = _select_mismatch(comparison)
        if mismatch.case not in model.cases:
            raise SearchError(f"the inputs of `{mismatch.case}` are no longer available")
        name, detail = mismatch.output.removesuffix(" (layout)"), ""
        output = mismatch.compared or name
        side = self._side(model, comparison.runtime, mismatch.optimization, mismatch.case)
        side.mask = create_search_mask(model.proto, side.case, model.masks.get((mismatch.case, name)))
        if comparison.pair == "optimization" or _is_only_optimized(comparison, mismatch):
            plain = self._side(model, comparison.runtime, "disabled", mismatch.case)
            begun = search_across_levels(plain, side, output)
        elif comparison.reference == SOURCE:
            if mismatch.note == SELECTED:
                begun, detail = self._in_scores(model, comparison, side, mismatch, output)
            else:  # an item that differs may do so in only one of the outputs that list it
                outputs = _list_outputs(comparison, mismatch, output)
                begun, detail = self._against_source(model, comparison, side, mismatch, outputs)
        else:
            planned = self.extra.runtimes.get(comparison.reference)
            if planned is None:
                raise SearchError(f"{comparison.reference} is not available")
            level = mismatch.optimization if mismatch.optimization in planned.levels else planned.levels[-1]
            reference = self._side(model, comparison.reference, level, mismatch.case)
            begun = search_origin(
                side, reference.values, None, _list_outputs(comparison, mismatch, output), exact=False
            )
        if begun is None:
            raise SearchError("the output of each node differs only by rounding errors, but these errors accumulate")
        if model.replayed is not None:
            begun = _name_replaced_nodes(model.proto, begun, model.replayed)
        return create_first_difference(model.proto, begun, mismatch.case, model.root, model.folder, detail)

    def _in_scores(
        self, model: SearchedModel, comparison: Comparison, side: SearchSide, mismatch: Difference, output: str
    ) -> tuple[DifferenceOrigin | None, str]:
        """Search for the node that changes the scores `output`, which the source does not return."""
        begun, detail = None, ""
        # No value of the source is necessary to name a node that selects the items wrongly from its own scores.
        is_named = model.replayed is not None and any(output == it.indices for it in model.replayed.selections)
        with suppress(NoFirstNodeError, *([SearchError] if is_named else [])):
            begun, detail = self._against_source(model, comparison, side, mismatch, [output])
        if begun is None and model.replayed is not None:
            return _find_selecting_node(model, model.replayed, mismatch), ""
        if begun is None:
            raise SearchError(f"the scores `{output}` do not differ, but other items are selected by them")
        return begun, detail

    def _against_source(
        self,
        model: SearchedModel,
        comparison: Comparison,
        side: SearchSide,
        mismatch: Difference,
        outputs: Sequence[str],
    ) -> tuple[DifferenceOrigin | None, str]:
        """Compare with the source, or with a fresh export on the same runtime if this export has correct outputs."""
        if model.source is None:
            raise SearchError("intermediate values of the source are not available")
        path = model.fresh or create_fresh_export(model.source, self.run_in_toolchain, self.extra.place())
        if path and model.replayed is not None:
            path = model.replayed.replay(path, self.extra.place())
        fresh = match_fresh_export(model.proto, model.absolute, path) if path else None
        if fresh is not None:
            cases = {name: rename_inputs(case, model.proto, fresh.proto) for name, case in model.cases.items()}
            exported = dataclasses.replace(model, absolute=fresh.path, proto=fresh.proto, cases=cases)
            right = self._side(exported, comparison.runtime, mismatch.optimization, mismatch.case)
            is_selected = mismatch.note == SELECTED
            searched = [
                it for it in outputs if is_selected or _is_fresh_export_nearer(right, side, model, mismatch, it)
            ]
            if searched:
                begun = search_origin(side, fresh.reference(right), fresh.names, searched, exact=True)
                return begun, describe_differing_weight(fresh, model.proto, model.absolute, begun)
        added = model.replayed.added if model.replayed is not None else frozenset[str]()
        program = SourceProgram(model.source, self.run_in_toolchain, self.extra.place())
        return search_program_values(program, side, fresh, outputs, added), ""

    def _side(self, model: SearchedModel, runtime: str, level: str, case: str) -> SearchSide:
        optimization: Optimization = "all" if level == "all" else "disabled"

        def run(at: Path, fed: InputCase) -> Observation:
            return self.extra.start(runtime, at, (fed,), optimization, JobLimits(time_s=JOB_TIME_S)).answer.result()

        return SearchSide(model.absolute, model.proto, model.cases[case], run, self.extra.place())


def _find_selecting_node(model: SearchedModel, replayed: ReplayedRuns, mismatch: Difference) -> DifferenceOrigin:
    """Return the node that selects other items than the source, although its scores are equal."""
    selection = next(it for it in replayed.selections if mismatch.compared in (it.scores, it.boxes, it.indices))
    nodes = enumerate(model.proto.graph.node)
    node = next(index for index, node in nodes if {selection.own_indices}.issubset(node.output))
    return DifferenceOrigin(node, selection.indices, NO_DISTANCE, Distance(mismatch.value, math.inf))


def _name_replaced_nodes(proto: ModelProto, origin: DifferenceOrigin, replayed: ReplayedRuns) -> DifferenceOrigin:
    """Return the origin with selecting nodes instead of the nodes in `proto` that replay their selections."""
    makers = {name: index for index, node in enumerate(proto.graph.node) for name in node.output if name}
    replaced: dict[int, int] = {}  # node that replays a selection -> node that selects in the unmodified model
    computed = {name for node in replayed.original.proto.graph.node for name in node.output}
    for selection in replayed.selections:
        node = next(node for node in replayed.original.proto.graph.node if selection.indices in node.output)
        names = makers.keys() & {*node.output, *selection.added}
        replaced |= {makers[name]: makers[selection.own_indices] for name in names}
        if replaced.get(origin.node) == makers[selection.own_indices] and origin.output not in computed:
            origin = dataclasses.replace(origin, output=selection.indices)
    named = replaced.get(origin.node, origin.node)
    within = {replaced.get(index, index) for index in origin.within} - {named}
    return dataclasses.replace(origin, node=named, within=tuple(sorted(within)))


def _is_fresh_export_nearer(
    fresh: SearchSide, committed: SearchSide, model: SearchedModel, mismatch: Difference, output: str
) -> bool:
    """Return whether the fresh export is much closer to the source on this runtime than the committed model is."""
    names = [value.name for value in committed.proto.graph.output]
    eager = (model.eager or {}).get(mismatch.case)
    if eager is None or len(eager.outputs) != len(names) or len(fresh.proto.graph.output) != len(names):
        return False
    index = names.index(output)
    right = eager.outputs[index]
    try:
        value = fresh.value(fresh.proto.graph.output[index].name) if right else None
    except SearchError:
        return False
    if right is None or value is None:
        return False
    near, own = (committed.compare(output, path, Path(right)) for path in (value, committed.value(output)))
    return near.relative < own.relative / 4


def _select_mismatch(comparison: Comparison) -> Difference:
    """Select the mismatch to search: the worst mismatch, preferably without optimization."""
    mismatches = [mismatch for mismatch in find_mismatches(comparison) if mismatch.metric in ERROR_METRICS]
    if not mismatches and any(mismatch.metric in RATIO_METRICS for mismatch in find_mismatches(comparison)):
        raise SearchError(
            "rounding in a quantized or 16-bit model changes the output of every node, so the first differing node "
            "cannot be found"
        )
    if not mismatches:
        raise SearchError("the outputs differ in type, shape or number")
    return find_worst([mismatch for mismatch in mismatches if mismatch.optimization == "disabled"] or mismatches)


def _list_outputs(comparison: Comparison, mismatch: Difference, output: str) -> list[str]:
    """Return the output to search in, and the others that list the same items if items differ."""
    if mismatch.metric != "differing items" or mismatch.compared:
        return [output]
    run = mismatch.case, mismatch.optimization
    others = [it for it in find_mismatches(comparison) if (it.case, it.optimization) == run and not it.compared]
    return list(dict.fromkeys([output, *(it.output for it in others if it.metric == "differing items")]))


def _is_only_optimized(comparison: Comparison, mismatch: Difference) -> bool:
    """Return whether the same output of the same case is correct without optimization."""
    return mismatch.optimization == "all" and any(
        difference.agrees
        and difference.optimization == "disabled"
        and (difference.case, difference.output) == (mismatch.case, mismatch.output)
        for difference in comparison.differences
    )


def _group_similar(comparisons: Sequence[Comparison]) -> list[list[int]]:
    """Group the indexes of comparisons whose mismatches count as one fault; each group starts with the worst."""
    groups: dict[tuple[object, ...], list[list[int]]] = {}
    mismatched = [
        index
        for index, comparison in enumerate(comparisons)
        if find_mismatches(comparison) and comparison.pair in PAIRS
    ]
    for index in sorted(mismatched, key=lambda index: -_largest_mismatch(comparisons[index])):
        mismatches, size = find_mismatches(comparisons[index]), _largest_mismatch(comparisons[index])
        outputs, levels = ({it.output for it in mismatches}, {it.optimization for it in mismatches})
        similar = groups.setdefault((comparisons[index].pair, frozenset(outputs), frozenset(levels)), [])
        for group in similar:
            if _largest_mismatch(comparisons[group[0]]) <= SAME_FAULT_RATIO * size:
                group.append(index)
                break
        else:
            similar.append([index])
    return [group for similar in groups.values() for group in similar]


def _largest_mismatch(comparison: Comparison) -> float:
    return max((mismatch.value for mismatch in find_mismatches(comparison)), default=0.0)
