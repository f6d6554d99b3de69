"""What a page of plain text is written on: colours, columns and line breaks."""

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
"""By how much more the further lines of a paragraph are indented: no line of ours begins there."""
LABELS = (
    *("fix:", "node:", "hint:", "pass:", "fail:", "undecided:", "preview:", "after the upgrade:"),
    "to accept it, paste into the config:",
)
CHANGE_TITLES = ("changed since ", "no model changed since ")
LEVEL_PREFIXES = ("error ", "warning ", "note ")
SECTION_TITLES = ("undecided", "skipped", "ignored", "replay")
"""With which lines of ours begin, and no line of others: any; those that are not indented, as no finding is that
says since when a model changed; those that are indented by two; and titles."""
Styler = Callable[[str], str]


@dataclass(frozen=True)
class Column:
    """One column of a table; neighbours of the same `group` stand below one name of it."""

    group: str
    head: str
    cells: Sequence[str]

    @cached_property
    def width(self) -> int:
        """How many columns of a terminal it takes."""
        return max(cell_len(text) for text in (self.head, *self.cells))

    def fill(self, text: str, ink: Styler = str) -> str:
        """The text in its style, padded to the column's width."""
        return ink(text) + " " * (self.width - cell_len(text))


@dataclass(frozen=True, slots=True)
class Terminal:
    """`width` is that of the terminal; 0 leaves every line whole, as files and logs want it."""

    color: bool = False
    width: int = 0

    def ink(self, text: str, style: str) -> str:
        """A foreign or own string, made visible, in a style."""
        shown = escape_unprintable(text)
        return f"\x1b[{STYLES[style]}m{shown}\x1b[0m" if self.color and style in STYLES and shown else shown

    def wrapped(self, text: str, indent: int, label: str = "", style: str = "", *, own: bool = False) -> Iterator[str]:
        """A paragraph beside its label, which is quiet. Words are never broken. `own`: it may begin as our lines do."""
        hang = " " * (indent + (len(label) or HANGING_INDENT))
        shown = neutralize_commands(escape_unprintable(text))
        lines = [shown if label or own else _escape_reserved_prefix(shown.lstrip(), indent)]
        if self.width:
            room = max(self.width - len(hang), 20)
            wrapped = textwrap.wrap(lines[0], room, break_long_words=False, break_on_hyphens=False)
            lines = list(map(neutralize_commands, wrapped)) or [""]
        yield f"{' ' * indent}{self.ink(label, 'quiet')}{self.ink(lines[0], style)}"
        yield from (f"{hang}{self.ink(line, style)}" for line in lines[1:])

    def table(self, columns: Sequence[Column], styles: Mapping[str, str], *, gutter: int = GUTTER) -> Iterator[str]:
        """Columns side by side; what is too wide for the terminal is cut into blocks, the first column in each."""
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
            wanted = sum(each.width + gutter for each in (*block, column)) - gutter
            if self.width and wanted > self.width and len(block) > 1:
                yield block
                block = [columns[0]]
            block.append(column)
        yield block


def _escape_reserved_prefix(text: str, indent: int) -> str:
    """A text that is not taken for a verdict, a finding or a title."""
    if text.strip() in SECTION_TITLES:
        return f"`{text}`"
    known = (*LABELS, *{0: CHANGE_TITLES, 2: LEVEL_PREFIXES}.get(indent, ()))
    label = next((each for each in known if text.startswith(each)), "")
    return f"{label[:-1]}\\x{ord(label[-1]):02x}{text[len(label) :]}" if label else text


def _widen_groups(columns: Sequence[Column], gutter: int) -> list[Column]:
    """The columns, the last of each group as wide as the group's name needs, so that the next name is over its own."""
    wide: list[Column] = []
    for group, members in itertools.groupby(columns, key=lambda column: column.group):
        *first, last = members
        room = cell_len(group) - sum(column.width + gutter for column in first)
        head = last.head.ljust(room) if last.width < room else last.head
        wide += [*first, replace(last, head=head)]
    return wide


def _join_cells(parts: Sequence[str], gutter: int) -> str:
    return (" " * gutter).join(parts).rstrip()


def _render_group_names(block: Sequence[Column], gutter: int) -> str:
    """The line above the heads: each group's name over the first of its columns."""
    line, end, last = "", 0, ""
    for column in block:
        if column.group and column.group != last:
            line = line.ljust(end) if not line or cell_len(line) < end else f"{line} "
            line += column.group
        last = column.group
        end += column.width + gutter
    return line
