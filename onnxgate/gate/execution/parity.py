"""The outputs of a model that was run, held against each other: what differs, where it begins, what rounding cost."""

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
from onnxgate.gate.request import ExecutionRequest, ExecutionResult
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
    search_across_levels,
    search_origin,
)
from onnxgate.stages.parity.output_comparison import find_output_masks
from onnxgate.stages.parity.reference_values import (
    create_fresh_export,
    describe_differing_weight,
    match_fresh_export,
    search_program_values,
)
from onnxgate.stages.parity.stage import ParityModel
from onnxgate.stages.runtime.stage import ObservedRun

if TYPE_CHECKING:
    from onnx import ModelProto


SubmitJob = Callable[[PlannedRuntime, Job, JobLimits | None], Future[Observation]]


class OutputComparer:
    """Compares, and follows up what differs; what comes of it goes into `done`.

    `submit` has a job done on a runtime, `ask` in the toolchain; `folder` gives an unused path for what is written.
    """

    def __init__(
        self,
        work: ExecutionRequest,
        done: ExecutionResult,
        submit: SubmitJob,
        ask: Callable[[Job], Observation],
        folder: Callable[[], Path],
    ) -> None:
        self._work = work
        self._done = done
        self._submit = submit
        self._ask = ask
        self._folder = folder

    def judge(self, started: StartedModel, ran: Sequence[ObservedRun], runs: Sequence[ModelRuns]) -> None:
        """Hold the outputs of one model against its source, across levels and runtimes, and against its float model."""
        model = self._model(started, runs)
        if self._work.watch is not None:
            self._work.watch(model, ran)
        if unread := started.prepared.fed.unread:
            self._done.skipped.append(IncompleteCheck(Stage.PARITY, model.path, "", unread))
        unusable = () if failed_runs.explain_no_completed_run(runs)[0] else failed_runs.find_undecided_cases(runs)
        comparisons, undone = parity_stage.collect_evidence(model, ran, started.sourced.eager, unusable)
        locator = MismatchSearch(self._submit, self._ask, self._folder)
        comparisons, unfound = locator.locate(create_searched_model(self._work, started, ran), comparisons)
        self._done.skipped += unfound
        self._done.compared |= {
            (comparison.model, comparison.runtime) for comparison in comparisons if comparison.reference == "the source"
        }
        self._note(comparisons, undone)
        self._note(*self._against_float(started, ran, model))

    def _model(self, started: StartedModel, runs: Sequence[ModelRuns]) -> ParityModel:
        prepared, work = started.prepared, self._work
        return ParityModel(
            path=prepared.path,
            place=work.places[prepared.path],
            comparability=detect_numeric_traits(prepared.reading.facts, prepared.reading.proto),
            tolerance=prepared.planned.model.settings.tolerance,
            locked=work.lock.models.get(prepared.path),
            operators=frozenset(prepared.reading.facts.operators),
            steps=find_output_steps(prepared.reading.proto, prepared.planned.model.absolute),
            kept=find_output_masks(prepared.reading, started.cases),
            not_finite=find_not_finite(runs) if Stage.RUNTIME in work.stages else frozenset(),
        )

    def _against_float(
        self, started: StartedModel, ran: Sequence[ObservedRun], model: ParityModel
    ) -> tuple[tuple[Comparison, ...], tuple[IncompleteCheck, ...]]:
        """A quantized model against the float model that it came from."""
        prepared = started.prepared
        quantized = QuantizedModel(prepared.planned.model, prepared.reading, started.cases, tuple(started.levels))
        quantizing = FloatComparison(
            self._work.project, lambda where, job: self._submit(where, job, None), self._folder
        )
        return quantizing.examine(quantized, model, ran)

    def _note(self, comparisons: Sequence[Comparison], undone: Sequence[IncompleteCheck]) -> None:
        self._done.subjects += comparisons
        self._done.undone += [each for each in undone if not each.by_design]
        self._done.skipped += [each for each in undone if each.by_design]
        self._done.measured += [figure for comparison in comparisons for figure in report_measurements(comparison)]


