"""The report as workflow commands: annotations on a pull request, within GitHub's limits.

Limits of GitHub (Source: actions/toolkit docs/problem-matchers.md; actions/runner ExecutionContext.cs): ten
annotations of each level for one action, 4096 characters for one message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onnxgate.core.escape import escape_command_data, escape_command_property, escape_log_line, escape_unprintable
from onnxgate.core.report import Finding, Report
from onnxgate.core.text import pluralize
from onnxgate.formats import wording

WORKFLOW_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}
MAX_ANNOTATIONS = 9
"""Annotations of one level; the tenth counts the others."""
MAX_MESSAGE_UNITS = 4000
"""UTF-16 units of a message, as .NET counts them; the runner cuts at 4096."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """One workflow command; `message` is escaped except for its newlines."""

    level: str
    title: str
    message: str
    file: str = ""
    line: int = 0
    end_line: int = 0


def format(report: Report) -> str:
    """Render annotations, worst first, then lines of the log: remarks, replay commands and the verdict."""
    annotations = [
        *(_annotate_finding(one, report) for one in wording.list_active_findings(report)),
        *_annotate_undecided(report),
    ]
    lines: list[str] = []
    for level in wording.LEVELS:
        lines += _limit_annotations(level, [annotation for annotation in annotations if annotation.level == level])
    lines += [escape_log_line(remark) for remark in report.remarks]
    where = f" in `{report.folder}`" if report.folder else ""
    lines += [escape_log_line(f"replay{where}: {replay.command}") for replay in report.replays]
    lines += [escape_log_line(wording.render_verdict(report)), ""]
    return "\n".join(lines)


def _annotate_finding(finding: Finding, report: Report) -> Annotation:
    lines = [wording.render_sentence(finding)]
    if finding.fix:
        lines.append(f"fix: {finding.fix}")
    return Annotation(
        finding.level,
        finding.rule,
        _join_message(lines),
        wording.path_from_root(report, finding.place.path),
        finding.place.line,
        finding.place.end_line,
    )


def _annotate_undecided(report: Report) -> Iterator[Annotation]:
    """Yield an annotation for each undecided check; an error if the exit status is 3."""
    level = "error" if report.exit == 3 else "warning"
    for gap in wording.merge_gaps(report.undecided):
        lines = [f"{gap.about(report)}: {gap.reason}"]
        if gap.hint:
            lines.append(f"hint: {gap.hint}")
        yield Annotation(level, "undecided", _join_message(lines))


def _join_message(lines: Sequence[str]) -> str:
    text = "\n".join(escape_unprintable(line) for line in lines)
    units = text.encode("utf-16-le", "replace")
    return (
        text
        if len(units) <= 2 * MAX_MESSAGE_UNITS
        else units[: 2 * MAX_MESSAGE_UNITS].decode("utf-16-le", "ignore") + "…"
    )


def _limit_annotations(level: str, annotations: Sequence[Annotation]) -> Iterator[str]:
    yield from (_render_command(annotation) for annotation in annotations[:MAX_ANNOTATIONS])
    more = len(annotations) - MAX_ANNOTATIONS
    if more > 0:
        message = f"{pluralize(more, f'more {level}')}: the job summary and the report have all"
        yield _render_command(Annotation(level, "onnxgate", message))


def _render_command(annotation: Annotation) -> str:
    properties = {"file": annotation.file}
    if annotation.file and annotation.line:
        properties["line"] = str(annotation.line)
        if annotation.end_line > annotation.line:
            properties["endLine"] = str(annotation.end_line)
    properties["title"] = annotation.title
    written = ",".join(f"{name}={escape_command_property(value)}" for name, value in properties.items() if value)
    return f"::{WORKFLOW_COMMANDS[annotation.level]} {written}::{escape_command_data(annotation.message)}"
