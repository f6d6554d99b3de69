"""Report an error that ended the action: annotations, a job summary, and bug reports in the log.

It also reports that the action could not be installed, so it imports only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath

from onnxgate.core.errors import ErrorRecord, FileError, FileProblem, OnnxgateError, describe_bug, render_error
from onnxgate.core.escape import escape_log_line, neutralize_commands
from onnxgate.core.machine_faults import find_machine_fault
from onnxgate.core.text import pluralize
from onnxgate.github.runner import annotate

MARKS = {"fail": "❌", "undecided": "🟡"}
"""Verdict -> its mark, as in reports; importing those would import msgspec."""
MAX_PROBLEMS = 8
"""Maximum number of problems that get their own annotation. GitHub shows ten errors of a step; one states how many more
there are, and the runner adds one for the exit status."""

MAX_BUG_REPORTS = 10
MAX_BUG_REPORT_BYTES = 2**18


def describe_error(error: Exception) -> ErrorRecord:
    """Return the record of an error of the action itself."""
    if isinstance(error, OnnxgateError):
        return ErrorRecord(error.message, error.hint or "", problems=tuple(map(FileProblem, _problems(error))))
    if fault := find_machine_fault(error):
        return ErrorRecord(fault.message, fault.hint)
    return describe_bug(error)


def _problems(error: OnnxgateError) -> tuple[str, ...]:
    return error.problems if isinstance(error, FileError) else ()


def print_bug_reports(folder: Path, start_ns: int) -> list[str]:
    """Print the bug reports that were written after `start_ns`, since the runner is discarded; return their texts.

    Links are not followed: code of the repository could link to a file in `/proc` that only this process can read.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    texts: list[str] = []
    for path in sorted(folder.glob("*.txt")):
        with contextlib.suppress(OSError), open(os.open(path, flags), "rb") as file:  # noqa: PTH123 - with flags
            status = os.fstat(file.fileno())
            if len(texts) < MAX_BUG_REPORTS and stat.S_ISREG(status.st_mode) and status.st_mtime_ns >= start_ns:
                texts.append(file.read(MAX_BUG_REPORT_BYTES).decode("utf-8", "replace"))
                _print_group(f"Bug report {path.name}", texts[-1])
    return texts


def _print_group(title: str, text: str) -> None:
    print(f"::group::{escape_log_line(title)}")
    print("\n".join(map(escape_log_line, text.splitlines())))
    print("::endgroup::", flush=True)


def report_error(record: ErrorRecord, status: int, environment: Mapping[str, str]) -> None:
    """Print annotations and the traceback, and add the error to the job summary."""
    _annotate(record, environment.get("GITHUB_WORKSPACE", ""))
    if record.traceback:
        _print_group("Traceback", record.traceback)
    if summary := environment.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in render_summary(record, status))


def _annotate(record: ErrorRecord, workspace: str) -> None:
    """Annotate each line that has a problem; an error without such lines has one annotation."""
    file = _relative_path(record.file, workspace)
    located = [problem for problem in record.problems if problem.line and file]
    if not located:
        first, *rest = render_error(record)
        annotate("error", first.removeprefix("error: "), *rest, file=file, line=record.line)
        return
    hint = [f"hint: {record.hint}"] if record.hint else []
    for problem in located[:MAX_PROBLEMS]:
        text = problem.text.removeprefix(f"line {problem.line}: ")
        subject = f"{record.message}: " if len(record.problems) == 1 else ""
        annotate("error", f"{subject}{text}", *hint, file=file, line=problem.line)
    if more := len(record.problems) - len(located[:MAX_PROBLEMS]):
        annotate("error", f"{pluralize(more, 'more problem')}; see the job summary", file=file)


def _relative_path(file: str, workspace: str) -> str:
    """Return the path relative to the workspace; "" if the file does not exist or is outside of it."""
    if not file or not workspace or not Path(file).exists():
        return ""
    for path, folder in ((PurePath(file), PurePath(workspace)), (Path(file).resolve(), Path(workspace).resolve())):
        if path.is_relative_to(folder):
            return path.relative_to(folder).as_posix()
    return ""


def render_summary(record: ErrorRecord, status: int) -> Iterator[str]:
    """Yield the lines of the job summary."""
    verdict = "fail" if status == 1 else "undecided"
    kind = {1: "", 2: ": usage, config or lock error"}.get(status, ": onnxgate stopped with an error")
    text = "\n".join(map(neutralize_commands, render_error(record)))
    fence = "`" * (1 + max((2, *(len(run) for run in re.findall("`+", text)))))
    yield f"## {MARKS[verdict]} onnxgate\n"
    yield f"**{verdict.capitalize()}{kind} (exit status {status})**\n"
    yield f"{fence}text\n{text}\n{fence}\n"
