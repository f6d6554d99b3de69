"""The report as a person reads it in a terminal or a log: what is wrong, what became of each model, the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from onnxgate.core.escape import escape_unprintable, neutralize_commands, quote_name
from onnxgate.core.report import Cell, Finding, Measured, NotDone, Report
from onnxgate.core.text import pluralize, truncate
from onnxgate.formats import wording
from onnxgate.formats.terminal import Column, Terminal

CellTable = dict[str, dict[str, Cell]]
STATE_WORDS = {"warning": "warn", "fail": "FAIL", "not asked": "-"}
STYLES = {"pass": "pass", "warn": "warning", "FAIL": "fail", "predicted": "predicted", "undecided": "undecided"}
STYLES |= {"not predicted": "undecided", "skipped": "quiet", "-": "quiet"}
LEGEND = {
    "predicted": "predicted: from support data; nothing was run",
    "not predicted": "not predicted: there is no support data, or it cannot be told; nothing was run",
    "-": "-: not asked for",
}
BODY_COLUMN = 11
"""The column where a finding's text begins: after its level."""
STORED_INPUTS_PLACEHOLDER = Path("<cache>/inputs")
"""Stands for the folder of stored inputs where a report is not read on the machine that made it."""
MAX_DIFFERENCES = 6
"""So many differences of a model since the baseline are said; the rest is counted."""
MAX_LISTED = 20
"""From here on, models that are alike everywhere are counted and not listed; of figures so many are said."""
UNIFORM_ROWS = {"pass": "pass wherever promised", "predicted": "predicted wherever promised"}
"""What is said of models that are not listed, by the state of all their cells."""


