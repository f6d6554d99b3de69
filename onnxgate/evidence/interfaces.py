"""How the inputs or outputs of a model changed: which stayed, which have another name, which came and which went."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from onnxgate.evidence.changes import ModelChange
from onnxgate.model.facts import ValueInfo

MOST_WAYS = 250_000
"""Of more values than have so many ways to be paired, a new name is only told by its place."""


class Pair(msgspec.Struct, frozen=True):
    """One input or output, as it was and as it is; its positions count from 0."""

    before: ValueInfo
    after: ValueInfo
    was: int
    now: int

    @property
    def renamed(self) -> bool:
        """Whether it has another name."""
        return self.before.name != self.after.name


class Single(msgspec.Struct, frozen=True):
    """One that came or went, with its position."""

    value: ValueInfo
    position: int


class Matching(msgspec.Struct, frozen=True):
    """Pairs and removed ones in the order in which they were, added ones in the order in which they are."""

    pairs: tuple[Pair, ...]
    added: tuple[Single, ...]
    removed: tuple[Single, ...]


def match_outputs(change: ModelChange) -> Matching:
    """The outputs, matched."""
    return match(change.before.outputs, change.after.outputs)


def match_inputs(change: ModelChange) -> Matching:
    """The inputs that must be fed, before and now: one that has a default on either side is not among them."""
    optional = {value.name for value in (*change.before.optional_inputs, *change.after.optional_inputs)}
    return match(_without(change.before.inputs, optional), _without(change.after.inputs, optional))


def fed_pairs(change: ModelChange) -> tuple[Pair, ...]:
    """The inputs that could be fed before and can be fed now, whether they have a default or not."""
    before = {value.name: value for value in change.before.optional_inputs}
    after = {value.name: value for value in change.after.optional_inputs}
    names = sorted(before.keys() | after.keys())
    before |= {value.name: value for value in change.before.inputs}
    after |= {value.name: value for value in change.after.inputs}
    with_default = [Pair(before[name], after[name], 0, 0) for name in names if name in before and name in after]
    return (*match_inputs(change).pairs, *with_default)


def _without(values: Iterable[ValueInfo], names: set[str]) -> list[ValueInfo]:
    return [value for value in values if value.name not in names]


def match(before: Sequence[ValueInfo], after: Sequence[ValueInfo]) -> Matching:
    """Match by name; then what has another name, where place, type and shape tell which it is."""
    places = dict(_same_name(before, after))
    for find in (_same_place, _only_way, _same_offset):
        gone = [index for index in range(len(before)) if index not in places]
        taken = set(places.values())
        new = [index for index in range(len(after)) if index not in taken]
        places |= dict(find(gone, new, places, lambda was, now: compatible(before[was], after[now])))
    taken = set(places.values())
    return Matching(
        tuple(Pair(before[was], after[now], was, now) for was, now in sorted(places.items())),
        tuple(Single(value, now) for now, value in enumerate(after) if now not in taken),
        tuple(Single(value, was) for was, value in enumerate(before) if was not in places),
    )


def compatible(before: ValueInfo, after: ValueInfo) -> bool:
    """Whether the one may be the other under another name: equal type, equal rank and no two sizes that differ."""
    if before.type != after.type:
        return False
    if before.shape is None or after.shape is None:
        return True
    if len(before.shape) != len(after.shape):
        return False
    sizes = zip(before.shape, after.shape, strict=True)
    return all(isinstance(was, str) or isinstance(now, str) or was == now for was, now in sizes)


Fits = Callable[[int, int], bool]


def _same_name(before: Sequence[ValueInfo], after: Sequence[ValueInfo]) -> Iterator[tuple[int, int]]:
    """A name may stand twice among outputs: the first is the first."""
    found: dict[str, list[int]] = {}
    for now, value in enumerate(after):
        found.setdefault(value.name, []).append(now)
    for was, value in enumerate(before):
        if nows := found.get(value.name):
            yield was, nows.pop(0)


def _same_place(
    gone: Sequence[int], new: Sequence[int], places: Mapping[int, int], fits: Fits
) -> Iterator[tuple[int, int]]:
    """Between the same neighbours, as many as there were."""
    for were, are in _gaps(gone, new, places):
        if len(were) == len(are):
            yield from ((was, now) for was, now in zip(were, are, strict=True) if fits(was, now))


def _only_way(
    gone: Sequence[int], new: Sequence[int], places: Mapping[int, int], fits: Fits
) -> Iterator[tuple[int, int]]:
    """Wherever it stands now: no other new one fits, and it fits no other one that is gone."""
    if len(gone) * len(new) > MOST_WAYS:
        return
    ways = {was: [now for now in new if fits(was, now)] for was in gone}
    for was, nows in ways.items():
        if len(nows) == 1 and sum(nows[0] in others for others in ways.values()) == 1:
            yield was, nows[0]


def _same_offset(
    gone: Sequence[int], new: Sequence[int], places: Mapping[int, int], fits: Fits
) -> Iterator[tuple[int, int]]:
    """Between the same neighbours, where more or fewer stand now, as far from the first."""
    for were, are in _gaps(gone, new, places):
        yield from ((was, now) for was, now in zip(were, are, strict=False) if fits(was, now))


def _gaps(gone: Sequence[int], new: Sequence[int], places: Mapping[int, int]) -> Iterator[tuple[list[int], list[int]]]:
    """What is gone and what is new between each two neighbours that stayed."""
    after = {now: was for was, now in places.items()}
    were = _between(gone, {was: was for was in places})
    are = _between(new, after)
    for neighbours in were.keys() & are.keys():
        yield were[neighbours], are[neighbours]


def _between(indices: Iterable[int], stayed: Mapping[int, int]) -> dict[tuple[int, int], list[int]]:
    """Indices by the neighbours that stayed, which are named by the position that they had; -1 is an end."""
    order = sorted(stayed)
    found: dict[tuple[int, int], list[int]] = {}
    for index in indices:
        next_one = bisect(order, index)
        left = stayed[order[next_one - 1]] if next_one else -1
        right = stayed[order[next_one]] if next_one < len(order) else -1
        found.setdefault((left, right), []).append(index)
    return found
