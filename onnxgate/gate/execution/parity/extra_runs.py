"""Additional runs of one model: of changed copies, with more outputs, on other inputs, or of its source in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import msgspec

from onnxgate.core.jobs import (
    Completed,
    Export,
    ExportResult,
    InputCase,
    Job,
    Observation,
    Optimization,
    Run,
    RunResult,
)
from onnxgate.project.plan import PlannedRuntime
from onnxgate.runtimes.worker_spec import JobLimits
from onnxgate.stages.parity.run_outputs import RunOutputs, list_outputs
from onnxgate.stages.runtime import ObservedRun, plan_run


class NoOutputsError(Exception):
    """An additional run did not complete; the message is how it ended, such as "refused"."""


class UnmeasurableError(Exception):
    """Rounding errors cannot be measured; the message is the reason."""


@dataclass(frozen=True, slots=True)
class ExtraRun:
    """An additional run that was started."""

    runtime: str
    job: Run
    answer: Future[Observation]

    def observe(self) -> ObservedRun:
        """Wait for the observation."""
        return ObservedRun(self.runtime, self.job, self.answer.result())

    def outputs(self) -> RunOutputs:
        """Wait for the outputs, and return those of the cases that ran.

        Raises:
            NoOutputsError: the model did not run.
        """
        return list_run_outputs(self.observe())


def list_run_outputs(run: ObservedRun) -> RunOutputs:
    """Return the outputs of the cases that ran.

    Raises:
        NoOutputsError: the model did not run.
    """
    match run.observation:
        case Completed(result=RunResult() as result):
            return list_outputs(run.job.cases, result)
        case other:
            raise NoOutputsError(type(other).__name__.lower())


@dataclass(frozen=True, slots=True)
class ExtraRuns:
    """Starts additional runs of a model on the runtimes where it runs.

    `submit` runs a job on a runtime; `place` returns an unused path.
    """

    runtimes: Mapping[str, PlannedRuntime]
    submit: Callable[[PlannedRuntime, Job, JobLimits | None], Future[Observation]]
    place: Callable[[], Path]

    def start(
        self,
        runtime: str,
        model: Path,
        cases: Sequence[InputCase],
        level: Optimization,
        limits: JobLimits | None = None,
    ) -> ExtraRun:
        """Start a run of a model or of a copy; each case runs once."""
        planned = self.runtimes[runtime]
        job = msgspec.structs.replace(plan_run(model, cases, planned, level, self.create_folder()), again=False)
        return ExtraRun(runtime, job, self.submit(planned, job, limits))

    def list_completed(self, ran: Sequence[ObservedRun]) -> list[ObservedRun]:
        """Return the completed runs on these runtimes."""
        return [run for run in ran if isinstance(run.observation, Completed) and run.runtime in self.runtimes]

    def repeat(self, ran: Sequence[ObservedRun], model: Path, cases: Mapping[str, InputCase]) -> list[ObservedRun]:
        """Repeat runs with a copy of the model. `cases` replace those with the same name."""
        started = [
            self.start(run.runtime, model, [cases.get(it.name, it) for it in run.job.cases], run.job.optimization)
            for run in ran
        ]
        return [run.observe() for run in started]

    def create_folder(self) -> Path:
        """Create an empty folder for the files of a run."""
        folder = self.place()
        folder.mkdir(parents=True)
        return folder


@dataclass(frozen=True, slots=True)
class SourceRuns:
    """Starts additional runs of the source of a model.

    `job` exported the model in this check; it is None if the model was not exported. `exported` is its result.
    `run_in_toolchain` runs a job, and `create_folder` creates an empty folder.
    """

    job: Export | None
    exported: ExportResult | None
    cases: tuple[InputCase, ...]
    run_in_toolchain: Callable[[Job], Observation]
    create_folder: Callable[[], Path]

    def run_in_float64(self, half_weights: tuple[str, ...] = ()) -> Observation:
        """Run the source in its own precision and in float64; in float64, with the float16 weights of the model.

        Raises:
            UnmeasurableError: the source was not exported in this check.
        """
        if self.exported is not None and self.exported.eager64 and not half_weights:
            return Completed(result=self.exported)
        return self.run(self.cases, float64=True, half_weights=half_weights)

    def run(
        self,
        cases: tuple[InputCase, ...],
        *,
        float64: bool = False,
        half_weights: tuple[str, ...] = (),
        selections: bool = False,
    ) -> Observation:
        """Run the source without an export. `selections` adds the items that it selects.

        Raises:
            UnmeasurableError: the source was not exported in this check.
        """
        if self.job is None:
            raise UnmeasurableError("it was not exported in this check")
        output = str(self.create_folder())
        options = {"float64": float64, "half_weights": half_weights, "selections": selections}
        job = msgspec.structs.replace(self.job, output=output, cases=cases, export=False, eager=True, **options)
        return self.run_in_toolchain(job)
