"""Which entry a text belongs to, and what is said about it."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from onnxgate.texts.entry import Entry, anchor, compiled, said
from onnxgate.texts.registry import entries

LIMIT = 60_000
"""Characters of a text that are looked at; what is longer than that is no message."""
_BLANKS = re.compile(r"[ \t\r\f\v]{1,200}")
_BAR = " \t|│╰╭╯╮─▶"


@dataclass(frozen=True, slots=True)
class Known:
    """A text whose entry is known, and what it names."""

    entry: Entry
    captured: dict[str, str]  # by the pattern's groups, in their order
    pattern: str = ""
    start: int = 0  # in the canonical text
    end: int = 0

    @property
    def means(self) -> str:
        """What the text means, in one clause."""
        return said(self.entry.means, self.captured)

    @property
    def why(self) -> str:
        """How it comes about; "" where that is plain."""
        return said(self.entry.why, self.captured)

    @property
    def fix(self) -> str:
        """What to do, with numbers."""
        return said(self.entry.fix, self.captured)

    @property
    def anywhere(self) -> str:
        """What to do, in words that are the same for all releases."""
        return said(self.entry.anywhere or self.entry.fix, self.captured)

    @property
    def affected(self) -> str:
        """The releases concerned; "" where that is not known, or where it is no matter of releases."""
        return said(self.entry.affected, self.captured)


def canonical(text: str) -> str:
    """The text with its blanks collapsed and without frames around lines, so that it reads alike wherever it was"
    " printed."""
    lines = (_BLANKS.sub(" ", line).strip(_BAR) for line in text[:LIMIT].splitlines())
    return "\n".join(line for line in lines if line)


def classify(text: str) -> Known | None:
    """What a text says; None where nobody knows it."""
    return best(canonical(text))


def best(text: str) -> Known | None:
    """The first entry in order that is found in a canonical text."""
    flat = text.replace("\n", " ")
    places = [place for place, (_, _, literal) in enumerate(patterns()) if literal in flat]
    return next(recognised(text, places, len(text)), None)


def recognised(text: str, places: Iterable[int], end: int) -> Iterator[Known]:
    """What is found in a canonical text, of the patterns at these places, and begins before a character."""
    for place in places:
        entry, pattern, _ = patterns()[place]
        match = compiled(pattern).search(text)
        if match and match.start() < end:
            captured = {name: value for name, value in match.groupdict().items() if value}
            yield Known(entry, captured, pattern, match.start(), match.end())


@functools.cache
def patterns() -> tuple[tuple[Entry, str, str], ...]:
    """All patterns in the order in which they are tried, each with a piece that every text which it matches holds."""
    return tuple((entry, pattern, anchor(pattern)) for entry in entries() for pattern in entry.says)
