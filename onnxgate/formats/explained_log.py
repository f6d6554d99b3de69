"""Plain-text output of `onnxgate explain --log`: the known and unknown errors that were found in a log."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from onnxgate.core.escape import escape_unprintable, neutralize_commands
from onnxgate.core.text import pluralize
from onnxgate.diagnostics.log_explanation import ExplainedError, ExplainedLog

INDENT = "   "


def format_text(log: ExplainedLog, *, color: bool = False, width: int = 0) -> str:
    """Render the known errors in a log, the first error lines that were not recognized, and a summary."""
    lines: list[str] = []
    for number, error in enumerate(log.errors, 1):
        lines += [*_render_error(number, error, color, width), ""]
    if log.unknown:
        lines.append("unknown errors:")
        lines += [f"{INDENT}line {line.line}: {escape_unprintable(line.says)}" for line in log.first_unknown]
        more = log.unknown - len(log.first_unknown)
        lines += [f"{INDENT}and {more} more", ""] if more > 0 else [""]
    return "\n".join(neutralize_commands(line) for line in [*lines, _render_summary(log), ""])


def _render_error(number: int, error: ExplainedError, color: bool, width: int) -> Iterator[str]:
    more = ", …" if error.count > len(error.lines) else ""
    places = f"{error.count} times: lines {', '.join(map(str, error.lines))}{more}"
    title = f"{number}. {error.name} ({f'line {error.lines[0]}' if error.count == 1 else places})"
    yield f"\x1b[1m{title}\x1b[0m" if color else title
    paragraphs = {
        "text": error.says,
        "meaning": error.means,
        "cause": error.why,
        "fix": error.fix,
        "affected": error.affected,
        "see also": ", ".join(f"`onnxgate explain {rule}`" for rule in error.rules),
    }
    for label, paragraph in paragraphs.items():
        text, first = escape_unprintable(paragraph), f"{INDENT}{label + ':':9} "
        if text and width:
            hang, columns = " " * len(first), max(width, 40)
            wrapper = textwrap.TextWrapper(columns, first, hang, break_long_words=False, break_on_hyphens=False)
            yield from wrapper.wrap(text)
        elif text:
            yield f"{first}{text}"


def _render_summary(log: ExplainedLog) -> str:
    if not log.lines:
        return "the log is empty; the command that writes it may have failed"
    lines = pluralize(log.lines, "line")
    if not log.errors and not log.unknown:
        return f"{lines}: no errors found"
    more = f" ({log.more_errors} more not shown)" if log.more_errors else ""
    known, unknown = pluralize(len(log.errors), "known error"), pluralize(log.unknown, "unrecognized error line")
    return f"{lines}: {known}{more}, {unknown}"
