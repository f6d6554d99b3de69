"""The report as GitHub's job summary: Markdown with a table of models x runtimes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from onnxgate.formats import phrases
from onnxgate.formats.escape import code, neutral, prose
from onnxgate.report import Cell, Finding, NotDone, Report

LIMIT = 1024 * 1024
"""GitHub drops a step's summary that has more bytes (Source: actions/runner FileCommandManager.cs)."""
PART = 150_000
"""Bytes that each of the six parts may take."""
VERDICTS = {"pass": "✅", "fail": "❌", "undecided": "❔"}
LEVELS = {"error": "❌", "warning": "⚠️", "note": "ℹ️"}
CELLS = {
    "pass": "✅",
    "warning": "⚠️",
    "fail": "❌",
    "predicted": "🔮",
    "not predicted": "❓",
    "undecided": "❔",
    "skipped": "⏭️",
    "not asked": "–",
}
LEGEND = {
    "✅": "pass",
    "⚠️": "warning",
    "❌": "fail",
    "🔮": "predicted, not run",
    "❓": "not predicted, not run",
    "❔": "undecided",
    "⏭️": "skipped",
    "–": "not asked for",
}


def format(report: Report) -> str:
    """At most 1 MiB; what is left out is counted."""
    parts = [
        [f"## {VERDICTS[report.verdict]} onnxgate", "", f"**{prose(phrases.verdict(report))}**", ""],
        (f"{prose(remark)}\n" for remark in report.remarks),
        _table(report),
        _findings(report),
        _not_done(report),
        _replays(report),
    ]
    return "\n".join(_neutral(line) for part in parts for line in part) + "\n"


def _table(report: Report) -> Iterator[str]:
    runtimes = phrases.runtime_names(report)
    if not runtimes or not report.cells:
        return
    matrix = phrases.matrix(report)
    yield _row("", [_head(runtime) for runtime in runtimes])
    yield _row("---", [":-:"] * len(runtimes))
    rows = [
        _row(code(phrases.short(model)), [_mark(row.get(each)) for each in runtimes]) for model, row in matrix.items()
    ]
    yield from _fitting(rows)
    shown = {mark for row in matrix.values() for mark in (_mark(row.get(runtime)) for runtime in runtimes)}
    yield ""
    yield " · ".join(f"{mark} {meaning}" for mark, meaning in LEGEND.items() if mark in shown)
    yield ""
    yield from _compared(report)


def _head(runtime: str) -> str:
    """A runtime's name on two lines, so that columns are narrow."""
    engine, _, release = runtime.rpartition(" ")
    return "<br>".join(prose(part) for part in (engine, release) if part)


def _row(first: str, cells: Sequence[str]) -> str:
    return f"| {first} | {' | '.join(cells)} |"


def _mark(cell: Cell | None) -> str:
    return CELLS[cell.state if cell else "not asked"]


def _compared(report: Report) -> Iterator[str]:
    for sentence in phrases.compared(report):
        yield f"{sentence[0].upper()}{sentence[1:]}.\n"
    figures = [f"- {prose(phrases.figure(figure))}" for figure in phrases.tightest(report.measured)]
    yield from _folded("Nearest to what is allowed", figures)


def _findings(report: Report) -> Iterator[str]:
    blocks = [
        block
        for subject, findings in phrases.by_subject(phrases.spoken(report))
        for block in (f"\n### {code(phrases.short(subject))}\n", *(_finding(finding) for finding in findings))
    ]
    yield from _fitting(blocks)
    accepted = phrases.ignored(report)
    yield from _folded(phrases.count(len(accepted), "ignored finding"), [_accepted(finding) for finding in accepted])


def _finding(finding: Finding) -> str:
    where = code(phrases.short(phrases.place(finding.place)))
    lines = [f"- {LEVELS[finding.level]} **{code(finding.rule)}** at {where}  ", f"  {prose(phrases.said(finding))}"]
    if finding.node and finding.node not in finding.message:
        lines.append(f"  - node {code(phrases.short(finding.node))}")
    if finding.fix:
        lines.append(f"  - **fix:** {prose(finding.fix)}")
    return "\n".join(lines)


def _accepted(finding: Finding) -> str:
    subject = code(phrases.short(phrases.subject(finding)))
    return f"- {code(finding.rule)} in {subject}: {prose(finding.ignored)}"


def _replays(report: Report) -> Iterator[str]:
    commands = [f"- {code(each.command)}" for each in report.replays]
    yield from _folded(
        "Replay", [f"In {code(report.folder)}:\n", *commands] if commands and report.folder else commands
    )


def _not_done(report: Report) -> Iterator[str]:
    yield from _gaps("Could not be done", report.undecided, report)
    yield from _gaps("Skipped", report.skipped, report)


def _gaps(title: str, items: Sequence[NotDone], report: Report) -> Iterator[str]:
    if items:
        yield f"\n### {title}\n"
        yield from _fitting(_gap(gap, report) for gap in phrases.gaps(items))


def _gap(gap: phrases.Gap, report: Report) -> str:
    hint = f"\n  - **hint:** {prose(gap.hint)}" if gap.hint else ""
    return f"- {prose(gap.about(report))}: {prose(phrases.short(gap.reason, phrases.LONG))}{hint}"


def _folded(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield f"\n<details><summary>{title}</summary>\n"
        yield from _fitting(lines)
        yield "\n</details>\n"


def _fitting(blocks: Iterable[str]) -> Iterator[str]:
    """As many blocks as fit into a part, and how many did not."""
    room, left_out = PART, 0
    for block in map(_neutral, blocks):
        size = len(block.encode()) + 1
        if left_out or size > room:
            left_out += 1
        else:
            room -= size
            yield block
    if left_out:
        yield f"\n… and {left_out} more: the report has all"


def _neutral(block: str) -> str:
    return "\n".join(neutral(line) for line in block.split("\n"))
