"""A difference as Markdown, as GitHub renders it: a sentence, and below it a nested list."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.formats.diff_lines import Line
from onnxgate.formats.diff_outline import MOST, headline, sections
from onnxgate.formats.escape import code, neutral, prose
from onnxgate.formats.phrases import LONG, short
from onnxgate.model.difference import Difference

SIGNS = {"+": "➕ ", "-": "➖ ", "~": "✏️ ", "": ""}


def format(found: Difference, *, verbose: bool = False) -> str:
    """A heading is left to whoever has a page for it. With `verbose`, lists are whole."""
    names = " → ".join(code(short(side.name)) for side in (found.old, found.new))
    lines = [f"{names}: **{prose(short(headline(found), LONG))}**"]
    if found.verdict != "identical":
        for section in sections(found, most=0 if verbose else MOST):
            summary = f": {prose(section.summary)}" if section.summary else ""
            lines += ["", f"**{section.title.capitalize()}**{summary}", ""]
            for line in section.lines:
                lines += _line(line, 0)
    return "\n".join(neutral(line) for line in lines) + "\n"


def _line(line: Line, depth: int) -> Iterator[str]:
    yield f"{'  ' * depth}- {SIGNS[line.sign]}{prose(line.text)}"
    for child in line.children:
        yield from _line(child, depth + 1)
