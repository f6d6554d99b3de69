"""How exact a source itself is: its float32 against its float64 on the inputs that its model is fed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from onnxgate.agreement.tolerance import measure
from onnxgate.config.project import Project, SelectedModel
from onnxgate.feeding import feed
from onnxgate.lock.types import MeasuredTolerance
from onnxgate.model.identify import really
from onnxgate.model.pointer import read_pointer
from onnxgate.model.reading import read
from onnxgate.runtimes.frameworks import needs
from onnxgate.runtimes.host import Host
from onnxgate.runtimes.jobs import CaseResult, Completed, ExportResult, Observation
from onnxgate.runtimes.toolchain import find_toolchain
from onnxgate.stages import export_plan

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
    if not sourced:
        measurement.notes.append("no model has a `source`: there is nothing to measure")
        return measurement
    python = find_toolchain(project.folder, project.config.toolchain, needs(project.config, project.folder))
    with tempfile.TemporaryDirectory(prefix="onnxgate-", ignore_cleanup_errors=True) as scratch:
        asked = [
            (model, *_ask(project, model, python, Path(scratch) / str(index), host))
            for index, model in enumerate(sourced)
            if _is_here(model, measurement)
        ]
        for model, outputs, answer in asked:
            _note(measurement, model, outputs, answer.result())
    return measurement


def _is_here(model: SelectedModel, measurement: Measurement) -> bool:
    what = "a Git LFS pointer" if read_pointer(model.absolute) else really(model.absolute)
    if what:
        measurement.notes.append(f"`{model.path}` was not measured: it is {what}")
    return not what


def _ask(
    project: Project, model: SelectedModel, python: Path, scratch: Path, host: Host
) -> tuple[tuple[str, ...], Future[Observation]]:
    reading = read(model.absolute, model.path)
    fed = feed(project, model, reading, scratch / "inputs")
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
