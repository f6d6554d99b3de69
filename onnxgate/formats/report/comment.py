"""The report as a comment on a pull request: the parts that a reviewer needs.

GitHub refuses a comment of more than 65,536 characters (Source: actions/dependency-review-action, comment-pr.ts). The
posting step adds a marker and the link to the run: this leaves space for both.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.escape import escape_markdown, markdown_code
from onnxgate.core.report import Finding, Report
from onnxgate.core.text import pluralize, truncate
from onnxgate.formats import wording
from onnxgate.formats.report import markdown as parts

LIMIT_BYTES = 60_000
"""Bytes, and therefore also an upper limit of characters."""
REMARKS_PAGE = parts.Page(max_bytes=3_000, longest=500)
CHANGES_PAGE = parts.Page(max_bytes=12_000, differences=6)
FINDINGS_PAGE = parts.Page(max_bytes=24_000, longest=500)
REST_PAGE = parts.Page(max_bytes=9_000, longest=500)
"""Limits of the gaps, and of the table."""
MAX_FINDINGS = 20
"""Findings shown."""
MAX_OPEN_CELLS = 24
"""Cells of a table that is not folded."""
ALERTS = {"pass": "NOTE", "fail": "CAUTION", "undecided": "WARNING"}


def format(report: Report) -> str:
    """Render verdict, remarks, changes, findings, gaps and matrix."""
    return parts.join_parts(
        [
            _render_verdict(report),
            parts.render_remarks(report, REMARKS_PAGE),
            parts.render_changes(report, CHANGES_PAGE),
            _render_findings(report),
            parts.render_gaps("Not checked", (*report.undecided, *report.skipped), report, REST_PAGE),
            _render_matrix(report),
        ]
    )


def _render_verdict(report: Report) -> Iterator[str]:
    yield f"## {parts.VERDICT_MARKS[report.verdict]} onnxgate\n"
    yield f"> [!{ALERTS[report.verdict]}]"
    yield f"> {escape_markdown(wording.render_verdict(report))}"
    yield ""


def _render_findings(report: Report) -> Iterator[str]:
    """Yield errors and warnings with their fixes, and the number of notes."""
    active = wording.list_active_findings(report)
    severe = [finding for finding in active if finding.level != "note"]
    if active:
        yield "\n### Findings\n"
        shown, left_out = parts.split_fitting(map(_render_finding, severe[:MAX_FINDINGS]), FINDINGS_PAGE)
        yield from (*shown, "")
        yield from _render_left_out(left_out + len(severe[MAX_FINDINGS:]), len(active) - len(severe))


def _render_left_out(findings: int, notes: int) -> Iterator[str]:
    parts_left = [pluralize(findings, "more finding")] if findings else []
    parts_left += [pluralize(notes, "note")] if notes else []
    if parts_left:
        yield f"… and {' and '.join(parts_left)}: the job summary and the report have all\n"


def _render_finding(finding: Finding) -> str:
    subject = wording.finding_subject(finding)
    about = f" in {markdown_code(truncate(subject))}" if subject != finding.place.path else ""
    return parts.render_finding(finding, FINDINGS_PAGE, about=about)


def _render_matrix(report: Report) -> Iterator[str]:
    lines = list(parts.render_matrix(report, REST_PAGE))
    if lines and len(report.models) * len(wording.list_runtimes(report)) > MAX_OPEN_CELLS:
        yield f"\n<details><summary>{parts.describe_extent(report)}</summary>\n"
        yield from lines
        yield "\n</details>"
    elif lines:
        yield "\n### Models and runtimes\n"
        yield from lines
