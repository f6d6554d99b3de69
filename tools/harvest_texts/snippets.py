"""Provoke errors with Python snippets. Each runs in its own process; the output is the error text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tools.harvest_texts.environments import said

Snippet = tuple[str, str, str]
"""Name of the case, expected catalogue entry and code."""


def run(
    python: Path, snippets: Sequence[Snippet], folder: Path, opening: str = "", **environment: str
) -> dict[str, str]:
    """Return the output of each snippet that fails."""
    script = folder / "provoke.py"
    actual = {}
    for case, _, code in snippets:
        script.write_text(f"{opening}\n{code}\n", encoding="utf-8")
        text = said([python, str(script)], folder, **environment)
        if "Error" in text or "error" in text or "Warning" in text:
            actual[case] = text
    return actual


def expected(snippets: Sequence[Snippet]) -> dict[str, str]:
    """Return the name of the catalogue entry that must explain the error of each case."""
    return {case: entry for case, entry, _ in snippets}
