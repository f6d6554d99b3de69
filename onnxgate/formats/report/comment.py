"""The report as a comment on a pull request: what a reviewer needs to decide, and no more.

GitHub refuses a comment of more than 65,536 characters (Source: actions/dependency-review-action, comment-pr.ts). Who
posts it adds what marks it as ours and the link to the run: this leaves room for both.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.escape import escape_markdown, markdown_code
from onnxgate.core.report import Finding, Report
from onnxgate.core.text import pluralize, truncate
from onnxgate.formats import wording
from onnxgate.formats.report import markdown as parts

LIMIT_BYTES = 60_000
"""Bytes, and so characters too."""
REMARKS_PAGE = parts.Page(room=3_000, longest=500)
CHANGES_PAGE = parts.Page(room=12_000, differences=6)
FINDINGS_PAGE = parts.Page(room=24_000, longest=500)
REST_PAGE = parts.Page(room=9_000, longest=500)
"""Of what could not be done, and of the table."""
MAX_FINDINGS = 20
"""Findings that are shown."""
MAX_OPEN_CELLS = 24
"""A table of more cells is folded."""
ALERTS = {"pass": "NOTE", "fail": "CAUTION", "undecided": "WARNING"}


def format(report: Report) -> str:
    """Verdict, what changed, what is wrong and how to repair it, what is not known, and the matrix."""
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
    """Errors and warnings with their fixes; notes are counted."""
    spoken = wording.list_active_findings(report)
    grave = [finding for finding in spoken if finding.level != "note"]
    if spoken:
        yield "\n### Findings\n"
        shown, left_out = parts.split_fitting(map(_render_finding, grave[:MAX_FINDINGS]), FINDINGS_PAGE)
        yield from (*shown, "")
        yield from _render_left_out(left_out + len(grave[MAX_FINDINGS:]), len(spoken) - len(grave))


def _render_left_out(findings: int, notes: int) -> Iterator[str]:
    said = [pluralize(findings, "more finding")] if findings else []
    said += [pluralize(notes, "note")] if notes else []
    if said:
        yield f"… and {' and '.join(said)}: the job summary and the report have all\n"


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
