"""The report as GitHub's job summary: Markdown with a table of models x runtimes."""

from __future__ import annotations

from onnxgate.formats import markdown_parts as parts
from onnxgate.formats import phrases
from onnxgate.formats.escape import prose
from onnxgate.report import Report

LIMIT = 1024 * 1024
"""GitHub drops a step's summary that has more bytes (Source: actions/runner FileCommandManager.cs)."""
PAGE = parts.Page(room=80_000, differences=20, drawings=3)
"""Ten parts have a limit, together below that of GitHub."""


def format(report: Report) -> str:
    """At most 1 MiB; what is left out is counted."""
    verdict = prose(phrases.verdict(report))
    return parts.written(
        [
            [f"## {parts.VERDICTS[report.verdict]} onnxgate", "", f"**{verdict}**", ""],
            parts.remarks(report, PAGE),
            parts.changes(report, PAGE),
            parts.table(report, PAGE),
            parts.compared(report, PAGE),
            parts.findings(report, PAGE),
            parts.drawings(report, PAGE),
            parts.not_done(report, PAGE),
            parts.replays(report, PAGE),
        ]
    )
