"""Jobs in the user's toolchain: exports, second exports and outputs of sources."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from onnxgate.core.errors import UnavailableError
from onnxgate.core.findings import IncompleteCheck, Stage
from onnxgate.core.jobs import (
    CaseResult,
    Completed,
    Crashed,
    Export,
    ExportResult,
    Failure,
    InputCase,
    Job,
    Observation,
    Probe,
    Refused,
    TimedOut,
    Unavailable,
)
from onnxgate.evidence.export import SecondExport
from onnxgate.gate.execution.stable_exports import StableExport, StableExports, digest_written
from onnxgate.gate.execution.started_models import ModelExport, PreparedModel, SourceOutputs
from onnxgate.gate.request import ExecutionSettings, RunnableModel, StepResult
from onnxgate.inputs.case_selection import make_example_case
from onnxgate.model.facts import ModelFacts
from onnxgate.project.plan import PlannedModel
from onnxgate.runtimes.environments.toolchain import ProbeError, imported_frameworks, probe_interpreter
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.stages import export as export_stage
from onnxgate.stages import export_jobs as jobs
from onnxgate.stages.export import ExportOutcome
from onnxgate.stages.export_jobs import ProjectToolchain

T = TypeVar("T")

_OVERWRITTEN = Unavailable(
    reason="the files of the first export changed before they could be compared with the second export",
    hint="write a new file at `{output}` instead of a link to a shared file",
)
_SOURCE_FOLDERS = frozenset({"sample", "eager", "eager64"})
"""Folders of an `Export` job for inputs and outputs of the source; second exports do not use these folders."""


def settle(future: Future[T], compute: Callable[[], T]) -> None:
    """Run a computation, and set its result or exception on a future."""
    try:
        future.set_result(compute())
    except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
        future.set_exception(error)


class Exporter:
    """Runs exports and sources in the toolchain. `folder` returns an unused path for the files of each run."""

    def __init__(
        self, settings: ExecutionSettings, host: WorkerPool, folder: Callable[[], Path], stable: StableExports
    ) -> None:
        self._settings = settings
        self._host = host
        self._folder = folder
        self._stable = stable
        self._known: dict[str, StableExport] = {}  # by model; only exports with a seed other than the current one
        self._written: dict[str, dict[str, str]] = {}  # digests of the completed first export, by model
        self._toolchain: ProjectToolchain | None = None
        self._is_second_worker_started = False
        self.reused: list[Path] = []  # models whose second export was skipped
        self._second_exports: list[
            tuple[Future[Observation], Callable[[], None]]
        ] = []  # first export, function that starts the second

    def find_toolchain(self, models: Sequence[RunnableModel]) -> tuple[ProjectToolchain | None, StepResult]:
        """Find the toolchain; None if no model needs it, or if it is not available (with the reason in the result)."""
        settings = self._settings
        exported = [model.planned for model in models if model.planned.model.settings.is_exported]
        if not exported:
            return None, StepResult()
        try:
            toolchain, locked = ProjectToolchain.of_project(settings.project), settings.lock.toolchain
            packages = probe_interpreter(toolchain.python, locked.packages if locked else ())
        except (UnavailableError, ProbeError) as error:
            hint = getattr(error, "hint", None) or ""
            return None, StepResult(
                undone=tuple(
                    IncompleteCheck(stage, planned.path, "", str(error), hint)
                    for planned in exported
                    for stage in settings.stages & {Stage.EXPORT, Stage.PARITY}
                    if stage is Stage.EXPORT or planned.model.settings.source
                )
            )
        state = export_stage.compare_toolchain(settings.project, locked, packages)
        is_judged = state is not None and Stage.EXPORT in settings.stages
        self._toolchain = self._choose_seed(toolchain, exported)
        return self._toolchain, StepResult((state,) if is_judged else ())

    def _choose_seed(self, toolchain: ProjectToolchain, exported: Sequence[PlannedModel]) -> ProjectToolchain:
        """Choose the seed that fewer cached exports used. Cached exports with the other seed replace second exports."""
        if Stage.EXPORT not in self._settings.stages:
            return toolchain
        found = ((planned.path, self._stable.find(planned.model, toolchain.python)) for planned in exported)
        known = {path: export for path, export in found if export is not None}
        seed = 1 if 2 * sum(export.seed for export in known.values()) < len(known) else 0
        self._known = {path: export for path, export in known.items() if export.seed != seed}
        return dataclasses.replace(toolchain, seed=seed)

    def export(
        self, planned: PlannedModel, facts: ModelFacts, cases: tuple[InputCase, ...], toolchain: ProjectToolchain
    ) -> ModelExport:
        """Export a model with its source or command, twice if the export stage runs; also run the source."""
        scratch = self._folder()
        plan = jobs.plan_export(
            toolchain,
            planned,
            scratch,
            cases=cases if Stage.PARITY in self._settings.stages else (),
            external_data=bool(facts.external),
        )
        spec, is_exported = toolchain.spec, Stage.EXPORT in self._settings.stages
        if is_exported and plan.problem is None:
            plan = jobs.plan_second_export(toolchain, plan, scratch / "again")
        command = jobs.submit_export(plan, spec, self._host) if plan.command and is_exported else None
        source = self._host.submit(spec, plan.source) if plan.source else None
        writes = command or source
        if plan.again is None or writes is None:
            return ModelExport(plan, writes, source)
        writes.add_done_callback(lambda done: self._digest_first(plan, done))
        known = self._known.get(planned.path)
        if known is None and isinstance(plan.again, Export) and not self._is_second_worker_started:
            self._is_second_worker_started = True  # starts during the first exports
            frameworks = imported_frameworks(self._settings.project.config, self._settings.project.folder)
            self._host.submit(toolchain.second_spec, Probe(exporters=frameworks))
        return ModelExport(plan, writes, source, self._await_second(toolchain, plan, writes, known))

    def _digest_first(self, plan: jobs.ExportPlan, first: Future[Observation]) -> None:
        """Digest the files of a first export before the next job can change them."""
        if not first.cancelled() and first.exception() is None:
            self._written[plan.model.path] = _digest_answer(plan, first.result())

    def _await_second(
        self, toolchain: ProjectToolchain, plan: jobs.ExportPlan, first: Future[Observation], known: StableExport | None
    ) -> Future[Observation | None]:
        """Return the observation of the second export.

        If the first export equals `known`, return None. If it did not complete, return its own observation.
        """
        again: Future[Observation | None] = Future()

        def begin() -> None:
            try:
                if known is not None and known.written == self._written.get(plan.model.path):
                    self.reused.append(plan.model.absolute)
                    again.set_result(None)
                    return
                assert plan.again is not None
                is_exported = isinstance(first.result(), Completed)
                second = self._host.submit(toolchain.second_spec, plan.again) if is_exported else first
                second.add_done_callback(lambda done: settle(again, done.result))
            except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
                again.set_exception(error)

        self._second_exports.append((first, begin))
        return again

    def export_again(self) -> None:
        """Start the second exports after all first exports, because runtimes wait only for the first exports."""

        def begin_all(_: Future[Observation]) -> None:
            for _first, begin in self._second_exports:
                begin()

        if self._second_exports:
            self._second_exports[-1][0].add_done_callback(begin_all)

    def source_of(self, prepared: PreparedModel) -> SourceOutputs:
        """Return the outputs of the source for each case, and its example inputs as an additional case."""
        exporting = prepared.exporting
        if exporting is None or exporting.source is None or Stage.PARITY not in self._settings.stages:
            return SourceOutputs(None, None)
        observation = exporting.source.result()
        result = observation.result if isinstance(observation, Completed) else None
        if not isinstance(result, ExportResult) or not result.eager:
            settings = self._settings
            undone = explain_missing_reference(prepared.path, observation, settings.stages, settings.project.folder)
            return SourceOutputs(None, None, (undone,))
        eager = {case.name: outputs for case, outputs in zip(prepared.fed.cases, result.eager, strict=False)}
        sample = make_example_case(prepared.facts, result.input_names, result.sample)
        complete = len(result.eager) == len(prepared.fed.cases) + 1
        if sample is None or not complete or not self._settings.inputs.takes(sample.name):
            return SourceOutputs(eager, None)
        return SourceOutputs({**eager, sample.name: result.eager[-1]}, sample)

    def _own_toolchain(self) -> ProjectToolchain:
        """Return the toolchain with the seed of this check; raise `UnavailableError` if there is no toolchain."""
        return self._toolchain or ProjectToolchain.of_project(self._settings.project)

    def run_source(self, prepared: PreparedModel, cases: tuple[InputCase, ...]) -> Mapping[str, CaseResult] | None:
        """Run the source on the cases and return its outputs; None if it cannot be run."""
        if prepared.planned.model.settings.source is None:
            return None
        try:
            toolchain = self._own_toolchain()
        except UnavailableError:
            return None
        job = jobs.plan_source_run(toolchain, prepared.planned, self._folder(), cases)
        answer = self._host.submit(toolchain.spec, job).result()
        result = answer.result if isinstance(answer, Completed) else None
        if not isinstance(result, ExportResult) or not result.eager:
            return None
        return {case.name: outputs for case, outputs in zip(cases, result.eager, strict=False)}

    def run(self, job: Job) -> Observation:
        """Run a job in the toolchain."""
        toolchain = self._own_toolchain()
        return self._host.submit(toolchain.spec, job).result()

    def judge(self, prepared: PreparedModel) -> StepResult:
        """Collect the evidence from the exports of one model."""
        exporting = prepared.exporting
        if exporting is None or exporting.writes is None:
            return StepResult()
        first, skipped = self._compare_exports(exporting, exporting.writes.result())
        outcomes = [first]
        if exporting.source is not None and exporting.source is not exporting.writes:
            project, source = self._settings.project, exporting.source.result()
            outcomes.append(export_stage.collect_source_evidence(project, exporting.planned, source))
        return StepResult(
            subjects=tuple(outcome.subject for outcome in outcomes if outcome.subject is not None),
            undone=tuple(outcome.undone for outcome in outcomes if outcome.undone is not None),
            skipped=skipped,
        )

    def _compare_exports(
        self, exporting: ModelExport, first: Observation
    ) -> tuple[ExportOutcome, tuple[IncompleteCheck, ...]]:
        """Compare both exports. If the second export fails in a different folder, repeat it in the project folder."""
        project, planned = self._settings.project, exporting.planned
        again = exporting.again.result() if exporting.again else None
        outcome = export_stage.collect_evidence(project, planned, first, again)
        failed = outcome.subject.second.failure if outcome.subject else None
        if failed is None and isinstance(again, Completed) and self._is_overwritten(planned, first):
            return export_stage.collect_evidence(project, planned, first, _OVERWRITTEN), ()
        if failed is None:
            self._keep_stable(exporting, outcome, again)
        if failed is None or not jobs.is_relocated(planned):
            return outcome, ()
        planned = jobs.with_project_folder(planned)
        assert planned.again is not None
        toolchain = self._own_toolchain()
        again = self._host.submit(toolchain.second_spec, planned.again).result()
        outcome = export_stage.collect_evidence(project, planned, first, again)
        if outcome.subject is not None and outcome.subject.second.failure is None:
            reason = (
                f"the export fails with {failed.type} if the project folder has another path, so it is unknown whether "
                "the exported model depends on this path"
            )
            return outcome, (IncompleteCheck(Stage.EXPORT, planned.model.path, "", reason),)
        return outcome, ()

    def _is_overwritten(self, plan: jobs.ExportPlan, first: Observation) -> bool:
        """Return whether the files of a first export have changed, or may have changed because they are links."""
        if digests := self._written.get(plan.model.path):
            return digests != _digest_answer(plan, first)
        model = _find_written(plan, first)
        return model is not None and model.is_symlink()

    def _keep_stable(self, exporting: ModelExport, outcome: ExportOutcome, again: Observation | None) -> None:
        """Cache an export that equals the second export of the same model."""
        is_compared = outcome.fresh is not None and isinstance(again, Completed)
        if is_compared and outcome.subject is not None and outcome.subject.second == SecondExport():
            assert self._toolchain is not None
            plan, toolchain = exporting.planned, self._toolchain
            self._stable.keep(plan.model, toolchain.python, toolchain.seed, self._written.get(plan.model.path, {}))


def _digest_answer(plan: jobs.ExportPlan, first: Observation) -> dict[str, str]:
    """Return the digests of the exported files; empty if no model was written."""
    model = _find_written(plan, first)
    others = _SOURCE_FOLDERS if isinstance(plan.job, Export) else frozenset()
    return digest_written(model, others) if model is not None else {}


def _find_written(plan: jobs.ExportPlan, first: Observation) -> Path | None:
    """Return the output path of an export; None if it did not complete."""
    result = first.result if isinstance(first, Completed) else None
    if isinstance(result, ExportResult):
        return Path(result.model) if result.model is not None else None
    return plan.written if result is not None else None


NO_SOURCE_OUTPUTS = "source"
"""Cause of an incomplete check if the source cannot be run on the inputs of the model."""


def explain_missing_reference(
    model: str, observation: Observation, stages: Collection[Stage], folder: Path
) -> IncompleteCheck:
    """Return why outputs of the source are missing. The export stage, if selected, reports failed exports itself."""
    failed = cause = ""
    match observation:
        case Unavailable(reason=reason, hint=hint):
            return IncompleteCheck(Stage.PARITY, model, "", reason, hint)
        case Completed(result=ExportResult(failure=Failure() as failure)) | Refused(failure=failure):
            failed, cause = failure.summary, NO_SOURCE_OUTPUTS
            if fault := export_stage.find_failure_cause(failure, folder):
                return IncompleteCheck(Stage.PARITY, model, "", fault.message, fault.hint)
        case Crashed(signal=signal, during=during):
            failed = f"{signal} during {during}"
        case TimedOut(limit_s=limit_s):
            failed = f"timed out after {limit_s:g} s"
    if failed and Stage.EXPORT in stages:
        reason = "the source has no outputs because its export failed"
        return IncompleteCheck(Stage.PARITY, model, "", reason, cause=cause)
    if not failed and isinstance(observation, Completed) and isinstance(observation.result, ExportResult):
        failed, cause = observation.result.eager_reason, NO_SOURCE_OUTPUTS
    reason = f"the source could not be run: {failed}" if failed else "the source could not be run"
    return IncompleteCheck(Stage.PARITY, model, "", reason.splitlines()[0], cause=cause)
