"""Measure tolerances of models with a source (float32 against float64), and the accuracy of quantized models."""

from __future__ import annotations

import functools
import itertools
import tempfile
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from onnxgate.core.bug_reports import contain_errors
from onnxgate.core.errors import StorageError
from onnxgate.core.files import temporary_folder
from onnxgate.core.findings import IncompleteCheck, Stage
from onnxgate.core.jobs import InputCase, Job, Observation
from onnxgate.core.machine_faults import find_fault_in_failure
from onnxgate.core.text import join_quoted
from onnxgate.gate.execution.input_callables import call_inputs
from onnxgate.gate.execution.parity.extra_runs import ExtraRuns, UnmeasurableError
from onnxgate.gate.execution.parity.float_comparison import (
    FloatComparison,
    IncomparableError,
    QuantizedModel,
    require_outputs,
)
from onnxgate.gate.execution.parity.noise import read_source_noise
from onnxgate.inputs.case_selection import CaseSelection
from onnxgate.inputs.cases import create_cases
from onnxgate.model.numeric_traits import detect_numeric_traits
from onnxgate.model.ranked_outputs import find_ranked_outputs
from onnxgate.model.reading.fact_extraction import ParsedModel, read_model
from onnxgate.model.reading.file_format import UnreadableModel, detect_other_type, read_pointer
from onnxgate.numerics.quantization import FLOAT_BOUNDS, measure_quantization
from onnxgate.numerics.streams import load_array
from onnxgate.numerics.tolerance import NoiseMeasurement
from onnxgate.project.config.project import Project, SelectedModel
from onnxgate.project.lock.types import Lock, MeasuredQuantization, MeasuredTolerance
from onnxgate.project.plan import PlannedModel, PlannedRuntime, plan_models
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.worker_spec import JobLimits, WorkerSpec
from onnxgate.stages.export_jobs import ProjectToolchain, plan_source_run
from onnxgate.stages.parity.run_outputs import RunOutputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]


Figures = TypeVar("Figures")

MEASURED_SEEDS = 8
"""Number of seeds of generated inputs for which the accuracy of a quantized model is measured.

Source: 12 int8 networks. With one seed, other inputs miss the recorded accuracy in 3.5 % of the cases; with 8 seeds, in
0.3 %. Measured 2026-11-28."""