MAX_SEARCHES = 4
"""So many are made for one model: mismatches that look alike share one."""
SEARCH_TIME_S = 120.0
"""After this time no further one is begun for a model."""
JOB_TIME_S = 120.0
SAME_FAULT_RATIO = 2.0
"""Mismatches of the same outputs that are no more than so many times larger than each other are taken for one fault."""
SOURCE = "the source"
PAIRS = ("source", "runtime", "optimization", "engine")
ERROR_METRICS = ("worst_abs", "mismatched elements", "not finite")
RATIO_METRICS = ("sqnr_db", "cosine", "top1")

SubmitLimitedJob = Callable[[PlannedRuntime, Job, JobLimits], Future[Observation]]
AskToolchain = Callable[[Job], Observation]  # the toolchain


@dataclass(frozen=True, slots=True)
class SearchedModel:
    """The model whose mismatches are looked into."""

    path: str
    absolute: Path
    proto: ModelProto
    root: Path  # git's root
    folder: Path  # the config's folder
    cases: Mapping[str, InputCase]
    runtimes: Mapping[str, PlannedRuntime]
    eager: Mapping[str, CaseResult] | None
    fresh: Path | None  # what its source was exported to in this run
    source: Export | None  # what the source was asked for in this run


def create_searched_model(work: ExecutionRequest, started: StartedModel, ran: Sequence[ObservedRun]) -> SearchedModel:
    """A model that was run, with what its source was asked for."""
    prepared = started.prepared
    return SearchedModel(
        path=prepared.path,
        absolute=prepared.planned.model.absolute,
        proto=prepared.reading.proto,
        root=work.project.root,
        folder=work.project.folder,
        cases={case.name: case for each in ran for case in each.job.cases},
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
    """Where mismatches begin: at a node, or in words."""

    first: FirstDifference | None
    at_no_node: str = ""


@dataclass(slots=True)
class MismatchSearch:
    """Makes searches; `place` gives an unused path for what they write."""

    submit: SubmitLimitedJob
    ask: AskToolchain
    place: Callable[[], Path]
    _made: int = field(default=0)
    _ends_at: float = field(default=0.0)

    def locate(
        self, model: SearchedModel, comparisons: Sequence[Comparison]
    ) -> tuple[tuple[Comparison, ...], tuple[IncompleteCheck, ...]]:
        """The comparisons, each mismatch with where it begins; and why that is not known of some."""
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
        """Where it begins, or why that is not known."""
        if self._made >= MAX_SEARCHES or time.monotonic() > self._ends_at:
            return "the time for that is spent on other mismatches of the model"
        self._made += 1
        try:
            return _FaultOrigin(self._searched(model, comparison))
        except NoFirstNodeError as elsewhere:
            return _FaultOrigin(None, str(elsewhere))
        except (SearchError, UnavailableError) as reason:
            return str(reason)
        except (OSError, ValueError, KeyError) as error:  # a search is no verdict, and never ends a check
            return f"{type(error).__name__}: {error}"

    def _searched(self, model: SearchedModel, comparison: Comparison) -> FirstDifference:
        asked = _select_mismatch(comparison)
        if asked.case not in model.cases:
            raise SearchError(f"the inputs of `{asked.case}` are not there any more")
        output, detail = asked.output.removesuffix(" (layout)"), ""
        side = self._side(model, comparison.runtime, asked.optimization, asked.case)
        if comparison.pair == "optimization" or _is_only_optimized(comparison, asked):
            plain = self._side(model, comparison.runtime, "disabled", asked.case)
            begun = search_across_levels(plain, side, output)
        elif comparison.reference == SOURCE:
            begun, detail = self._against_source(model, comparison, side, asked, output)
        else:
            other = self._reference(model, comparison, asked)
            begun = search_origin(side, other.values, None, [output], exact=False)
        if begun is None:
            raise SearchError("no node by itself is off by more than rounding, which grows from node to node")
        return create_first_difference(model.proto, begun, asked.case, model.root, model.folder, detail)

    def _reference(self, model: SearchedModel, comparison: Comparison, asked: Difference) -> SearchSide:
        planned = model.runtimes.get(comparison.reference)
        if planned is None:
            raise SearchError(f"{comparison.reference} is not there to be asked")
        level = asked.optimization if asked.optimization in planned.levels else planned.levels[-1]
        return self._side(model, comparison.reference, level, asked.case)

    def _against_source(
        self, model: SearchedModel, comparison: Comparison, side: SearchSide, asked: Difference, output: str
    ) -> tuple[DifferenceOrigin | None, str]:
        """Against a fresh export on the same runtime, where that one is right; else against the source's own values."""
        if model.source is None:
            raise SearchError("its source cannot be asked for intermediate values")
        path = model.fresh or create_fresh_export(model.source, self.ask, self.place())
        fresh = match_fresh_export(model.proto, path) if path else None
        if fresh is not None:
            made = ModelOnDisk(fresh.path, fresh.proto)
            other = self._side(model, comparison.runtime, asked.optimization, asked.case, made)
            if _is_fresh_export_nearer(other, side, model, asked, output):
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
    fresh: SearchSide, committed: SearchSide, model: SearchedModel, asked: Difference, output: str
) -> bool:
    """Whether the fresh export is much nearer to the source on this runtime than the committed model is."""
    names = [value.name for value in committed.proto.graph.output]
    eager = (model.eager or {}).get(asked.case)
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
    """The mismatch to look into: the worst one without optimisation, where there is one."""
    found = [mismatch for mismatch in find_mismatches(comparison) if mismatch.metric in ERROR_METRICS]
    if not found and any(mismatch.metric in RATIO_METRICS for mismatch in find_mismatches(comparison)):
        raise SearchError("outputs of a quantized model are held by ratios, and every node of it rounds")
    if not found:
        raise SearchError("it is one of type, shape or number")
    return find_worst([each for each in found if each.optimization == "disabled"] or found)


