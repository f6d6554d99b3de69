"""The report as workflow commands: annotations on a pull request, within the limits that GitHub has.

Limits of GitHub (Source: actions/toolkit docs/problem-matchers.md; actions/runner ExecutionContext.cs): ten
annotations of each level for one action, 4096 characters for one message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onnxgate.formats import phrases
from onnxgate.formats.escape import command_data, command_property, log_line, visible
from onnxgate.report import Finding, Report

COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}
SHOWN = 9
"""Annotations of one level; the tenth says how many more there are."""
LONGEST = 4000
"""UTF-16 units of a message, as .NET counts; the runner cuts at 4096."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """One workflow command; `message` is visible already and its newlines are ours."""

    level: str
    title: str
    message: str
    file: str = ""
    line: int = 0
    end_line: int = 0


def format(report: Report) -> str:
    """Annotations, worst first, then lines of the log: remarks, what shows findings again, and the verdict."""
    annotations = [*(_of_finding(one, report) for one in phrases.spoken(report)), *_undecided(report)]
    lines: list[str] = []
    for level in phrases.LEVELS:
        lines += _capped(level, [each for each in annotations if each.level == level])
    lines += [log_line(remark) for remark in report.remarks]
    where = f" in `{report.folder}`" if report.folder else ""
    lines += [log_line(f"replay{where}: {each.command}") for each in report.replays]
    lines += [log_line(phrases.verdict(report)), ""]
    return "\n".join(lines)


def _of_finding(finding: Finding, report: Report) -> Annotation:
    said = [phrases.sentence(finding)]
    if finding.fix:
        said.append(f"fix: {finding.fix}")
    return Annotation(
        finding.level,
        finding.rule,
        _message(said),
        phrases.from_root(report, finding.place.path),
        finding.place.line,
        finding.place.end_line,
    )


def _undecided(report: Report) -> Iterator[Annotation]:
    """What was asked for and not done; an error where that is why there is no verdict."""
    level = "error" if report.exit == 3 else "warning"
    for gap in phrases.gaps(report.undecided):
        said = [f"{gap.about(report)}: {gap.reason}"]
        if gap.hint:
            said.append(f"hint: {gap.hint}")
        yield Annotation(level, "undecided", _message(said))


def _message(lines: Sequence[str]) -> str:
    text = "\n".join(visible(line) for line in lines)
    units = text.encode("utf-16-le", "replace")
    return text if len(units) <= 2 * LONGEST else units[: 2 * LONGEST].decode("utf-16-le", "ignore") + "…"


def _capped(level: str, annotations: Sequence[Annotation]) -> Iterator[str]:
    yield from (_command(each) for each in annotations[:SHOWN])
    more = len(annotations) - SHOWN
    if more > 0:
        said = f"{phrases.count(more, f'more {level}')}: the job summary and the report have all"
        yield _command(Annotation(level, "onnxgate", said))


def _command(annotation: Annotation) -> str:
    properties = {"file": annotation.file}
    if annotation.file and annotation.line:
        properties["line"] = str(annotation.line)
        if annotation.end_line > annotation.line:
            properties["endLine"] = str(annotation.end_line)
    properties["title"] = annotation.title
    written = ",".join(f"{name}={command_property(value)}" for name, value in properties.items() if value)
    return f"::{COMMANDS[annotation.level]} {written}::{command_data(annotation.message)}"
