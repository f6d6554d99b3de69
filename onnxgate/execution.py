"""The stages that start processes, run together: each job is done once, and every stage reads its observation."""

from __future__ import annotations

import functools
import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import msgspec

from onnxgate import followups
from onnxgate.agreement.comparability import comparability
from onnxgate.calling import call_inputs
from onnxgate.config.project import Project
from onnxgate.errors import UnavailableError
from onnxgate.evidence.faults import is_guess, not_finite
from onnxgate.evidence.parity import Comparison
from onnxgate.evidence.runtime import Alone, ModelRuns
from onnxgate.feeding import Fed, feed, feed_at
from onnxgate.findings import Stage, Undone
from onnxgate.inputs.asked import refuse_unknown
from onnxgate.inputs.sample import sample_case
from onnxgate.locating import Locator, located
from onnxgate.lock.types import LockedRuntime
from onnxgate.model.facts import ModelFacts
from onnxgate.model.quantization import output_steps
from onnxgate.model.reading import Reading, read
from onnxgate.plan import PlannedModel, PlannedRuntime
from onnxgate.quantizing import Quantized, Quantizing
from onnxgate.racing import Entrant, Races
from onnxgate.runtimes.frameworks import needs
from onnxgate.runtimes.host import Host
from onnxgate.runtimes.jobs import (
    Case,
    CaseResult,
    Completed,
    Crashed,
    ExportResult,
    Job,
    Load,
    Observation,
    Probe,
    Race,
    Run,
    TimedOut,
    Unavailable,
)
from onnxgate.runtimes.seats import JobLimits, Seat, usual_memory_mib
from onnxgate.runtimes.toolchain import ProbeError, find_toolchain, probe
from onnxgate.stages import export as export_stage
from onnxgate.stages import export_plan, witness
from onnxgate.stages import parity as parity_stage
from onnxgate.stages import runtime as runtime_stage
from onnxgate.stages.export_again import Made
from onnxgate.stages.masks import kept_positions
from onnxgate.stages.parity import ParityModel
from onnxgate.stages.runtime import Ran, RunModel
from onnxgate.underway import Exporting, Prepared, Sourced, Started, figures, no_reference
from onnxgate.witnesses import NODE_TIME_S, Witnesses
from onnxgate.work import Execution, Work


def execute(work: Work, host: Host, at_end: Callable[[Execution], None] = lambda _: None) -> Execution:
    """Run what the stages ask for. What could not be run is said in the result.

    `at_end` is given the result while the files of its cases are still there.
    """
    with tempfile.TemporaryDirectory(prefix="onnxgate-", ignore_cleanup_errors=True) as scratch:
        done = _Executor(work, host, Path(scratch)).run()
        at_end(done)
        return done


