"""Run the dynamic stages together: each job runs once, and all stages use its observation."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import msgspec

from onnxgate.core.bug_reports import contain_errors
from onnxgate.core.errors import OnnxgateError
from onnxgate.core.files import file_identity, sha256_of, temporary_folder
from onnxgate.core.findings import ALL_STAGES, CHANGED_FILES, DYNAMIC_STAGES, IncompleteCheck, Stage
from onnxgate.core.jobs import (
    Crashed,
    InputCase,
    Load,
    Observation,
    Run,
    TimedOut,
    Unavailable,
)
from onnxgate.gate.execution import branch_retries, size_search, value_search
from onnxgate.gate.execution.benchmark import Benchmarks
from onnxgate.gate.execution.crashed_sizes import CrashLog, list_crashed_cases
from onnxgate.gate.execution.failed_runs import NODE_TIME_S, NodeLoader
from onnxgate.gate.execution.input_callables import call_inputs
from onnxgate.gate.execution.parity.comparison import OutputComparer
from onnxgate.gate.execution.parity.extra_runs import ExtraRuns
from onnxgate.gate.execution.run_evidence import RunEvidence
from onnxgate.gate.execution.runtime_jobs import RuntimeJobs
from onnxgate.gate.execution.stable_exports import StableExports
from onnxgate.gate.execution.started_models import PreparedModel, SourceOutputs, StartedModel
from onnxgate.gate.execution.toolchain import Exporter, settle
from onnxgate.gate.outcome_cache import is_lasting_answer, is_lasting_step
from onnxgate.gate.request import (
    CollectedModel,
    ExecutionResult,
    ExecutionSettings,
    RunnableModel,
    StepResult,
    create_execution_result,
    join_steps,
)
from onnxgate.gate.sharding.plan import TOOLCHAIN
from onnxgate.inputs.case_selection import require_known_cases
from onnxgate.inputs.cases import (
    NO_INPUTS,
    CaseGenerator,
    InputCases,
    InputGenerationError,
    PlannedCase,
    create_cases,
)
from onnxgate.model.facts import ModelFacts
from onnxgate.model.onnx_functions import record_failed_calls
from onnxgate.model.reading.external_data import hash_content, list_content_files
from onnxgate.model.reading.fact_extraction import ParsedModel, read_model
from onnxgate.model.reading.structure import read_light_view
from onnxgate.model.subgraphs.node_context import track_source_lookups
from onnxgate.project.plan import PlannedModel, PlannedRuntime
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.worker_spec import JobLimits
from onnxgate.stages import runtime as runtime_stage
from onnxgate.stages.export_jobs import ProjectToolchain
from onnxgate.stages.runtime import ObservedRun

if TYPE_CHECKING:
    from onnxgate.gate.result_cache import ResultCache

MAX_RESTARTS = 3
"""Maximum number of searches for sizes that do not crash a runtime."""

_RUN_STAGES = (Stage.RUNTIME, Stage.PARITY)
_EXPORT = (Stage.EXPORT,)

P = ParamSpec("P")
T = TypeVar("T")


class ModelChangedError(OnnxgateError):
    """The files of a model changed during the check, so its results may belong to different files."""

    def __init__(self) -> None:
        reason, hint = CHANGED_FILES
        super().__init__(reason, hint=hint)


@contextmanager
def execute(
    models: Sequence[RunnableModel],
    settings: ExecutionSettings,
    host: WorkerPool,
    cache: ResultCache | None = None,
    stable: StableExports | None = None,
) -> Iterator[ExecutionResult]:
    """Run the models for all stages. The files of the input cases exist until the context exits."""
    with temporary_folder() as scratch:
        host.show(Path(scratch), models=(model.planned.model.absolute for model in models))
        yield _Executor(models, settings, host, cache, stable or StableExports(None), Path(scratch)).run()


class _Executor:
    def __init__(
        self,
        models: Sequence[RunnableModel],
        settings: ExecutionSettings,
        host: WorkerPool,
        cache: ResultCache | None,
        stable: StableExports,
        scratch: Path,
    ) -> None:
        self._models = models
        self._settings = settings
        self._host = host
        self._scratch = scratch
        self._jobs = RuntimeJobs(settings, host, cache)
        self._folders = itertools.count()
        self._node_loader = NodeLoader(self._load_node, scratch / "nodes")
        self._exporter = Exporter(settings, host, self._folder, stable)
        self._wants_runs = not settings.stages.isdisjoint(_RUN_STAGES)
        self._undone: list[IncompleteCheck] = []  # of steps that failed
        self._failed_calls: dict[str, dict[str, str]] = {}  # by model: reasons of failed calls of onnx, and hints
        self._identities: dict[str, list[tuple[int, ...]]] = {}  # of the files of each model, before it was read

    def run(self) -> ExecutionResult:
        if self._wants_runs:
            self._jobs.warm_up(self._models)
        wants_source = bool(self._settings.stages & {Stage.PARITY, Stage.EXPORT})
        toolchain, probed = self._exporter.find_toolchain(self._models) if wants_source else (None, StepResult())
        prepared = self._prepare_all(toolchain)
        self._exporter.export_again()
        begun = [(model, self._begin(model)) for model in prepared]
        begun.sort(key=lambda pair: self._awaited(pair[0]) is not None)
        results = [(it.path, self._contain(it.runnable, _RUN_STAGES, self._collect, started)) for it, started in begun]
        collected = {path: result for path, result in results if result is not None}
        is_exported = Stage.EXPORT in self._settings.stages
        exports = [self._contain(it.runnable, _EXPORT, self._exporter.judge, it) for it in prepared if is_exported]
        measured = list(self._measure_budgets(collected)) if Stage.RUNTIME in self._settings.stages else []
        runs = [runs for model in collected.values() for runs in model.runs]
        steps = (*(model.step for model in collected.values()), *filter(None, exports), *measured)
        own = StepResult(undone=tuple(self._undone), skipped=tuple(self._describe_failed_calls()))
        step = join_steps([probed, *steps, own])
        result = create_execution_result(step, runs)
        reused = ((str(path), TOOLCHAIN) for path in self._exporter.reused)
        return msgspec.structs.replace(result, collected=collected, reused=(*self._jobs.reused, *reused))

    def _contain(
        self,
        model: RunnableModel,
        stages: Collection[Stage],
        step: Callable[P, T],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> T | None:
        """Run a step of one model. If it fails, these stages of the model are undecided, and the result is None."""
        selected = [it for it in stages if it in self._settings.stages]
        if not model.planned.model.settings.is_exported:
            selected = [it for it in selected if it is not Stage.EXPORT]
        result: T | None = None
        with contain_errors(model.path, selected, self._undone):
            try:
                with record_failed_calls(self._failed_calls.setdefault(model.path, {})):
                    result = self._metered(model.planned, step, *arguments, **named)
            except Exception as error:
                if self._has_changed(model):
                    raise ModelChangedError from error
                raise
        return result

    def _describe_failed_calls(self) -> Iterator[IncompleteCheck]:
        """Yield one note for each model that was checked without the result of a function of onnx."""
        stage = min(self._settings.stages, key=ALL_STAGES.index)
        for path, reasons in self._failed_calls.items():
            if reasons:
                reason = f"{'; '.join(reasons)}; inputs and comparisons were chosen without the result"
                yield IncompleteCheck(stage, path, "", reason, next(iter(reasons.values())), by_design=True)

    def _has_changed(self, model: RunnableModel) -> bool:
        """Return whether the files of a model have other contents than in the static stages, or were written since."""
        try:
            files = list_content_files(model.facts, model.planned.model.absolute)
            if any(sha256_of(path) != sha256 for path, sha256 in files.items()):
                return True
            return _identify(model) != self._identities.setdefault(model.path, _identify(model))
        except OSError:
            return True

    def _metered(self, planned: PlannedModel, step: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Run `step`, and attribute the jobs that it submits to the model."""
        with self._host.meter.attribute_to(str(planned.model.absolute)):
            return step(*arguments, **named)

    def _folder(self) -> Path:
        """Return an unused path for inputs, outputs or models."""
        return self._scratch / str(next(self._folders))

    def _create_extra_runs(self, started: StartedModel) -> ExtraRuns:
        model = started.prepared.planned.model.absolute.absolute()
        runtimes = {planned.name: planned for planned in started.levels}
        return ExtraRuns(runtimes, functools.partial(self._jobs.submit_for, model), self._folder)

    def _prepare_all(self, toolchain: ProjectToolchain | None) -> list[PreparedModel]:
        """Prepare all models. The export of a model starts before the input cases of the next model are created."""
        inputs: Iterable[tuple[RunnableModel, tuple[ModelFacts, InputCases] | None]]
        inputs = ((it, self._contain(it, DYNAMIC_STAGES, self._create_cases, it)) for it in self._models)
        if self._settings.inputs.cases:
            inputs = list(inputs)
            created = [read[1] for _, read in inputs if read is not None]
            names = (name for cases in created for name in cases.names)
            has_source = any(model.planned.model.settings.source for model in self._models)
            # The names of inputs that cannot be used are unknown. Models with unsupported inputs have no cases.
            is_unknown = any(cases.reason and not cases.names and cases.cause != NO_INPUTS for cases in created)
            if not is_unknown and len(created) == len(self._models):
                require_known_cases(self._settings.inputs, names, has_source)
        prepared = (
            self._contain(model, DYNAMIC_STAGES, self._prepare, model, *read, toolchain)
            for model, read in inputs
            if read is not None
        )
        return [model for model in prepared if model is not None]

    def _create_cases(self, model: RunnableModel) -> tuple[ModelFacts, InputCases]:
        project, selected = self._settings.project, model.planned.model
        if self._has_changed(model):
            raise ModelChangedError
        reading = read_model(selected.absolute, model.path, lightly=True)
        if hash_content(reading.facts) != hash_content(model.facts):
            raise ModelChangedError
        call = functools.partial(call_inputs, project, self._host)
        return reading.facts, create_cases(project, selected, reading, self._folder(), call, self._settings.inputs)

    def _prepare(
        self, model: RunnableModel, facts: ModelFacts, fed: InputCases, toolchain: ProjectToolchain | None
    ) -> PreparedModel:
        exporting, planned = None, model.planned
        if toolchain is not None and planned.model.settings.is_exported:
            exporting = self._exporter.export(planned, facts, fed.cases, toolchain)
        return PreparedModel(model, facts, fed, exporting)

    # Running

    def _awaited(self, prepared: PreparedModel) -> Future[Observation] | None:
        """Return the job that must end before a model can run: the run of its source, which adds an example case."""
        exporting = prepared.exporting if Stage.PARITY in self._settings.stages else None
        return exporting.source if exporting is not None else None

    def _begin(self, prepared: PreparedModel) -> Future[StartedModel]:
        """Start running a model once all its input cases exist."""
        begun: Future[StartedModel] = Future()

        def start() -> StartedModel:
            return self._start(prepared, self._exporter.source_of(prepared))

        def begin(_: object = None) -> None:
            settle(begun, lambda: self._metered(prepared.planned, start))

        awaited = self._awaited(prepared)
        if awaited is None:
            begin()
        else:
            awaited.add_done_callback(begin)
        return begun

    def _start(self, prepared: PreparedModel, sourced: SourceOutputs) -> StartedModel:
        runtimes = prepared.planned.runtimes if self._wants_runs else ()
        cases = StartedModel(prepared, sourced, {}).cases
        levels = {planned: self._levels(prepared, planned, cases) for planned in runtimes}
        return StartedModel(prepared, sourced, levels)

    def _levels(
        self, prepared: PreparedModel, planned: PlannedRuntime, cases: tuple[InputCase, ...]
    ) -> Future[tuple[ObservedRun, ...]]:
        """Run the model on one runtime at each optimization level in turn. Stop after a crash or timeout."""
        model = prepared.planned.model.absolute
        jobs = list(runtime_stage.prepare_runs(model, cases, planned, self._folder()))
        ended: Future[tuple[ObservedRun, ...]] = Future()
        ran: list[ObservedRun] = []

        def begin(job: Run) -> None:
            self._jobs.run(planned, job).add_done_callback(lambda done: end(job, done))

        def end(job: Run, done: Future[Observation]) -> None:
            try:
                ran.append(ObservedRun(planned.name, job, done.result()))
                if jobs and not isinstance(ran[-1].observation, Crashed | TimedOut | Unavailable):
                    begin(jobs.pop(0))
                else:
                    ended.set_result(tuple(ran))
            except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
                ended.set_exception(error)

        begin(jobs.pop(0))
        return ended

    # Retry with other inputs if generated ones fail

    def _follow(
        self, started: StartedModel, reading: ParsedModel, ran: Sequence[ObservedRun], generator: CaseGenerator
    ) -> StartedModel:
        """Add the outputs of the source; re-run the model with other inputs if the guessed ones are invalid."""
        crashes = CrashLog()
        crashes.add(ran)
        started = self._replace_inputs(started, reading, ran, generator, crashes)
        return replace(started, crashes=crashes.list_replaced(started.prepared.fed.cases))

    def _replace_inputs(
        self,
        started: StartedModel,
        reading: ParsedModel,
        ran: Sequence[ObservedRun],
        generator: CaseGenerator,
        crashes: CrashLog,
    ) -> StartedModel:
        prepared = started.prepared
        if Stage.PARITY not in self._settings.stages:
            eager = self._exporter.run_source(prepared, prepared.fed.cases)
            started = replace(started, sourced=SourceOutputs(eager, None))

        def attempt(runtime: str, cases: Sequence[PlannedCase]) -> Sequence[ObservedRun]:
            planned = next(planned for planned in started.levels if planned.name == runtime)
            return self._attempt(prepared, planned, generator.try_write(cases, self._folder()))

        def attempt_sizes(runtime: str, setting: Mapping[str, int]) -> Sequence[ObservedRun]:
            """Also run the runtimes that crashed at other sizes."""
            cases, tried = generator.plan([setting], probes=False), list[ObservedRun]()
            for name in dict.fromkeys((runtime, *crashes.list_runtimes())):
                tried += attempt(name, cases)
                if not size_search.has_completed_all(tried):
                    break
            crashes.add(tried)
            return tried

        model = prepared.planned.model
        if self._settings.inputs.cases:  # selected cases keep their sizes and values
            started, ran = self._leave_out_crashes(started, ran, crashes)
            refused = size_search.find_refused_axes(reading, model, ran, started.sourced.eager, attempt_sizes)
            fed = started.prepared.fed
            selected = (msgspec.structs.replace(it, refused=refused.get(it.name, ())) for it in fed.cases)
            return self._restart(started, tuple(selected)) if refused else started
        for _ in range(MAX_RESTARTS):
            found = size_search.find_sizes(reading, model, ran, started.sourced.eager, attempt_sizes)
            if found.settings:
                started = self._restart(started, generator.try_write(found.list_cases(generator), self._folder()))
                started, ran = replace(started, unvaried=found.describe_untested()), _collect_runs(started)
            started, ran = self._leave_out_crashes(started, ran, crashes)
            if not found.settings or not any(map(size_search.list_crashing, ran)):
                break
        if any(map(size_search.list_crashing, ran)):
            return started
        eager, sizes = started.sourced.eager, model.settings.sizes
        if cases := value_search.find_cases(reading.facts, sizes, generator, ran, eager, attempt):
            return self._restart(started, generator.try_write(cases, self._folder()))
        replaced = branch_retries.find_replacements(reading, model, generator, ran, started.sourced.eager, attempt)
        if not replaced:
            return started
        kept: list[InputCase] = []
        for case in started.prepared.fed.cases:
            others = replaced.get(case.name)
            kept += [case] if others is None else generator.try_write(others, self._folder())
        return self._restart(started, tuple(kept))

    def _leave_out_crashes(
        self, started: StartedModel, ran: Sequence[ObservedRun], crashes: CrashLog
    ) -> tuple[StartedModel, Sequence[ObservedRun]]:
        """Re-run the model without cases that crash a runtime, if other cases have other guessed sizes."""
        crashes.add(ran)
        failing = size_search.list_failing(ran, started.sourced.eager)
        cases = crashes.select_others(started.prepared.fed.cases, failing)
        if cases == started.prepared.fed.cases:
            return started, ran
        started = self._restart(started, cases)
        return started, _collect_runs(started)

    def _attempt(
        self, prepared: PreparedModel, planned: PlannedRuntime, cases: tuple[InputCase, ...]
    ) -> tuple[ObservedRun, ...]:
        """Run other cases at the first optimization level and, if it accepts all of them, at the other levels.

        Optimization can replace a computed size by -1, so that wrong sizes are accepted.
        """
        levels = planned.levels
        ran = self._levels(prepared, msgspec.structs.replace(planned, levels=levels[:1]), cases).result()
        if not levels[1:] or not size_search.has_completed_all(ran):
            return ran
        return ran + self._levels(prepared, msgspec.structs.replace(planned, levels=levels[1:]), cases).result()

    def _restart(self, started: StartedModel, cases: tuple[InputCase, ...]) -> StartedModel:
        """Run the model and its source on other cases."""
        prepared = replace(started.prepared, fed=InputCases(cases))
        eager, sourced = None, started.sourced
        if sourced.eager is not None:
            eager = {**sourced.eager, **(self._exporter.run_source(prepared, cases) or {})}
        restarted = self._start(prepared, SourceOutputs(eager, sourced.sample))
        return replace(restarted, unvaried=started.unvaried)

    def _create_generator(self, started: StartedModel, reading: ParsedModel) -> CaseGenerator | None:
        """Return the generator of the inputs of a model; None if they cannot be generated."""
        try:
            sizes, seed = started.prepared.planned.model.settings.sizes, self._settings.inputs.seed
            return CaseGenerator(reading.facts, reading.view, sizes, seed)
        except InputGenerationError:
            return None

    # Evidence

    def _collect(self, begun: Future[StartedModel]) -> CollectedModel:
        """Collect the results of a model, unless its files changed since the static stages read them."""
        started = begun.result()
        with track_source_lookups() as was_consulted:
            collected, answers = self._judge(started, _collect_runs(started))
            has_only_own_places = not was_consulted()  # other locations depend on source files
        if self._has_changed(started.prepared.runnable):
            raise ModelChangedError
        is_lasting = has_only_own_places and all(map(is_lasting_answer, answers)) and is_lasting_step(collected.step)
        is_lasting = is_lasting and not self._failed_calls.get(started.prepared.path)
        return msgspec.structs.replace(collected, is_lasting=is_lasting)

    def _judge(self, started: StartedModel, ran: list[ObservedRun]) -> tuple[CollectedModel, list[Future[Observation]]]:
        """Collect the evidence for a model. The model is read again, since keeping all models needs too much memory."""
        model = started.prepared.planned.model.absolute.absolute()
        steps = [StepResult(undone=started.sourced.undone)]
        reading = ParsedModel(started.prepared.facts, read_light_view(started.prepared.planned.model.absolute))
        generator = self._create_generator(started, reading)
        if generator is not None and size_search.has_failed_case(ran):
            started = self._follow(started, reading, ran, generator)
            ran = _collect_runs(started)
        extra = self._create_extra_runs(started)
        evidence = RunEvidence(self._settings, started, reading, generator, extra, self._node_loader)
        runs, step, answers = evidence.collect(ran)
        steps.append(step)
        if Stage.PARITY in self._settings.stages:
            comparer = OutputComparer(self._settings, started, reading, extra, self._exporter.run)
            steps.append(comparer.compare(ran, runs))
        observed = tuple(run.runtime for run in ran)
        cases = (*started.cases, *list_crashed_cases(started.crashes))
        collected = CollectedModel(cases, runs, join_steps(steps), observed)
        return collected, [*answers, *self._jobs.take_answers(model)]

    def _load_node(self, planned: PlannedRuntime, job: Load) -> Future[Observation]:
        limits = self._settings.project.config.limits
        allowed = JobLimits(min(limits.time_s, NODE_TIME_S), limits.memory_mib)
        return self._jobs.submit(planned, job, allowed)

    def _measure_budgets(self, collected: Mapping[str, CollectedModel]) -> Iterator[StepResult]:
        """Measure the models and their baselines while no other job is running."""
        settings = self._settings
        benchmarks = Benchmarks(settings.project.folder, settings.revision, self._jobs.submit, self._folder)
        for model in self._models:
            if model.planned.model.settings.budget is not None and model.path in collected:
                cases = collected[model.path].cases
                measured = self._contain(model, (Stage.RUNTIME,), benchmarks.measure, model, cases)
                yield from [measured] if measured is not None else []


def _identify(model: RunnableModel) -> list[tuple[int, ...]]:
    """Return the identity of each file of a model, without ctime, which changes if onnxgate links to the file."""
    files = list_content_files(model.facts, model.planned.model.absolute)
    return [file_identity(path.stat())[:-1] for path in files]


def _collect_runs(started: StartedModel) -> list[ObservedRun]:
    return [run for future in started.levels.values() for run in future.result()]
