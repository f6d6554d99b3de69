"""The second export of a model: whether it gave the same as the first one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onnxgate.evidence.export import Reexport
from onnxgate.findings import Stage, Undone
from onnxgate.runtimes.jobs import (
    CommandResult,
    Completed,
    Crashed,
    ExportResult,
    Failure,
    Observation,
    Refused,
    TimedOut,
    Unavailable,
)
from onnxgate.runtimes.process import status_words
from onnxgate.stages.logs import last_words, own_line

if TYPE_CHECKING:
    from onnxgate.config.project import Project
    from onnxgate.stages.export_plan import Planned


@dataclass(frozen=True, slots=True)
class Made:
    """What came of one export."""

    subject: Reexport | None = None
    undone: Undone | None = None
    fresh: Path | None = None  # the file that was written, where it is a sound model


def failure_of_command(project: Project, planned: Planned, result: CommandResult) -> Failure | None:
    """Why a command wrote nothing; None where there is a file."""
    if result.status != 0:
        return Failure(
            type=status_words(result.status),
            text=last_words(result.log, project.folder, _names(planned)) or "it printed nothing",
            memory="MemoryError" in result.log,
            source=own_line(result.log, project.folder),
        )
    if planned.written is None or not planned.written.is_file():
        return Failure(type="exit status 0", text="but wrote no file at `{output}`")
    return None


def _names(planned: Planned) -> dict[Path, str]:
    """What this machine's paths in a command's output are called in messages."""
    assert planned.command is not None
    pairs = zip(planned.model.settings.command or (), planned.command.argv, strict=True)
    names = {Path(given): "python" for word, given in pairs if word == "{python}"}
    return {**names, planned.written: "{output}"} if planned.written else names


def failed_again(project: Project, planned: Planned, again: Observation) -> Failure | None:
    """Why the second export has no file; None where it has one, or where that says nothing of the source."""
    match again:
        case Completed(result=ExportResult(failure=Failure() as failure)) | Refused(failure=failure):
            return failure
        case Completed(result=CommandResult() as result):
            return failure_of_command(project, _second(planned), result)
        case Crashed(signal=signal, during=during):
            return Failure(type=signal, text=f"during {during}")
    return None


def repeated(made: Made, project: Project, planned: Planned, again: Observation) -> Made:
    """The first export with what the second one says of it; one that gave no file is not held against another."""
    if made.subject is None or made.fresh is None:
        return made
    if isinstance(again, TimedOut | Unavailable):
        return replace(made, undone=made.undone or _undecided(planned, again))
    failure = failed_again(project, planned, again)
    if failure is not None:
        return replace(made, subject=msgspec.structs.replace(made.subject, failed_again=failure))
    differences = _differences(made.fresh, _file(planned, again))
    return replace(made, subject=msgspec.structs.replace(made.subject, unstable=differences))


def _undecided(planned: Planned, again: TimedOut | Unavailable) -> Undone:
    late = isinstance(again, TimedOut)
    why = f"the second export did not end within {again.limit_s:g} s" if isinstance(again, TimedOut) else again.reason
    hint = "raise `time-s` of `[limits]`" if late else getattr(again, "hint", "")
    return Undone(Stage.EXPORT, planned.model.path, "", f"whether it is stable is not known: {why}", hint)


def _second(planned: Planned) -> Planned:
    """The plan as if its second export were its first."""
    from onnxgate.runtimes.jobs import Command

    command = planned.again if isinstance(planned.again, Command) else None
    return replace(planned, command=command, written=planned.written_again)


def _file(planned: Planned, again: Observation) -> Path:
    if isinstance(again, Completed) and isinstance(again.result, ExportResult) and again.result.model:
        return Path(again.result.model)
    assert planned.written_again is not None
    return planned.written_again


def _differences(first: Path, second: Path) -> tuple[str, ...]:
    from onnxgate.model.normal import differences
    from onnxgate.model.structure import UnreadableModel

    try:
        return differences(first, second)
    except UnreadableModel as reason:
        return (f"the second file is {reason}",)
