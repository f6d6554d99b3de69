"""The nearest known spelling of a word that is not known."""

from __future__ import annotations

from collections.abc import Iterable


def suggest_spelling(word: str, known: Iterable[str]) -> str:
    """`"; did you mean `minors`?"` where something known is near, else `""`."""
    import difflib

    by_plain = {_normalize(each): each for each in known}
    found = difflib.get_close_matches(_normalize(word), by_plain, n=1, cutoff=0.6)
    return f"; did you mean `{by_plain[found[0]]}`?" if found else ""


def join_quoted(words: Iterable[str]) -> str:
    """Words as a list of literals: `` `a`, `b` ``."""
    return ", ".join(f"`{word}`" for word in words)


def _normalize(word: str) -> str:
    return word.lower().replace("_", "-")
