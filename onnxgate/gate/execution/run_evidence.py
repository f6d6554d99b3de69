"""Runtime stage of one model: its runs, isolated nodes that a runtime refuses, and branches that did not run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from onnxgate.core.findings import IncompleteCheck, Stage, runtime_sort_key
from onnxgate.core.jobs import CaseResult, Completed, Load, Observation, RunResult
from onnxgate.evidence.runtime import ModelRuns
from onnxgate.gate.execution import failed_runs
from onnxgate.gate.execution.failed_runs import NodeLoader, NodeLoads
from onnxgate.gate.execution.parity.extra_runs import ExtraRuns
from onnxgate.gate.execution.started_models import StartedModel
from onnxgate.gate.request import ExecutionSettings, StepResult
from onnxgate.inputs.branches import BRANCH_FAULTS
from onnxgate.inputs.cases import CaseGenerator
from onnxgate.model.reading.fact_extraction import ParsedModel
from onnxgate.model.reading.structure import read_view
from onnxgate.model.subgraphs.instrumented_models import expose_values
from onnxgate.numerics.streams import load_array
from onnxgate.runtimes.memory import memory_limit_mib
from onnxgate.runtimes.worker_spec import JobLimits
from onnxgate.stages import isolated_nodes
from onnxgate.stages import runtime as runtime_stage
from onnxgate.stages.branch_coverage import BranchCoverage, ObservedValues
from onnxgate.stages.runtime import ExecutedModel, ObservedRun

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """Collects the evidence from the runs of one model."""

    settings: ExecutionSettings
    started: StartedModel
    reading: ParsedModel
    generator: CaseGenerator | None  # of the inputs; None if they cannot be generated
    extra: ExtraRuns
    node_loader: NodeLoader

    def collect(
        self, ran: Sequence[ObservedRun]
    ) -> tuple[tuple[ModelRuns, ...], StepResult, list[Future[Observation]]]:
        """Return the runs, the evidence, and the observations of isolated nodes that the evidence depends on."""
        started, prepared, reading, settings = self.started, self.started.prepared, self.reading, self.settings
        limits = settings.project.config.limits
        load, allowed = Load(model=str(prepared.planned.model.absolute)), JobLimits(limits.time_s, limits.memory_mib)
        model = ExecutedModel(
            path=prepared.path,
            place=prepared.runnable.place,
            view=reading.view,
            root=settings.project.root,
            folder=settings.project.folder,
            memory_limit_mib=memory_limit_mib(load, allowed) or 0,
            facts=reading.facts,
        )
        nodes = self._load_nodes(model, ran)
        predicted = {planned.name: prepared.runnable.refused_by.get(planned.name, ()) for planned in started.levels}
        optional = {planned.name for planned in started.levels if not planned.required}
        runs, undone = runtime_stage.collect_evidence(
            model, [*ran, *started.crashes], started.sourced.eager or {}, predicted, nodes.alone, optional
        )
        runs = tuple(self._add_predicted_crashes(run) for run in runs)
        fed = prepared.fed
        unread: tuple[IncompleteCheck, ...] = ()
        if Stage.RUNTIME in settings.stages:
            try:
                coverage = BranchCoverage(reading.facts, self.generator, started.cases, model.root, model.folder)
                runs = tuple(self._add_unreached(runs, coverage))
            except BRANCH_FAULTS as error:
                reason = f"the branches of its `If` nodes could not be analyzed ({type(error).__name__}: {error})"
                unread = (IncompleteCheck(Stage.RUNTIME, prepared.path, "", reason, by_design=True),)
        if started.unvaried and Stage.RUNTIME in settings.stages:
            unread += (IncompleteCheck(Stage.RUNTIME, prepared.path, "", started.unvaried, by_design=True),)
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

    def _add_predicted_crashes(self, run: ModelRuns) -> ModelRuns:
        prediction = self.started.prepared.runnable.predictions.get(run.runtime)
        return msgspec.structs.replace(run, predicted_crashes=runtime_stage.find_predicted_crashes(run, prediction))

    def _add_unreached(self, runs: Sequence[ModelRuns], coverage: BranchCoverage) -> Iterator[ModelRuns]:
        """Add the branches that no case reached. Computed conditions are observed on the newest runtime."""
        newest = max(runs, key=lambda run: runtime_sort_key(run.runtime), default=None)
        for run in runs:
            names = coverage.list_computed_conditions(run) if run is newest else ()
            observed = self._observe_values(run.runtime, names) if names else {}
            yield msgspec.structs.replace(run, unreached=coverage.find_unreached(run, observed))

    def _observe_values(self, runtime: str, names: Sequence[str]) -> ObservedValues:
        """Run the model with values of its main graph as additional outputs; empty if this fails."""
        extra, cases, model = self.extra, self.started.cases, self.started.prepared.planned.model.absolute
        try:
            exposed = expose_values(self.reading.proto, model, names, extra.place())
        except OSError:
            return {}
        run = extra.start(runtime, exposed, cases, extra.runtimes[runtime].levels[-1])
        match run.answer.result():
            case Completed(result=RunResult(outputs=outputs, cases=results)):
                pairs = zip(cases, results, strict=True)
                return {case.name: _load_values(names, outputs, result) for case, result in pairs}
        return {}

    def _load_nodes(self, model: ExecutedModel, ran: Sequence[ObservedRun]) -> NodeLoads:
        """Load isolated nodes on the runtimes that refuse the model."""
        started = self.started
        if Stage.RUNTIME not in self.settings.stages:
            return NodeLoads()
        predictions = started.prepared.runnable.predictions
        by_runtime = {planned: predictions.get(planned.name) for planned in started.levels}
        refusing = isolated_nodes.find_refusing_runtimes(ran, model.view, by_runtime, self.settings.harvested)
        if refusing:  # isolated nodes need their constants
            model = replace(model, view=read_view(started.prepared.planned.model.absolute))
        return self.node_loader.examine(model, refusing)


def _load_values(names: Sequence[str], outputs: Sequence[str], result: CaseResult) -> dict[str, NDArray[Any]]:
    """Read the outputs with these names; empty if the run failed."""
    paths = zip(outputs, result.outputs, strict=False)
    return {name: load_array(path) for name, path in paths if name in names and path is not None}
