"""Run the dynamic stages together: each job runs once, and all stages use its observation."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import msgspec

from onnxgate.core.files import sha256_of, temporary_folder
from onnxgate.core.findings import IncompleteCheck, Stage, runtime_sort_key
from onnxgate.core.jobs import (
    CaseResult,
    Completed,
    Crashed,
    InputCase,
    Job,
    Load,
    Observation,
    Probe,
    Run,
    RunResult,
    TimedOut,
    Unavailable,
)
from onnxgate.evidence.runtime import ModelRuns
from onnxgate.gate.execution import branch_retries, failed_runs, size_search
from onnxgate.gate.execution.benchmark import Benchmarks
from onnxgate.gate.execution.failed_runs import NODE_TIME_S, NodeLoader, NodeLoads
from onnxgate.gate.execution.parity.comparison import OutputComparer
from onnxgate.gate.execution.parity.extra_runs import ExtraRuns
from onnxgate.gate.execution.stable_exports import StableExports
from onnxgate.gate.execution.toolchain import Exporter, PreparedModel, SourceOutputs, StartedModel, call_inputs, settle
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
from onnxgate.inputs.branches import BRANCH_FAULTS
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
from onnxgate.model.reading.external_data import list_content_files
from onnxgate.model.reading.fact_extraction import ParsedModel, read_model
from onnxgate.model.reading.file_format import UnreadableModel
from onnxgate.model.reading.structure import read_light_view, read_view
from onnxgate.model.subgraphs.instrumented_models import expose_values
from onnxgate.model.subgraphs.node_context import track_source_lookups
from onnxgate.numerics.streams import load_array
from onnxgate.project.lock.types import LockedRuntime
from onnxgate.project.plan import PlannedModel, PlannedRuntime
from onnxgate.runtimes.memory import memory_limit_mib
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.worker_spec import JobLimits, WorkerSpec
from onnxgate.stages import isolated_nodes
from onnxgate.stages import runtime as runtime_stage
from onnxgate.stages.branch_coverage import BranchCoverage, ObservedValues
from onnxgate.stages.export_jobs import ProjectToolchain
from onnxgate.stages.runtime import ExecutedModel, ObservedRun

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnxgate.gate.result_cache import ResultCache

P = ParamSpec("P")
T = TypeVar("T")


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
        host.show(Path(scratch), *(model.planned.model.absolute.parent for model in models))
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
        self._cache = cache
        self._scratch = scratch
        self._reused: list[tuple[str, str]] = []
        self._answers: defaultdict[Path, list[Future[Observation]]] = defaultdict(list)  # by model file
        self._folders = itertools.count()
        self._node_loader = NodeLoader(self._load_node, scratch / "nodes")
        self._exporter = Exporter(settings, host, self._folder, stable)
        limits = settings.project.config.limits
        self._limits = JobLimits(limits.time_s, limits.memory_mib)
        self._wants_runs = bool(settings.stages & {Stage.RUNTIME, Stage.PARITY})

    def run(self) -> ExecutionResult:
        if self._wants_runs:
            self._warm_up()
        wants_source = bool(self._settings.stages & {Stage.PARITY, Stage.EXPORT})
        toolchain, probed = self._exporter.find_toolchain(self._models) if wants_source else (None, StepResult())
        prepared = self._prepare_all(toolchain)
        self._exporter.export_again()
        begun = [(model, self._begin(model)) for model in prepared]
        collected = {
            model.path: self._metered(model.planned, self._collect, started.result())
            for model, started in sorted(begun, key=lambda pair: self._awaited(pair[0]) is not None)
        }
        is_exported = Stage.EXPORT in self._settings.stages
        exported = [self._metered(it.planned, self._exporter.judge, it) for it in prepared if is_exported]
        measured = list(self._measure_budgets(collected)) if Stage.RUNTIME in self._settings.stages else []
        runs = [runs for model in collected.values() for runs in model.runs]
        step = join_steps([probed, *(model.step for model in collected.values()), *exported, *measured])
        result = create_execution_result(step, runs)
        exports = ((str(path), TOOLCHAIN) for path in self._exporter.reused)
        return msgspec.structs.replace(result, collected=collected, reused=(*self._reused, *exports))

    def _metered(self, planned: PlannedModel, step: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Run `step`, and attribute the jobs that it submits to the model."""
        with self._host.meter.attribute_to(str(planned.model.absolute)):
            return step(*arguments, **named)

    def _warm_up(self) -> None:
        """Create every environment that will be used, and import its engine there."""
        plans = [model.planned for model in self._models]
        runtimes = [(plan.model.absolute, runtime) for plan in plans for runtime in plan.runtimes]
        for runtime in dict.fromkeys(it.runtime for model, it in runtimes if not self._is_spared(model, it)):
            self._host.submit(self._spec(runtime), Probe())

    def _is_spared(self, model: Path, planned: PlannedRuntime) -> bool:
        """Return whether all results of a runtime are probably cached, so its environment need not be created."""
        if self._cache is None:
            return False
        jobs = [runtime_stage.plan_run(model, (), planned, level, Path(level)) for level in planned.levels]
        return self._cache.expects(self._spec(planned.runtime), jobs)

    def _folder(self) -> Path:
        """Return an unused path for inputs, outputs or models."""
        return self._scratch / str(next(self._folders))

    def _spec(self, runtime: LockedRuntime) -> WorkerSpec:
        return WorkerSpec.of_runtime(runtime, self._settings.lock.pinned, self._settings.project.folder)

    def _submit(self, planned: PlannedRuntime, job: Job, limits: JobLimits | None = None) -> Future[Observation]:
        return self._host.submit(self._spec(planned.runtime), job, limits=limits)

    def _submit_for(
        self, model: Path, planned: PlannedRuntime, job: Job, limits: JobLimits | None = None
    ) -> Future[Observation]:
        """Run a job and record that the outcome of the model depends on it."""
        answer = self._submit(planned, job, limits)
        self._answers[model].append(answer)
        return answer

    def _create_extra_runs(self, started: StartedModel) -> ExtraRuns:
        model = started.prepared.planned.model.absolute.absolute()
        runtimes = {planned.name: planned for planned in started.levels}
        return ExtraRuns(runtimes, functools.partial(self._submit_for, model), self._folder)

    def _run(self, planned: PlannedRuntime, job: Run) -> Future[Observation]:
        """Run a model or return its cached result."""
        answer = self._find_or_run(planned, job)
        self._answers[Path(job.model)].append(answer)
        return answer

    def _find_or_run(self, planned: PlannedRuntime, job: Run) -> Future[Observation]:
        cache, spec = self._cache, self._spec(planned.runtime)
        observation = cache.find(spec, job) if cache is not None else None
        if observation is not None:
            self._reused.append((job.model, planned.name))
            reused: Future[Observation] = Future()
            reused.set_result(observation)
            return reused

        def store(done: Future[Observation]) -> None:
            if cache is not None and not done.cancelled() and done.exception() is None:
                cache.keep(spec, job, done.result())

        future = self._host.submit(spec, job)
        future.add_done_callback(store)
        return future

    def _prepare_all(self, toolchain: ProjectToolchain | None) -> list[PreparedModel]:
        """Prepare all models. The export of a model starts before the input cases of the next model are created."""
        inputs: Iterable[tuple[ModelFacts, InputCases]]
        inputs = (self._metered(model.planned, self._create_cases, model) for model in self._models)
        if self._settings.inputs.cases:
            inputs = list(inputs)
            names = (name for _, cases in inputs for name in cases.names)
            has_source = any(model.planned.model.settings.source for model in self._models)
            # The names of inputs that cannot be used are unknown. Models with unsupported inputs have no cases.
            if not any(cases.reason and not cases.names and cases.cause != NO_INPUTS for _, cases in inputs):
                require_known_cases(self._settings.inputs, names, has_source)
        return [self._prepare(model, *read, toolchain) for model, read in zip(self._models, inputs, strict=True)]

    def _create_cases(self, model: RunnableModel) -> tuple[ModelFacts, InputCases]:
        project, selected = self._settings.project, model.planned.model
        reading = read_model(selected.absolute, model.path, lightly=True)
        call = functools.partial(call_inputs, project, self._host)
        return reading.facts, create_cases(project, selected, reading, self._folder(), call, self._settings.inputs)

    def _prepare(
        self, model: RunnableModel, facts: ModelFacts, fed: InputCases, toolchain: ProjectToolchain | None
    ) -> PreparedModel:
        exporting, planned = None, model.planned
        if toolchain is not None and planned.model.settings.is_exported:
            exporting = self._metered(planned, self._exporter.export, planned, facts, fed.cases, toolchain)
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
            self._run(planned, job).add_done_callback(lambda done: end(job, done))

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
        prepared = started.prepared
        if Stage.PARITY not in self._settings.stages:
            eager = self._exporter.run_source(prepared, prepared.fed.cases)
            started = replace(started, sourced=SourceOutputs(eager, None))
        if self._settings.inputs.cases:  # selected cases keep their sizes and values
            return started

        def attempt(runtime: str, cases: Sequence[PlannedCase]) -> Sequence[ObservedRun]:
            planned = next(planned for planned in started.levels if planned.name == runtime)
            first_level = msgspec.structs.replace(planned, levels=planned.levels[:1])
            return self._levels(prepared, first_level, generator.try_write(cases, self._folder())).result()

        def attempt_sizes(runtime: str, setting: Mapping[str, int]) -> Sequence[ObservedRun]:
            return attempt(runtime, generator.plan([setting], probes=False))

        model = prepared.planned.model
        found = size_search.find_sizes(reading, model, ran, started.sourced.eager, attempt_sizes)
        if found.settings:
            started = self._restart(started, generator.try_write(found.list_cases(generator), self._folder()))
            ran = _collect_runs(started)
        replaced = branch_retries.find_replacements(reading, model, generator, ran, started.sourced.eager, attempt)
        if not replaced:
            return started
        cases: list[InputCase] = []
        for case in started.prepared.fed.cases:
            others = replaced.get(case.name)
            cases += [case] if others is None else generator.try_write(others, self._folder())
        return self._restart(started, tuple(cases))

    def _restart(self, started: StartedModel, cases: tuple[InputCase, ...]) -> StartedModel:
        """Run the model and its source on other cases."""
        prepared = replace(started.prepared, fed=InputCases(cases))
        eager, sourced = None, started.sourced
        if sourced.eager is not None:
            eager = {**sourced.eager, **(self._exporter.run_source(prepared, cases) or {})}
        return self._start(prepared, SourceOutputs(eager, sourced.sample))

    def _create_generator(self, started: StartedModel, reading: ParsedModel) -> CaseGenerator | None:
        """Return the generator of the inputs of a model; None if they cannot be generated."""
        try:
            sizes, seed = started.prepared.planned.model.settings.sizes, self._settings.inputs.seed
            return CaseGenerator(reading.facts, reading.view, sizes, seed)
        except InputGenerationError:
            return None

    # Evidence

    def _collect(self, started: StartedModel) -> CollectedModel:
        with track_source_lookups() as was_consulted:
            collected, answers = self._collect_evidence(started)
            has_only_own_places = not was_consulted()  # other locations depend on source files
        is_lasting = has_only_own_places and all(map(is_lasting_answer, answers)) and is_lasting_step(collected.step)
        return msgspec.structs.replace(collected, is_lasting=is_lasting)

    def _collect_evidence(self, started: StartedModel) -> tuple[CollectedModel, list[Future[Observation]]]:
        prepared, ran = started.prepared, _collect_runs(started)
        try:
            if _has_content(prepared):
                return self._judge(started, ran)
        except (OSError, UnreadableModel):
            if _has_content(prepared):
                raise
        reason = "the model files changed during the check"
        hint = "make sure that no other program writes to the model files, and re-run the check"
        stages = sorted(self._settings.stages & {Stage.RUNTIME, Stage.PARITY})
        undone = (IncompleteCheck(stage, prepared.path, "", reason, hint, transient=True) for stage in stages)
        return CollectedModel(started.cases, (), StepResult(undone=(*started.sourced.undone, *undone))), []

    def _judge(self, started: StartedModel, ran: list[ObservedRun]) -> tuple[CollectedModel, list[Future[Observation]]]:
        """Collect the evidence for a model. The model is read again, since keeping all models needs too much memory."""
        model = started.prepared.planned.model.absolute.absolute()
        steps = [StepResult(undone=started.sourced.undone)]
        reading = ParsedModel(started.prepared.facts, read_light_view(started.prepared.planned.model.absolute))
        generator = self._create_generator(started, reading)
        if generator is not None and size_search.has_failed_case(ran):
            started = self._follow(started, reading, ran, generator)
            ran = _collect_runs(started)
        runs, step, answers = self._judge_runs(started, reading, ran, generator)
        steps.append(step)
        if Stage.PARITY in self._settings.stages:
            extra = self._create_extra_runs(started)
            comparer = OutputComparer(self._settings, started, reading, extra, self._exporter.run)
            steps.append(comparer.compare(ran, runs))
        observed = tuple(run.runtime for run in ran)
        collected = CollectedModel(started.cases, runs, join_steps(steps), observed)
        return collected, [*answers, *self._answers.pop(model, ())]

    def _judge_runs(
        self,
        started: StartedModel,
        reading: ParsedModel,
        ran: Sequence[ObservedRun],
        generator: CaseGenerator | None,
    ) -> tuple[tuple[ModelRuns, ...], StepResult, list[Future[Observation]]]:
        """Return the runs, the evidence, and the observations of isolated nodes that the evidence depends on."""
        prepared, settings = started.prepared, self._settings
        model = ExecutedModel(
            path=prepared.path,
            place=prepared.runnable.place,
            view=reading.view,
            root=settings.project.root,
            folder=settings.project.folder,
            memory_limit_mib=memory_limit_mib(Load(model=str(prepared.planned.model.absolute)), self._limits) or 0,
            facts=reading.facts,
        )
        nodes = self._load_nodes(model, started, ran)
        predicted = {planned.name: prepared.runnable.refused_by.get(planned.name, ()) for planned in started.levels}
        optional = {planned.name for planned in started.levels if not planned.required}
        runs, undone = runtime_stage.collect_evidence(
            model, ran, started.sourced.eager or {}, predicted, nodes.alone, optional
        )
        fed = prepared.fed
        unread: tuple[IncompleteCheck, ...] = ()
        if Stage.RUNTIME in settings.stages:
            try:
                coverage = BranchCoverage(reading.facts, generator, started.cases, model.root, model.folder)
                runs = tuple(self._add_unreached(started, reading, runs, coverage))
            except BRANCH_FAULTS as error:
                reason = f"the branches of its `If` nodes could not be analyzed ({type(error).__name__}: {error})"
                unread = (IncompleteCheck(Stage.RUNTIME, prepared.path, "", reason, by_design=True),)
        explained = (fed.reason, fed.hint, fed.cause)
        reason, hint, cause = explained if fed.reason else failed_runs.explain_no_completed_run(runs)
        unrun_stages = settings.stages & {Stage.RUNTIME, Stage.PARITY} if reason and started.levels else ()
        step = StepResult(
            subjects=runs if Stage.RUNTIME in settings.stages else (),
            undone=(
                *(it for it in undone if it.runtime not in optional),
                *(
                    IncompleteCheck(stage, prepared.path, "", reason, hint, cause=cause)
                    for stage in sorted(unrun_stages)
                ),
            ),
            skipped=(*nodes.skipped, *unread, *(it for it in undone if it.runtime in optional)),
        )
        return runs, step, nodes.answers

    def _add_unreached(
        self, started: StartedModel, reading: ParsedModel, runs: Sequence[ModelRuns], coverage: BranchCoverage
    ) -> Iterator[ModelRuns]:
        """Add the branches that no case reached. Computed conditions are observed on the newest runtime."""
        newest = max(runs, key=lambda run: runtime_sort_key(run.runtime), default=None)
        for run in runs:
            names = coverage.list_computed_conditions(run) if run is newest else ()
            observed = self._observe_values(started, reading, run.runtime, names) if names else {}
            yield msgspec.structs.replace(run, unreached=coverage.find_unreached(run, observed))

    def _observe_values(
        self, started: StartedModel, reading: ParsedModel, runtime: str, names: Sequence[str]
    ) -> ObservedValues:
        """Run the model with values of its main graph as additional outputs; empty if this fails."""
        extra = self._create_extra_runs(started)
        try:
            exposed = expose_values(reading.proto, started.prepared.planned.model.absolute, names, self._folder())
        except OSError:
            return {}
        run = extra.start(runtime, exposed, started.cases, extra.runtimes[runtime].levels[-1])
        match run.answer.result():
            case Completed(result=RunResult(outputs=outputs, cases=results)):
                pairs = zip(started.cases, results, strict=True)
                return {case.name: _load_values(names, outputs, result) for case, result in pairs}
        return {}

    def _load_nodes(self, model: ExecutedModel, started: StartedModel, ran: Sequence[ObservedRun]) -> NodeLoads:
        """Load isolated nodes on the runtimes that refuse the model."""
        if Stage.RUNTIME not in self._settings.stages:
            return NodeLoads()
        predictions = started.prepared.runnable.predictions
        by_runtime = {planned: predictions.get(planned.name) for planned in started.levels}
        refusing = isolated_nodes.find_refusing_runtimes(ran, model.view, by_runtime, self._settings.harvested)
        if refusing:  # isolated nodes need their constants
            model = replace(model, view=read_view(started.prepared.planned.model.absolute))
        return self._node_loader.examine(model, refusing)

    def _load_node(self, planned: PlannedRuntime, job: Load) -> Future[Observation]:
        allowed = msgspec.structs.replace(self._limits, time_s=min(self._limits.time_s, NODE_TIME_S))
        return self._submit(planned, job, allowed)

    def _measure_budgets(self, collected: Mapping[str, CollectedModel]) -> Iterator[StepResult]:
        """Measure the models and their baselines while no other job is running."""
        settings = self._settings
        benchmarks = Benchmarks(settings.project.folder, settings.revision, self._submit, self._folder)
        for model in self._models:
            if model.planned.model.settings.budget is not None:
                yield benchmarks.measure(model, collected[model.path].cases)


def _load_values(names: Sequence[str], outputs: Sequence[str], result: CaseResult) -> dict[str, NDArray[Any]]:
    """Read the outputs with these names; empty if the run failed."""
    paths = zip(outputs, result.outputs, strict=False)
    return {name: load_array(path) for name, path in paths if name in names and path is not None}


def _has_content(prepared: PreparedModel) -> bool:
    """Return whether the files of a model are unchanged since its facts were read."""
    try:
        files = list_content_files(prepared.facts, prepared.planned.model.absolute)
        return all(sha256_of(path) == sha256 for path, sha256 in files.items())
    except OSError:
        return False


def _collect_runs(started: StartedModel) -> list[ObservedRun]:
    return [run for future in started.levels.values() for run in future.result()]
