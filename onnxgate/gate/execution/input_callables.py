"""Call the functions of a project that return inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from onnxgate.core.errors import ConfigError, StorageError, UnavailableError
from onnxgate.core.jobs import (
    Completed,
    Crashed,
    Failure,
    Inputs,
    InputsResult,
    Observation,
    Refused,
    TimedOut,
    Unavailable,
)
from onnxgate.core.text import first_line
from onnxgate.inputs.cases import InputCases
from onnxgate.project.config.project import Project
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.stages import export as export_stage
from onnxgate.stages.export_jobs import ProjectToolchain


def call_inputs(
    project: Project, host: WorkerPool, source: str, folder: Path
) -> Sequence[Mapping[str, str]] | InputCases:
    """Call a project function that returns inputs by case; if it cannot be called, return the reason.

    Raises:
        ConfigError: the function fails, or does not return inputs.
        StorageError: a fault of the machine, such as a full disk, made the function fail.
    """
    try:
        toolchain = ProjectToolchain.of_project(project)
    except UnavailableError as error:
        return InputCases((), error.message, error.hint or "")
    folder.mkdir(parents=True)
    job = Inputs(source=str(project.folder / source), output=str(folder.absolute()), folder=str(project.folder))
    answer = host.submit(toolchain.spec, job).result()
    match answer:
        case Completed(result=InputsResult(cases=cases, failure=None)):
            return cases
        case Unavailable(reason=reason, hint=hint):
            return InputCases((), reason, hint)
        case Completed(result=InputsResult(failure=Failure() as failure)) if fault := export_stage.find_failure_cause(
            failure, project.folder
        ):
            raise StorageError(f'`inputs = "{source}"` failed: {fault.message}', hint=fault.hint)
        case _:
            raise ConfigError(f'`inputs = "{source}"` failed: {_describe_failure(answer)}')


def _describe_failure(answer: Observation) -> str:
    """Describe a failure in one line, with the line of the user's code if known."""
    match answer:
        case Completed(result=InputsResult(failure=Failure() as failure)) | Refused(failure=failure):
            text = first_line(failure.summary)
            return f"{text} (`{failure.source}`)" if failure.source else text
        case Crashed(signal=signal, during=during):
            return f"{signal} during {during}"
        case TimedOut(limit_s=limit_s):
            return f"timed out after {limit_s:g} s"
        case _:
            return "no result"
