"""Models on their way through the dynamic stages: with input cases and exports, then with running jobs."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from onnxgate.core.findings import IncompleteCheck
from onnxgate.core.jobs import CaseResult, InputCase, Observation
from onnxgate.gate.request import RunnableModel
from onnxgate.inputs.cases import InputCases
from onnxgate.model.facts import ModelFacts
from onnxgate.project.plan import PlannedModel, PlannedRuntime
from onnxgate.stages.export_jobs import ExportPlan
from onnxgate.stages.runtime import ObservedRun


@dataclass(frozen=True, slots=True)
class ModelExport:
    """Toolchain jobs of one model."""

    planned: ExportPlan
    writes: Future[Observation] | None  # export job; None if only eager outputs are computed
    source: Future[Observation] | None  # computes eager outputs; same job as `writes` if there is no command
    again: Future[Observation | None] | None = None  # second export


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A model with its input cases."""

    runnable: RunnableModel
    facts: ModelFacts
    fed: InputCases
    exporting: ModelExport | None

    @property
    def path(self) -> str:
        """The model's path."""
        return self.runnable.path

    @property
    def planned(self) -> PlannedModel:
        """The model with its runtimes."""
        return self.runnable.planned


@dataclass(frozen=True, slots=True)
class SourceOutputs:
    """Outputs of the source by case; None if there is no source or no output."""

    eager: Mapping[str, CaseResult] | None
    sample: InputCase | None  # example inputs of the source
    undone: tuple[IncompleteCheck, ...] = ()


@dataclass(frozen=True, slots=True)
class StartedModel:
    """A model with running jobs on each of its runtimes."""

    prepared: PreparedModel
    sourced: SourceOutputs
    levels: Mapping[PlannedRuntime, Future[tuple[ObservedRun, ...]]]
    crashes: tuple[ObservedRun, ...] = ()  # with one case each, whose guessed sizes were replaced
    unvaried: str = ""  # sentence about the axes that were run with one size only

    @property
    def cases(self) -> tuple[InputCase, ...]:
        """Input cases of the model, including the example inputs of its source."""
        return (*self.prepared.fed.cases, *([self.sourced.sample] if self.sourced.sample else []))
