"""Write the list of runtimes and their environments as plain text or Markdown."""

from __future__ import annotations

from onnxgate.core.escape import escape_log_line, escape_markdown, markdown_code, neutralize_commands
from onnxgate.core.inventory import Inventory, State
from onnxgate.core.text import format_size, pluralize
from onnxgate.formats.markdown import render_row
from onnxgate.formats.text import Column, Terminal

STATE_WORDS: dict[State, str] = {
    "ready": "ready",
    "not-prepared": "not prepared",
    "broken": "broken",
    "unavailable": "unavailable",
    "own": "user environment",
}


def format_text(inventory: Inventory, *, color: bool = False, width: int = 0, quiet: bool = False) -> str:
    """Render the runtimes, their problems, the Python interpreters and a summary as plain text.

    With `quiet`, render only the summary.
    """
    paper = Terminal(color, width)
    runtimes = inventory.runtimes
    lines: list[str] = []
    if not quiet and runtimes:
        columns = [
            Column("", "runtime", [escape_log_line(runtime.runtime) for runtime in runtimes]),
            Column("", "python", [runtime.python or "-" for runtime in runtimes]),
            Column("", "state", [STATE_WORDS[runtime.state] for runtime in runtimes]),
            Column(
                "", "size", [format_size(runtime.size_bytes) if runtime.size_bytes else "-" for runtime in runtimes]
            ),
            Column("", "targets", [escape_log_line(", ".join(runtime.targets)) for runtime in runtimes]),
        ]
        lines += [*paper.table(columns, {}), ""]
        unready = [runtime for runtime in runtimes if runtime.reason]
        for runtime in unready:
            lines += paper.wrapped(escape_log_line(f"{runtime.runtime}: {runtime.reason}"), 0)
            lines += paper.wrapped(escape_log_line(runtime.hint), 2, "hint: ") if runtime.hint else ()
        lines += [""] if unready else []
        for interpreter in inventory.interpreters:
            missing = f"not found; {escape_log_line(interpreter.hint)}"
            path = escape_log_line(interpreter.path) if interpreter.path else missing
            lines += paper.wrapped(path, 0, f"Python {interpreter.python}: ")
        lines += [""] if inventory.interpreters else []
    lines += [*paper.wrapped(render_summary(inventory), 0, own=True), ""]
    return "\n".join(map(neutralize_commands, lines))


def render_summary(inventory: Inventory) -> str:
    """Return a sentence with the number of environments that are ready, and the disk space that they use."""
    own = sum(runtime.state == "own" for runtime in inventory.runtimes)
    ready = sum(runtime.state == "ready" for runtime in inventory.runtimes)
    own_environments = f"; {pluralize(own, 'user environment')}" if own else ""
    shared = inventory.size_bytes - inventory.freed_bytes
    sharing = f", {format_size(shared)} shared with other caches, such as uv's cache" if shared else ""
    usage = f" ({format_size(inventory.size_bytes)}{sharing})" if inventory.size_bytes else ""
    counts = f"{ready} of {pluralize(len(inventory.runtimes) - own, 'environment')} ready"
    return f"{counts} in {escape_log_line(inventory.cache)}{usage}{own_environments}"


def format_markdown(inventory: Inventory) -> str:
    """Render a Markdown table of the runtimes, and the summary."""
    lines = ["| runtime | Python | state | size | targets |", "|---|---|---|--:|---|"] if inventory.runtimes else []
    for runtime in inventory.runtimes:
        reason = f": {escape_markdown(runtime.reason)}" if runtime.reason else ""
        size = format_size(runtime.size_bytes) if runtime.size_bytes else ""
        targets = ", ".join(markdown_code(name) for name in runtime.targets)
        cells = (runtime.python, f"{STATE_WORDS[runtime.state]}{reason}", size, targets)
        lines.append(render_row(escape_markdown(runtime.runtime), cells))
    return "\n".join([*lines, "", escape_markdown(render_summary(inventory)), ""]).lstrip("\n")
