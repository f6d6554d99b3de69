"""The report as a person reads it in a terminal or a log: what is wrong, what became of each model, the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from onnxgate.formats import changes, phrases
from onnxgate.formats.escape import named, neutral, visible
from onnxgate.formats.paper import Column, Paper
from onnxgate.report import Cell, Finding, Measured, NotDone, Report

Matrix = dict[str, dict[str, Cell]]
WORDS = {"warning": "warn", "fail": "FAIL", "not asked": "-"}
STYLES = {"pass": "pass", "warn": "warning", "FAIL": "fail", "predicted": "predicted", "undecided": "undecided"}
STYLES |= {"not predicted": "undecided", "skipped": "quiet", "-": "quiet"}
LEGEND = {
    "predicted": "predicted: from support data; nothing was run",
    "not predicted": "not predicted: there is no support data, or it cannot be told; nothing was run",
    "-": "-: not asked for",
}
BODY = 11
"""The column where a finding's text begins: after its level."""
STORED = Path("<cache>/inputs")
"""Stands for the folder of stored inputs where a report is not read on the machine that made it."""
MANY_DIFFERENCES = 6
"""So many differences of a model since the baseline are said; the rest is counted."""
MANY_MODELS = 20
"""From here on, models that are alike everywhere are counted and not listed; of figures so many are said."""
ALIKE = {"pass": "pass wherever promised", "predicted": "predicted wherever promised"}
"""What is said of models that are not listed, by the state of all their cells."""


