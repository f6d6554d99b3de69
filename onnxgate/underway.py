"""A model on its way through the stages that start processes: what is known of it at each step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from onnxgate.evidence.parity import Comparison, Difference
from onnxgate.feeding import Fed
from onnxgate.findings import Stage, Undone
from onnxgate.model.reading import Reading
from onnxgate.plan import PlannedModel, PlannedRuntime
from onnxgate.report import Measured
from onnxgate.runtimes.jobs import (
    Case,
    CaseResult,
    Completed,
    Crashed,
    ExportResult,
    Failure,
    Observation,
    Refused,
    TimedOut,
    Unavailable,
)
from onnxgate.stages import export_plan
from onnxgate.stages.runtime import Ran


@dataclass(frozen=True, slots=True)
class Exporting:
    """A model on its way through the toolchain."""

    planned: export_plan.Planned
    writes: Future[Observation] | None  # the job that writes the file; None where only eager outputs are asked for
    source: Future[Observation] | None  # answers eager outputs; the same job as `writes` where there is no command
    again: Future[Observation] | None = None  # writes the file a second time


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

    @property
    def cases(self) -> tuple[Case, ...]:
        """What the model is fed: its own cases, and the example of its source."""
        return (*self.prepared.fed.cases, *([self.sourced.sample] if self.sourced.sample else []))


def no_reference(model: str, observation: Observation) -> Undone:
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


def figures(comparison: Comparison) -> list[Measured]:
    """What was measured in one comparison, as reports say it."""
    pair = f"{comparison.runtime} against {comparison.reference}"
    return [
        Measured(
            model=comparison.model,
            output=each.output,
            pair=pair,
            case=f"{each.case}, optimization {each.optimization}",
            metric=metric,
            value=value if math.isfinite(value) else None,
            bound=bound,
            bound_from=each.bound_from if bound is not None else "",
        )
        for each in comparison.differences
        for metric, value, bound in _measured(each)
    ]


def _measured(difference: Difference) -> Iterator[tuple[str, float, float | None]]:
    """The figure that decided, then all others."""
    yield difference.metric, difference.value, difference.bound
    for each in difference.figures:
        if each.metric != difference.metric:
            yield each.metric, each.value, each.bound
