"""Write the report as plain text for terminals and logs, and lay out all other plain text."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

import msgspec
from msgspec.structs import replace
from rich.cells import cell_len

from onnxgate.core.escape import escape_log_line, escape_unprintable, neutralize_commands, quote_name
from onnxgate.core.findings import UNDECIDED_RULE, runtime_sort_key
from onnxgate.core.report import Cell, CellState, NotDone, Report
from onnxgate.core.text import pluralize, truncate
from onnxgate.formats import wording
from onnxgate.formats.table_columns import RuntimeColumn, join_columns, list_words

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
}
GUTTER = 2
HANGING_INDENT = 3
"""Additional indent of the second and later lines of a wrapped paragraph, in columns.

Lines with a reserved beginning (see `LABELS`) never have this indent.
"""
LABELS = (
    *("fix:", "node:", "hint:", "pass:", "fail:", "undecided:", "preview:", "after the upgrade:"),
    *("pass (", "fail (", "undecided ("),
    "to accept this finding, paste this entry into the config:",
)
CHANGE_TITLES = ("changed since ", "no model changed since ")
LEVEL_PREFIXES = ("error ", "warning ", "note ")
ACCEPTANCE = "to accept an undecided check, use the `[[ignore]]` entry that `onnxgate check --show-ignores` prints"
SECTION_TITLES = ("undecided", "skipped", "ignored", "to reproduce", "notes", "runtimes", "runs")
"""Texts that only lines written by onnxgate may contain; similar text from models is escaped.

`LABELS` are beginnings of any line, `CHANGE_TITLES` of lines without indent, and `LEVEL_PREFIXES` of lines that are
indented by two spaces. `SECTION_TITLES` are complete lines.
"""


class Column(msgspec.Struct, frozen=True, dict=True):
    """A column of a plain-text table. The name of its `group` is shown above adjacent columns of the same group."""

    group: str
    head: str
    cells: Sequence[str]

    @cached_property
    def width(self) -> int:
        """Width of the column, in characters of the terminal."""
        return max(cell_len(text) for text in (self.head, *self.cells))

    def fill(self, text: str, inked: str | None = None) -> str:
        """Return `text` padded with spaces to the width of the column, or `inked`, its colored form, if given."""
        return (text if inked is None else inked) + " " * (self.width - cell_len(text))


class Terminal(msgspec.Struct, frozen=True):
    """Settings of plain-text output: whether it has colors, and the width at which lines are wrapped (0: never)."""

    color: bool = False
    width: int = 0

    def ink(self, text: str, style: str) -> str:
        """Return the text with unprintable characters escaped, and colored if the terminal supports colors."""
        shown = escape_unprintable(text)
        return f"\x1b[{INK_CODES[style]}m{shown}\x1b[0m" if self.color and style in INK_CODES and shown else shown

    def wrapped(
        self, text: str, indent: int, label: str = "", style: str = "", *, label_style: str = "quiet", own: bool = False
    ) -> Iterator[str]:
        """Yield the wrapped lines of a paragraph, the first of which starts with its label. Words are not broken.

        `own` means that the text was written by onnxgate and may begin with reserved text.
        """
        hang = " " * (indent + (len(label) or HANGING_INDENT))
        shown = neutralize_commands(escape_unprintable(text))
        lines = [shown if label or own else _escape_reserved_prefix(shown.lstrip(), indent)]
        if self.width:
            width = max(self.width - len(hang), 20)
            wrapped = textwrap.wrap(
                _pad_wide(_join_code(lines[0], width)), width, break_long_words=False, break_on_hyphens=False
            )
            restored = (line.replace(CODE_SPACE, " ").replace(WIDE_FILL, "") for line in wrapped)
            lines = [neutralize_commands(line) for line in restored] or [""]
        yield f"{' ' * indent}{self.ink(label, label_style)}{self.ink(lines[0], style)}"
        yield from (f"{hang}{self.ink(line, style)}" for line in lines[1:])

    def table(self, columns: Sequence[Column], styles: Mapping[str, str], *, gutter: int = GUTTER) -> Iterator[str]:
        """Yield the lines of a table. A table that is too wide for the terminal is split into several tables.

        Each of them repeats the first column.
        """
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


CODE_SPACE = "\0"
"""Character used in place of a space at which a line must not be wrapped. It does not occur in escaped text."""
WIDE_FILL = "\1"
"""Character added to characters that are two columns wide, since `textwrap` counts characters, not columns."""


def _join_code(text: str, width: int) -> str:
    """Replace spaces in durations and between backticks with `CODE_SPACE`, so that they are not wrapped if they fit."""
    return re.sub(
        r"[^\s`]*`[^`]*`[^\s`]*|[0-9] s\)",
        lambda code: code[0].replace(" ", CODE_SPACE) if len(code[0]) <= width else code[0],
        text,
    )


def _pad_wide(text: str) -> str:
    """Add `WIDE_FILL` to each wide character, so that the length of a text is its width in columns."""
    if text.isascii():
        return text
    return "".join(character + WIDE_FILL * (cell_len(character) - 1) for character in text)


def _escape_reserved_prefix(text: str, indent: int) -> str:
    """Escape the beginning of a line if it looks like a verdict, a finding or a title written by onnxgate."""
    if text.strip() in SECTION_TITLES:
        return f"`{text}`"
    reserved = (*LABELS, *{0: CHANGE_TITLES, 2: LEVEL_PREFIXES}.get(indent, ()))
    label = next((prefix for prefix in reserved if text.startswith(prefix)), "")
    return f"{label[:-1]}\\x{ord(label[-1]):02x}{text[len(label) :]}" if label else text


def _widen_groups(columns: Sequence[Column], gutter: int) -> list[Column]:
    """Return the columns, with the last column of each group widened if the group's name needs more space."""
    wide: list[Column] = []
    for group, members in itertools.groupby(columns, key=lambda column: column.group):
        *first, last = members
        width = cell_len(group) - sum(column.width + gutter for column in first)
        head = last.head.ljust(width) if last.width < width else last.head
        wide += [*first, replace(last, head=head)]
    return wide


