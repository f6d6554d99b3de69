"""Where the boxes of a small drawing stand: layers from above to below, with few crossings."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

GAP, LAYER = 20.0, 84.0
"""Pixels between boxes of a layer, and from one layer to the next."""
SWEEPS = 8

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Placed:
    """Centres of boxes and the points that each arrow goes through, in pixels."""

    centres: tuple[tuple[float, float], ...]
    routes: Mapping[Pair, tuple[tuple[float, float], ...]]  # from an arrow's source to its target
    width: float
    height: float


@dataclass(slots=True)
class _Layers:
    """Boxes, and bends of arrows that pass a layer, in the order in which they stand."""

    rows: list[list[int]]
    links: list[Pair]  # from one layer to the next
    widths: dict[int, float]
    above: dict[int, list[int]] = field(default_factory=dict)
    below: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for source, target in self.links:
            self.above.setdefault(target, []).append(source)
            self.below.setdefault(source, []).append(target)


def place(widths: Sequence[float], edges: Iterable[Pair]) -> Placed:
    """A place for each box; the same for the same drawing, also where its arrows run in a circle."""
    pairs = sorted({(source, target) for source, target in edges if source != target})
    order = _order(len(widths), pairs)
    forward = {pair: pair if order[pair[0]] < order[pair[1]] else (pair[1], pair[0]) for pair in pairs}
    ranks = _ranks(len(widths), sorted(set(forward.values())), order)
    layers, bends = _layered(widths, sorted(set(forward.values())), ranks)
    _uncross(layers)
    xs = _spread(layers)
    left = min((xs[box] - width / 2 for box, width in layers.widths.items()), default=0.0)
    right = max((xs[box] + width / 2 for box, width in layers.widths.items()), default=0.0)
    at = {box: (xs[box] - left, row * LAYER) for row, boxes in enumerate(layers.rows) for box in boxes}
    routes = {pair: _route(pair, forward[pair], bends, at) for pair in pairs}
    centres = tuple(at[box] for box in range(len(widths)))
    return Placed(centres, routes, right - left, max(len(layers.rows) - 1, 0) * LAYER)


def _order(count: int, pairs: Sequence[Pair]) -> dict[int, int]:
    """Sources before targets; where arrows run in a circle, the box with the smallest number is taken first."""
    waiting = {box: {source for source, target in pairs if target == box} for box in range(count)}
    order: dict[int, int] = {}
    while waiting:
        free = [box for box, sources in waiting.items() if not sources & waiting.keys()]
        box = min(free or waiting)
        order[box] = len(order)
        del waiting[box]
    return order


def _ranks(count: int, pairs: Sequence[Pair], order: Mapping[int, int]) -> list[int]:
    """Each box below all that feed it; what nothing feeds stands right above what it feeds."""
    ranks = [0] * count
    fed = {target for _, target in pairs}
    for box in sorted(range(count), key=lambda each: order[each]):
        ranks[box] = max((ranks[source] + 1 for source, target in pairs if target == box), default=0)
    for box in set(range(count)) - fed:
        ranks[box] = min((ranks[target] - 1 for source, target in pairs if source == box), default=0)
    return ranks


def _layered(
    widths: Sequence[float], pairs: Sequence[Pair], ranks: Sequence[int]
) -> tuple[_Layers, dict[Pair, list[int]]]:
    rows: list[list[int]] = [[] for _ in range(max(ranks, default=-1) + 1)]
    all_widths = dict(enumerate(map(float, widths)))
    for box, rank in enumerate(ranks):
        rows[rank].append(box)
    links: list[Pair] = []
    bends: dict[Pair, list[int]] = {}
    for source, target in pairs:
        chain = [source]
        for rank in range(ranks[source] + 1, ranks[target]):
            bend = len(all_widths)
            all_widths[bend] = 8.0
            rows[rank].append(bend)
            chain.append(bend)
        bends[source, target] = chain[1:]
        links += zip(chain, [*chain[1:], target], strict=True)
    return _Layers(rows, links, all_widths), bends


def _uncross(layers: _Layers) -> None:
    """Sort each layer by where its neighbours stand, downwards and upwards; the order with the fewest crossings."""
    best, fewest = [list(row) for row in layers.rows], _crossings(layers)
    for sweep in range(SWEEPS):
        rows = layers.rows if sweep % 2 == 0 else layers.rows[::-1]
        beside = layers.above if sweep % 2 == 0 else layers.below
        for fixed, row in itertools.pairwise(rows):
            at = {box: index for index, box in enumerate(fixed)}
            here = {box: float(index) for index, box in enumerate(row)}
            row.sort(key=lambda box: _mean([at[each] for each in beside.get(box, ())], here[box]))
        crossings = _crossings(layers)
        if crossings < fewest:
            best, fewest = [list(row) for row in layers.rows], crossings
    layers.rows[:] = best


def _crossings(layers: _Layers) -> int:
    at = {box: index for row in layers.rows for index, box in enumerate(row)}
    count = 0
    for row in layers.rows:
        links = [(at[box], at[below]) for box in row for below in layers.below.get(box, ())]
        count += sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for index, a in enumerate(links) for b in links[index + 1 :])
    return count


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _spread(layers: _Layers) -> dict[int, float]:
    """Each box near the middle of its neighbours, none on another."""
    xs: dict[int, float] = {}
    for row in layers.rows:
        _settle(row, [0.0] * len(row), layers.widths, xs)
    for sweep in range(SWEEPS):
        rows = layers.rows if sweep % 2 == 0 else layers.rows[::-1]
        for row in rows:
            wanted = [
                _mean([xs[each] for each in (*layers.above.get(box, ()), *layers.below.get(box, ()))], xs[box])
                for box in row
            ]
            _settle(row, wanted, layers.widths, xs)
    return xs


def _settle(row: Sequence[int], wanted: Sequence[float], widths: Mapping[int, float], xs: dict[int, float]) -> None:
    """Boxes that want the same place are moved apart around it, as blocks that keep their middle."""
    blocks: list[tuple[list[int], list[float], float]] = []  # boxes, their offsets from the first, where the first is
    for box, want in zip(row, wanted, strict=True):
        boxes, offsets, start = [box], [0.0], want
        while blocks and _end(blocks[-1], widths) + GAP > start - widths[boxes[0]] / 2:
            others, before, first = blocks.pop()
            step = before[-1] + widths[others[-1]] / 2 + GAP + widths[boxes[0]] / 2
            middle = (len(others) * first + len(boxes) * (start - step)) / (len(others) + len(boxes))
            boxes, offsets, start = [*others, *boxes], [*before, *(step + each for each in offsets)], middle
        blocks.append((boxes, offsets, start))
    for boxes, offsets, start in blocks:
        xs.update((box, start + offset) for box, offset in zip(boxes, offsets, strict=True))


def _end(block: tuple[list[int], list[float], float], widths: Mapping[int, float]) -> float:
    boxes, offsets, start = block
    return start + offsets[-1] + widths[boxes[-1]] / 2


def _route(
    pair: Pair, forward: Pair, bends: Mapping[Pair, list[int]], at: Mapping[int, tuple[float, float]]
) -> tuple[tuple[float, float], ...]:
    points = [at[box] for box in (forward[0], *bends[forward], forward[1])]
    return tuple(points if pair == forward else reversed(points))
