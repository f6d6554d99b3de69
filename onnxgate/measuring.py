"""How exact a source itself is: its float32 against its float64 on the inputs that its model is fed."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from onnxgate.agreement.quantized import OF_FLOAT, measure_quantization
from onnxgate.agreement.tolerance import measure
from onnxgate.calling import call_inputs
from onnxgate.config.project import Project, SelectedModel
from onnxgate.feeding import feed
from onnxgate.lock.types import Lock, MeasuredQuantization, MeasuredTolerance
from onnxgate.model.identify import really
from onnxgate.model.pointer import read_pointer
from onnxgate.model.reading import read
from onnxgate.plan import PlannedModel, PlannedRuntime, plan_models
from onnxgate.quantizing import Quantized, Quantizing, UnfitError, completed
from onnxgate.runtimes.frameworks import needs
from onnxgate.runtimes.host import Host
from onnxgate.runtimes.jobs import Case, CaseResult, Completed, ExportResult, Observation, Run
from onnxgate.runtimes.seats import Seat
from onnxgate.runtimes.toolchain import find_toolchain
from onnxgate.scratch import scratch_folder
from onnxgate.stages import export_plan
from onnxgate.stages.parity import Outputs, outputs_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]


@dataclass(slots=True)
class Measurement:
    """Tolerances by model and output, and why there are none of some models."""

    tolerances: dict[str, dict[str, MeasuredTolerance]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def measure_sources(project: Project, models: Sequence[SelectedModel], host: Host) -> Measurement:
    """
    The measured tolerance of each model that has a source.

    Raises:
        UnavailableError: there is no toolchain.
        ConfigError: the user's own inputs are not what a model takes.
    """
    measurement = Measurement()
    sourced = [model for model in models if model.settings.source is not None]
    if not sourced and all(model.settings.quantized_from is None for model in models):
        measurement.notes.append("no model has a `source`: there is nothing to measure")
    if not sourced:
        return measurement
    python = find_toolchain(project.folder, project.config.toolchain, needs(project.config, project.folder))
    with scratch_folder() as scratch:
        asked = [
            (model, *_ask(project, model, python, Path(scratch) / str(index), host))
            for index, model in enumerate(sourced)
            if _is_here(model, measurement)
        ]
        for model, outputs, answer in asked:
            _note(measurement, model, outputs, answer.result())
    return measurement


@dataclass(slots=True)
class Record:
    """Figures of quantized models by model and output, and why there are none of some models."""

    figures: dict[str, dict[str, MeasuredQuantization]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def measure_quantized(project: Project, lock: Lock, models: Sequence[SelectedModel], host: Host) -> Record:
    """
    What each model with `quantized-from` keeps of its float model, on the newest runtime that the lock has for it.

    Raises:
        ConfigError: the user's own inputs are not what a model takes.
    """
    record = Record()
    quantized = [model for model in models if model.settings.quantized_from is not None]
    with scratch_folder() as scratch:
        host.show(Path(scratch), *(each.absolute.parent for each in quantized))
        folders = (Path(scratch) / str(index) for index in itertools.count())
        for planned in plan_models(project, lock, quantized):
            try:
                record.figures[planned.path] = _kept(project, lock, planned, host, folders)
                record.notes += _poor(planned.path, record.figures[planned.path])
            except UnfitError as reason:
                record.notes.append(f"`{planned.path}` was not held against its float model: {reason}")
    return record


def _poor(path: str, figures: Mapping[str, MeasuredQuantization]) -> Iterator[str]:
    """What is recorded, and would be a finding without the record: whoever writes it accepts it."""
    for output, kept in figures.items():
        if kept.sqnr_db < OF_FLOAT.sqnr_db or kept.cosine < OF_FLOAT.cosine or kept.top1 < OF_FLOAT.top1:
            said = f"{kept.sqnr_db:g} dB, cosine {kept.cosine:g}, argmax {kept.top1:.1%}"
            yield f"output `{output}` of `{path}` keeps {said}; recorded, that much is accepted from now on"


def _kept(
    project: Project, lock: Lock, planned: PlannedModel, host: Host, folders: Iterator[Path]
) -> dict[str, MeasuredQuantization]:
    model = planned.model
    if what := "a Git LFS pointer" if read_pointer(model.absolute) else really(model.absolute):
        raise UnfitError(f"it is {what}")
    reading = read(model.absolute, model.path)
    fed = feed(project, model, reading, next(folders), call=functools.partial(call_inputs, project, host))
    if not fed.cases:
        raise UnfitError(fed.reason)

    def submit(runtime: PlannedRuntime, job: Run) -> Future[Observation]:
        return host.submit(Seat.of_runtime(runtime.runtime, lock.pinned, project.folder), job)

    quantizing = Quantizing(project, submit, lambda: next(folders))
    real = quantizing.run_float(Quantized(model, reading, fed.cases, planned.runtimes))
    answer = quantizing.run(real.runtime, model.absolute, fed.cases, "all").result()
    outputs = outputs_of(fed.cases, completed(answer, f"`{model.path}`"))
    pairs = _both(fed.cases, outputs, real.outputs)
    found = measure_quantization(pairs, model.settings.quantized_from or "", real.runtime.name)
    if not found:
        raise UnfitError("no output of it is a number in both")
    return found


def _both(cases: Sequence[Case], ours: Outputs, theirs: Outputs) -> Iterator[tuple[Arrays, Arrays]]:
    """The outputs of both by the quantized model's names, case by case."""
    import numpy as np

    alike = set(ours.names) == set(theirs.names)
    names = dict(zip(ours.names, ours.names if alike else theirs.names, strict=False))
    for case in cases:
        paths = {
            name: (ours.paths.get((case.name, name)), theirs.paths.get((case.name, other)))
            for name, other in names.items()
        }
        whole = {name: (one, two) for name, (one, two) in paths.items() if one is not None and two is not None}
        yield (
            {name: np.load(one, allow_pickle=False) for name, (one, _) in whole.items()},
            {name: np.load(two, allow_pickle=False) for name, (_, two) in whole.items()},
        )


