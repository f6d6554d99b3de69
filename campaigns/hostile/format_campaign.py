"""Many hostile strings through all formats; what fails is taken apart to the string that did it."""

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
"""One document in so many holds a flood."""
SHARE = {"report": 0.5, "preview": 0.15, "matrix": 0.12, "diff": 0.13, "lock": 0.05, "ignores": 0.05}
TEXTS_ALONE = ("lock", "ignores")
"""Kinds that are TOML, whose strings are valid Unicode; what is none is refused before (`config/selection.py`)."""


@dataclass(frozen=True)
class Find:
    """One way in which a format let hostile text act; `said` are the fewest strings that show it, by their place."""

    surface: str
    complaint: str
    said: Mapping[str, str]
    tame: bool


@dataclass
class Tally:
    """What was tried."""

    documents: int = 0
    strings: int = 0
    passages: int = 0  # strings times formats
    finds: list[Find] = field(default_factory=list)
    by_surface: Counter[str] = field(default_factory=Counter)


def run(count: int, seed: int, most_finds: int = 20) -> Tally:
    """At least `count` hostile strings through all formats."""
    random, tally = Random(seed), Tally()
    while tally.strings < count and len(tally.finds) < most_finds:
        kind = random.choices(list(SHARE), list(SHARE.values()))[0]
        _try(kind, drawn(random, kind), random.random() < 0.6, tally)
    return tally


def drawn(random: Random, kind: str) -> dict[str, str]:
    """A hostile string for most places of a document, each a different one."""
    flood = random.randrange(FLOODED) == 0
    said: dict[str, str] = {}
    for place in places(samples()[kind]):
        if random.random() < 0.85:
            text = hostile_strings.large(random) if flood and random.random() < 0.1 else hostile_strings.text(random)
            while not text or text in said.values() or (kind in TEXTS_ALONE and not hostile_strings.is_text(text)):
                text = f"{text if hostile_strings.is_text(text) else ''}{random.randrange(1000)}"
            said[place] = text
    return said


def _try(kind: str, said: dict[str, str], tame: bool, tally: Tally) -> None:
    both = pair(kind, said, tame=tame)
    tally.documents += 1
    tally.strings += len(said)
    for surface in BY_KIND[kind]:
        if surface.tame and not tame:
            continue
        tally.passages += len(said)
        tally.by_surface[surface.name] += len(said)
        if found := list(complaints(surface, both)):
            least = smallest(surface, said, tame)
            again = next(complaints(surface, pair(kind, least, tame=tame)), found[0])
            tally.finds.append(Find(surface.name, again, least, tame))


def smallest(surface: Surface, said: Mapping[str, str], tame: bool) -> dict[str, str]:
    """Fewest strings with which the format still fails: halves, then one by one."""
    kept = dict(said)
    size = len(kept) // 2
    while size:
        for part in list(_parts(list(kept), size)):
            rest = {place: text for place, text in kept.items() if place not in part}
            if next(complaints(surface, pair(surface.kind, rest, tame=tame)), None):
                kept = rest
        size //= 2
    return kept


def _parts(places: list[str], size: int) -> Iterator[set[str]]:
    for start in range(0, len(places), size):
        yield set(places[start : start + size])
