"""The stages that start processes, run together: each job is done once, and every stage reads its observation."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from onnxgate.agreement.comparability import comparability
from onnxgate.config.project import Project
from onnxgate.errors import UnavailableError
from onnxgate.evidence.faults import is_unusable
from onnxgate.evidence.parity import Comparison
from onnxgate.evidence.runtime import Attempt, ModelRuns
from onnxgate.feeding import Fed, feed
from onnxgate.findings import Stage, Undone
from onnxgate.inputs.sample import sample_case
from onnxgate.lock.types import LockedRuntime
from onnxgate.model.facts import ModelFacts
from onnxgate.model.reading import Reading, read
from onnxgate.plan import PlannedModel, PlannedRuntime
from onnxgate.report import Measured
from onnxgate.runtimes.host import Host
from onnxgate.runtimes.jobs import (
    Case,
    CaseResult,
    Completed,
    Crashed,
    ExportResult,
    Failure,
    Observation,
    Probe,
    Refused,
    Run,
    TimedOut,
    Unavailable,
)
from onnxgate.runtimes.seats import Seat, usual_memory_mib
from onnxgate.runtimes.toolchain import ProbeError, find_toolchain, frameworks, probe, recorded_names
from onnxgate.stages import export as export_stage
from onnxgate.stages import export_plan
from onnxgate.stages import parity as parity_stage
from onnxgate.stages import runtime as runtime_stage
from onnxgate.stages.parity import ParityModel
from onnxgate.stages.runtime import Ran, RunModel
from onnxgate.work import Execution, Work


@dataclass(frozen=True, slots=True)
class Exporting:
    """A model on its way through the toolchain."""

    planned: export_plan.Planned
    writes: Future[Observation] | None  # the job that writes the file; None where only eager outputs are asked for
    source: Future[Observation] | None  # answers eager outputs; the same job as `writes` where there is no command


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model with what it is fed."""

    planned: PlannedModel
    reading: Reading
    fed: Fed
    exporting: Exporting | None

    @property
    def path(self) -> str:
        """The model's path."""
        return self.planned.path


@dataclass(frozen=True, slots=True)
class Sourced:
    """What the source computes, by case; None where there is no source, or nothing came of it."""

    eager: Mapping[str, CaseResult] | None
    sample: Case | None  # its own example inputs, as a case


@dataclass(frozen=True, slots=True)
class Started:
    """A model that is being run, level after level, on each of its runtimes."""

    prepared: Prepared
    sourced: Sourced
    levels: Mapping[PlannedRuntime, Future[tuple[Ran, ...]]]


def execute(work: Work, host: Host) -> Execution:
    """Run what the stages ask for. What could not be run is said in the result."""
    with tempfile.TemporaryDirectory(prefix="onnxgate-", ignore_cleanup_errors=True) as scratch:
        return _Executor(work, host, Path(scratch)).run()


