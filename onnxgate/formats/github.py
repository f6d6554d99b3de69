"""The report as workflow commands: annotations on a pull request, within GitHub's limits.

Limits of GitHub (Source: actions/toolkit docs/problem-matchers.md; actions/runner ExecutionContext.cs): ten
annotations of each level for one action, 4096 characters for one message.
"""

from __future__ import annotations

from collections.abc import Iterator
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
        *(_annotate_finding(finding, report) for finding in wording.list_active_findings(report)),
        *_annotate_undecided(report),
    ]
    lines: list[str] = []
    for level in wording.LEVELS:
        of_level = [annotation for annotation in annotations if annotation.level == level]
        lines += map(_render_command, of_level[:MAX_ANNOTATIONS])
        if (more := len(of_level) - MAX_ANNOTATIONS) > 0:
            message = f"{pluralize(more, f'more {level}')}: the job summary and the report have all"
            lines.append(_render_command(Annotation(level, "onnxgate", message)))
    folder = f" in `{report.folder}`" if report.folder else ""
    log = (
        *report.remarks,
        *(f"replay{folder}: {replay.command}" for replay in report.replays),
        wording.render_verdict(report),
    )
    return "\n".join((*lines, *map(escape_log_line, log), ""))


def _annotate_finding(finding: Finding, report: Report) -> Annotation:
    place = finding.place
    path = wording.path_from_root(report, place.path)
    message = _join_message(wording.render_sentence(finding), f"fix: {finding.fix}" if finding.fix else "")
    return Annotation(finding.level, finding.rule, message, path, place.line, place.end_line)


def _annotate_undecided(report: Report) -> Iterator[Annotation]:
    """Yield an annotation for each undecided check; an error if the exit status is 3."""
    level = "error" if report.exit == 3 else "warning"
    for gap in wording.merge_gaps(report.undecided):
        message = _join_message(f"{gap.about(report)}: {gap.reason}", f"hint: {gap.hint}" if gap.hint else "")
        yield Annotation(level, "undecided", message)


def _join_message(text: str, advice: str) -> str:
    """Return the escaped text, and advice if any on a line of its own, cut to the runner's limit."""
    message = "\n".join(escape_unprintable(line) for line in (text, advice) if line)
    units = message.encode("utf-16-le", "replace")
    if len(units) <= 2 * MAX_MESSAGE_UNITS:
        return message
    return units[: 2 * MAX_MESSAGE_UNITS].decode("utf-16-le", "ignore") + "…"


def _render_command(annotation: Annotation) -> str:
    properties = {"file": annotation.file}
    if annotation.file and annotation.line:
        properties["line"] = str(annotation.line)
        if annotation.end_line > annotation.line:
            properties["endLine"] = str(annotation.end_line)
    properties["title"] = annotation.title
    written = ",".join(f"{name}={escape_command_property(value)}" for name, value in properties.items() if value)
    return f"::{WORKFLOW_COMMANDS[annotation.level]} {written}::{escape_command_data(annotation.message)}"
