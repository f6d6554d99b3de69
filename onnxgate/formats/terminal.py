"""Colours, columns and line breaks of plain text."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from rich.cells import cell_len

from onnxgate.core.escape import escape_unprintable, neutralize_commands

STYLES = {
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
Styler = Callable[[str], str]


@dataclass(frozen=True)
class Column:
    """One column of a table; neighbours of the same `group` share its name above them."""

    group: str
    head: str
    cells: Sequence[str]

    @cached_property
    def width(self) -> int:
        """Width in columns of the terminal."""
        return max(cell_len(text) for text in (self.head, *self.cells))

    def fill(self, text: str, ink: Styler = str) -> str:
        """Return the text in its style, padded to the column's width."""
        return ink(text) + " " * (self.width - cell_len(text))


@dataclass(frozen=True, slots=True)
class Terminal:
    """A target of text; `width` 0 does not wrap lines, for files and logs."""

    color: bool = False
    width: int = 0

    def ink(self, text: str, style: str) -> str:
        """Escape a string and set it in a style."""
        shown = escape_unprintable(text)
        return f"\x1b[{STYLES[style]}m{shown}\x1b[0m" if self.color and style in STYLES and shown else shown

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
        for number, block in enumerate(self._blocks(_widen_groups(columns, gutter), gutter)):
            yield from [""] if number else []
            if any(column.group for column in columns):
                yield self.ink(_render_group_names(block, gutter).rstrip(), "quiet")
            yield self.ink(_join_cells([column.fill(column.head) for column in block], gutter), "quiet")
            for row in range(len(columns[0].cells)):
                yield _join_cells([column.fill(column.cells[row], self._styled(styles)) for column in block], gutter)

    def _styled(self, styles: Mapping[str, str]) -> Styler:
        return lambda text: self.ink(text, styles.get(text, ""))

    def _blocks(self, columns: Sequence[Column], gutter: int) -> Iterator[list[Column]]:
        block = [columns[0]]
        for column in columns[1:]:
            wanted = sum(member.width + gutter for member in (*block, column)) - gutter
            if self.width and wanted > self.width and len(block) > 1:
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


def _join_cells(parts: Sequence[str], gutter: int) -> str:
    return (" " * gutter).join(parts).rstrip()


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
