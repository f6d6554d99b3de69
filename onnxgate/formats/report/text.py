"""The report as text for a terminal or a log."""

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
    "not predicted": wording.NOT_PREDICTED,
    "-": "-: not asked for",
}
BODY_COLUMN = 11
"""Column of a finding's text, after its level."""
STORED_INPUTS_PLACEHOLDER = Path("<cache>/inputs")
"""Stands for the folder of stored inputs in reports that are read on another machine."""
MAX_DIFFERENCES = 6
"""Differences shown of a model since the baseline; the others are counted."""
MAX_LISTED = 20
"""With more models, those with equal cells are counted instead of listed; also the limit of figures."""
UNIFORM_ROWS = {"pass": "pass wherever promised", "predicted": "predicted wherever promised"}
"""State of all cells of models that are not listed -> words."""


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
    """Render the report. `width` is the terminal's, 0 does not wrap lines; with `quiet`, only the last line.

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
    """Render the last line."""
    word, colon, rest = wording.render_verdict(report).partition(":")
    return neutralize_commands(f"{Terminal(color).ink(word, report.verdict)}{colon}{escape_unprintable(rest)}")


def _render_changes(report: Report, paper: Terminal) -> Iterator[str]:
    """Yield the changes since the baseline: models with the worst findings, and the first differences of each."""
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
    """Yield the lines to paste into the config; they are never wrapped."""
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
    """Yield the commands that reproduce findings; they are never wrapped, so that they can be copied."""
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
    """Yield the meaning of the words in the table, and how near outputs came to their bounds."""
    lines = [paper.ink(meaning, "quiet") for word, meaning in LEGEND.items() if word in shown]
    lines += _render_comparisons(report, paper, verbose)
    yield from [*lines, ""] if lines else []


def _select_rows(report: Report) -> tuple[CellTable, Counter[str]]:
    """Return the models to list with their cells, and the number of the others by their uniform state."""
    matrix = wording.cells_by_model(report)
    if len(matrix) <= MAX_LISTED:
        return matrix, Counter()
    alike = {model: _uniform_state(row) for model, row in matrix.items()}
    listed = {model: row for model, row in matrix.items() if alike[model] not in UNIFORM_ROWS}
    return listed, Counter(state for state in alike.values() if state in UNIFORM_ROWS)


def _uniform_state(row: Mapping[str, Cell]) -> str:
    """Return the state of all cells; "" if they differ or there are none."""
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
    """Yield the comparisons; with `verbose` all figures, by default the one of each model nearest to its bound."""
    for sentence in wording.describe_comparisons(report):
        yield from paper.wrapped(sentence, 0, style="quiet")
    yield from _render_measurements(
        report.measured if verbose else wording.select_tightest(report.measured), paper, verbose
    )


def _render_measurements(every: Sequence[Measured], paper: Terminal, verbose: bool) -> Iterator[str]:
    """Yield all figures if they are few or with `verbose`, or else those nearest to their bounds."""
    complete = verbose or len(every) <= MAX_LISTED
    for figure in every if complete else sorted(every, key=wording.bound_usage, reverse=True)[:MAX_LISTED]:
        case = f", {figure.case}" if verbose else ""
        yield from paper.wrapped(f"{wording.describe_measurement(figure)}{case}", 2, style="quiet")
    if not complete:
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
            line = f"{finding.rule} in {truncate(wording.finding_subject(finding))}: {finding.ignored}"
            yield from paper.wrapped(line, 2)
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
