"""An inventory as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.formats.escape import log_line, neutral
from onnxgate.formats.paper import Column, Paper
from onnxgate.formats.phrases import count
from onnxgate.inventory import Environment, Inventory, State

WORDS: dict[State, str] = {
    "ready": "ready",
    "not-prepared": "not prepared",
    "broken": "broken",
    "unavailable": "unavailable here",
    "own": "own environment",
}
UNITS = ("B", "KiB", "MiB", "GiB")


def format(inventory: Inventory, *, color: bool = False, width: int = 0, quiet: bool = False) -> str:
    """A line for each runtime, why it is not ready, the interpreters, and a last line; `quiet` leaves that alone."""
    paper = Paper(color, width)
    lines: list[str] = []
    if not quiet and inventory.runtimes:
        lines += [*paper.table(_columns(inventory.runtimes), {}), "", *_reasons(inventory, paper)]
        lines += _interpreters(inventory, paper)
    return "\n".join(neutral(line) for line in [*lines, *paper.wrapped(summary(inventory), 0, own=True), ""])


def _columns(runtimes: tuple[Environment, ...]) -> list[Column]:
    return [
        Column("", "runtime", [log_line(each.runtime) for each in runtimes]),
        Column("", "python", [each.python or "-" for each in runtimes]),
        Column("", "state", [WORDS[each.state] for each in runtimes]),
        Column("", "size", [size(each.size_bytes) if each.size_bytes else "-" for each in runtimes]),
        Column("", "targets", [log_line(", ".join(each.targets)) for each in runtimes]),
    ]


def _reasons(inventory: Inventory, paper: Paper) -> Iterator[str]:
    found = [each for each in inventory.runtimes if each.reason]
    for each in found:
        yield from paper.wrapped(log_line(f"{each.runtime}: {each.reason}"), 0)
        yield from paper.wrapped(log_line(each.hint), 2, "hint: ") if each.hint else ()
    yield from [""] if found else []


def _interpreters(inventory: Inventory, paper: Paper) -> Iterator[str]:
    for each in inventory.interpreters:
        where = log_line(each.path) if each.path else f"not found; {log_line(each.hint)}"
        yield from paper.wrapped(where, 0, f"Python {each.python}: ")
    yield from [""] if inventory.interpreters else []


def summary(inventory: Inventory) -> str:
    """How many of the environments are ready, and what they take."""
    own = [each for each in inventory.runtimes if each.state == "own"]
    locked = len(inventory.runtimes) - len(own)
    ready = sum(each.state == "ready" for each in inventory.runtimes)
    beside = f", and {len(own)} of your own" if own else ""
    takes = f"; they take {taken(inventory.size_bytes, inventory.freed_bytes)}" if inventory.size_bytes else ""
    return f"{ready} of {count(locked, 'environment')} ready{beside} in {log_line(inventory.cache)}{takes}"


def taken(size_bytes: int, freed_bytes: int) -> str:
    """`512.0 MiB`, and how much of it other caches share."""
    shared = size_bytes - freed_bytes
    return size(size_bytes) + (f", {size(shared)} of it shared with other caches, such as uv's" if shared else "")


def size(size_bytes: int) -> str:
    """`12.3 MiB`."""
    value, unit = float(size_bytes), 0
    while value >= 1024 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {UNITS[unit]}" if unit else f"{size_bytes} B"
