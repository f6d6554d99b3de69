"""The parts of which pages in Markdown are made: job summary, comment, document. No string of a model acts in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from onnxgate.formats import changes as said_changes
from onnxgate.formats import mermaid, phrases
from onnxgate.formats.escape import code, neutral, prose
from onnxgate.report import Cell, Change, Finding, NotDone, Report

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
WORST = ("fail", "undecided", "not predicted", "warning", "skipped", "predicted", "not asked", "pass")
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


@dataclass(frozen=True, slots=True)
class Page:
    """How much a page may hold, and whether it is GitHub's: with HTML in it that folds and breaks lines."""

    room: int = 0  # bytes that a part may take; 0 where there is no limit
    html: bool = True
    differences: int = 0  # that are said of one model since the baseline; 0: all
    drawings: int = 0  # 0: all
    longest: int = phrases.LONG  # characters of a message, a fix, a reason


def written(parts: Iterable[Iterable[str]]) -> str:
    """Parts as one text in which no line commands a runner."""
    return "\n".join(harmless(line) for part in parts for line in part) + "\n"


def harmless(block: str) -> str:
    """The same lines, none of them a command."""
    return "\n".join(neutral(line) for line in block.split("\n"))


def fitting(blocks: Iterable[str], page: Page) -> Iterator[str]:
    """As many blocks as fit into a part, and how many did not."""
    shown, left_out = fitted(blocks, page)
    yield from shown
    if left_out:
        yield f"\n… and {left_out} more: the report has all"


def fitted(blocks: Iterable[str], page: Page) -> tuple[list[str], int]:
    """The first blocks, as many as fit into a part; and the number of the others."""
    room, shown, left_out = page.room, [], 0
    for block in map(harmless, blocks):
        size = len(block.encode()) + 1
        if page.room and (left_out or size > room):
            left_out += 1
        else:
            room -= size
            shown.append(block)
    return shown, left_out


def folded(title: str, lines: Sequence[str], page: Page) -> Iterator[str]:
    """Lines below a title that opens them, where the page has that."""
    if lines:
        yield f"\n<details><summary>{title}</summary>\n" if page.html else f"\n### {title}\n"
        yield from fitting(lines, page)
        yield "\n</details>\n" if page.html else ""


def remarks(report: Report, page: Page) -> Iterator[str]:
    """Answers that are no findings, a paragraph each."""
    return fitting((f"{prose(phrases.short(remark, page.longest))}\n" for remark in report.remarks), page)


def changes(report: Report, page: Page) -> Iterator[str]:
    """What became of each model since the baseline, those with the gravest findings first."""
    title = said_changes.title(report)
    if title and not report.changes:
        yield f"{prose(capital(title))}.\n"
    elif title:
        weights = said_changes.weigh(report)
        yield f"\n### {prose(capital(title))}\n"
        yield from fitting((_change(each, weights, page) for each in said_changes.ordered(report)), page)
        yield ""


def capital(text: str) -> str:
    """As a sentence begins."""
    return f"{text[:1].upper()}{text[1:]}"


def _change(change: Change, weights: dict[str, int], page: Page) -> str:
    """The mark is that of the gravest finding about the model."""
    weight = weights.get(change.model, said_changes.WORST)
    mark = f"{LEVELS[phrases.LEVELS[weight]]} " if weight < said_changes.WORST else ""
    before = f" from {code(phrases.short(change.before))}" if change.before else ""
    lines = [f"- {mark}{code(phrases.short(change.model))} {said_changes.KINDS[change.kind]}{before}"]
    lines += [f"  - {prose(each)}" for each in said_changes.differences(change, page.differences or len(change.said))]
    return "\n".join(lines)


def table(report: Report, page: Page) -> Iterator[str]:
    """Models x runtimes, with what its marks mean."""
    runtimes = phrases.runtime_names(report)
    if not runtimes or not report.cells:
        return
    matrix = phrases.matrix(report)
    head = [_row("", [_head(runtime, page) for runtime in runtimes]), _row("---", [":-:"] * len(runtimes))]
    if page.room and sum(len(line.encode()) for line in head) > page.room // 2:
        yield f"{phrases.count(len(runtimes), 'runtime')}: too many for a table here; the report has all\n"
        return
    yield from head
    yield from fitting(_rows(matrix, runtimes, page), page)
    shown = {_mark(row.get(runtime)) for row in matrix.values() for runtime in runtimes}
    yield ""
    yield " · ".join(f"{mark} {meaning}" for mark, meaning in LEGEND.items() if mark in shown)
    yield ""


def _rows(matrix: dict[str, dict[str, Cell]], runtimes: Sequence[str], page: Page) -> list[str]:
    """By model; where there is no room for all, the worst first."""
    rows = {model: _models_row(model, row, runtimes) for model, row in matrix.items()}
    if page.room and sum(len(row.encode()) + 1 for row in rows.values()) > page.room:
        return [rows[model] for model in sorted(rows, key=lambda model: _badness(matrix[model].values()))]
    return list(rows.values())


