"""Write many hostile strings in all formats, and reduce each failure to the strings that cause it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

from campaigns.hostile import hostile_strings
from campaigns.hostile.documents import pair, samples
from campaigns.hostile.documents import strings as places
from campaigns.hostile.output_surfaces import BY_KIND, Surface, complaints

FLOODED = 1500
"""On average, one of this many documents contains very long strings."""
SHARE = {"report": 0.5, "preview": 0.15, "matrix": 0.12, "diff": 0.13, "lock": 0.05, "ignores": 0.05}
TEXTS_ALONE = ("lock", "ignores")
"""Kinds that are written as TOML, which requires valid Unicode; `config/selection.py` rejects other strings."""


@dataclass(frozen=True)
class Find:
    """One failure of a format, with a minimal set of strings that cause it, by place."""

    surface: str
    complaint: str
    texts: Mapping[str, str]
    tame: bool


@dataclass
class Tally:
    """Counts and failures of a run."""

    documents: int = 0
    strings: int = 0
    passages: int = 0  # strings times formats
    finds: list[Find] = field(default_factory=list)
    by_surface: Counter[str] = field(default_factory=Counter)


def run(count: int, seed: int, most_finds: int = 20) -> Tally:
    """Write at least `count` hostile strings in all formats."""
    random, tally = Random(seed), Tally()
    while tally.strings < count and len(tally.finds) < most_finds:
        kind = random.choices(list(SHARE), list(SHARE.values()))[0]
        _try(kind, drawn(random, kind), random.random() < 0.6, tally)
    return tally


def drawn(random: Random, kind: str) -> dict[str, str]:
    """Return a different hostile string for most places of a document."""
    flood = random.randrange(FLOODED) == 0
    texts: dict[str, str] = {}
    for place in places(samples()[kind]):
        if random.random() < 0.85:
            text = hostile_strings.large(random) if flood and random.random() < 0.1 else hostile_strings.text(random)
            while not text or text in texts.values() or (kind in TEXTS_ALONE and not hostile_strings.is_text(text)):
                text = f"{text if hostile_strings.is_text(text) else ''}{random.randrange(1000)}"
            texts[place] = text
    return texts


def _try(kind: str, texts: dict[str, str], tame: bool, tally: Tally) -> None:
    both = pair(kind, texts, tame=tame)
    tally.documents += 1
    tally.strings += len(texts)
    for surface in BY_KIND[kind]:
        if surface.tame and not tame:
            continue
        tally.passages += len(texts)
        tally.by_surface[surface.name] += len(texts)
        if problems := list(complaints(surface, both)):
            least = smallest(surface, texts, tame)
            again = next(complaints(surface, pair(kind, least, tame=tame)), problems[0])
            tally.finds.append(Find(surface.name, again, least, tame))


def smallest(surface: Surface, texts: Mapping[str, str], tame: bool) -> dict[str, str]:
    """Reduce the strings while the format still fails: first remove halves, then single strings."""
    needed = dict(texts)
    size = len(needed) // 2
    while size:
        for part in list(_parts(list(needed), size)):
            rest = {place: text for place, text in needed.items() if place not in part}
            if next(complaints(surface, pair(surface.kind, rest, tame=tame)), None):
                needed = rest
        size //= 2
    return needed


def _parts(places: list[str], size: int) -> Iterator[set[str]]:
    for start in range(0, len(places), size):
        yield set(places[start : start + size])