def _is_here(model: SelectedModel, measurement: Measurement) -> bool:
    what = "a Git LFS pointer" if read_pointer(model.absolute) else really(model.absolute)
    if what:
        measurement.notes.append(f"`{model.path}` was not measured: it is {what}")
    return not what


def _ask(
    project: Project, model: SelectedModel, python: Path, scratch: Path, host: Host
) -> tuple[tuple[str, ...], Future[Observation]]:
    reading = read(model.absolute, model.path)
    fed = feed(project, model, reading, scratch / "inputs", call=functools.partial(call_inputs, project, host))
    plan = export_plan.plan(project, model, python, scratch / "export", cases=fed.cases)
    assert plan.source is not None
    job = msgspec.structs.replace(plan.source, export=False)
    names = tuple(value.name for value in reading.facts.outputs)
    return names, host.submit(export_plan.toolchain_seat(python), job)


def _note(measurement: Measurement, model: SelectedModel, outputs: Sequence[str], answer: Observation) -> None:
    result = answer.result if isinstance(answer, Completed) else None
    if not isinstance(result, ExportResult) or not result.eager64:
        measurement.notes.append(f"`{model.path}` was not measured: {_why(answer)}")
        return
    found = measure(_pairs(outputs, result))
    if not found:
        measurement.notes.append(f"`{model.path}` was not measured: no output of it is a number in both precisions")
        return
    measurement.tolerances[model.path] = found


def _why(answer: Observation) -> str:
    match answer:
        case Completed(result=ExportResult(failure=failure)) if failure is not None:
            return f"{failure.type}: {failure.text.partition(chr(10))[0]}"
        case Completed(result=ExportResult(eager_reason=reason)) if reason:
            return reason
        case Completed():
            return "its source does not run in float64"
        case _:
            return f"its source gives nothing ({type(answer).__name__.lower()})"


def _pairs(outputs: Sequence[str], result: ExportResult) -> Iterator[tuple[Arrays, Arrays]]:
    for narrow, wide in zip(result.eager, result.eager64, strict=False):
        if narrow.failure is None and wide.failure is None:
            yield _arrays(outputs, narrow), _arrays(outputs, wide)


def _arrays(outputs: Sequence[str], case: CaseResult) -> Arrays:
    import numpy as np

    named = zip(outputs, case.outputs, strict=False)
    return {name: np.load(path, allow_pickle=False) for name, path in named if path is not None}