class _Executor:
    def __init__(self, work: Work, host: Host, scratch: Path) -> None:
        self._work = work
        self._host = host
        self._scratch = scratch
        self._done = Execution()
        self._started: list[str] = []
        self._wants_runs = bool(work.stages & {Stage.RUNTIME, Stage.PARITY})
        self._wants_source = bool(work.stages & {Stage.PARITY, Stage.EXPORT})

    def run(self) -> Execution:
        if self._wants_runs:
            self._warm_up()
        toolchain = self._find_toolchain() if self._wants_source else None
        prepared = [self._prepare(planned, index, toolchain) for index, planned in enumerate(self._work.models)]
        started = [self._start_runs(each) for each in prepared]
        for each in started:
            self._collect(each)
        return self._done

    def _warm_up(self) -> None:
        """Have every environment made while models are being exported."""
        for runtime in {planned.runtime: None for each in self._work.models for planned in each.runtimes}:
            self._host.submit(self._seat(runtime), Probe())

    def _seat(self, runtime: LockedRuntime) -> Seat:
        return Seat.of_runtime(runtime, self._work.lock.packages)

    # The toolchain

    def _find_toolchain(self) -> Path | None:
        """The interpreter that exports; None where no model needs it, or where there is none, which is then said."""
        exported = [each for each in self._work.models if each.model.settings.is_exported]
        if not exported:
            return None
        project = self._work.project
        try:
            python = find_toolchain(project.folder, project.config.toolchain, frameworks(project.config))
            self._judge_toolchain(python)
        except (UnavailableError, ProbeError) as error:
            reason, hint = str(error), getattr(error, "hint", None) or ""
            for each in exported:
                self._undo_source(each, reason, hint)
            return None
        return python

    def _judge_toolchain(self, python: Path) -> None:
        project = self._work.project
        found = probe(python, recorded_names(project.config.toolchain))
        state = export_stage.toolchain_state(project, self._work.lock.toolchain, found)
        if state is not None and Stage.EXPORT in self._work.stages:
            self._done.subjects.append(state)

    def _undo_source(self, each: PlannedModel, reason: str, hint: str) -> None:
        stages = self._work.stages & {Stage.EXPORT, *([Stage.PARITY] if each.model.settings.source else [])}
        self._done.undone += [Undone(stage, each.path, "", reason, hint) for stage in stages]

    def _prepare(self, planned: PlannedModel, index: int, toolchain: Path | None) -> Prepared:
        folder = self._scratch / str(index)
        reading = read(planned.model.absolute, planned.path)
        fed = feed(self._work.project, planned.model, reading, folder / "inputs")
        exporting = None
        if toolchain is not None and planned.model.settings.is_exported:
            exporting = self._export(planned, reading.facts, fed.cases, toolchain, folder / "export")
        return Prepared(planned, reading, fed, exporting)

    def _export(
        self, planned: PlannedModel, facts: ModelFacts, cases: tuple[Case, ...], toolchain: Path, scratch: Path
    ) -> Exporting:
        plan = export_plan.plan(
            self._work.project,
            planned.model,
            toolchain,
            scratch,
            cases=cases if Stage.PARITY in self._work.stages else (),
            ir_version_max=export_plan.ir_limit(each.runtime for each in planned.runtimes),
            external_data=bool(facts.external),
            float64=False,
        )
        seat = export_plan.toolchain_seat(toolchain)
        command = self._host.submit(seat, plan.command) if plan.command and Stage.EXPORT in self._work.stages else None
        source = self._host.submit(seat, plan.source) if plan.source else None
        return Exporting(plan, command or source, source)

    # Running

    def _start_runs(self, prepared: Prepared) -> Started:
        sourced = self._source_of(prepared)
        cases = (*prepared.fed.cases, *([sourced.sample] if sourced.sample else []))
        levels = {}
        if self._wants_runs:
            for index, planned in enumerate(prepared.planned.runtimes):
                folder = self._scratch / "runs" / f"{len(self._started)}-{index}"
                levels[planned] = self._levels(prepared, planned, cases, folder)
        self._started.append(prepared.path)
        return Started(prepared, sourced, levels)

    def _levels(
        self, prepared: Prepared, planned: PlannedRuntime, cases: tuple[Case, ...], folder: Path
    ) -> Future[tuple[Ran, ...]]:
        """The model on one runtime, level after level; what crashed or hung at one is not tried at the next."""
        model = prepared.planned.model.absolute
        jobs = list(runtime_stage.runtime_jobs(model, cases, planned.levels, planned.providers, folder))
        ended: Future[tuple[Ran, ...]] = Future()
        ran: list[Ran] = []

        def begin(job: Run) -> None:
            self._host.submit(self._seat(planned.runtime), job).add_done_callback(lambda done: end(job, done))

        def end(job: Run, done: Future[Observation]) -> None:
            try:
                ran.append(Ran(planned.name, job, done.result()))
                if jobs and not isinstance(ran[-1].observation, Crashed | TimedOut | Unavailable):
                    begin(jobs.pop(0))
                else:
                    ended.set_result(tuple(ran))
            except BaseException as error:  # noqa: BLE001 - carried to whoever waits
                ended.set_exception(error)

        begin(jobs.pop(0))
        return ended

    def _source_of(self, prepared: Prepared) -> Sourced:
        """What the source computes by itself on each case, and its own sample as one more case."""
        exporting = prepared.exporting
        if exporting is None or exporting.source is None or Stage.PARITY not in self._work.stages:
            return Sourced(None, None)
        observation = exporting.source.result()
        result = observation.result if isinstance(observation, Completed) else None
        if not isinstance(result, ExportResult) or not result.eager:
            self._done.undone.append(_no_reference(prepared.path, observation))
            return Sourced(None, None)
        eager = {case.name: found for case, found in zip(prepared.fed.cases, result.eager, strict=False)}
        sample = sample_case(prepared.reading.facts, result.input_names, result.sample)
        if sample is None or len(result.eager) != len(prepared.fed.cases) + 1:
            return Sourced(eager, None)
        return Sourced({**eager, sample.name: result.eager[-1]}, sample)

    # Judging what came of it

    def _collect(self, started: Started) -> None:
        ran = [each for future in started.levels.values() for each in future.result()]
        runs = self._judge_runs(started, ran)
        if Stage.PARITY in self._work.stages:
            self._judge_parity(started, ran, runs)
        if Stage.EXPORT in self._work.stages:
            self._judge_export(started.prepared)

    def _judge_runs(self, started: Started, ran: Sequence[Ran]) -> tuple[ModelRuns, ...]:
        prepared, work = started.prepared, self._work
        model = RunModel(
            path=prepared.path,
            place=work.places[prepared.path],
            proto=prepared.reading.proto,
            root=work.project.root,
            folder=work.project.folder,
            memory_limit_mib=_memory_limit_mib(work.project, prepared),
        )
        predicted = {planned.name: work.predicted.get((prepared.path, planned.name), ()) for planned in started.levels}
        runs, undone = runtime_stage.gather(model, ran, started.sourced.eager or {}, predicted)
        optional = {planned.name for planned in started.levels if not planned.required}
        for each in undone:
            (self._done.skipped if each.runtime in optional else self._done.undone).append(each)
        self._done.ran |= {(each.model, each.runtime) for each in runs}
        self._done.faulty += [each for each in runs if any(a.outcome != "completed" for a in each.attempts)]
        if Stage.RUNTIME in work.stages:
            self._done.subjects += runs
        if prepared.fed.reason and started.levels:
            asked = sorted(work.stages & {Stage.RUNTIME, Stage.PARITY})
            self._done.undone += [Undone(s, prepared.path, "", prepared.fed.reason, prepared.fed.hint) for s in asked]
        return runs

    def _judge_parity(self, started: Started, ran: Sequence[Ran], runs: Sequence[ModelRuns]) -> None:
        prepared, work = started.prepared, self._work
        model = ParityModel(
            path=prepared.path,
            place=work.places[prepared.path],
            comparability=comparability(prepared.reading.facts, prepared.reading.proto),
            tolerance=prepared.planned.model.settings.tolerance,
            locked=work.lock.models.get(prepared.path),
        )
        unusable = {each.case for run in runs for each in run.attempts if _is_unusable(each, run)}
        comparisons, undone = parity_stage.gather(model, ran, started.sourced.eager, unusable)
        self._done.subjects += comparisons
        self._done.undone += undone
        self._done.measured += [figure for each in comparisons for figure in _figures(each)]
        self._done.compared |= {(each.model, each.runtime) for each in comparisons if each.pair == "source"}

    def _judge_export(self, prepared: Prepared) -> None:
        exporting = prepared.exporting
        if exporting is None or exporting.writes is None:
            return
        made = [export_stage.gather(self._work.project, exporting.planned, exporting.writes.result())]
        if exporting.source is not None and exporting.source is not exporting.writes:
            made.append(export_stage.gather_source(self._work.project, exporting.planned, exporting.source.result()))
        self._done.subjects += [each.subject for each in made if each.subject is not None]
        self._done.undone += [each.undone for each in made if each.undone is not None]


