"""The stages that start processes, run together: each job is done once, and every stage reads its observation."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from onnxgate.core.files import temporary_folder
from onnxgate.core.findings import IncompleteCheck, Stage
from onnxgate.core.jobs import Benchmark, Crashed, InputCase, Job, Load, Observation, Probe, Run, TimedOut, Unavailable
from onnxgate.evidence.runtime import IsolatedNode, ModelRuns, has_guessed_sizes
from onnxgate.gate.execution import failed_runs
from onnxgate.gate.execution.benchmark import BenchmarkedModel, Benchmarks
from onnxgate.gate.execution.failed_runs import NODE_TIME_S, NodeLoader
from onnxgate.gate.execution.parity import OutputComparer
from onnxgate.gate.execution.toolchain import Exporter, PreparedModel, SourceOutputs, StartedModel, call_inputs
from onnxgate.gate.request import ExecutionRequest, ExecutionResult
from onnxgate.inputs.case_selection import require_known_cases
from onnxgate.inputs.cases import InputCases, create_cases, create_cases_at
from onnxgate.model.reading.fact_extraction import ParsedModel, read_model
from onnxgate.project.config.project import Project
from onnxgate.project.lock.types import LockedRuntime
from onnxgate.project.plan import PlannedModel, PlannedRuntime
from onnxgate.runtimes.pool.scheduler import WorkerPool
from onnxgate.runtimes.worker_spec import JobLimits, WorkerSpec, default_memory_mib
from onnxgate.stages.runtime import isolated_nodes
from onnxgate.stages.runtime import stage as runtime_stage
from onnxgate.stages.runtime.stage import ExecutedModel, ObservedRun

if TYPE_CHECKING:
    from onnxgate.gate.cache.run_results import ResultCache

P = ParamSpec("P")
T = TypeVar("T")


def execute(
    work: ExecutionRequest, host: WorkerPool, at_end: Callable[[ExecutionResult], None] = lambda _: None
) -> ExecutionResult:
    """Run what the stages ask for. What could not be run is said in the result.

    `at_end` is given the result while the files of its cases are still there.
    """
    with temporary_folder() as scratch:
        host.show(Path(scratch), *(model.model.absolute.parent for model in work.models))
        done = _Executor(work, host, Path(scratch)).run()
        at_end(done)
        return done


class _Executor:
    def __init__(self, work: ExecutionRequest, host: WorkerPool, scratch: Path) -> None:
        self._work = work
        self._host = host
        self._scratch = scratch
        self._done = ExecutionResult()
        self._folders = itertools.count()
        self._witnesses = NodeLoader(self._ask_alone, scratch / "nodes")
        self._exporter = Exporter(work, host, self._done, self._folder)
        self._comparing = OutputComparer(work, self._done, self._submit, self._exporter.ask, self._folder)
        self._wants_runs = bool(work.stages & {Stage.RUNTIME, Stage.PARITY})
        self._wants_source = bool(work.stages & {Stage.PARITY, Stage.EXPORT})

    def run(self) -> ExecutionResult:
        if self._wants_runs:
            self._warm_up()
        toolchain = self._exporter.find_toolchain() if self._wants_source else None
        prepared = self._prepare_all(toolchain)
        self._exporter.export_again(toolchain)
        begun = [(each, self._begin(each)) for each in prepared]
        for each, started in sorted(begun, key=lambda pair: self._awaited(pair[0]) is not None):
            self._about(each.planned, self._collect, started.result())
        for each in prepared if Stage.EXPORT in self._work.stages else ():
            self._about(each.planned, self._exporter.judge, each)
        if Stage.RUNTIME in self._work.stages:
            self._judge_budgets()
        return self._done

    def _about(self, planned: PlannedModel, step: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Take a step with one model; what it asks of the host counts as that model's cost."""
        with self._host.meter.about(str(planned.model.absolute)):
            return step(*arguments, **named)

    def _warm_up(self) -> None:
        """Have every environment made, and its engine imported, that is going to be asked for anything."""
        wanted = [(model.model.absolute, planned) for model in self._work.models for planned in model.runtimes]
        for runtime in dict.fromkeys(
            planned.runtime for model, planned in wanted if not self._is_spared(model, planned)
        ):
            self._host.submit(self._seat(runtime), Probe())

    def _is_spared(self, model: Path, planned: PlannedRuntime) -> bool:
        """Whether all may be known already that a runtime gives; it is only made later where that is wrong."""
        asked = (model, (), planned.levels, planned.providers, Path(), planned.extensions)
        store, jobs = self._work.store, runtime_stage.plan_runtime_jobs(*asked)
        return store is not None and store.expects(self._seat(planned.runtime), jobs)

    def _folder(self) -> Path:
        """A path of its own for what is fed, given or written."""
        return self._scratch / str(next(self._folders))

    def _seat(self, runtime: LockedRuntime) -> WorkerSpec:
        return WorkerSpec.of_runtime(runtime, self._work.lock.pinned, self._work.project.folder)

    def _submit(self, planned: PlannedRuntime, job: Job, limits: JobLimits | None = None) -> Future[Observation]:
        return self._host.submit(self._seat(planned.runtime), job, limits=limits)

    def _run(self, planned: PlannedRuntime, job: Run) -> Future[Observation]:
        """Have a model run, unless it is known what comes of it."""
        store, seat = self._work.store, self._seat(planned.runtime)
        if store is None:
            return self._host.submit(seat, job)
        known = store.find(seat, job)
        if known is None:
            future = self._host.submit(seat, job)
            future.add_done_callback(lambda done: _cache_result(store, seat, job, done))
        else:
            self._done.reused.append((job.model, planned.name))
            future = Future()
            future.set_result(known)
        return future

    def _prepare_all(self, toolchain: Path | None) -> list[PreparedModel]:
        """Every model with what it is fed; the first is exported while the others are being fed."""
        if not self._work.asked.cases:
            return [
                self._prepare(model, *self._about(model, self._feed, model), toolchain) for model in self._work.models
            ]
        fed = [self._about(planned, self._feed, planned) for planned in self._work.models]
        names = (name for _, each in fed for name in each.names)
        require_known_cases(self._work.asked, names, any(model.model.settings.source for model in self._work.models))
        read_ones = zip(self._work.models, fed, strict=True)
        return [self._prepare(planned, *each, toolchain) for planned, each in read_ones]

    def _feed(self, planned: PlannedModel) -> tuple[ParsedModel, InputCases]:
        reading = read_model(planned.model.absolute, planned.path)
        call = functools.partial(call_inputs, self._work.project, self._host)
        return reading, create_cases(self._work.project, planned.model, reading, self._folder(), self._work.asked, call)

    def _prepare(
        self, planned: PlannedModel, reading: ParsedModel, fed: InputCases, toolchain: Path | None
    ) -> PreparedModel:
        exporting = None
        if toolchain is not None and planned.model.settings.is_exported:
            exporting = self._about(planned, self._exporter.export, planned, reading.facts, fed.cases, toolchain)
        return PreparedModel(planned, reading, fed, exporting)

    # Running

    def _awaited(self, prepared: PreparedModel) -> Future[Observation] | None:
        """What a model's runs wait for: its source, which gives one more case."""
        exporting = prepared.exporting if Stage.PARITY in self._work.stages else None
        return exporting.source if exporting is not None else None

    def _begin(self, prepared: PreparedModel) -> Future[StartedModel]:
        """Have a model run as soon as all is there that it is fed."""
        begun: Future[StartedModel] = Future()

        def begin(_: object = None) -> None:
            try:
                begun.set_result(self._about(prepared.planned, self._start_runs, prepared))
            except BaseException as error:  # noqa: BLE001 - carried to whoever waits
                begun.set_exception(error)

        awaited = self._awaited(prepared)
        if awaited is None:
            begin()
        else:
            awaited.add_done_callback(begin)
        return begun

    def _start_runs(self, prepared: PreparedModel) -> StartedModel:
        sourced = self._exporter.source_of(prepared)
        return self._start(prepared, sourced)

    def _start(self, prepared: PreparedModel, sourced: SourceOutputs) -> StartedModel:
        runtimes = prepared.planned.runtimes if self._wants_runs else ()
        cases = StartedModel(prepared, sourced, {}).cases
        return StartedModel(
            prepared, sourced, {planned: self._levels(prepared, planned, cases) for planned in runtimes}
        )

    def _levels(
        self, prepared: PreparedModel, planned: PlannedRuntime, cases: tuple[InputCase, ...]
    ) -> Future[tuple[ObservedRun, ...]]:
        """The model on one runtime, level after level; what crashed or hung at one is not tried at the next."""
        model = prepared.planned.model.absolute
        asked = (planned.levels, planned.providers, self._folder(), planned.extensions)
        jobs = list(runtime_stage.create_runtime_jobs(model, cases, *asked))
        ended: Future[tuple[ObservedRun, ...]] = Future()
        ran: list[ObservedRun] = []

        def begin(job: Run) -> None:
            self._run(planned, job).add_done_callback(lambda done: end(job, done))

        def end(job: Run, done: Future[Observation]) -> None:
            try:
                ran.append(ObservedRun(planned.name, job, done.result()))
                if jobs and not isinstance(ran[-1].observation, Crashed | TimedOut | Unavailable):
                    begin(jobs.pop(0))
                else:
                    ended.set_result(tuple(ran))
            except BaseException as error:  # noqa: BLE001 - carried to whoever waits
                ended.set_exception(error)

        begin(jobs.pop(0))
        return ended

    # Following up where generated inputs fail

    def _follow(self, started: StartedModel, ran: Sequence[ObservedRun]) -> StartedModel:
        """The model with what its source says of the cases, at other sizes where those that were guessed do not fit."""
        prepared, cases = started.prepared, started.prepared.fed.cases
        sourced = started.sourced
        if Stage.PARITY not in self._work.stages:
            sourced = SourceOutputs(self._exporter.ask_source(prepared, cases), None)
        if self._work.asked.cases or not failed_runs.needs_sizes(ran, sourced.eager):
            return StartedModel(prepared, sourced, started.levels)
        newest = next(planned for planned in started.levels if planned.name == failed_runs.newest_runtime(ran))
        sizes = failed_runs.find_sizes(
            prepared.reading.facts,
            prepared.planned.model,
            ran,
            lambda setting: self._try(prepared, newest, setting),
        )
        if not sizes:
            return StartedModel(prepared, sourced, started.levels)
        fed = create_cases_at(prepared.planned.model, prepared.reading, sizes, self._folder(), self._work.asked.seed)
        eager = self._exporter.ask_source(prepared, fed.cases) if sourced.eager is not None else None
        both = None if sourced.eager is None else {**sourced.eager, **(eager or {})}
        return self._start(replace(prepared, fed=fed), SourceOutputs(both, sourced.sample))

    def _try(
        self, prepared: PreparedModel, planned: PlannedRuntime, setting: Mapping[str, int]
    ) -> Sequence[ObservedRun]:
        """One setting at one level of one runtime."""
        fed = create_cases_at(
            prepared.planned.model, prepared.reading, [setting], self._folder(), self._work.asked.seed
        )
        return self._levels(prepared, replace(planned, levels=planned.levels[:1]), fed.cases).result()

    # Judging what came of it

    def _collect(self, started: StartedModel) -> None:
        ran = _collect_runs(started)
        if failed_runs.has_failed_case(ran):
            started = self._follow(started, ran)
            ran = _collect_runs(started)
        self._done.cases[started.prepared.path] = started.cases
        runs = self._judge_runs(started, ran)
        if Stage.PARITY in self._work.stages:
            self._comparing.judge(started, ran, runs)

    def _judge_runs(self, started: StartedModel, ran: Sequence[ObservedRun]) -> tuple[ModelRuns, ...]:
        prepared, work = started.prepared, self._work
        model = ExecutedModel(
            path=prepared.path,
            place=work.places[prepared.path],
            proto=prepared.reading.proto,
            root=work.project.root,
            folder=work.project.folder,
            memory_limit_mib=_memory_limit_mib(work.project, prepared),
            facts=prepared.reading.facts,
        )
        alone = self._examine(model, started, ran)
        predicted = {planned.name: work.predicted.get((prepared.path, planned.name), ()) for planned in started.levels}
        optional = {planned.name for planned in started.levels if not planned.required}
        runs, undone = runtime_stage.collect_evidence(
            model, ran, started.sourced.eager or {}, predicted, alone, optional
        )
        for each in undone:
            (self._done.skipped if each.runtime in optional else self._done.undone).append(each)
        self._done.ran |= {(each.model, each.runtime) for each in runs}
        self._done.faulty += [each for each in runs if _is_faulty(each)]
        if Stage.RUNTIME in work.stages:
            self._done.subjects += runs
        reason, hint = prepared.fed.reason, prepared.fed.hint
        if not reason:
            reason, hint = failed_runs.explain_no_completed_run(runs)
        if reason and started.levels:
            asked = sorted(work.stages & {Stage.RUNTIME, Stage.PARITY})
            self._done.undone += [IncompleteCheck(stage, prepared.path, "", reason, hint) for stage in asked]
        return runs

    def _examine(
        self, model: ExecutedModel, started: StartedModel, ran: Sequence[ObservedRun]
    ) -> Mapping[str, tuple[IsolatedNode, ...]]:
        """What nodes alone say, on the runtimes that refuse the model."""
        if Stage.RUNTIME not in self._work.stages:
            return {}
        predictions = {planned: self._work.predictions.get((model.path, planned.name)) for planned in started.levels}
        refusing = isolated_nodes.find_refusing_runtimes(ran, model.proto, predictions, self._work.kept)
        examined = self._witnesses.examine(model, refusing)
        self._done.skipped += examined.skipped
        return examined.alone

    def _ask_alone(self, planned: PlannedRuntime, job: Load) -> Future[Observation]:
        limits = self._work.project.config.limits
        allowed = JobLimits(time_s=min(limits.time_s, NODE_TIME_S), memory_mib=limits.memory_mib)
        return self._submit(planned, job, allowed)

    def _judge_budgets(self) -> None:
        """What models cost beside their baselines: measured when nothing else runs."""
        work, done = self._work, self._done
        races = Benchmarks(work.project.folder, work.against, self._ask_race, self._folder)
        for each in (model for model in work.models if model.model.settings.budget is not None):
            entrant = BenchmarkedModel(
                each, work.places[each.path], work.facts[each.path], done.cases.get(each.path, ())
            )
            races.hold(entrant, done)

    def _ask_race(self, planned: PlannedRuntime, job: Benchmark) -> Observation:
        return self._submit(planned, job).result()


def _cache_result(store: ResultCache, seat: WorkerSpec, job: Run, done: Future[Observation]) -> None:
    if not done.cancelled() and done.exception() is None:
        store.keep(seat, job, done.result())


def _collect_runs(started: StartedModel) -> list[ObservedRun]:
    return [each for future in started.levels.values() for each in future.result()]


def _is_faulty(runs: ModelRuns) -> bool:
    """Whether something that the model promises did not complete; a size that was a guess is no promise."""
    return any(attempt.outcome != "completed" and not has_guessed_sizes(attempt, runs) for attempt in runs.attempts)


def _memory_limit_mib(project: Project, prepared: PreparedModel) -> int:
    facts = prepared.reading.facts
    given = project.config.limits.memory_mib
    return given or default_memory_mib(facts.size_bytes + sum(each.size_bytes for each in facts.external))
