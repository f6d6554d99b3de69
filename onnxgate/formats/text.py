"""Plain text for terminals and logs: colours, columns and line breaks, and the report."""

from __future__ import annotations

import itertools
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import msgspec
from msgspec.structs import replace
from rich.cells import cell_len

from onnxgate.core.escape import escape_unprintable, neutralize_commands, quote_name
from onnxgate.core.report import Cell, NotDone, Report
from onnxgate.core.text import pluralize, truncate
from onnxgate.formats import wording

INK_CODES = {
    "error": "1;31",
    "warning": "1;33",
    "note": "1;36",
    "pass": "32",
    "fail": "1;31",
    "predicted": "36",
    "undecided": "35",
    "heading": "1",
    "quiet": "2",
    "loads": "30;42",
    "refused": "1;97;41",
    "unknown": "30;47",
}
GUTTER = 2
HANGING_INDENT = 3
"""Additional indent of the further lines of a paragraph; no line with a prefix of onnxgate begins there."""
LABELS = (
    *("fix:", "node:", "hint:", "pass:", "fail:", "undecided:", "preview:", "after the upgrade:"),
    "to accept it, paste into the config:",
)
CHANGE_TITLES = ("changed since ", "no model changed since ")
LEVEL_PREFIXES = ("error ", "warning ", "note ")
SECTION_TITLES = ("undecided", "skipped", "ignored", "replay")
"""Beginnings that are reserved for onnxgate's own lines: of any line, of lines without indent, of lines indented by
two, and complete titles. Strings from models that begin so are escaped."""


class Column(msgspec.Struct, frozen=True, dict=True):
    """One column of a table; neighbours of the same `group` share its name above them."""

    group: str
    head: str
    cells: Sequence[str]

    @cached_property
    def width(self) -> int:
        """Width in columns of the terminal."""
        return max(cell_len(text) for text in (self.head, *self.cells))

    def fill(self, text: str, inked: str | None = None) -> str:
        """Return the text, or the coloured form of it, padded to the column's width."""
        return (text if inked is None else inked) + " " * (self.width - cell_len(text))


class Terminal(msgspec.Struct, frozen=True):
    """A target of text; `width` 0 does not wrap lines, for files and logs."""

    color: bool = False
    width: int = 0

    def ink(self, text: str, style: str) -> str:
        """Escape a string and set it in a style."""
        shown = escape_unprintable(text)
        return f"\x1b[{INK_CODES[style]}m{shown}\x1b[0m" if self.color and style in INK_CODES and shown else shown

    def wrapped(self, text: str, indent: int, label: str = "", style: str = "", *, own: bool = False) -> Iterator[str]:
        """Yield the lines of a paragraph after its label; words are not broken. `own` permits reserved beginnings."""
        hang = " " * (indent + (len(label) or HANGING_INDENT))
        shown = neutralize_commands(escape_unprintable(text))
        lines = [shown if label or own else _escape_reserved_prefix(shown.lstrip(), indent)]
        if self.width:
            width = max(self.width - len(hang), 20)
            wrapped = textwrap.wrap(lines[0], width, break_long_words=False, break_on_hyphens=False)
            lines = list(map(neutralize_commands, wrapped)) or [""]
        yield f"{' ' * indent}{self.ink(label, 'quiet')}{self.ink(lines[0], style)}"
        yield from (f"{hang}{self.ink(line, style)}" for line in lines[1:])

    def table(self, columns: Sequence[Column], styles: Mapping[str, str], *, gutter: int = GUTTER) -> Iterator[str]:
        """Yield the rows of a table; one wider than the terminal is cut into blocks that repeat the first column."""
        space = " " * gutter
        for number, block in enumerate(self._blocks(_widen_groups(columns, gutter), gutter)):
            yield from [""] if number else []
            if any(column.group for column in columns):
                yield self.ink(_render_group_names(block, gutter).rstrip(), "quiet")
            yield self.ink(space.join(column.fill(column.head) for column in block).rstrip(), "quiet")
            for row in zip(*(column.cells for column in block), strict=True):
                cells = zip(block, row, strict=True)
                yield space.join(
                    column.fill(cell, self.ink(cell, styles.get(cell, ""))) for column, cell in cells
                ).rstrip()

    def _blocks(self, columns: Sequence[Column], gutter: int) -> Iterator[list[Column]]:
        block = [columns[0]]
        for column in columns[1:]:
            needed = sum(member.width + gutter for member in (*block, column)) - gutter
            if self.width and needed > self.width and len(block) > 1:
                yield block
                block = [columns[0]]
            block.append(column)
        yield block


def _escape_reserved_prefix(text: str, indent: int) -> str:
    """Escape the beginning of a text that could be mistaken for a verdict, a finding or a title."""
    if text.strip() in SECTION_TITLES:
        return f"`{text}`"
    reserved = (*LABELS, *{0: CHANGE_TITLES, 2: LEVEL_PREFIXES}.get(indent, ()))
    label = next((prefix for prefix in reserved if text.startswith(prefix)), "")
    return f"{label[:-1]}\\x{ord(label[-1]):02x}{text[len(label) :]}" if label else text


def _widen_groups(columns: Sequence[Column], gutter: int) -> list[Column]:
    """Widen the last column of each group to fit the group's name, so that the next one fits too."""
    wide: list[Column] = []
    for group, members in itertools.groupby(columns, key=lambda column: column.group):
        *first, last = members
        width = cell_len(group) - sum(column.width + gutter for column in first)
        head = last.head.ljust(width) if last.width < width else last.head
        wide += [*first, replace(last, head=head)]
    return wide


