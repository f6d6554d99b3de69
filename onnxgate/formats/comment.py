"""The report as a comment on a pull request: what a reviewer needs to decide, and no more.

GitHub refuses a comment of more than 65,536 characters (Source: actions/dependency-review-action, comment-pr.ts). Who
posts it adds what marks it as ours and the link to the run: this leaves room for both.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.formats import markdown_parts as parts
from onnxgate.formats import phrases
from onnxgate.formats.escape import code, prose
from onnxgate.report import Finding, Report

LIMIT = 60_000
"""Bytes, and so characters too."""
REMARKS = parts.Page(room=3_000, longest=500)
CHANGES = parts.Page(room=12_000, differences=6)
FINDINGS = parts.Page(room=24_000, longest=500)
REST = parts.Page(room=9_000, longest=500)
"""Of what could not be done, and of the table."""
MOST = 20
"""Findings that are shown."""
WIDE = 24
"""A table of more cells is folded."""
ALERTS = {"pass": "NOTE", "fail": "CAUTION", "undecided": "WARNING"}


def format(report: Report) -> str:
    """Verdict, what changed, what is wrong and how to repair it, what is not known, and the matrix."""
    return parts.written(
        [
            _verdict(report),
            parts.remarks(report, REMARKS),
            parts.changes(report, CHANGES),
            _findings(report),
            parts.gaps("Not checked", (*report.undecided, *report.skipped), report, REST),
            _matrix(report),
        ]
    )


def _verdict(report: Report) -> Iterator[str]:
    yield f"## {parts.VERDICTS[report.verdict]} onnxgate\n"
    yield f"> [!{ALERTS[report.verdict]}]"
    yield f"> {prose(phrases.verdict(report))}"
    yield ""


def _findings(report: Report) -> Iterator[str]:
    """Errors and warnings with their fixes; notes are counted."""
    spoken = phrases.spoken(report)
    grave = [finding for finding in spoken if finding.level != "note"]
    if spoken:
        yield "\n### Findings\n"
        shown, left_out = parts.fitted(map(_finding, grave[:MOST]), FINDINGS)
        yield from (*shown, "")
        yield from _more(left_out + len(grave[MOST:]), len(spoken) - len(grave))


def _more(findings: int, notes: int) -> Iterator[str]:
    said = [phrases.count(findings, "more finding")] if findings else []
    said += [phrases.count(notes, "note")] if notes else []
    if said:
        yield f"… and {' and '.join(said)}: the job summary and the report have all\n"


def _finding(finding: Finding) -> str:
    subject = phrases.subject(finding)
    about = f" in {code(phrases.short(subject))}" if subject != finding.place.path else ""
    return parts.finding(finding, FINDINGS, about=about)


def _matrix(report: Report) -> Iterator[str]:
    lines = list(parts.table(report, REST))
    if lines and len(report.models) * len(phrases.runtime_names(report)) > WIDE:
        yield f"\n<details><summary>{parts.extent(report)}</summary>\n"
        yield from lines
        yield "\n</details>"
    elif lines:
        yield "\n### Models and runtimes\n"
        yield from lines