def format(
    report: Report,
    *,
    color: bool = False,
    width: int = 0,
    quiet: bool = False,
    verbose: bool = False,
    inputs: Path = STORED,
    snippets: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """The report. `width` is the terminal's, 0 where lines are left whole; `quiet` leaves the last line alone.

    `inputs` is the folder in which inputs are stored; `snippets` are the lines that would accept a finding in the
    config, by its fingerprint.
    """
    paper = Paper(color, width)
    lines: list[str] = []
    if not quiet:
        for section in (
            _changes(report, paper),
            _findings(report, paper, snippets or {}),
            _replays(report, inputs, paper),
            _table(report, paper, verbose),
            _notes(report, paper),
        ):
            lines += section
    lines += [verdict(report, color=color), ""]
    return "\n".join(neutral(line) for line in lines)


def verdict(report: Report, *, color: bool = False) -> str:
    """The last line alone."""
    word, colon, rest = phrases.verdict(report).partition(":")
    return neutral(f"{Paper(color).ink(word, report.verdict)}{colon}{visible(rest)}")


def _changes(report: Report, paper: Paper) -> Iterator[str]:
    """What became of models since the baseline: those with the gravest findings, and the first differences of each."""
    title = changes.title(report)
    if not title:
        return
    yield paper.ink(title, "heading")
    every = changes.ordered(report)
    for change in every[:MANY_MODELS]:
        yield from paper.wrapped(f"{named(phrases.short(change.model))} {changes.what(change)}", 2)
        for difference in changes.differences(change, MANY_DIFFERENCES):
            yield from paper.wrapped(difference, 4)
    if len(every) > MANY_MODELS:
        yield f"  and {phrases.count(len(every) - MANY_MODELS, 'more model')}"
    yield ""


def _findings(report: Report, paper: Paper, snippets: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for subject, findings in phrases.by_subject(phrases.spoken(report)):
        yield paper.ink(named(phrases.short(subject)), "heading")
        for finding in findings:
            yield from _finding(finding, paper)
            yield from _snippet(snippets.get(finding.fingerprint, ()), paper)
        yield ""


def _snippet(lines: Sequence[str], paper: Paper) -> Iterator[str]:
    """What to paste, whatever the terminal's width."""
    if lines:
        yield f"{' ' * BODY}{paper.ink('to accept it, paste into the config:', 'quiet')}"
        yield from (f"{' ' * BODY}{visible(line)}" for line in lines)


def _finding(finding: Finding, paper: Paper) -> Iterator[str]:
    level = paper.ink(finding.level, finding.level) + " " * (7 - len(finding.level))
    where = paper.ink(phrases.short(phrases.place(finding.place)), "quiet")
    yield f"  {level}  {paper.ink(finding.rule, 'heading')}  {where}"
    yield from paper.wrapped(phrases.said(finding), BODY)
    if finding.node and finding.node not in finding.message:
        yield from paper.wrapped(phrases.short(finding.node), BODY, "node: ")
    if finding.fix:
        yield from paper.wrapped(finding.fix, BODY, "fix: ")


def _replays(report: Report, folder: Path, paper: Paper) -> Iterator[str]:
    """Commands in one line each, whatever the terminal's width, so that they can be copied."""
    if not report.replays:
        return
    yield paper.ink("replay", "heading")
    for replay in report.replays:
        yield f"  {visible(replay.command)}"
        for name in replay.inputs:
            yield paper.ink(f"    with the inputs of {visible(str(folder / name))}", "quiet")
    yield ""


def _table(report: Report, paper: Paper, verbose: bool) -> Iterator[str]:
    runtimes = phrases.runtime_names(report)
    if not runtimes or not report.cells:
        return
    rows, alike = _rows(report)
    columns = [_column(runtime, rows) for runtime in runtimes]
    if rows:
        yield from paper.table([_models(rows), *columns], STYLES)
    yield from (f"{phrases.count(alike[state], 'more model')}: {ALIKE[state]}" for state in ALIKE if alike[state])
    yield ""
    yield from _below_table({*alike, *(word for column in columns for word in column.cells)}, report, paper, verbose)


def _below_table(shown: set[str], report: Report, paper: Paper, verbose: bool) -> Iterator[str]:
    """What the words mean, and how near to their bounds the outputs came."""
    lines = [paper.ink(meaning, "quiet") for word, meaning in LEGEND.items() if word in shown]
    lines += _compared(report, paper, verbose)
    yield from [*lines, ""] if lines else []


def _rows(report: Report) -> tuple[Matrix, Counter[str]]:
    """The models to list with their cells, and how many are not listed, by what all their cells say."""
    matrix = phrases.matrix(report)
    if len(matrix) <= MANY_MODELS:
        return matrix, Counter()
    alike = {model: _alike(row) for model, row in matrix.items()}
    listed = {model: row for model, row in matrix.items() if alike[model] not in ALIKE}
    return listed, Counter(state for state in alike.values() if state in ALIKE)


def _alike(row: Mapping[str, Cell]) -> str:
    """What all its cells say; "" where they differ, or there is none."""
    states = {cell.state for cell in row.values()}
    return states.pop() if len(states) == 1 else ""


def _models(rows: Matrix) -> Column:
    return Column("", "", [named(phrases.short(model)) for model in rows])


def _column(runtime: str, rows: Matrix) -> Column:
    engine, _, release = visible(runtime).rpartition(" ")
    return Column(engine, release, [_word(row.get(runtime)) for row in rows.values()])


def _word(cell: Cell | None) -> str:
    state = cell.state if cell else "not asked"
    return WORDS.get(state, state)


def _compared(report: Report, paper: Paper, verbose: bool) -> Iterator[str]:
    """How many outputs were compared; with `verbose` every figure, else of each model the one nearest to its bound."""
    for sentence in phrases.compared(report):
        yield from paper.wrapped(sentence, 0, style="quiet")
    yield from _figures(report.measured if verbose else phrases.tightest(report.measured), paper, verbose)


def _figures(every: Sequence[Measured], paper: Paper, verbose: bool) -> Iterator[str]:
    """All where they are few or asked for, else those that came nearest to their bounds."""
    whole = verbose or len(every) <= MANY_MODELS
    for figure in every if whole else sorted(every, key=phrases.used, reverse=True)[:MANY_MODELS]:
        case = f", {figure.case}" if verbose else ""
        yield from paper.wrapped(f"{phrases.figure(figure)}{case}", 2, style="quiet")
    if not whole:
        more = phrases.count(len(every) - MANY_MODELS, "more figure")
        yield from paper.wrapped(f"and {more}; `-v` shows all", 2, style="quiet")


def _notes(report: Report, paper: Paper) -> Iterator[str]:
    for remark in report.remarks:
        yield from paper.wrapped(remark, 0)
    yield from [""] if report.remarks else []
    yield from _gaps("undecided", report.undecided, report, paper)
    yield from _gaps("skipped", report.skipped, report, paper)
    accepted = phrases.ignored(report)
    if accepted:
        yield paper.ink("ignored", "heading")
        for finding in accepted:
            said = f"{finding.rule} in {phrases.short(phrases.subject(finding))}: {finding.ignored}"
            yield from paper.wrapped(said, 2)
        yield ""


def _gaps(title: str, items: Sequence[NotDone], report: Report, paper: Paper) -> Iterator[str]:
    if not items:
        return
    yield paper.ink(title, "heading")
    for gap in phrases.gaps(items):
        yield from paper.wrapped(gap.about(report), 2)
        yield from paper.wrapped(gap.reason, 4)
        if gap.hint:
            yield from paper.wrapped(gap.hint, 4, "hint: ")
    yield ""
