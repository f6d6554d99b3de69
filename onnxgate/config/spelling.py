"""The nearest known spelling of a word that is not known."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """`"; did you mean `minors`?"` where something known is near, else `""`."""
    import difflib

    by_plain = {_plain(each): each for each in known}
    found = difflib.get_close_matches(_plain(word), by_plain, n=1, cutoff=0.6)
    return f"; did you mean `{by_plain[found[0]]}`?" if found else ""


def listed(words: Iterable[str]) -> str:
    """Words as a list of literals: `` `a`, `b` ``."""
    return ", ".join(f"`{word}`" for word in words)


def _plain(word: str) -> str:
    return word.lower().replace("_", "-")