def _render_group_names(block: Sequence[Column], gutter: int) -> str:
    line, end, last = "", 0, ""
    for column in block:
        if column.group and column.group != last:
            line = line.ljust(end) if not line or cell_len(line) < end else f"{line} "
            line += column.group
        last = column.group
        end += column.width + gutter
    return line


CellTable = dict[str, dict[str, Cell]]
STATE_WORDS = wording.STATE_WORDS
STYLES = {"ok": "pass", "likely": "predicted", "warn": "warning", "FAIL": "fail", "?": "undecided", "–": "quiet"}
BODY_COLUMN = 11
"""Number of characters before the text of a finding, which include its level."""
STORED_INPUTS_PLACEHOLDER = Path("<cache>/inputs")
"""Text used in place of the folder of stored inputs in reports that may be read on another machine."""
MAX_DIFFERENCES = 6
"""Maximum number of differences shown for a changed model; further differences are only counted."""
MAX_LISTED = 20
"""Maximum number of models for which the table has a row for each model.

If there are more, models that passed, or are predicted to pass, on all their runtimes are only counted.
"""
UNIFORM_STATES: tuple[CellState, ...] = ("pass", "predicted")
"""In a large table, models that have the same one of these states on all their runtimes are only counted."""


def format(
    report: Report,
    *,
    color: bool = False,
    width: int = 0,
    quiet: bool = False,
    verbosity: int = 0,
    inputs: Path = STORED_INPUTS_PLACEHOLDER,
    snippets: Mapping[str, Sequence[str]] | None = None,
    elapsed_s: float | None = None,
) -> str:
    """Render the report as plain text or, with `quiet`, only its last line.

    `width` is the terminal width; with 0, lines are not wrapped.
    `inputs` is the folder in which inputs are stored. `snippets` maps the fingerprint of a finding to the config lines
    that accept it.
    """
    paper = Terminal(color, width)
    lines: list[str] = []
    if not quiet:
        for section in (
            _render_changes(report, paper),
            _render_findings(report, paper, snippets or {}),
            _render_replays(report, inputs, paper),
            _render_matrix(report, paper),
            _render_runtimes(report, paper) if verbosity else (),
            _render_runs(report, paper, verbosity) if verbosity else (),
            _render_notes(report, paper, snippets or {}),
        ):
            lines += section
    lines += [*_render_verdict(report, paper, elapsed_s), ""]
    return "\n".join(neutralize_commands(line) for line in lines)


