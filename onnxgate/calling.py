"""The user's own inputs from a callable: it runs in the toolchain's interpreter, as a source does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from onnxgate.config.project import Project
from onnxgate.errors import ConfigError, UnavailableError
from onnxgate.feeding import Fed
from onnxgate.runtimes.frameworks import needs
from onnxgate.runtimes.host import Host
from onnxgate.runtimes.jobs import (
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
from onnxgate.runtimes.toolchain import find_toolchain
from onnxgate.stages.export_plan import toolchain_seat


def call_inputs(project: Project, host: Host, source: str, folder: Path) -> Sequence[Mapping[str, str]] | Fed:
    """What a callable of the project gives, case by case; why it cannot be called here, where nothing calls it.

    Raises:
        ConfigError: it fails, or gives something else.
    """
    try:
        python = find_toolchain(project.folder, project.config.toolchain, needs(project.config, project.folder))
    except UnavailableError as error:
        return Fed((), error.message, error.hint or "")
    folder.mkdir(parents=True)
    job = Inputs(source=str(project.folder / source), output=str(folder.absolute()), folder=str(project.folder))
    answer = host.submit(toolchain_seat(python), job).result()
    match answer:
        case Completed(result=InputsResult(cases=cases, failure=None)):
            return cases
        case Unavailable(reason=reason, hint=hint):
            return Fed((), reason, hint)
        case _:
            raise ConfigError(f'`inputs = "{source}"` gives no inputs: {_why(answer)}')


def _why(answer: Observation) -> str:
    """In one line, with the line of the user's own code where one had a part in it."""
    match answer:
        case Completed(result=InputsResult(failure=Failure() as failure)) | Refused(failure=failure):
            said = f"{failure.type}: {failure.text.partition(chr(10))[0]}"
            return f"{said} (`{failure.source}`)" if failure.source else said
        case Crashed(signal=signal, during=during):
            return f"{signal} during {during}"
        case TimedOut(limit_s=limit_s):
            return f"no end within {limit_s:g} s"
        case _:
            return "nothing came of it"
