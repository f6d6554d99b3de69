"""Suggested spellings, and words in messages."""

from __future__ import annotations

from collections.abc import Iterable


def suggest_spelling(word: str, candidates: Iterable[str]) -> str:
    """Return "; did you mean `minors`?" if a candidate is similar, and "" if none is."""
    import difflib

    by_normalized = {_normalize(candidate): candidate for candidate in candidates}
    nearest = difflib.get_close_matches(_normalize(word), by_normalized, n=1, cutoff=0.6)
    return f"; did you mean `{by_normalized[nearest[0]]}`?" if nearest else ""


def join_quoted(words: Iterable[str]) -> str:
    """Return words as a list of literals: `` `a`, `b` ``."""
    return ", ".join(f"`{word}`" for word in words)


def lower_first(text: str) -> str:
    """Return the text with its first letter in lower case."""
    return text[:1].lower() + text[1:]


def _normalize(word: str) -> str:
    return word.lower().replace("_", "-")