class _Executor:
    def __init__(self, work: Work, host: Host, scratch: Path) -> None:
        self._work = work
        self._host = host
        self._scratch = scratch
        self._done = Execution()
        self._folders = itertools.count()
        self._witnesses = Witnesses(self._ask_alone, scratch / "nodes")
        self._wants_runs = bool(work.stages & {Stage.RUNTIME, Stage.PARITY})
        self._wants_source = bool(work.stages & {Stage.PARITY, Stage.EXPORT})

    def run(self) -> Execution:
        if self._wants_runs:
            self._warm_up()
        toolchain = self._find_toolchain() if self._wants_source else None
        fed = [self._feed(planned) for planned in self._work.models]
        names = (name for _, each in fed for name in each.names)
        refuse_unknown(self._work.asked, names, any(each.model.settings.source for each in self._work.models))
        read_ones = zip(self._work.models, fed, strict=True)
        prepared = [self._prepare(planned, *each, toolchain) for planned, each in read_ones]
        started = [self._start_runs(each) for each in prepared]
        for each in started:
            self._collect(each)
        if Stage.RUNTIME in self._work.stages:
            self._judge_budgets()
        return self._done

    def _warm_up(self) -> None:
        """Have every environment made while models are being exported."""
        for runtime in {planned.runtime: None for each in self._work.models for planned in each.runtimes}:
            self._host.submit(self._seat(runtime), Probe())

    def _folder(self) -> Path:
        """A path of its own for what is fed, given or written."""
        return self._scratch / str(next(self._folders))

    def _seat(self, runtime: LockedRuntime) -> Seat:
        return Seat.of_runtime(runtime, self._work.lock.pinned, self._work.project.folder)

    # The toolchain

    def _find_toolchain(self) -> Path | None:
        """The interpreter that exports; None where no model needs it, or where there is none, which is then said."""
        exported = [each for each in self._work.models if each.model.settings.is_exported]
        if not exported:
            return None
        project = self._work.project
        try:
            python = find_toolchain(project.folder, project.config.toolchain, needs(project.config, project.folder))
            self._judge_toolchain(python)
        except (UnavailableError, ProbeError) as error:
            reason, hint = str(error), getattr(error, "hint", None) or ""
            for each in exported:
                self._undo_source(each, reason, hint)
            return None
        return python

    def _judge_toolchain(self, python: Path) -> None:
        project = self._work.project
        locked = self._work.lock.toolchain
        found = probe(python, locked.packages if locked else ())
        state = export_stage.toolchain_state(project, self._work.lock.toolchain, found)
        if state is not None and Stage.EXPORT in self._work.stages:
            self._done.subjects.append(state)

    def _undo_source(self, each: PlannedModel, reason: str, hint: str) -> None:
        stages = self._work.stages & {Stage.EXPORT, *([Stage.PARITY] if each.model.settings.source else [])}
        self._done.undone += [Undone(stage, each.path, "", reason, hint) for stage in stages]

    def _feed(self, planned: PlannedModel) -> tuple[Reading, Fed]:
        reading = read(planned.model.absolute, planned.path)
        call = functools.partial(call_inputs, self._work.project, self._host)
        return reading, feed(self._work.project, planned.model, reading, self._folder(), self._work.asked, call)

    def _prepare(self, planned: PlannedModel, reading: Reading, fed: Fed, toolchain: Path | None) -> Prepared:
        exporting = None
        if toolchain is not None and planned.model.settings.is_exported:
            exporting = self._export(planned, reading.facts, fed.cases, toolchain, self._folder())
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
            opset_max=export_plan.opset_limit(each.runtime for each in planned.runtimes),
            twice=Stage.EXPORT in self._work.stages,
        )
        seat = export_plan.toolchain_seat(toolchain)
        command = self._host.submit(seat, plan.command) if plan.command and Stage.EXPORT in self._work.stages else None
        source = self._host.submit(seat, plan.source) if plan.source else None
        again = self._host.submit(export_plan.second_seat(toolchain), plan.again) if plan.again else None
        return Exporting(plan, command or source, source, again)

    # Running

    def _start_runs(self, prepared: Prepared) -> Started:
        sourced = self._source_of(prepared)
        return self._start(prepared, sourced)

    def _start(self, prepared: Prepared, sourced: Sourced) -> Started:
        runtimes = prepared.planned.runtimes if self._wants_runs else ()
        cases = Started(prepared, sourced, {}).cases
        return Started(prepared, sourced, {planned: self._levels(prepared, planned, cases) for planned in runtimes})

    def _levels(self, prepared: Prepared, planned: PlannedRuntime, cases: tuple[Case, ...]) -> Future[tuple[Ran, ...]]:
        """The model on one runtime, level after level; what crashed or hung at one is not tried at the next."""
        model = prepared.planned.model.absolute
        asked = (planned.levels, planned.providers, self._folder(), planned.extensions)
        jobs = list(runtime_stage.runtime_jobs(model, cases, *asked))
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
            self._done.undone.append(no_reference(prepared.path, observation))
            return Sourced(None, None)
        eager = {case.name: found for case, found in zip(prepared.fed.cases, result.eager, strict=False)}
        sample = sample_case(prepared.reading.facts, result.input_names, result.sample)
        complete = len(result.eager) == len(prepared.fed.cases) + 1
        if sample is None or not complete or not self._work.asked.takes(sample.name):
            return Sourced(eager, None)
        return Sourced({**eager, sample.name: result.eager[-1]}, sample)

    # Following up where generated inputs fail

    def _follow(self, started: Started, ran: Sequence[Ran]) -> Started:
        """The model with what its source says of the cases, at other sizes where those that were guessed do not fit."""
        prepared, cases = started.prepared, started.prepared.fed.cases
        sourced = started.sourced
        if Stage.PARITY not in self._work.stages:
            sourced = Sourced(self._ask_source(prepared, cases), None)
        if self._work.asked.cases or not followups.needs_sizes(ran, sourced.eager):
            return Started(prepared, sourced, started.levels)
        newest = next(planned for planned in started.levels if planned.name == followups.newest(ran))
        sizes = followups.find_sizes(
            prepared.reading.facts,
            prepared.planned.model,
            ran,
            lambda setting: self._try(prepared, newest, setting),
        )
        if not sizes:
            return Started(prepared, sourced, started.levels)
        fed = feed_at(prepared.planned.model, prepared.reading, sizes, self._folder(), self._work.asked.seed)
        eager = self._ask_source(prepared, fed.cases) if sourced.eager is not None else None
        both = None if sourced.eager is None else {**sourced.eager, **(eager or {})}
        return self._start(replace(prepared, fed=fed), Sourced(both, sourced.sample))

    def _try(self, prepared: Prepared, planned: PlannedRuntime, setting: Mapping[str, int]) -> Sequence[Ran]:
        """One setting at one level of one runtime."""
        fed = feed_at(prepared.planned.model, prepared.reading, [setting], self._folder(), self._work.asked.seed)
        return self._levels(prepared, replace(planned, levels=planned.levels[:1]), fed.cases).result()

    def _ask_source(self, prepared: Prepared, cases: tuple[Case, ...]) -> Mapping[str, CaseResult] | None:
        """What the source gives on the cases; None where it cannot be asked."""
        project, model = self._work.project, prepared.planned.model
        if model.settings.source is None:
            return None
        try:
            python = find_toolchain(project.folder, project.config.toolchain, needs(project.config, project.folder))
        except UnavailableError:
            return None
        plan = export_plan.plan(project, model, python, self._folder(), cases=cases, float64=False)
        assert plan.source is not None
        job = msgspec.structs.replace(plan.source, export=False)
        answer = self._host.submit(export_plan.toolchain_seat(python), job).result()
        result = answer.result if isinstance(answer, Completed) else None
        if not isinstance(result, ExportResult) or not result.eager:
            return None
        return {case.name: found for case, found in zip(cases, result.eager, strict=False)}

    # Judging what came of it

    def _collect(self, started: Started) -> None:
        ran = _results(started)
        if followups.some_failed(ran):
            started = self._follow(started, ran)
            ran = _results(started)
        self._done.cases[started.prepared.path] = started.cases
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
            facts=prepared.reading.facts,
        )
        alone = self._examine(model, started, ran)
        predicted = {planned.name: work.predicted.get((prepared.path, planned.name), ()) for planned in started.levels}
        optional = {planned.name for planned in started.levels if not planned.required}
        runs, undone = runtime_stage.gather(model, ran, started.sourced.eager or {}, predicted, alone, optional)
        for each in undone:
            (self._done.skipped if each.runtime in optional else self._done.undone).append(each)
        self._done.ran |= {(each.model, each.runtime) for each in runs}
        self._done.faulty += [each for each in runs if _is_faulty(each)]
        if Stage.RUNTIME in work.stages:
            self._done.subjects += runs
        reason, hint = prepared.fed.reason, prepared.fed.hint
        if not reason:
            reason, hint = followups.why_nothing_ran(runs)
        if reason and started.levels:
            asked = sorted(work.stages & {Stage.RUNTIME, Stage.PARITY})
            self._done.undone += [Undone(stage, prepared.path, "", reason, hint) for stage in asked]
        return runs

    def _examine(self, model: RunModel, started: Started, ran: Sequence[Ran]) -> Mapping[str, tuple[Alone, ...]]:
        """What nodes alone say, on the runtimes that refuse the model."""
        if Stage.RUNTIME not in self._work.stages:
            return {}
        predictions = {planned: self._work.predictions.get((model.path, planned.name)) for planned in started.levels}
        refusing = witness.refusing(ran, model.proto, predictions, self._work.kept)
        examined = self._witnesses.examine(model, refusing)
        self._done.skipped += examined.skipped
        return examined.alone

    def _ask_alone(self, planned: PlannedRuntime, job: Load) -> Future[Observation]:
        limits = self._work.project.config.limits
        allowed = JobLimits(time_s=min(limits.time_s, NODE_TIME_S), memory_mib=limits.memory_mib)
        return self._host.submit(self._seat(planned.runtime), job, limits=allowed)

    def _judge_parity(self, started: Started, ran: Sequence[Ran], runs: Sequence[ModelRuns]) -> None:
        prepared, work = started.prepared, self._work
        model = ParityModel(
            path=prepared.path,
            place=work.places[prepared.path],
            comparability=comparability(prepared.reading.facts, prepared.reading.proto),
            tolerance=prepared.planned.model.settings.tolerance,
            locked=work.lock.models.get(prepared.path),
            operators=frozenset(prepared.reading.facts.operators),
            steps=output_steps(prepared.reading.proto, prepared.planned.model.absolute),
            kept=kept_positions(prepared.reading, started.cases),
            not_finite=not_finite(runs) if Stage.RUNTIME in work.stages else frozenset(),
        )
        unusable = () if followups.why_nothing_ran(runs)[0] else followups.undecided_cases(runs)
        comparisons, undone = parity_stage.gather(model, ran, started.sourced.eager, unusable)
        comparisons = self._locate(started, ran, comparisons)
        self._done.subjects += comparisons
        self._done.undone += [each for each in undone if not each.by_design]
        self._done.skipped += [each for each in undone if each.by_design]
        self._done.measured += [figure for each in comparisons for figure in figures(each)]
        self._done.compared |= {(each.model, each.runtime) for each in comparisons if each.reference == "the source"}
        self._judge_quantized(started, ran, model)

    def _judge_quantized(self, started: Started, ran: Sequence[Ran], model: ParityModel) -> None:
        """A quantized model against the float model that it came from."""
        prepared = started.prepared
        quantized = Quantized(prepared.planned.model, prepared.reading, started.cases, tuple(started.levels))
        quantizing = Quantizing(
            self._work.project, lambda planned, job: self._host.submit(self._seat(planned.runtime), job), self._folder
        )
        comparisons, undone = quantizing.examine(quantized, model, ran)
        self._done.subjects += comparisons
        self._done.undone += [each for each in undone if not each.by_design]
        self._done.skipped += [each for each in undone if each.by_design]
        self._done.measured += [figure for each in comparisons for figure in figures(each)]

    def _locate(
        self, started: Started, ran: Sequence[Ran], comparisons: tuple[Comparison, ...]
    ) -> tuple[Comparison, ...]:
        """The comparisons, each mismatch with the node at which it begins."""

        def submit(planned: PlannedRuntime, job: Job, limits: JobLimits) -> Future[Observation]:
            return self._host.submit(self._seat(planned.runtime), job, limits=limits)

        locator = Locator(submit, self._ask_toolchain, self._folder)
        named, unfound = locator.locate(located(self._work, started, ran), comparisons)
        self._done.skipped += unfound
        return named

    def _ask_toolchain(self, job: Job) -> Observation:
        return self._host.submit(export_plan.toolchain_seat(self._toolchain_python()), job).result()

    def _toolchain_python(self) -> Path:
        project = self._work.project
        return find_toolchain(project.folder, project.config.toolchain, needs(project.config, project.folder))

    def _judge_export(self, prepared: Prepared) -> None:
        exporting = prepared.exporting
        if exporting is None or exporting.writes is None:
            return
        made = [self._made(exporting, exporting.writes.result())]
        if exporting.source is not None and exporting.source is not exporting.writes:
            made.append(export_stage.gather_source(self._work.project, exporting.planned, exporting.source.result()))
        self._done.subjects += [each.subject for each in made if each.subject is not None]
        self._done.undone += [each.undone for each in made if each.undone is not None]

    def _made(self, exporting: Exporting, first: Observation) -> Made:
        """What came of both exports; a second one that cannot be made elsewhere is made where the first one was."""
        project, planned = self._work.project, exporting.planned
        again = exporting.again.result() if exporting.again else None
        made = export_stage.gather(project, planned, first, again)
        failed = made.subject.failed_again if made.subject else None
        if failed is None or not export_plan.is_elsewhere(planned):
            return made
        planned = export_plan.in_its_folder(planned)
        assert planned.again is not None
        seat = export_plan.second_seat(self._toolchain_python())
        made = export_stage.gather(project, planned, first, self._host.submit(seat, planned.again).result())
        if made.subject is not None and made.subject.failed_again is None:
            reason = f"it is exported from its own folder alone: from another one it fails with {failed.type}"
            self._done.skipped.append(Undone(Stage.EXPORT, planned.model.path, "", reason))
        return made

    def _judge_budgets(self) -> None:
        """What models cost beside their baselines: measured when nothing else runs."""
        work, done = self._work, self._done
        races = Races(work.project.folder, work.against, self._ask_race, self._folder)
        for each in (model for model in work.models if model.model.settings.budget is not None):
            entrant = Entrant(each, work.places[each.path], work.facts[each.path], done.cases.get(each.path, ()))
            races.hold(entrant, done)

    def _ask_race(self, planned: PlannedRuntime, job: Race) -> Observation:
        return self._host.submit(self._seat(planned.runtime), job).result()


def _results(started: Started) -> list[Ran]:
    return [each for future in started.levels.values() for each in future.result()]


def _is_faulty(runs: ModelRuns) -> bool:
    """Whether something that the model promises did not complete; a size that was a guess is no promise."""
    return any(each.outcome != "completed" and not is_guess(each, runs) for each in runs.attempts)


def _memory_limit_mib(project: Project, prepared: Prepared) -> int:
    facts = prepared.reading.facts
    given = project.config.limits.memory_mib
    return given or usual_memory_mib(facts.size_bytes + sum(each.size_bytes for each in facts.external))
