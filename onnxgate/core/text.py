"""Words, lists, numbers and suggested spellings as sentences contain them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

SHORT_LIMIT = 300
"""Characters of a name from a model or a runtime that a person reads; only `json` has all of them."""
LONG_LIMIT = 4000
"""Characters of a message that a person reads."""
SIZE_UNITS = ("B", "KiB", "MiB", "GiB")


def pluralize(number: int, noun: str) -> str:
    """Return `1 model`, `2 models`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def truncate(text: str, limit: int = SHORT_LIMIT) -> str:
    """Return the text, or its first characters and how many it has."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def first_line(text: str) -> str:
    """Return the first line that is not blank."""
    return text.strip().partition("\n")[0]


def join_phrases(phrases: Sequence[str], most: int = 0) -> str:
    """Return `a`, `a and b`, `a, b and c`; of at least two more than `most`, the first ones and `3 more`."""
    if most and len(phrases) > most + 1:
        phrases = [*phrases[:most], f"{len(phrases) - most:,} more"]
    if len(phrases) < 2:
        return "".join(phrases)
    return f"{', '.join(phrases[:-1])} and {phrases[-1]}"


def format_size(size_bytes: int) -> str:
    """Return `512 B`, `12.3 MiB`."""
    value, unit = float(size_bytes), 0
    while value >= 1024 and unit < len(SIZE_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {SIZE_UNITS[unit]}" if unit else f"{size_bytes} B"


def suggest_spelling(word: str, candidates: Iterable[str]) -> str:
    """Return "; did you mean `minors`?" if a candidate is similar, and "" if none is."""
    import difflib

    by_normalized = {candidate.lower().replace("_", "-"): candidate for candidate in candidates}
    nearest = difflib.get_close_matches(word.lower().replace("_", "-"), by_normalized, n=1, cutoff=0.6)
    return f"; did you mean `{by_normalized[nearest[0]]}`?" if nearest else ""


def join_quoted(words: Iterable[str]) -> str:
    """Return words as a list of literals: `` `a`, `b` ``."""
    return ", ".join(f"`{word}`" for word in words)


def lower_first(text: str) -> str:
    """Return the text with its first letter in lower case."""
    return text[:1].lower() + text[1:]
