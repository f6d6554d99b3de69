"""A difference as a person reads it in a terminal or a log: a sentence, and below it a tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onnxgate.core.escape import escape_markdown, markdown_code, neutralize_commands
from onnxgate.core.report_json import build_schema, encode_json
from onnxgate.core.text import LONG_LIMIT, truncate
from onnxgate.formats.diff_outline import MAX_LINES, OutlineLine, list_sections, render_headline
from onnxgate.formats.terminal import Terminal
from onnxgate.model.diff.result import Difference

SIGN_STYLES = {"+": "pass", "-": "fail", "~": "warning"}


def format_text(
    found: Difference, *, color: bool = False, width: int = 0, quiet: bool = False, verbose: bool = False
) -> str:
    """The difference. `width` is the terminal's, 0 where lines are left whole; `quiet` leaves the sentence alone.

    With `verbose`, lists are whole.
    """
    paper = Terminal(color, width)
    lines = [
        *paper.wrapped(
            f"{truncate(found.old.name)} -> {truncate(found.new.name)}: {truncate(render_headline(found), LONG_LIMIT)}",
            0,
        )
    ]
    if not quiet and found.verdict != "identical":
        for section in list_sections(found, most=0 if verbose else MAX_LINES):
            lines += ["", paper.ink(section.title, "heading") + (f": {section.summary}" if section.summary else "")]
            for line in section.lines:
                lines += _render_text_line(line, paper, 2)
    return "\n".join(neutralize_commands(line) for line in [*lines, ""])


def _render_text_line(line: OutlineLine, paper: Terminal, indent: int) -> Iterator[str]:
    sign = f"{line.sign} " if line.sign else ""
    first, *rest = paper.wrapped(line.text, indent + len(sign))
    yield (
        " " * indent
        + (f"{paper.ink(line.sign, SIGN_STYLES[line.sign])} " if sign else "")
        + first[indent + len(sign) :]
    )
    yield from rest
    for child in line.children:
        yield from _render_text_line(child, paper, indent + 2 + (2 if sign else 0))


SIGN_MARKS = {"+": "➕ ", "-": "➖ ", "~": "✏️ ", "": ""}


def format_markdown(found: Difference, *, verbose: bool = False) -> str:
    """A heading is left to whoever has a page for it. With `verbose`, lists are whole."""
    names = " → ".join(markdown_code(truncate(side.name)) for side in (found.old, found.new))
    lines = [f"{names}: **{escape_markdown(truncate(render_headline(found), LONG_LIMIT))}**"]
    if found.verdict != "identical":
        for section in list_sections(found, most=0 if verbose else MAX_LINES):
            summary = f": {escape_markdown(section.summary)}" if section.summary else ""
            lines += ["", f"**{section.title.capitalize()}**{summary}", ""]
            for line in section.lines:
                lines += _render_markdown_line(line, 0)
    return "\n".join(neutralize_commands(line) for line in lines) + "\n"


def _render_markdown_line(line: OutlineLine, depth: int) -> Iterator[str]:
    yield f"{'  ' * depth}- {SIGN_MARKS[line.sign]}{escape_markdown(line.text)}"
    for child in line.children:
        yield from _render_markdown_line(child, depth + 1)


def format_json(found: Difference) -> str:
    """Indented JSON with a newline at its end."""
    return encode_json(found)


def parse_json(text: str | bytes) -> Difference:
    """The difference that `format` wrote."""
    import msgspec

    return msgspec.json.decode(text, type=Difference)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a difference."""
    return build_schema(Difference, "A difference of two models by onnxgate")