def render_verdict(report: Report, *, color: bool = False) -> str:
    """Render the line of the report that states the verdict."""
    return "\n".join(_render_verdict(report, Terminal(color)))


def _render_verdict(report: Report, paper: Terminal, elapsed_s: float | None = None) -> Iterator[str]:
    first, *others = paper.wrapped(f"{wording.render_verdict(report)}{format_elapsed(elapsed_s)}", 0, own=True)
    yield paper.ink(report.verdict, report.verdict) + first.removeprefix(report.verdict)
    yield from others


def format_elapsed(elapsed_s: float | None) -> str:
    """Return a duration in seconds as text, such as ` (2.1 s)`; "" for None."""
    if elapsed_s is None:
        return ""
    minutes, seconds = divmod(round(elapsed_s), 60)
    return f" ({minutes} min {seconds} s)" if minutes else f" ({elapsed_s:.1f} s)"


def _render_changes(report: Report, paper: Terminal) -> Iterator[str]:
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
    """Yield the findings, grouped by model or file. Lines that users paste into the config are not wrapped."""
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
            yield from _render_snippet("finding", snippets.get(finding.fingerprint, ()), BODY_COLUMN, paper)
        yield ""


def _render_snippet(what: str, snippet: Sequence[str], column: int, paper: Terminal) -> Iterator[str]:
    """Yield the config lines that accept a finding or an undecided check."""
    margin = " " * column
    if snippet:
        yield f"{margin}{paper.ink(f'to accept this {what}, paste this entry into the config:', 'quiet')}"
        yield from (f"{margin}{escape_unprintable(line)}" for line in snippet)


def _render_replays(report: Report, folder: Path, paper: Terminal) -> Iterator[str]:
    """Yield the commands that reproduce findings. They are not wrapped, so that they can be copied."""
    if not report.replays:
        return
    yield paper.ink("to reproduce", "heading")
    for replay in report.replays:
        yield f"  {escape_unprintable(replay.command)}"
        for name in replay.inputs:
            yield paper.ink(f"    inputs: {escape_unprintable(str(folder / name))}", "quiet")
    yield ""


def _render_matrix(report: Report, paper: Terminal) -> Iterator[str]:
    runtimes = wording.list_runtimes(report)
    if not runtimes or not report.cells:
        return
    rows, alike = _select_rows(report)
    cells = {
        runtime: [STATE_WORDS[row[runtime].state if runtime in row else "not selected"] for row in rows.values()]
        for runtime in runtimes
    }
    columns = join_columns(runtimes, cells)
    yield from render_table(list(rows), columns, paper)
    for state, count in alike.items():
        yield f"{pluralize(count, 'more model')}: {STATE_WORDS[state]} on all required runtimes"
    yield ""
    yield from render_legend({*list_words(columns), *(STATE_WORDS[state] for state in alike)}, paper)