@dataclass(slots=True)
class Measurement(Generic[Figures]):
    """Measured values, keyed by model and output, and notes about models that were not measured.

    `undone` contains the models that were not measured because of an unexpected error or a fault of the machine.
    """

    figures: dict[str, dict[str, Figures]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    undone: list[IncompleteCheck] = field(default_factory=list)

    def contain_errors(self, model: str) -> AbstractContextManager[None]:
        """Return a context in which an error about one model does not end the measurement of the others."""
        return contain_errors(model, (Stage.PARITY,), self.undone)


def measure_source_tolerances(
    project: Project, models: Sequence[SelectedModel], pool: WorkerPool
) -> Measurement[MeasuredTolerance]:
    """
    Measure the tolerance of each model that has a source.

    Raises:
        UnavailableError: the toolchain is missing.
    """
    measurement = Measurement[MeasuredTolerance]()
    sourced = [model for model in models if model.settings.source is not None]
    if not sourced:
        if all(model.settings.quantized_from is None for model in models):
            measurement.notes.append("no model has a `source`; nothing was measured")
        return measurement
    toolchain = ProjectToolchain.of_project(project)
    with temporary_folder() as scratch:
        submitted = []
        for index, model in enumerate(sourced):
            with measurement.contain_errors(model.path):
                try:
                    submitted.append((model, *_submit_source(toolchain, model, Path(scratch) / str(index), pool)))
                except UnmeasurableError as reason:
                    measurement.notes.append(f"`{model.path}` was not measured: {reason}")
        for model, reading, answer in submitted:
            with measurement.contain_errors(model.path):
                try:
                    noise = _read_noise(reading, answer.result())
                    ranked = frozenset(name for it in find_ranked_outputs(reading.view) for name in it.axes)
                    measurement.notes += describe_noise(model.path, noise, ranked)
                    measurement.figures[model.path] = noise.tolerances
                except UnmeasurableError as reason:
                    if fault := find_fault_in_failure(str(reason), (tempfile.gettempdir(), str(project.folder))):
                        raise StorageError(fault.message, hint=fault.hint) from reason
                    measurement.notes.append(f"`{model.path}` was not measured: {reason}")
    return measurement


def _detect_other_type(model: SelectedModel) -> str:
    """Return the type of a file that is not a model, such as "a Git LFS pointer"; "" for a model."""
    return "a Git LFS pointer" if read_pointer(model.absolute) else detect_other_type(model.absolute)


def measure_quantized_models(
    project: Project, lock: Lock, models: Sequence[SelectedModel], pool: WorkerPool
) -> Measurement[MeasuredQuantization]:
    """Compare each model that has `quantized-from` with its float model on the newest locked runtime."""
    record = Measurement[MeasuredQuantization]()
    quantized = [model for model in models if model.settings.quantized_from is not None]
    with temporary_folder() as scratch:
        pool.show(Path(scratch), models=(model.absolute for model in quantized))
        folders = (Path(scratch) / str(index) for index in itertools.count())
        for planned in plan_models(project, lock, quantized):
            with record.contain_errors(planned.path):
                try:
                    record.figures[planned.path] = _measure_quantized_model(project, lock, planned, pool, folders)
                except IncomparableError as reason:
                    record.notes.append(f"`{planned.path}` was not compared with its float model: {reason}")
            for output, figure in record.figures.get(planned.path, {}).items():
                if (
                    figure.sqnr_db < FLOAT_BOUNDS.sqnr_db
                    or figure.cosine < FLOAT_BOUNDS.cosine
                    or figure.top1 < FLOAT_BOUNDS.top1
                ):  # without this record, it would be a finding
                    values = f"SNR {figure.sqnr_db:g} dB, cosine {figure.cosine:g}, top-1 agreement {figure.top1:.1%}"
                    record.notes.append(
                        f"output `{output}` of `{planned.path}` differs from the float model: {values}; "
                        "these values are now recorded and accepted"
                    )
    return record


def _measure_quantized_model(
    project: Project, lock: Lock, planned: PlannedModel, pool: WorkerPool, folders: Iterator[Path]
) -> dict[str, MeasuredQuantization]:
    model = planned.model
    if other_type := _detect_other_type(model):
        raise IncomparableError(f"it is {other_type}")
    try:
        reading = read_model(model.absolute, model.path)
    except UnreadableModel as error:
        raise IncomparableError(f"it is {error}") from error

    def submit(runtime: PlannedRuntime, job: Job, limits: JobLimits | None) -> Future[Observation]:
        return pool.submit(WorkerSpec.of_runtime(runtime.runtime, lock.pinned, project.folder), job, limits=limits)

    extra = ExtraRuns({it.name: it for it in planned.runtimes}, submit, lambda: next(folders))
    comparison = FloatComparison(project, extra)
    pairs: list[tuple[Arrays, Arrays]] = []
    for cases in _iter_cases(project, model, reading, pool, folders):
        real = comparison.run_float(QuantizedModel(model, reading, cases))
        outputs = require_outputs(extra.start(real.runtime, model.absolute, cases, "all"), f"`{model.path}`")
        pairs += _pair_outputs(cases, outputs, real.outputs)
        runtime = real.runtime
    figures = measure_quantization(pairs, model.settings.quantized_from or "", runtime)
    if not figures:
        raise IncomparableError("no output has a numeric type in both models")
    return figures


def _iter_cases(
    project: Project, model: SelectedModel, reading: ParsedModel, pool: WorkerPool, folders: Iterator[Path]
) -> Iterator[tuple[InputCase, ...]]:
    """Yield the cases of a model: real inputs once, generated inputs with several seeds.

    Raises:
        IncomparableError: there are no cases.
    """
    call = functools.partial(call_inputs, project, pool)
    for seed in range(MEASURED_SEEDS):
        fed = create_cases(project, model, reading, next(folders), call, CaseSelection(seed))
        if not fed.cases:
            raise IncomparableError(fed.reason)
        yield fed.cases
        if any(case.origin != "generated" for case in fed.cases):
            return


def _pair_outputs(
    cases: Sequence[InputCase], quantized: RunOutputs, float_outputs: RunOutputs
) -> Iterator[tuple[Arrays, Arrays]]:
    """Yield the outputs of the quantized and the float model for each case, keyed by names in the quantized model."""
    float_names = quantized.names if set(quantized.names) == set(float_outputs.names) else float_outputs.names
    for case in cases:
        quantized_arrays, float_arrays = {}, {}
        for name, float_name in zip(quantized.names, float_names, strict=False):
            quantized_path, float_path = (
                quantized.paths.get((case.name, name)),
                float_outputs.paths.get((case.name, float_name)),
            )
            if quantized_path is not None and float_path is not None:
                quantized_arrays[name] = load_array(quantized_path)
                float_arrays[name] = load_array(float_path)
        yield quantized_arrays, float_arrays


def _submit_source(
    toolchain: ProjectToolchain, model: SelectedModel, scratch: Path, pool: WorkerPool
) -> tuple[ParsedModel, Future[Observation]]:
    """Submit the job that runs the source of a model in both precisions.

    Raises:
        UnmeasurableError: the file is not a model, or the user's inputs cannot be used.
    """
    if other_type := _detect_other_type(model):
        raise UnmeasurableError(f"it is {other_type}")
    try:
        reading = read_model(model.absolute, model.path)
    except UnreadableModel as error:
        raise UnmeasurableError(f"it is {error}") from error
    call = functools.partial(call_inputs, toolchain.project, pool)
    fed = create_cases(toolchain.project, model, reading, scratch / "inputs", call=call)
    if fed.reason and model.settings.inputs is not None:
        raise UnmeasurableError(fed.reason)
    planned = PlannedModel(model, ())
    job = plan_source_run(toolchain, planned, scratch / "export", fed.cases, float64=True)
    return reading, pool.submit(toolchain.spec, job)


def _read_noise(reading: ParsedModel, answer: Observation) -> NoiseMeasurement:
    names = [value.name for value in reading.facts.outputs]
    return read_source_noise(names, answer, half=detect_numeric_traits(reading.facts, reading.view).half)


def describe_noise(model: str, noise: NoiseMeasurement, ranked: Collection[str]) -> Iterator[str]:
    """Describe the outputs without a tolerance, and the outputs with a tolerance above the default."""
    moved = sorted(noise.ill_conditioned.keys() & ranked)
    if moved:
        yield (
            f"no tolerance was recorded for {join_quoted(moved)} of `{model}`, because rounding errors decide which "
            "items are selected; checks compare the items with the default tolerance"
        )
    for name, measured in noise.ill_conditioned.items():
        if name in moved:
            continue
        yield (
            f"output `{name}` of `{model}` is ill-conditioned: rounding errors change it by {measured.noise:.2g}; no "
            'tolerance was recorded, because almost any output would meet it; configure real inputs (`inputs = "…"`)'
        )
    for name, default in noise.loosened.items():
        yield (
            f"the measured tolerance of output `{name}` of `{model}` ({noise.tolerances[name].bound:.2g}) exceeds the "
            f"default for float16 ({default:.2g}), because the rounding errors of the source are that large"
        )
