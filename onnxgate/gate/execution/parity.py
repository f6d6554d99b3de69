"""Compare the outputs of a model that was run, and search the first differing node."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onnxgate.core.errors import UnavailableError
from onnxgate.core.findings import IncompleteCheck, Stage
from onnxgate.core.jobs import CaseResult, Completed, Export, ExportResult, InputCase, Job, Observation, Run
from onnxgate.evidence.parity import Comparison, Difference, FirstDifference, find_mismatches, find_worst
from onnxgate.evidence.runtime import ModelRuns, find_not_finite
from onnxgate.gate.execution import failed_runs
from onnxgate.gate.execution.quantized import FloatComparison, QuantizedModel
from onnxgate.gate.execution.toolchain import ModelExport, StartedModel, report_measurements
from onnxgate.gate.request import ExecutionSettings, StepResult
from onnxgate.model.checking.quantization_parameters import find_output_steps
from onnxgate.model.numeric_traits import detect_numeric_traits
from onnxgate.project.plan import PlannedRuntime
from onnxgate.runtimes.worker_spec import JobLimits
from onnxgate.stages.parity import stage as parity_stage
from onnxgate.stages.parity.first_difference import (
    DifferenceOrigin,
    NoFirstNodeError,
    SearchError,
    SearchSide,
    compare_files,
    create_first_difference,
    create_fresh_export,
    describe_differing_weight,
    match_fresh_export,
    search_across_levels,
    search_origin,
    search_program_values,
)
from onnxgate.stages.parity.output_comparison import find_output_masks
from onnxgate.stages.parity.stage import ParityModel
from onnxgate.stages.runtime.stage import ObservedRun

if TYPE_CHECKING:
    from onnx import ModelProto


SubmitJob = Callable[[PlannedRuntime, Job, JobLimits | None], Future[Observation]]


class OutputComparer:
    """Compares outputs, and searches the origin of a mismatch.

    `submit` runs a job on a runtime, `ask` in the toolchain; `folder` returns an unused path for files.
    """

    def __init__(
        self,
        settings: ExecutionSettings,
        submit: SubmitJob,
        ask: Callable[[Job], Observation],
        folder: Callable[[], Path],
    ) -> None:
        self._settings = settings
        self._submit = submit
        self._ask = ask
        self._folder = folder

    def compare(self, started: StartedModel, ran: Sequence[ObservedRun], runs: Sequence[ModelRuns]) -> StepResult:
        """Compare the outputs of one model with its source, across levels and runtimes, and with its float model."""
        model = self._model(started, runs)
        if self._settings.watch is not None:
            self._settings.watch(model, ran)
        unread = started.prepared.fed.unread
        skipped = (IncompleteCheck(Stage.PARITY, model.path, "", unread),) if unread else ()
        unusable = () if failed_runs.explain_no_completed_run(runs)[0] else failed_runs.find_undecided_cases(runs)
        comparisons, undone = parity_stage.collect_evidence(model, ran, started.sourced.eager, unusable)
        locator = MismatchSearch(self._submit, self._ask, self._folder)
        comparisons, unfound = locator.locate(create_searched_model(self._settings, started, ran), comparisons)
        float_comparisons, undone_float = self._against_float(started, ran, model)
        comparisons, undone = (*comparisons, *float_comparisons), (*undone, *undone_float)
        return StepResult(
            subjects=comparisons,
            undone=tuple(reason for reason in undone if not reason.by_design),
            skipped=(*skipped, *unfound, *(reason for reason in undone if reason.by_design)),
            measured=tuple(figure for comparison in comparisons for figure in report_measurements(comparison)),
        )

    def _model(self, started: StartedModel, runs: Sequence[ModelRuns]) -> ParityModel:
        prepared, settings = started.prepared, self._settings
        return ParityModel(
            path=prepared.path,
            place=prepared.runnable.place,
            comparability=detect_numeric_traits(prepared.reading.facts, prepared.reading.proto),
            tolerance=prepared.planned.model.settings.tolerance,
            locked=settings.lock.models.get(prepared.path),
            operators=frozenset(prepared.reading.facts.operators),
            steps=find_output_steps(prepared.reading.proto, prepared.planned.model.absolute),
            masks=find_output_masks(prepared.reading, started.cases),
            not_finite=find_not_finite(runs) if Stage.RUNTIME in settings.stages else frozenset(),
        )

    def _against_float(
        self, started: StartedModel, ran: Sequence[ObservedRun], model: ParityModel
    ) -> tuple[tuple[Comparison, ...], tuple[IncompleteCheck, ...]]:
        """Compare a quantized model with its float model."""
        prepared = started.prepared
        quantized = QuantizedModel(prepared.planned.model, prepared.reading, started.cases, tuple(started.levels))
        quantizing = FloatComparison(
            self._settings.project, lambda where, job: self._submit(where, job, None), self._folder
        )
        return quantizing.examine(quantized, model, ran)


MAX_SEARCHES = 4
"""Limit of searches for one model: similar mismatches share one."""
SEARCH_TIME_S = 120.0
"""No search is started for a model after this time."""
JOB_TIME_S = 120.0
SAME_FAULT_RATIO = 2.0
"""Mismatches of the same outputs whose sizes differ by less than this factor count as one fault."""
SOURCE = "the source"
PAIRS = ("source", "runtime", "optimization", "engine")
ERROR_METRICS = ("worst_abs", "mismatched elements", "not finite")
RATIO_METRICS = ("sqnr_db", "cosine", "top1")

SubmitLimitedJob = Callable[[PlannedRuntime, Job, JobLimits], Future[Observation]]
AskToolchain = Callable[[Job], Observation]  # the toolchain


@dataclass(frozen=True, slots=True)
class SearchedModel:
    """A model whose mismatches are searched."""

    path: str
    absolute: Path
    proto: ModelProto
    root: Path  # git's root
    folder: Path  # the config's folder
    cases: Mapping[str, InputCase]
    runtimes: Mapping[str, PlannedRuntime]
    eager: Mapping[str, CaseResult] | None
    fresh: Path | None  # the export of this run
    source: Export | None  # the export job of this run


def create_searched_model(
    settings: ExecutionSettings, started: StartedModel, ran: Sequence[ObservedRun]
) -> SearchedModel:
    """Create the input of a search from a model that was run."""
    prepared = started.prepared
    return SearchedModel(
        path=prepared.path,
        absolute=prepared.planned.model.absolute,
        proto=prepared.reading.proto,
        root=settings.project.root,
        folder=settings.project.folder,
        cases={case.name: case for run in ran for case in run.job.cases},
        runtimes={planned.name: planned for planned in started.levels},
        eager=started.sourced.eager,
        fresh=_fresh_export(prepared.exporting),
        source=prepared.exporting.planned.source if prepared.exporting else None,
    )


def _fresh_export(exporting: ModelExport | None) -> Path | None:
    observation = exporting.source.result() if exporting and exporting.source else None
    match observation:
        case Completed(result=ExportResult(model=str(path))):
            return Path(path)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class _FaultOrigin:
    """The origin of a mismatch: a node, or a description."""

    first: FirstDifference | None
    at_no_node: str = ""


@dataclass(slots=True)
class MismatchSearch:
    """Searches the origins of mismatches; `place` returns an unused path for files."""

    submit: SubmitLimitedJob
    ask: AskToolchain
    place: Callable[[], Path]
    _made: int = field(default=0)
    _ends_at: float = field(default=0.0)

    def locate(
        self, model: SearchedModel, comparisons: Sequence[Comparison]
    ) -> tuple[tuple[Comparison, ...], tuple[IncompleteCheck, ...]]:
        """Add the origin to each mismatch; also return the reasons for origins that are not found."""
        self._made, self._ends_at = 0, time.monotonic() + SEARCH_TIME_S
        named, undone = list(comparisons), list[IncompleteCheck]()
        for group in _group_similar(comparisons):
            began = self._try(model, comparisons[group[0]])
            if isinstance(began, str):
                undone.append(_report_unlocated(model, [comparisons[index] for index in group], began))
                continue
            for index in group:
                named[index] = msgspec.structs.replace(named[index], first=began.first, at_no_node=began.at_no_node)
        return tuple(named), tuple(undone)

    def _try(self, model: SearchedModel, comparison: Comparison) -> _FaultOrigin | str:
        """Return the origin, or the reason why it is not found."""
        if self._made >= MAX_SEARCHES or time.monotonic() > self._ends_at:
            return "the time for that is spent on other mismatches of the model"
        self._made += 1
        try:
            return _FaultOrigin(self._searched(model, comparison))
        except NoFirstNodeError as elsewhere:
            return _FaultOrigin(None, str(elsewhere))
        except (SearchError, UnavailableError) as reason:
            return str(reason)
        except (OSError, ValueError, KeyError) as error:  # a failed search never ends a check
            return f"{type(error).__name__}: {error}"

    def _searched(self, model: SearchedModel, comparison: Comparison) -> FirstDifference:
        mismatch = _select_mismatch(comparison)
        if mismatch.case not in model.cases:
            raise SearchError(f"the inputs of `{mismatch.case}` are not there any more")
        output, detail = mismatch.output.removesuffix(" (layout)"), ""
        side = self._side(model, comparison.runtime, mismatch.optimization, mismatch.case)
        if comparison.pair == "optimization" or _is_only_optimized(comparison, mismatch):
            plain = self._side(model, comparison.runtime, "disabled", mismatch.case)
            begun = search_across_levels(plain, side, output)
        elif comparison.reference == SOURCE:
            begun, detail = self._against_source(model, comparison, side, mismatch, output)
        else:
            other = self._reference(model, comparison, mismatch)
            begun = search_origin(side, other.values, None, [output], exact=False)
        if begun is None:
            raise SearchError("no node by itself is off by more than rounding, which grows from node to node")
        return create_first_difference(model.proto, begun, mismatch.case, model.root, model.folder, detail)

    def _reference(self, model: SearchedModel, comparison: Comparison, mismatch: Difference) -> SearchSide:
        planned = model.runtimes.get(comparison.reference)
        if planned is None:
            raise SearchError(f"{comparison.reference} is not there to be asked")
        level = mismatch.optimization if mismatch.optimization in planned.levels else planned.levels[-1]
        return self._side(model, comparison.reference, level, mismatch.case)

    def _against_source(
        self, model: SearchedModel, comparison: Comparison, side: SearchSide, mismatch: Difference, output: str
    ) -> tuple[DifferenceOrigin | None, str]:
        """Compare with a fresh export on the same runtime if that one is right, or with the values of the source."""
        if model.source is None:
            raise SearchError("its source cannot be asked for intermediate values")
        path = model.fresh or create_fresh_export(model.source, self.ask, self.place())
        fresh = match_fresh_export(model.proto, model.absolute, path) if path else None
        if fresh is not None:
            exported = ModelOnDisk(fresh.path, fresh.proto)
            other = self._side(model, comparison.runtime, mismatch.optimization, mismatch.case, exported)
            if _is_fresh_export_nearer(other, side, model, mismatch, output):
                begun = search_origin(side, fresh.reference(other), fresh.names, [output], exact=True)
                return begun, describe_differing_weight(fresh, model.proto, model.absolute, begun)
        return search_program_values(model.source, self.ask, side, fresh, output, self.place()), ""

    def _side(
        self, model: SearchedModel, runtime: str, level: str, case: str, written: ModelOnDisk | None = None
    ) -> SearchSide:
        planned = model.runtimes[runtime]
        written = written or ModelOnDisk(model.absolute, model.proto)

        def run(at: Path, fed: InputCase, output: Path) -> Observation:
            job = Run(
                model=str(at),
                cases=(fed,),
                output=str(output),
                optimization="all" if level == "all" else "disabled",
                providers=planned.providers,
                extensions=planned.extensions,
                again=False,
            )
            return self.submit(planned, job, JobLimits(time_s=JOB_TIME_S)).result()

        return SearchSide(written.path, written.proto, model.cases[case], run, self.place())


@dataclass(frozen=True, slots=True)
class ModelOnDisk:
    """A file with its structure."""

    path: Path
    proto: ModelProto


def _is_fresh_export_nearer(
    fresh: SearchSide, committed: SearchSide, model: SearchedModel, mismatch: Difference, output: str
) -> bool:
    """True if the fresh export is much nearer to the source on this runtime than the committed model."""
    names = [value.name for value in committed.proto.graph.output]
    eager = (model.eager or {}).get(mismatch.case)
    if eager is None or len(eager.outputs) != len(names) or len(fresh.proto.graph.output) != len(names):
        return False
    index = names.index(output)
    right = eager.outputs[index]
    try:
        near = compare_files(fresh.value(fresh.proto.graph.output[index].name), Path(right)) if right else None
    except SearchError:
        return False
    return near is not None and near.relative < compare_files(committed.value(output), Path(str(right))).relative / 4


def _select_mismatch(comparison: Comparison) -> Difference:
    """Select the mismatch to search: the worst one, preferably without optimization."""
    mismatches = [mismatch for mismatch in find_mismatches(comparison) if mismatch.metric in ERROR_METRICS]
    if not mismatches and any(mismatch.metric in RATIO_METRICS for mismatch in find_mismatches(comparison)):
        raise SearchError("outputs of a quantized model are held by ratios, and every node of it rounds")
    if not mismatches:
        raise SearchError("it is one of type, shape or number")
    return find_worst([mismatch for mismatch in mismatches if mismatch.optimization == "disabled"] or mismatches)


def _is_only_optimized(comparison: Comparison, mismatch: Difference) -> bool:
    """True if the same output of the same case is right without optimization."""
    return mismatch.optimization == "all" and any(
        difference.agrees
        and difference.optimization == "disabled"
        and (difference.case, difference.output) == (mismatch.case, mismatch.output)
        for difference in comparison.differences
    )


def _group_similar(comparisons: Sequence[Comparison]) -> list[list[int]]:
    """Group mismatches that count as one fault, by position; the worst of a group comes first."""
    groups: dict[tuple[object, ...], list[list[int]]] = {}
    mismatched = [
        index
        for index, comparison in enumerate(comparisons)
        if find_mismatches(comparison) and comparison.pair in PAIRS
    ]
    for index in sorted(mismatched, key=lambda index: -_largest_mismatch(comparisons[index])):
        each = comparisons[index]
        key = (each.pair, frozenset(one.output for one in find_mismatches(each)), frozenset(_mismatch_levels(each)))
        similar = groups.setdefault(key, [])
        near = [
            group
            for group in similar
            if _largest_mismatch(comparisons[group[0]]) <= SAME_FAULT_RATIO * _largest_mismatch(each)
        ]
        if not near:
            near = [[]]
            similar += near
        near[0].append(index)
    return [group for similar in groups.values() for group in similar]


def _mismatch_levels(comparison: Comparison) -> set[str]:
    return {mismatch.optimization for mismatch in find_mismatches(comparison)}


def _largest_mismatch(comparison: Comparison) -> float:
    return max((mismatch.value for mismatch in find_mismatches(comparison)), default=0.0)


def _report_unlocated(model: SearchedModel, comparisons: Sequence[Comparison], reason: str) -> IncompleteCheck:
    """Report the reason once for all runtimes."""
    references = " or ".join(dict.fromkeys(comparison.reference for comparison in comparisons))
    runtimes = {comparison.runtime for comparison in comparisons}
    text = f"the first node that differs from {references} was not found: {reason}"
    return IncompleteCheck(Stage.PARITY, model.path, runtimes.pop() if len(runtimes) == 1 else "", text, by_design=True)