def format(
    report: Report,
    *,
    color: bool = False,
    width: int = 0,
    quiet: bool = False,
    verbose: bool = False,
    inputs: Path = STORED_INPUTS_PLACEHOLDER,
    snippets: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """The report. `width` is the terminal's, 0 where lines are left whole; `quiet` leaves the last line alone.

    `inputs` is the folder in which inputs are stored; `snippets` are the lines that would accept a finding in the
    config, by its fingerprint.
    """
    paper = Terminal(color, width)
    lines: list[str] = []
    if not quiet:
        for section in (
            _render_changes(report, paper),
            _render_findings(report, paper, snippets or {}),
            _render_replays(report, inputs, paper),
            _render_matrix(report, paper, verbose),
            _render_notes(report, paper),
        ):
            lines += section
    lines += [render_verdict(report, color=color), ""]
    return "\n".join(neutralize_commands(line) for line in lines)


def render_verdict(report: Report, *, color: bool = False) -> str:
    """The last line alone."""
    word, colon, rest = wording.render_verdict(report).partition(":")
    return neutralize_commands(f"{Terminal(color).ink(word, report.verdict)}{colon}{escape_unprintable(rest)}")


def _render_changes(report: Report, paper: Terminal) -> Iterator[str]:
    """What became of models since the baseline: those with the gravest findings, and the first differences of each."""
    title = wording.changes_title(report)
    if not title:
        return
    yield paper.ink(title, "heading")
    every = wording.sort_changes(report)
    for change in every[:MAX_LISTED]:
        yield from paper.wrapped(f"{quote_name(truncate(change.model))} {wording.describe_change(change)}", 2)
        for difference in wording.list_differences(change, MAX_DIFFERENCES):
            yield from paper.wrapped(difference, 4)
    if len(every) > MAX_LISTED:
        yield f"  and {pluralize(len(every) - MAX_LISTED, 'more model')}"
    yield ""


def _render_findings(report: Report, paper: Terminal, snippets: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for subject, findings in wording.group_by_subject(wording.list_active_findings(report)):
        yield paper.ink(quote_name(truncate(subject)), "heading")
        for finding in findings:
            yield from _render_finding(finding, paper)
            yield from _render_snippet(snippets.get(finding.fingerprint, ()), paper)
        yield ""


def _render_snippet(lines: Sequence[str], paper: Terminal) -> Iterator[str]:
    """What to paste, whatever the terminal's width."""
    if lines:
        yield f"{' ' * BODY_COLUMN}{paper.ink('to accept it, paste into the config:', 'quiet')}"
        yield from (f"{' ' * BODY_COLUMN}{escape_unprintable(line)}" for line in lines)


def _render_finding(finding: Finding, paper: Terminal) -> Iterator[str]:
    level = paper.ink(finding.level, finding.level) + " " * (7 - len(finding.level))
    where = paper.ink(truncate(wording.format_place(finding.place)), "quiet")
    yield f"  {level}  {paper.ink(finding.rule, 'heading')}  {where}"
    yield from paper.wrapped(wording.render_message(finding), BODY_COLUMN)
    if finding.node and finding.node not in finding.message:
        yield from paper.wrapped(truncate(finding.node), BODY_COLUMN, "node: ")
    if finding.fix:
        yield from paper.wrapped(finding.fix, BODY_COLUMN, "fix: ")


def _render_replays(report: Report, folder: Path, paper: Terminal) -> Iterator[str]:
    """Commands in one line each, whatever the terminal's width, so that they can be copied."""
    if not report.replays:
        return
    yield paper.ink("replay", "heading")
    for replay in report.replays:
        yield f"  {escape_unprintable(replay.command)}"
        for name in replay.inputs:
            yield paper.ink(f"    with the inputs of {escape_unprintable(str(folder / name))}", "quiet")
    yield ""


def _render_matrix(report: Report, paper: Terminal, verbose: bool) -> Iterator[str]:
    runtimes = wording.list_runtimes(report)
    if not runtimes or not report.cells:
        return
    rows, alike = _select_rows(report)
    columns = [_runtime_column(runtime, rows) for runtime in runtimes]
    if rows:
        yield from paper.table([_model_column(rows), *columns], STYLES)
    yield from (
        f"{pluralize(alike[state], 'more model')}: {UNIFORM_ROWS[state]}" for state in UNIFORM_ROWS if alike[state]
    )
    yield ""
    yield from _render_legend({*alike, *(word for column in columns for word in column.cells)}, report, paper, verbose)


def _render_legend(shown: set[str], report: Report, paper: Terminal, verbose: bool) -> Iterator[str]:
    """What the words mean, and how near to their bounds the outputs came."""
    lines = [paper.ink(meaning, "quiet") for word, meaning in LEGEND.items() if word in shown]
    lines += _render_comparisons(report, paper, verbose)
    yield from [*lines, ""] if lines else []


def _select_rows(report: Report) -> tuple[CellTable, Counter[str]]:
    """The models to list with their cells, and how many are not listed, by what all their cells say."""
    matrix = wording.cells_by_model(report)
    if len(matrix) <= MAX_LISTED:
        return matrix, Counter()
    alike = {model: _uniform_state(row) for model, row in matrix.items()}
    listed = {model: row for model, row in matrix.items() if alike[model] not in UNIFORM_ROWS}
    return listed, Counter(state for state in alike.values() if state in UNIFORM_ROWS)


def _uniform_state(row: Mapping[str, Cell]) -> str:
    """What all its cells say; "" where they differ, or there is none."""
    states = {cell.state for cell in row.values()}
    return states.pop() if len(states) == 1 else ""


def _model_column(rows: CellTable) -> Column:
    return Column("", "", [quote_name(truncate(model)) for model in rows])


def _runtime_column(runtime: str, rows: CellTable) -> Column:
    engine, _, release = escape_unprintable(runtime).rpartition(" ")
    return Column(engine, release, [_state_word(row.get(runtime)) for row in rows.values()])


def _state_word(cell: Cell | None) -> str:
    state = cell.state if cell else "not asked"
    return STATE_WORDS.get(state, state)


def _render_comparisons(report: Report, paper: Terminal, verbose: bool) -> Iterator[str]:
    """How many outputs were compared; with `verbose` every figure, else of each model the one nearest to its bound."""
    for sentence in wording.describe_comparisons(report):
        yield from paper.wrapped(sentence, 0, style="quiet")
    yield from _render_measurements(
        report.measured if verbose else wording.select_tightest(report.measured), paper, verbose
    )


def _render_measurements(every: Sequence[Measured], paper: Terminal, verbose: bool) -> Iterator[str]:
    """All where they are few or asked for, else those that came nearest to their bounds."""
    whole = verbose or len(every) <= MAX_LISTED
    for figure in every if whole else sorted(every, key=wording.bound_usage, reverse=True)[:MAX_LISTED]:
        case = f", {figure.case}" if verbose else ""
        yield from paper.wrapped(f"{wording.describe_measurement(figure)}{case}", 2, style="quiet")
    if not whole:
        more = pluralize(len(every) - MAX_LISTED, "more figure")
        yield from paper.wrapped(f"and {more}; `-v` shows all", 2, style="quiet")


def _render_notes(report: Report, paper: Terminal) -> Iterator[str]:
    for remark in report.remarks:
        yield from paper.wrapped(remark, 0)
    yield from [""] if report.remarks else []
    yield from _render_gaps("undecided", report.undecided, report, paper)
    yield from _render_gaps("skipped", report.skipped, report, paper)
    accepted = wording.list_ignored_findings(report)
    if accepted:
        yield paper.ink("ignored", "heading")
        for finding in accepted:
            said = f"{finding.rule} in {truncate(wording.finding_subject(finding))}: {finding.ignored}"
            yield from paper.wrapped(said, 2)
        yield ""


def _render_gaps(title: str, items: Sequence[NotDone], report: Report, paper: Terminal) -> Iterator[str]:
    if not items:
        return
    yield paper.ink(title, "heading")
    for gap in wording.merge_gaps(items):
        yield from paper.wrapped(gap.about(report), 2)
        yield from paper.wrapped(gap.reason, 4)
        if gap.hint:
            yield from paper.wrapped(gap.hint, 4, "hint: ")
    yield ""
