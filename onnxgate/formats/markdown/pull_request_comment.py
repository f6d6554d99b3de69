"""Write the report as a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.report import Report
from onnxgate.core.text import pluralize
from onnxgate.formats import wording
from onnxgate.formats.markdown import (
    Page,
    join_parts,
    render_changes,
    render_finding,
    render_head,
    render_ignored,
    render_matrix,
    render_remarks,
    render_skipped,
    render_undecided,
    split_fitting,
)

# 60,000 bytes at most in total: GitHub rejects a comment of more than 65,536 characters, and the step that posts it
# adds a marker and the link to the run (Source: actions/dependency-review-action, comment-pr.ts).
COMMENT_REMARKS_PAGE = Page(max_bytes=3_000, longest=500)
COMMENT_CHANGES_PAGE = Page(max_bytes=8_000, differences=6)
COMMENT_FINDINGS_PAGE = Page(max_bytes=18_000, longest=500)
COMMENT_REST_PAGE = Page(max_bytes=4_000, longest=500)
"""Size limits of each of four sections of a pull request comment.

They list the undecided checks, the skipped checks, and the newly ignored and other ignored findings.
"""
COMMENT_MATRIX_PAGE = Page(max_bytes=5_000)
MAX_COMMENT_FINDINGS = 20
MAX_OPEN_CELLS = 24
"""Maximum number of cells of a table that is not collapsed in a pull request comment; larger tables are collapsed."""


def format_comment(report: Report) -> str:
    """Render the comment on a pull request.

    It contains the verdict, findings, undecided checks, ignored findings, remarks, changes, and the table of results.
    """
    problems = [_render_comment_findings(report), render_undecided(report, COMMENT_REST_PAGE)]
    return join_parts(
        [
            render_head(report, "##"),
            *(reversed(problems) if report.verdict == "undecided" else problems),
            render_ignored(report, COMMENT_REST_PAGE),
            render_remarks(report, COMMENT_REMARKS_PAGE),
            render_changes(report, COMMENT_CHANGES_PAGE),
            _render_comment_matrix(report),
            render_skipped(report, COMMENT_REST_PAGE),
        ]
    )


def _render_comment_findings(report: Report) -> Iterator[str]:
    active = wording.list_active_findings(report)
    severe = [finding for finding in active if finding.level != "note"]
    blocks = [render_finding(finding, COMMENT_FINDINGS_PAGE) for finding in severe[:MAX_COMMENT_FINDINGS]]
    shown, left_out = split_fitting(blocks, COMMENT_FINDINGS_PAGE)
    if not severe:  # the top of the comment counts the notes
        return
    yield from ("\n### Findings\n", *shown, "")
    counts = {"more finding": left_out + len(severe[MAX_COMMENT_FINDINGS:]), "note": len(active) - len(severe)}
    if more := " and ".join(pluralize(count, noun) for noun, count in counts.items() if count):
        yield f"… and {more} in the job summary and the full report\n"


def _render_comment_matrix(report: Report) -> Iterator[str]:
    lines = list(render_matrix(report, COMMENT_MATRIX_PAGE))
    runtimes = len(wording.list_runtimes(report))
    if lines and len(report.models) * runtimes > MAX_OPEN_CELLS:
        extent = f"{pluralize(len(report.models), 'model')} on {pluralize(runtimes, 'runtime')}"
        yield from (f"\n<details><summary>{extent}</summary>\n", *lines, "\n</details>")
    elif lines:
        yield from ("\n### Models and runtimes\n", *lines)