def _render_group_names(block: Sequence[Column], gutter: int) -> str:
    """Return the line above the heads: each group's name over its first column."""
    line, end, last = "", 0, ""
    for column in block:
        if column.group and column.group != last:
            line = line.ljust(end) if not line or cell_len(line) < end else f"{line} "
            line += column.group
        last = column.group
        end += column.width + gutter
    return line


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
    changes = wording.sort_changes(report)
    for change in changes[:MAX_LISTED]:
        yield from paper.wrapped(f"{quote_name(truncate(change.model))} {wording.describe_change(change)}", 2)
        for difference in wording.list_differences(change, MAX_DIFFERENCES):
            yield from paper.wrapped(difference, 4)
    if len(changes) > MAX_LISTED:
        yield f"  and {pluralize(len(changes) - MAX_LISTED, 'more model')}"
    yield ""


def _render_findings(report: Report, paper: Terminal, snippets: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the findings by subject; the lines to paste into the config are never wrapped."""
    margin = " " * BODY_COLUMN
    for subject, findings in wording.group_by_subject(wording.list_active_findings(report)):
        yield paper.ink(quote_name(truncate(subject)), "heading")
        for finding in findings:
            level = paper.ink(finding.level, finding.level) + " " * (7 - len(finding.level))
            place = paper.ink(truncate(wording.format_place(finding.place)), "quiet")
            yield f"  {level}  {paper.ink(finding.rule, 'heading')}  {place}"
            yield from paper.wrapped(wording.render_message(finding), BODY_COLUMN)
            if finding.node and finding.node not in finding.message:
                yield from paper.wrapped(truncate(finding.node), BODY_COLUMN, "node: ")
            if finding.fix:
                yield from paper.wrapped(finding.fix, BODY_COLUMN, "fix: ")
            if snippet := snippets.get(finding.fingerprint):
                yield f"{margin}{paper.ink('to accept it, paste into the config:', 'quiet')}"
                yield from (f"{margin}{escape_unprintable(line)}" for line in snippet)
        yield ""


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
    """Yield the table, the meaning of its words, and how near outputs came to their bounds."""
    runtimes = wording.list_runtimes(report)
    if not runtimes or not report.cells:
        return
    rows, alike = _select_rows(report)
    columns = []
    for runtime in runtimes:
        engine, _, release = escape_unprintable(runtime).rpartition(" ")
        states = [row[runtime].state if runtime in row else "not asked" for row in rows.values()]
        columns.append(Column(engine, release, [STATE_WORDS.get(state, state) for state in states]))
    if rows:
        models = Column("", "", [quote_name(truncate(model)) for model in rows])
        yield from paper.table([models, *columns], STYLES)
    yield from (
        f"{pluralize(alike[state], 'more model')}: {UNIFORM_ROWS[state]}" for state in UNIFORM_ROWS if alike[state]
    )
    yield ""
    shown = {*alike, *(word for column in columns for word in column.cells)}
    lines = [paper.ink(meaning, "quiet") for word, meaning in LEGEND.items() if word in shown]
    lines += _render_comparisons(report, paper, verbose)
    yield from [*lines, ""] if lines else []


def _select_rows(report: Report) -> tuple[CellTable, Counter[str]]:
    """Return the models to list with their cells, and the number of the others by their uniform state."""
    matrix = wording.cells_by_model(report)
    if len(matrix) <= MAX_LISTED:
        return matrix, Counter()
    listed: CellTable = {}
    alike: Counter[str] = Counter()
    for model, row in matrix.items():
        states = {cell.state for cell in row.values()}
        state = states.pop() if len(states) == 1 else ""
        if state in UNIFORM_ROWS:
            alike[state] += 1
        else:
            listed[model] = row
    return listed, alike


def _render_comparisons(report: Report, paper: Terminal, verbose: bool) -> Iterator[str]:
    """Yield the comparisons, and the figure of each model nearest to its bound; with `verbose` all figures."""
    for sentence in wording.describe_comparisons(report):
        yield from paper.wrapped(sentence, 0, style="quiet")
    figures = list(report.measured) if verbose else wording.select_tightest(report.measured)
    left_out = 0 if verbose else max(len(figures) - MAX_LISTED, 0)
    for figure in sorted(figures, key=wording.bound_usage, reverse=True)[:MAX_LISTED] if left_out else figures:
        case = f", {figure.case}" if verbose else ""
        yield from paper.wrapped(f"{wording.describe_measurement(figure)}{case}", 2, style="quiet")
    if left_out:
        yield from paper.wrapped(f"and {pluralize(left_out, 'more figure')}; `-v` shows all", 2, style="quiet")


def _render_notes(report: Report, paper: Terminal) -> Iterator[str]:
    """Yield remarks, undecided and skipped checks, and ignored findings."""
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
    """Yield checks that were not done, each reason once."""
    if not items:
        return
    yield paper.ink(title, "heading")
    for gap in wording.merge_gaps(items):
        yield from paper.wrapped(gap.about(report), 2)
        yield from paper.wrapped(gap.reason, 4)
        if gap.hint:
            yield from paper.wrapped(gap.hint, 4, "hint: ")
    yield ""
