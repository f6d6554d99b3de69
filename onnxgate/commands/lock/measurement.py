"""Measured tolerances of sources (float32 against float64), and figures of quantized models."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxgate.core.files import temporary_folder
from onnxgate.core.jobs import CaseResult, Completed, ExportResult, InputCase, Observation, Run
from onnxgate.gate.execution.quantized import FloatComparison, IncomparableError, QuantizedModel, require_run_result
from onnxgate.gate.execution.toolchain import call_inputs
from onnxgate.inputs.cases import create_cases
from onnxgate.model.reading.fact_extraction import read_model
from onnxgate.model.reading.file_format import detect_other_type, read_pointer
from onnxgate.numerics.agreement import measure_tolerance
from onnxgate.numerics.quantization import FLOAT_BOUNDS, measure_quantization
from onnxgate.project.config.project import Project, SelectedModel
from onnxgate.project.lock.types import Lock, MeasuredQuantization, MeasuredTolerance
from onnxgate.project.plan import PlannedModel, PlannedRuntime, plan_models
from onnxgate.runtimes.environments.toolchain import find_toolchain, required_frameworks
from onnxgate.runtimes.pool.scheduler import WorkerPool
from onnxgate.runtimes.worker_spec import WorkerSpec
from onnxgate.stages.export import jobs
from onnxgate.stages.parity.stage import RunOutputs, list_outputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]


@dataclass(slots=True)
class ToleranceMeasurement:
    """Tolerances by model and output, and notes about models without any."""

    tolerances: dict[str, dict[str, MeasuredTolerance]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def measure_source_tolerances(
    project: Project, models: Sequence[SelectedModel], pool: WorkerPool
) -> ToleranceMeasurement:
    """
    Measure the tolerance of each model that has a source.

    Raises:
        UnavailableError: the toolchain is missing.
        ConfigError: the user's own inputs are not what a model takes.
    """
    measurement = ToleranceMeasurement()
    sourced = [model for model in models if model.settings.source is not None]
    if not sourced and all(model.settings.quantized_from is None for model in models):
        measurement.notes.append("no model has a `source`: there is nothing to measure")
    if not sourced:
        return measurement
    python = find_toolchain(
        project.folder, project.config.toolchain, required_frameworks(project.config, project.folder)
    )
    with temporary_folder() as scratch:
        submitted = [
            (model, *_submit_source(project, model, python, Path(scratch) / str(index), pool))
            for index, model in enumerate(sourced)
            if _is_present(model, measurement)
        ]
        for model, outputs, answer in submitted:
            _record_tolerance(measurement, model, outputs, answer.result())
    return measurement


@dataclass(slots=True)
class QuantizationMeasurement:
    """Figures of quantized models by model and output, and notes about models without any."""

    figures: dict[str, dict[str, MeasuredQuantization]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def measure_quantized_models(
    project: Project, lock: Lock, models: Sequence[SelectedModel], pool: WorkerPool
) -> QuantizationMeasurement:
    """
    Compare each model with `quantized-from` with its float model, on the newest locked runtime.

    Raises:
        ConfigError: the user's own inputs are not what a model takes.
    """
    record = QuantizationMeasurement()
    quantized = [model for model in models if model.settings.quantized_from is not None]
    with temporary_folder() as scratch:
        pool.show(Path(scratch), *(model.absolute.parent for model in quantized))
        folders = (Path(scratch) / str(index) for index in itertools.count())
        for planned in plan_models(project, lock, quantized):
            try:
                record.figures[planned.path] = _measure_quantized_model(project, lock, planned, pool, folders)
                record.notes += _note_low_quality(planned.path, record.figures[planned.path])
            except IncomparableError as reason:
                record.notes.append(f"`{planned.path}` was not held against its float model: {reason}")
    return record


def _note_low_quality(path: str, figures: Mapping[str, MeasuredQuantization]) -> Iterator[str]:
    """Yield notes about recorded figures that would be findings without the record."""
    for output, figure in figures.items():
        if (
            figure.sqnr_db < FLOAT_BOUNDS.sqnr_db
            or figure.cosine < FLOAT_BOUNDS.cosine
            or figure.top1 < FLOAT_BOUNDS.top1
        ):
            values = f"{figure.sqnr_db:g} dB, cosine {figure.cosine:g}, argmax {figure.top1:.1%}"
            yield f"output `{output}` of `{path}` keeps {values}; recorded, that much is accepted from now on"


def _measure_quantized_model(
    project: Project, lock: Lock, planned: PlannedModel, pool: WorkerPool, folders: Iterator[Path]
) -> dict[str, MeasuredQuantization]:
    model = planned.model
    if what := "a Git LFS pointer" if read_pointer(model.absolute) else detect_other_type(model.absolute):
        raise IncomparableError(f"it is {what}")
    reading = read_model(model.absolute, model.path)
    fed = create_cases(project, model, reading, next(folders), call=functools.partial(call_inputs, project, pool))
    if not fed.cases:
        raise IncomparableError(fed.reason)

    def submit(runtime: PlannedRuntime, job: Run) -> Future[Observation]:
        return pool.submit(WorkerSpec.of_runtime(runtime.runtime, lock.pinned, project.folder), job)

    quantizing = FloatComparison(project, submit, lambda: next(folders))
    real = quantizing.run_float(QuantizedModel(model, reading, fed.cases, planned.runtimes))
    answer = quantizing.run(real.runtime, model.absolute, fed.cases, "all").result()
    outputs = list_outputs(fed.cases, require_run_result(answer, f"`{model.path}`"))
    pairs = _pair_outputs(fed.cases, outputs, real.outputs)
    figures = measure_quantization(pairs, model.settings.quantized_from or "", real.runtime.name)
    if not figures:
        raise IncomparableError("no output of it is a number in both")
    return figures


def _pair_outputs(cases: Sequence[InputCase], ours: RunOutputs, theirs: RunOutputs) -> Iterator[tuple[Arrays, Arrays]]:
    """Yield the outputs of both models by the names of the quantized one, for each case."""
    alike = set(ours.names) == set(theirs.names)
    names = dict(zip(ours.names, ours.names if alike else theirs.names, strict=False))
    for case in cases:
        paths = {
            name: (ours.paths.get((case.name, name)), theirs.paths.get((case.name, other)))
            for name, other in names.items()
        }
        complete = {name: (one, two) for name, (one, two) in paths.items() if one is not None and two is not None}
        yield (
            {name: np.load(one, allow_pickle=False) for name, (one, _) in complete.items()},
            {name: np.load(two, allow_pickle=False) for name, (_, two) in complete.items()},
        )


def _is_present(model: SelectedModel, measurement: ToleranceMeasurement) -> bool:
    what = "a Git LFS pointer" if read_pointer(model.absolute) else detect_other_type(model.absolute)
    if what:
        measurement.notes.append(f"`{model.path}` was not measured: it is {what}")
    return not what


def _submit_source(
    project: Project, model: SelectedModel, python: Path, scratch: Path, pool: WorkerPool
) -> tuple[tuple[str, ...], Future[Observation]]:
    reading = read_model(model.absolute, model.path)
    fed = create_cases(project, model, reading, scratch / "inputs", call=functools.partial(call_inputs, project, pool))
    planned = PlannedModel(model, ())
    job = jobs.plan_source_run(project, planned, python, scratch / "export", fed.cases, float64=True)
    names = tuple(value.name for value in reading.facts.outputs)
    return names, pool.submit(jobs.create_toolchain_spec(python), job)


def _record_tolerance(
    measurement: ToleranceMeasurement, model: SelectedModel, outputs: Sequence[str], answer: Observation
) -> None:
    result = answer.result if isinstance(answer, Completed) else None
    if not isinstance(result, ExportResult) or not result.eager64:
        measurement.notes.append(f"`{model.path}` was not measured: {_explain_missing_tolerance(answer)}")
        return
    tolerances = measure_tolerance(_pair_precisions(outputs, result))
    if not tolerances:
        measurement.notes.append(f"`{model.path}` was not measured: no output of it is a number in both precisions")
        return
    measurement.tolerances[model.path] = tolerances


def _explain_missing_tolerance(answer: Observation) -> str:
    match answer:
        case Completed(result=ExportResult(failure=failure)) if failure is not None:
            return f"{failure.type}: {failure.text.partition(chr(10))[0]}"
        case Completed(result=ExportResult(eager_reason=reason)) if reason:
            return reason
        case Completed():
            return "its source does not run in float64"
        case _:
            return f"its source gives nothing ({type(answer).__name__.lower()})"


def _pair_precisions(outputs: Sequence[str], result: ExportResult) -> Iterator[tuple[Arrays, Arrays]]:
    for narrow, wide in zip(result.eager, result.eager64, strict=False):
        if narrow.failure is None and wide.failure is None:
            yield _load_outputs(outputs, narrow), _load_outputs(outputs, wide)


def _load_outputs(outputs: Sequence[str], case: CaseResult) -> Arrays:
    named = zip(outputs, case.outputs, strict=False)
    return {name: np.load(path, allow_pickle=False) for name, path in named if path is not None}