def _is_only_optimized(comparison: Comparison, asked: Difference) -> bool:
    """Whether the same output of the same case is right without optimisation."""
    return asked.optimization == "all" and any(
        difference.agrees
        and difference.optimization == "disabled"
        and (difference.case, difference.output) == (asked.case, asked.output)
        for difference in comparison.differences
    )


def _group_similar(comparisons: Sequence[Comparison]) -> list[list[int]]:
    """The mismatches in groups that are taken for one fault each, by position; the worst of a group comes first."""
    groups: dict[tuple[object, ...], list[list[int]]] = {}
    found = [
        index
        for index, comparison in enumerate(comparisons)
        if find_mismatches(comparison) and comparison.pair in PAIRS
    ]
    for index in sorted(found, key=lambda index: -_largest_mismatch(comparisons[index])):
        each = comparisons[index]
        key = (each.pair, frozenset(one.output for one in find_mismatches(each)), frozenset(_mismatch_levels(each)))
        known = groups.setdefault(key, [])
        near = [
            group
            for group in known
            if _largest_mismatch(comparisons[group[0]]) <= SAME_FAULT_RATIO * _largest_mismatch(each)
        ]
        if not near:
            near = [[]]
            known += near
        near[0].append(index)
    return [group for known in groups.values() for group in known]


def _mismatch_levels(comparison: Comparison) -> set[str]:
    return {mismatch.optimization for mismatch in find_mismatches(comparison)}


def _largest_mismatch(comparison: Comparison) -> float:
    return max((mismatch.value for mismatch in find_mismatches(comparison)), default=0.0)


def _report_unlocated(model: SearchedModel, comparisons: Sequence[Comparison], reason: str) -> IncompleteCheck:
    """Why it is not known, once for all runtimes."""
    references = " or ".join(dict.fromkeys(comparison.reference for comparison in comparisons))
    runtimes = {comparison.runtime for comparison in comparisons}
    said = f"the first node that differs from {references} was not found: {reason}"
    return IncompleteCheck(Stage.PARITY, model.path, runtimes.pop() if len(runtimes) == 1 else "", said, by_design=True)
