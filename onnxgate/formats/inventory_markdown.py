"""An inventory as Markdown."""

from __future__ import annotations

from onnxgate.formats.escape import code, prose
from onnxgate.formats.inventory_text import WORDS, size, summary
from onnxgate.inventory import Inventory


def format(inventory: Inventory) -> str:
    """A table, and a last line."""
    lines = ["| runtime | Python | state | size | targets |", "|---|---|---|--:|---|"]
    for each in inventory.runtimes:
        state = f"{WORDS[each.state]}: {prose(each.reason)}" if each.reason else WORDS[each.state]
        takes = size(each.size_bytes) if each.size_bytes else ""
        targets = ", ".join(code(name) for name in each.targets)
        lines.append(f"| {prose(each.runtime)} | {each.python} | {state} | {takes} | {targets} |")
    return "\n".join([*(lines if inventory.runtimes else []), "", prose(summary(inventory)), ""]).lstrip("\n")
