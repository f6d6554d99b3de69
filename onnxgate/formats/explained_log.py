"""An explained log as text and JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from onnxgate.core.escape import escape_unprintable, neutralize_commands
from onnxgate.core.report_json import build_schema, encode_json
from onnxgate.core.text import pluralize
from onnxgate.diagnostics.log_explanation import ExplainedError, ExplainedLog

INDENT = "   "
LABEL_WIDTH = 10


def format_text(log: ExplainedLog, *, color: bool = False, width: int = 0) -> str:
    """Render each error with its meaning, the first unknown ones, and a summary."""
    lines: list[str] = []
    for number, error in enumerate(log.errors, 1):
        lines += [*_render_error(number, error, color, width), ""]
    if log.unknown:
        lines += [*_render_unknown(log), ""]
    return "\n".join(neutralize_commands(line) for line in [*lines, _render_summary(log), ""])


def _render_error(number: int, error: ExplainedError, color: bool, width: int) -> Iterator[str]:
    title = f"{number}. {error.name} ({_describe_lines(error)})"
    yield f"\x1b[1m{title}\x1b[0m" if color else title
    rules = ", ".join(f"`onnxgate explain {rule}`" for rule in error.rules)
    paragraphs = {
        "says": error.says,
        "means": error.means,
        "why": error.why,
        "fix": error.fix,
        "affected": error.affected,
        "read more": rules,
    }
    for label, words in paragraphs.items():
        if words:
            yield from _render_paragraph(label, escape_unprintable(words), width)


def _render_paragraph(label: str, words: str, width: int) -> list[str]:
    first = f"{INDENT}{label + ':':{LABEL_WIDTH}} "
    if not width:
        return [first + words]
    rest = " " * len(first)
    return textwrap.wrap(
        words,
        max(width, 40),
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _describe_lines(error: ExplainedError) -> str:
    if error.count == 1:
        return f"line {error.lines[0]}"
    more = ", …" if error.count > len(error.lines) else ""
    return f"{error.count} times: lines {', '.join(map(str, error.lines))}{more}"


def _render_unknown(log: ExplainedLog) -> Iterator[str]:
    yield "unknown lines that look like errors:"
    for line in log.first_unknown:
        yield f"{INDENT}line {line.line}: {escape_unprintable(line.says)}"
    if log.unknown > len(log.first_unknown):
        yield f"{INDENT}and {log.unknown - len(log.first_unknown)} more"


def _render_summary(log: ExplainedLog) -> str:
    if not log.lines:
        return "the log is empty: what was to write it may have failed"
    lines = pluralize(log.lines, "line")
    if not log.errors and not log.unknown:
        return f"nothing in {lines} looks like an error"
    more = f", and {log.more_errors} more that there was no room for" if log.more_errors else ""
    errors = f"{pluralize(len(log.errors), 'error')} explained{more}"
    unknown = f"{pluralize(log.unknown, 'line')} unknown" if log.unknown else "none unknown"
    return f"{lines}: {errors}; {unknown}"


def format_json(log: ExplainedLog) -> str:
    """Render indented JSON with a final newline."""
    return encode_json(log)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of an explained log."""
    return build_schema(ExplainedLog, "A log that onnxgate explained")