def render_table(models: Sequence[str], columns: Sequence[RuntimeColumn], paper: Terminal) -> Iterator[str]:
    """Yield the lines of a table of models by runtime.

    If the table is too wide for the terminal, its heads omit the major version, such as `18–21` for `1.18–1.21`.
    """
    if not models:
        return
    names = [escape_log_line(quote_name(truncate(model))) for model in models]
    first = Column("", "", _shorten_names(names, paper.width // 2) if paper.width else names)
    table = [first, *(_text_column(it.engine, it.label, it.cells) for it in columns)]
    if paper.width and sum(column.width + GUTTER for column in table) - GUTTER > paper.width:
        table = [first, *(_text_column(f"{it.engine} {it.major}".rstrip(), it.short_label, it.cells) for it in columns)]
    yield from paper.table(table, STYLES)


def _shorten_names(names: Sequence[str], width: int) -> list[str]:
    """Return the ends of names that are wider than `width`, or all names unchanged if the ends are not unique."""
    shortened = [name if cell_len(name) <= width else f"…{_last_columns(name, width - 1)}" for name in names]
    return shortened if len(set(shortened)) == len(set(names)) else list(names)


def _last_columns(path: str, width: int) -> str:
    """Return the end of a path that fits into this many columns, beginning with a folder if possible."""
    end = next(path[start:] for start in range(len(path) + 1) if cell_len(path[start:]) <= width)
    return end[max(end.find("/"), 0) :]


def _text_column(group: str, label: str, cells: Sequence[str]) -> Column:
    return Column(escape_unprintable(group), escape_unprintable(label), cells)


def render_legend(words: set[str], paper: Terminal) -> Iterator[str]:
    """Yield the legend of a table of results, which explains the words in its cells."""
    meanings = [f"{word}: {meaning}" for word, meaning in wording.WORD_MEANINGS.items() if word in words]
    if meanings:
        yield from (*paper.wrapped("; ".join(meanings), 0, style="quiet"), "")


def _select_rows(report: Report) -> tuple[CellTable, dict[CellState, int]]:
    matrix = wording.cells_by_model(report)
    if len(matrix) <= MAX_LISTED:
        return matrix, {}
    states = {model: {cell.state for cell in row.values()} for model, row in matrix.items()}
    listed = {model: row for model, row in matrix.items() if states[model] not in ({state} for state in UNIFORM_STATES)}
    counts = {state: list(states.values()).count({state}) for state in UNIFORM_STATES}
    return listed, {state: count for state, count in counts.items() if count}


def _render_runtimes(report: Report, paper: Terminal) -> Iterator[str]:
    if not report.runtimes:
        return
    yield paper.ink("runtimes", "heading")
    for runtime in sorted(report.runtimes, key=lambda it: runtime_sort_key(f"{it.engine} {it.version}")):
        python = f"Python {runtime.python}" if runtime.python else "your own environment"
        parts = (python, ", ".join(runtime.providers), f"target `{runtime.target}`")
        yield from paper.wrapped(f"{runtime.engine} {runtime.version}: {'; '.join(filter(None, parts))}", 2)
    yield ""


def _render_runs(report: Report, paper: Terminal, verbosity: int) -> Iterator[str]:
    sentences = wording.describe_runs(report)
    measurements = wording.describe_measurements(report.measured) if verbosity > 1 else []
    if not sentences and not measurements:
        return
    yield paper.ink("runs", "heading")
    for sentence in sentences:
        yield from paper.wrapped(sentence, 2)
    for measurement in measurements:
        yield from paper.wrapped(measurement, 2, style="quiet")
    yield ""


def _render_notes(report: Report, paper: Terminal, snippets: Mapping[str, Sequence[str]]) -> Iterator[str]:
    remarks = (*report.remarks, *wording.describe_missing_sources(report))
    yield from [paper.ink("notes", "heading")] if remarks else []
    for remark in remarks:
        yield from paper.wrapped(remark, 2)
    yield from [""] if remarks else []
    yield from _render_gaps("undecided", report.undecided, report, paper, snippets)
    yield from _render_gaps("skipped", report.skipped, report, paper)
    accepted = wording.list_ignored_findings(report)
    if accepted:
        yield paper.ink("ignored", "heading")
        for finding in accepted:
            new = "new: " if finding.newly_ignored else ""
            line = f"{new}{finding.rule} in {truncate(wording.finding_subject(finding))}: {finding.ignored}"
            yield from paper.wrapped(line, 2)
            if finding.rule == UNDECIDED_RULE:
                yield from paper.wrapped(wording.render_message(finding), 4, "not checked: ")
        yield ""


def _render_gaps(
    title: str,
    items: Sequence[NotDone],
    report: Report,
    paper: Terminal,
    snippets: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Iterator[str]:
    if not items:
        return
    yield paper.ink(title, "heading")
    for gap in wording.merge_gaps(items):
        yield from paper.wrapped(gap.about(report), 2)
        reason, hint = gap.explain(report)
        yield from paper.wrapped(reason, 4)
        if hint:
            yield from paper.wrapped(hint, 4, "hint: ")
        for fingerprint in dict.fromkeys(item.fingerprint for item in items if item.reason == gap.reason):
            yield from _render_snippet("undecided check", snippets.get(fingerprint, ()), 4, paper)
    if title == "undecided" and not snippets and any(item.fingerprint for item in items):
        yield from paper.wrapped(ACCEPTANCE, 2, style="quiet")
    yield ""
