"""An inventory of runtimes as text, Markdown and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onnxgate.core.escape import escape_log_line, escape_markdown, markdown_code, neutralize_commands
from onnxgate.core.inventory import Environment, Inventory, State
from onnxgate.core.report_json import build_schema, encode_json
from onnxgate.core.text import format_size, pluralize
from onnxgate.formats.terminal import Column, Terminal

STATE_WORDS: dict[State, str] = {
    "ready": "ready",
    "not-prepared": "not prepared",
    "broken": "broken",
    "unavailable": "unavailable here",
    "own": "own environment",
}


def format_text(inventory: Inventory, *, color: bool = False, width: int = 0, quiet: bool = False) -> str:
    """Render a line for each runtime, reasons, interpreters and a summary; with `quiet`, only the summary."""
    paper = Terminal(color, width)
    lines: list[str] = []
    if not quiet and inventory.runtimes:
        lines += [*paper.table(_table_columns(inventory.runtimes), {}), "", *_render_reasons(inventory, paper)]
        lines += _render_interpreters(inventory, paper)
    return "\n".join(
        neutralize_commands(line) for line in [*lines, *paper.wrapped(render_summary(inventory), 0, own=True), ""]
    )


def _table_columns(runtimes: tuple[Environment, ...]) -> list[Column]:
    return [
        Column("", "runtime", [escape_log_line(runtime.runtime) for runtime in runtimes]),
        Column("", "python", [runtime.python or "-" for runtime in runtimes]),
        Column("", "state", [STATE_WORDS[runtime.state] for runtime in runtimes]),
        Column("", "size", [format_size(runtime.size_bytes) if runtime.size_bytes else "-" for runtime in runtimes]),
        Column("", "targets", [escape_log_line(", ".join(runtime.targets)) for runtime in runtimes]),
    ]


def _render_reasons(inventory: Inventory, paper: Terminal) -> Iterator[str]:
    unready = [runtime for runtime in inventory.runtimes if runtime.reason]
    for runtime in unready:
        yield from paper.wrapped(escape_log_line(f"{runtime.runtime}: {runtime.reason}"), 0)
        yield from paper.wrapped(escape_log_line(runtime.hint), 2, "hint: ") if runtime.hint else ()
    yield from [""] if unready else []


def _render_interpreters(inventory: Inventory, paper: Terminal) -> Iterator[str]:
    for interpreter in inventory.interpreters:
        where = (
            escape_log_line(interpreter.path) if interpreter.path else f"not found; {escape_log_line(interpreter.hint)}"
        )
        yield from paper.wrapped(where, 0, f"Python {interpreter.python}: ")
    yield from [""] if inventory.interpreters else []


def render_summary(inventory: Inventory) -> str:
    """Return the number of ready environments and their size."""
    own = [runtime for runtime in inventory.runtimes if runtime.state == "own"]
    locked = len(inventory.runtimes) - len(own)
    ready = sum(runtime.state == "ready" for runtime in inventory.runtimes)
    own_environments = f", and {len(own)} of your own" if own else ""
    takes = f"; they take {describe_usage(inventory.size_bytes, inventory.freed_bytes)}" if inventory.size_bytes else ""
    ready_ones = f"{ready} of {pluralize(locked, 'environment')} ready{own_environments}"
    return f"{ready_ones} in {escape_log_line(inventory.cache)}{takes}"


def describe_usage(size_bytes: int, freed_bytes: int) -> str:
    """Return `512.0 MiB`, and the part of it that other caches share."""
    shared = size_bytes - freed_bytes
    return format_size(size_bytes) + (
        f", {format_size(shared)} of it shared with other caches, such as uv's" if shared else ""
    )


def format_markdown(inventory: Inventory) -> str:
    """Render a table and the summary."""
    lines = ["| runtime | Python | state | size | targets |", "|---|---|---|--:|---|"]
    for runtime in inventory.runtimes:
        state = (
            f"{STATE_WORDS[runtime.state]}: {escape_markdown(runtime.reason)}"
            if runtime.reason
            else STATE_WORDS[runtime.state]
        )
        takes = format_size(runtime.size_bytes) if runtime.size_bytes else ""
        targets = ", ".join(markdown_code(name) for name in runtime.targets)
        lines.append(f"| {escape_markdown(runtime.runtime)} | {runtime.python} | {state} | {takes} | {targets} |")
    return "\n".join(
        [*(lines if inventory.runtimes else []), "", escape_markdown(render_summary(inventory)), ""]
    ).lstrip("\n")


def format_json(inventory: Inventory) -> str:
    """Render indented JSON with a final newline."""
    return encode_json(inventory)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of an inventory."""
    return build_schema(Inventory, "An inventory of onnxgate")
