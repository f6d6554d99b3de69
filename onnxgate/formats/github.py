"""Write the report as GitHub workflow commands (annotations) and log lines, within GitHub's limits.

An action can create ten annotations of each level, with up to 4096 characters per message. Source: actions/toolkit
docs/problem-matchers.md; actions/runner ExecutionContext.cs.
"""

from __future__ import annotations

from onnxgate.core.escape import escape_command_data, escape_command_property, escape_log_line, escape_unprintable
from onnxgate.core.report import Report, ReportedPlace
from onnxgate.core.text import pluralize
from onnxgate.formats import wording

WORKFLOW_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}
MAX_ANNOTATIONS = 9
"""Maximum number of findings and undecided checks of one level that are shown as GitHub annotations.

GitHub allows ten annotations of each level; the tenth states how many more there are.
"""
MAX_MESSAGE_UNITS = 4000
"""Maximum length of an annotation's message in UTF-16 code units. The GitHub runner truncates messages at 4096."""


def format(report: Report) -> str:
    """Render the findings as annotations, worst first, and then log lines.

    The log lines contain the remarks, the commands that reproduce findings, and the verdict.
    """
    commands: dict[str, list[str]] = {level: [] for level in wording.LEVELS}
    for finding in wording.list_active_findings(report):
        message = _join_message(wording.render_sentence(finding), f"fix: {finding.fix}" if finding.fix else "")
        path = wording.path_from_root(report, finding.place.path)
        commands[finding.level].append(_render_command(finding.level, finding.rule, message, path, finding.place))
    undecided_level = "error" if report.exit == 3 else "warning"
    for gap in wording.merge_gaps(report.undecided):
        message = _join_message(f"{gap.about(report)}: {gap.reason}", f"hint: {gap.hint}" if gap.hint else "")
        commands[undecided_level].append(_render_command(undecided_level, "undecided", message))
    lines: list[str] = []
    for level, of_level in commands.items():
        lines += of_level[:MAX_ANNOTATIONS]
        if (more := len(of_level) - MAX_ANNOTATIONS) > 0:
            message = f"{pluralize(more, f'more {level}')}; see the job summary or the report"
            lines.append(_render_command(level, "onnxgate", message))
    folder = f" in `{report.folder}`" if report.folder else ""
    log = (
        *report.remarks,
        *(f"to reproduce{folder}: {replay.command}" for replay in report.replays),
        wording.render_verdict(report),
    )
    return "\n".join((*lines, *map(escape_log_line, log), ""))


def _join_message(text: str, advice: str) -> str:
    message = "\n".join(escape_unprintable(line) for line in (text, advice) if line)
    units = message.encode("utf-16-le", "replace")
    if len(units) <= 2 * MAX_MESSAGE_UNITS:
        return message
    return units[: 2 * MAX_MESSAGE_UNITS].decode("utf-16-le", "ignore") + "…"


def _render_command(level: str, title: str, message: str, path: str = "", place: ReportedPlace | None = None) -> str:
    """Return one workflow command, such as an `::error` line. `message` is already escaped except for its newlines."""
    properties = {"file": path}
    if path and place is not None and place.line:
        properties["line"] = str(place.line)
        if place.end_line > place.line:
            properties["endLine"] = str(place.end_line)
    properties["title"] = title
    written = ",".join(f"{name}={escape_command_property(value)}" for name, value in properties.items() if value)
    return f"::{WORKFLOW_COMMANDS[level]} {written}::{escape_command_data(message)}"
