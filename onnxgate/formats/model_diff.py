"""A model difference as text, Markdown and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from onnxgate.core.escape import escape_markdown, markdown_code, neutralize_commands
from onnxgate.core.report_json import build_schema, encode_json
from onnxgate.core.text import LONG_LIMIT, truncate
from onnxgate.formats.diff_outline import MAX_LINES, OutlineLine, list_sections, render_headline
from onnxgate.formats.terminal import Terminal
from onnxgate.model.diff.result import Difference

SIGN_STYLES = {"+": "pass", "-": "fail", "~": "warning"}


def format_text(
    difference: Difference, *, color: bool = False, width: int = 0, quiet: bool = False, verbose: bool = False
) -> str:
    """Render the difference. `width` is the terminal's, 0 does not wrap lines; with `quiet`, only the sentence.

    With `verbose`, lists are complete.
    """
    paper = Terminal(color, width)
    names = f"{truncate(difference.old.name)} -> {truncate(difference.new.name)}"
    lines = list(paper.wrapped(f"{names}: {truncate(render_headline(difference), LONG_LIMIT)}", 0))
    if not quiet and difference.verdict != "identical":
        for section in list_sections(difference, most=0 if verbose else MAX_LINES):
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


def format_markdown(difference: Difference, *, verbose: bool = False) -> str:
    """Render the difference without a heading. With `verbose`, lists are complete."""
    names = " → ".join(markdown_code(truncate(side.name)) for side in (difference.old, difference.new))
    lines = [f"{names}: **{escape_markdown(truncate(render_headline(difference), LONG_LIMIT))}**"]
    if difference.verdict != "identical":
        for section in list_sections(difference, most=0 if verbose else MAX_LINES):
            summary = f": {escape_markdown(section.summary)}" if section.summary else ""
            lines += ["", f"**{section.title.capitalize()}**{summary}", ""]
            for line in section.lines:
                lines += _render_markdown_line(line, 0)
    return "\n".join(neutralize_commands(line) for line in lines) + "\n"


def _render_markdown_line(line: OutlineLine, depth: int) -> Iterator[str]:
    yield f"{'  ' * depth}- {SIGN_MARKS[line.sign]}{escape_markdown(line.text)}"
    for child in line.children:
        yield from _render_markdown_line(child, depth + 1)


def format_json(difference: Difference) -> str:
    """Render indented JSON with a final newline."""
    return encode_json(difference)


def parse_json(text: str | bytes) -> Difference:
    """Return the difference that `format_json` wrote."""
    return msgspec.json.decode(text, type=Difference)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a difference."""
    return build_schema(Difference, "A difference of two models by onnxgate")
