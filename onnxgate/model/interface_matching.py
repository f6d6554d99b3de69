"""Match the inputs or outputs of two models, including renamed inputs and outputs."""

from __future__ import annotations

import functools
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from onnxgate.model.facts import ValueInfo

MAX_PAIRINGS = 250_000
"""Maximum number of pairs of inputs or outputs to compare; above it, renamed values are matched only by position."""


class ValuePair(msgspec.Struct, frozen=True):
    """One input or output before and after a change. Positions start at 0."""

    before: ValueInfo
    after: ValueInfo
    was: int
    now: int

    @property
    def renamed(self) -> bool:
        """Return whether the name changed."""
        return self.before.name != self.after.name


class UnpairedValue(msgspec.Struct, frozen=True):
    """An added or removed input or output, with its position."""

    value: ValueInfo
    position: int


class InterfaceMatch(msgspec.Struct, frozen=True):
    """Result of matching two lists of inputs or outputs.

    Pairs and removed values are in their old order, added values in their new order.
    """

    pairs: tuple[ValuePair, ...]
    added: tuple[UnpairedValue, ...]
    removed: tuple[UnpairedValue, ...]


def match_values(before: Sequence[ValueInfo], after: Sequence[ValueInfo]) -> InterfaceMatch:
    """Match inputs or outputs by name. Renamed ones are matched by type and shape, those at equal positions first."""
    positions: dict[str, list[int]] = {}
    for now, value in enumerate(after):
        positions.setdefault(value.name, []).append(now)
    # Two outputs may have the same name; such outputs are matched in order.
    places = {was: nows.pop(0) for was, value in enumerate(before) if (nows := positions.get(value.name))}
    for find in (_pair_by_position, _pair_if_unique, functools.partial(_pair_by_position, equal_count=False)):
        removed = [index for index in range(len(before)) if index not in places]
        added = sorted(set(range(len(after))) - set(places.values()))
        places |= dict(find(removed, added, places, lambda was, now: is_compatible(before[was], after[now])))
    paired = set(places.values())
    return InterfaceMatch(
        tuple(ValuePair(before[was], after[now], was, now) for was, now in sorted(places.items())),
        tuple(UnpairedValue(value, now) for now, value in enumerate(after) if now not in paired),
        tuple(UnpairedValue(value, was) for was, value in enumerate(before) if was not in places),
    )


def is_compatible(before: ValueInfo, after: ValueInfo) -> bool:
    """Return whether `after` may be `before` with a new name: their types, ranks and fixed sizes are equal."""
    if before.type != after.type:
        return False
    if before.shape is None or after.shape is None:
        return True
    if len(before.shape) != len(after.shape):
        return False
    sizes = zip(before.shape, after.shape, strict=True)
    return all(isinstance(was, str) or isinstance(now, str) or was == now for was, now in sizes)


FitsPosition = Callable[[int, int], bool]


def _pair_by_position(
    removed: Sequence[int],
    added: Sequence[int],
    places: Mapping[int, int],
    fits: FitsPosition,
    *,
    equal_count: bool = True,
) -> Iterator[tuple[int, int]]:
    """Pair added and removed inputs or outputs by position if their unchanged neighbors are the same.

    With `equal_count`, both lists must have the same number of values between these neighbors.
    """
    were = _index_by_neighbours(removed, {was: was for was in places})
    are = _index_by_neighbours(added, {now: was for was, now in places.items()})
    for neighbours in were.keys() & are.keys():
        if not equal_count or len(were[neighbours]) == len(are[neighbours]):
            pairs = zip(were[neighbours], are[neighbours], strict=False)
            yield from ((was, now) for was, now in pairs if fits(was, now))


def _pair_if_unique(
    removed: Sequence[int], added: Sequence[int], places: Mapping[int, int], fits: FitsPosition
) -> Iterator[tuple[int, int]]:
    """Pair a removed and an added value at any positions if each is the only possible match for the other."""
    if len(removed) * len(added) > MAX_PAIRINGS:
        return
    ways = {was: [now for now in added if fits(was, now)] for was in removed}
    for was, nows in ways.items():
        if len(nows) == 1 and sum(nows[0] in others for others in ways.values()) == 1:
            yield was, nows[0]


def _index_by_neighbours(indices: Iterable[int], stayed: Mapping[int, int]) -> dict[tuple[int, int], list[int]]:
    """Group positions by the old positions of their nearest unchanged neighbors; -1 is the start or end of the list."""
    order = sorted(stayed)
    groups: dict[tuple[int, int], list[int]] = {}
    for index in indices:
        following = bisect(order, index)
        before = stayed[order[following - 1]] if following else -1
        after = stayed[order[following]] if following < len(order) else -1
        groups.setdefault((before, after), []).append(index)
    return groups