def _badness(cells: Iterable[Cell]) -> int:
    """Of the worst of them; the smaller the worse."""
    return min((WORST.index(cell.state) for cell in cells), default=WORST.index("not asked"))


def _head(runtime: str, page: Page) -> str:
    """A runtime's name, on two lines where that can be, so that columns are narrow."""
    engine, _, release = phrases.short(runtime).rpartition(" ")
    return ("<br>" if page.html else " ").join(prose(part) for part in (engine, release) if part)


def _row(first: str, cells: Sequence[str]) -> str:
    return f"| {first} | {' | '.join(cells)} |"


def _models_row(model: str, row: dict[str, Cell], runtimes: Sequence[str]) -> str:
    return _row(code(phrases.short(model)), [_mark(row.get(each)) for each in runtimes])


def _mark(cell: Cell | None) -> str:
    return CELLS[cell.state if cell else "not asked"]


def compared(report: Report, page: Page) -> Iterator[str]:
    """How many outputs were compared, and which came nearest to their bounds."""
    for sentence in phrases.compared(report):
        yield f"{capital(sentence)}.\n"
    figures = [f"- {prose(phrases.figure(figure))}" for figure in phrases.tightest(report.measured)]
    yield from folded("Nearest to what is allowed", figures, page)


def findings(report: Report, page: Page) -> Iterator[str]:
    """Those that count by what they are about, the worst first; then those that the config accepts."""
    blocks = [
        f"{'' if number else _heading(subject)}{finding(each, page)}"
        for subject, about in phrases.by_subject(phrases.spoken(report))
        for number, each in enumerate(about)
    ]
    yield from fitting(blocks, page)
    accepted = phrases.ignored(report)
    yield from folded(phrases.count(len(accepted), "ignored finding"), [_accepted(each) for each in accepted], page)


def _heading(subject: str) -> str:
    """It stands before the first finding, so that none is left alone where there is no room for more."""
    return f"\n### {code(phrases.short(subject))}\n\n"


def finding(one: Finding, page: Page, *, about: str = "") -> str:
    """One entry of a list; `about` names what it is about where no heading does."""
    where = code(phrases.short(phrases.place(one.place)))
    lines = [
        f"- {LEVELS[one.level]} **{code(phrases.short(one.rule))}**{about} at {where}  ",
        f"  {prose(phrases.said(one, page.longest))}",
    ]
    if one.node and one.node not in one.message:
        lines.append(f"  - node {code(phrases.short(one.node))}")
    if one.fix:
        lines.append(f"  - **fix:** {prose(phrases.short(one.fix, page.longest))}")
    return "\n".join(lines)


def _accepted(one: Finding) -> str:
    subject = code(phrases.short(phrases.subject(one)))
    return f"- {code(phrases.short(one.rule))} in {subject}: {prose(phrases.short(one.ignored))}"


def drawings(report: Report, page: Page) -> Iterator[str]:
    """The neighbourhoods of failing nodes."""
    shown = report.drawings[: page.drawings or len(report.drawings)]
    if shown:
        yield "\n### Where it fails\n"
        blocks = (
            f"{code(phrases.short(each.node))} in {code(phrases.short(each.model))}:\n\n{mermaid.drawing(each)}\n"
            for each in shown
        )
        yield from fitting(blocks, page)
        more = len(report.drawings) - len(shown)
        yield f"… and {phrases.count(more, 'more drawing')}: the report has all\n" if more else ""


def not_done(report: Report, page: Page) -> Iterator[str]:
    """What was asked for and could not be done, and what need not be."""
    yield from gaps("Could not be done", report.undecided, report, page)
    yield from gaps("Skipped", report.skipped, report, page)


def gaps(title: str, items: Sequence[NotDone], report: Report, page: Page) -> Iterator[str]:
    """Entries of one reason are one."""
    if items:
        yield f"\n### {title}\n"
        yield from fitting((_gap(gap, report, page) for gap in phrases.gaps(items)), page)


def _gap(gap: phrases.Gap, report: Report, page: Page) -> str:
    hint = f"\n  - **hint:** {prose(phrases.short(gap.hint, page.longest))}" if gap.hint else ""
    return f"- {prose(gap.about(report))}: {prose(phrases.short(gap.reason, page.longest))}{hint}"


def extent(report: Report) -> str:
    """`4 models on 8 runtimes`."""
    runtimes = phrases.count(len(phrases.runtime_names(report)), "runtime")
    return f"{phrases.count(len(report.models), 'model')} on {runtimes}"


def replays(report: Report, page: Page) -> Iterator[str]:
    """The commands that show findings again, whole, so that they can be copied."""
    commands = [f"- {code(each.command)}" for each in report.replays]
    where = [f"In {code(report.folder)}:\n"] if commands and report.folder else []
    yield from folded("Replay", [*where, *commands], page)