def _is_unusable(attempt: Attempt, runs: ModelRuns) -> bool:
    return attempt.outcome == "run-refused" and is_unusable(attempt, runs)


def _memory_limit_mib(project: Project, prepared: Prepared) -> int:
    facts = prepared.reading.facts
    given = project.config.limits.memory_mib
    return given or usual_memory_mib(facts.size_bytes + sum(each.size_bytes for each in facts.external))


def _no_reference(model: str, observation: Observation) -> Undone:
    """Why there are no outputs of the source to compare with."""
    match observation:
        case Unavailable(reason=reason, hint=hint):
            return Undone(Stage.PARITY, model, "", reason, hint)
        case Completed(result=ExportResult(failure=Failure(type=kind, text=text))):
            reason = f"the source gives no outputs: {kind}: {text}"
        case Completed(result=ExportResult(eager_reason=why)):
            reason = f"the source gives no outputs: {why}"
        case Refused(failure=failure):
            reason = f"the source gives no outputs: {failure.type}: {failure.text}"
        case Crashed(signal=signal, during=during):
            reason = f"the source gives no outputs: {signal} during {during}"
        case TimedOut(limit_s=limit_s):
            reason = f"the source gives no outputs within {limit_s:g} s"
        case _:
            reason = "the source gives no outputs"
    return Undone(Stage.PARITY, model, "", reason.splitlines()[0])


def _figures(comparison: Comparison) -> list[Measured]:
    pair = f"{comparison.runtime} against {comparison.reference}"
    return [
        Measured(
            model=comparison.model,
            output=each.output,
            pair=pair,
            case=f"{each.case}, optimization {each.optimization}",
            metric=each.metric,
            value=each.value if math.isfinite(each.value) else None,
            bound=each.bound,
            bound_from=each.bound_from,
        )
        for each in comparison.differences
    ]
