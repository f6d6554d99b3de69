"""A difference as a person reads it in a terminal or a log: a sentence, and below it a tree."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.formats.diff_lines import Line
from onnxgate.formats.diff_outline import MOST, headline, sections
from onnxgate.formats.escape import neutral
from onnxgate.formats.paper import Paper
from onnxgate.formats.phrases import LONG, short
from onnxgate.model.difference import Difference

STYLES = {"+": "pass", "-": "fail", "~": "warning"}


def format(
    found: Difference, *, color: bool = False, width: int = 0, quiet: bool = False, verbose: bool = False
) -> str:
    """The difference. `width` is the terminal's, 0 where lines are left whole; `quiet` leaves the sentence alone.

    With `verbose`, lists are whole.
    """
    paper = Paper(color, width)
    lines = [*paper.wrapped(f"{short(found.old.name)} -> {short(found.new.name)}: {short(headline(found), LONG)}", 0)]
    if not quiet and found.verdict != "identical":
        for section in sections(found, most=0 if verbose else MOST):
            lines += ["", paper.ink(section.title, "heading") + (f": {section.summary}" if section.summary else "")]
            for line in section.lines:
                lines += _line(line, paper, 2)
    return "\n".join(neutral(line) for line in [*lines, ""])


def _line(line: Line, paper: Paper, indent: int) -> Iterator[str]:
    sign = f"{line.sign} " if line.sign else ""
    first, *rest = paper.wrapped(line.text, indent + len(sign))
    yield " " * indent + (f"{paper.ink(line.sign, STYLES[line.sign])} " if sign else "") + first[indent + len(sign) :]
    yield from rest
    for child in line.children:
        yield from _line(child, paper, indent + 2 + (2 if sign else 0))
