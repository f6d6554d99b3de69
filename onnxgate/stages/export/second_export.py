"""Compare the second export of a model with the first."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onnxgate.core.findings import IncompleteCheck, Stage
from onnxgate.core.jobs import (
    Command,
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
from onnxgate.core.subprocesses import describe_exit_status
from onnxgate.evidence.export import Reexport, SecondExport
from onnxgate.model.equality.model_comparison import list_differences
from onnxgate.model.reading.file_format import UnreadableModel

if TYPE_CHECKING:
    from onnxgate.project.config.project import Project
    from onnxgate.stages.export.jobs import ExportPlan


@dataclass(frozen=True, slots=True)
class ExportOutcome:
    """The outcome of one export."""

    subject: Reexport | None = None
    undone: IncompleteCheck | None = None
    fresh: Path | None = None  # the file that was written, if it is a valid model


def read_command_failure(project: Project, planned: ExportPlan, result: CommandResult) -> Failure | None:
    """Return why a command wrote no file; None if there is a file."""
    if result.status != 0:
        return Failure(
            type=describe_exit_status(result.status),
            text=extract_error(result.log, project.folder, _name_paths(planned)) or "it printed nothing",
            memory="MemoryError" in result.log,
            source=find_project_line(result.log, project.folder),
        )
    if planned.written is None or not planned.written.is_file():
        return Failure(type="exit status 0", text="but wrote no file at `{output}`")
    return None


def _name_paths(planned: ExportPlan) -> dict[Path, str]:
    """Return the names that replace this machine's paths in messages."""
    assert planned.command is not None
    pairs = zip(planned.model.settings.command or (), planned.command.argv, strict=True)
    names = {Path(path): "python" for word, path in pairs if word == "{python}"}
    return {**names, planned.written: "{output}"} if planned.written else names


def read_second_failure(project: Project, planned: ExportPlan, again: Observation) -> Failure | None:
    """Return why the second export has no file; None if it has one, or if the source is not to blame."""
    match again:
        case Completed(result=ExportResult(failure=Failure() as failure)) | Refused(failure=failure):
            return failure
        case Completed(result=CommandResult() as result):
            return read_command_failure(project, _as_first_export(planned), result)
        case Crashed(signal=signal, during=during):
            return Failure(type=signal, text=f"during {during}")
    return None


def add_second_export(
    outcome: ExportOutcome, project: Project, planned: ExportPlan, again: Observation
) -> ExportOutcome:
    """Add the second export to the outcome of the first, unless the first has no file."""
    if outcome.subject is None or outcome.fresh is None:
        return outcome
    if isinstance(again, TimedOut | Unavailable):
        return replace(outcome, undone=outcome.undone or _create_incomplete_check(planned, again))
    failure = read_second_failure(project, planned, again)
    if failure is not None:
        return replace(outcome, subject=msgspec.structs.replace(outcome.subject, second=SecondExport(failure=failure)))
    differences = _compare_exports(outcome.fresh, _second_file(planned, again))
    return replace(
        outcome, subject=msgspec.structs.replace(outcome.subject, second=SecondExport(differences=differences))
    )


def _create_incomplete_check(planned: ExportPlan, again: TimedOut | Unavailable) -> IncompleteCheck:
    late = isinstance(again, TimedOut)
    why = f"the second export did not end within {again.limit_s:g} s" if isinstance(again, TimedOut) else again.reason
    hint = "raise `time-s` of `[limits]`" if late else getattr(again, "hint", "")
    return IncompleteCheck(Stage.EXPORT, planned.model.path, "", f"whether it is stable is not known: {why}", hint)


def _as_first_export(planned: ExportPlan) -> ExportPlan:
    """Return the plan with its second export as the first."""
    command = planned.again if isinstance(planned.again, Command) else None
    return replace(planned, command=command, written=planned.written_again)


def _second_file(planned: ExportPlan, again: Observation) -> Path:
    if isinstance(again, Completed) and isinstance(again.result, ExportResult) and again.result.model:
        return Path(again.result.model)
    assert planned.written_again is not None
    return planned.written_again


def _compare_exports(first: Path, second: Path) -> tuple[str, ...]:
    try:
        return list_differences(first, second)
    except UnreadableModel as reason:
        return (f"the second file is {reason}",)


MAX_ERROR_LENGTH = 600
_TRACEBACK_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')
_ERROR_LINE = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*: \S.*")
_ERROR_CLASS = re.compile(r"(?:^<class '(?:[\w.]+\.)?(\w+)'>|^(?:[a-z_]\w*\.)+([A-Z]\w*)): ")
_SUMMARY_HEADING = "## Exception summary"
"""Source: torch.onnx of torch 2.13; the cause stands below it, and a page of advice above."""
_CONTEXT_LINE = "During handling of the above exception, another exception occurred:"
_CAUSE_LINE = "The above exception was the direct cause of the following exception:"
_PYTHON_PATH = re.compile(
    r"(?<![\w./\\-])(?:[A-Za-z]:)?[/\\](?:[^\s'\":]*[/\\])?(python)[\d.]*(?:\.exe)?(?=[\s:'\"]|$)"
)


def extract_error(log: str, folder: Path, names: Mapping[Path, str] | None = None) -> str:
    """Return the line that gives the reason of a failure, "" for an empty log.

    It is the same on each machine: paths are relative to `folder`, and `names` says what others are called.
    """
    lines = [
        line.strip() for line in log.partition(_SUMMARY_HEADING)[2].splitlines() or log.splitlines() if line.strip()
    ]
    if _SUMMARY_HEADING in log:
        text = lines[0] if lines else ""
    else:
        errors = [line for line in lines if _ERROR_LINE.fullmatch(line)]
        text = errors[-1] if errors else (lines[-1] if lines else "")
    text = _ERROR_CLASS.sub(lambda match: f"{match[1] or match[2]}: ", text)
    text = _replace_paths(text, folder, names or {})
    return text if len(text) <= MAX_ERROR_LENGTH else text[: MAX_ERROR_LENGTH - 1] + "…"


def _replace_paths(text: str, folder: Path, names: Mapping[Path, str]) -> str:
    for path, name in names.items():
        for spelling in _path_spellings(path):
            text = text.replace(spelling, name)
    for spelling in _path_spellings(folder):
        if spelling != Path(spelling).anchor:
            text = text.replace(spelling + os.sep, "")
    return _PYTHON_PATH.sub(r"\1", text)


def _path_spellings(path: Path) -> Iterator[str]:
    """Yield the path as it is and with links resolved, the longer first: one may be the other's tail."""
    yield from sorted({str(path), os.path.realpath(path)}, key=len, reverse=True)


def find_project_line(log: str, folder: Path) -> str:
    """`export.py:31` of the innermost line of the project's own code in the log's last traceback, relative to it."""
    for cause in log.rpartition(_CONTEXT_LINE)[2].split(_CAUSE_LINE):
        for path, line in reversed(_TRACEBACK_FRAME.findall(cause)):
            if relative := _project_path(path, folder):
                return f"{relative}:{line}"
    return ""


def _project_path(path: str, folder: Path) -> str:
    """Return the path relative to the folder; "" if it is installed, or lies elsewhere."""
    real = Path(os.path.realpath(folder / path))
    base = Path(os.path.realpath(folder))
    if not real.is_relative_to(base) or not real.is_file():
        return ""
    relative = real.relative_to(base)
    return "" if {"site-packages", "dist-packages"} & set(relative.parts) else relative.as_posix()
