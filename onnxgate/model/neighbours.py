"""Counterparts of nodes by their neighbours: how well two nodes fit, and which lie beside known ones."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from onnxgate.model.drift import resemble
from onnxgate.model.wiring import Source, Weight, Wiring

if TYPE_CHECKING:
    from onnxgate.model.alignment import Alignment

FAR = 200
"""Through so many nodes without counterparts nothing is followed."""
CROWD = 40
"""Of so many readers of one value and more, neighbours tell nothing."""
_INPUTS, _ALIKE, _ATTRIBUTES, _NAME = 1.2, 0.9, 0.3, 0.1


class Neighbours:
    """The neighbourhoods of an alignment's nodes."""

    def __init__(self, alignment: Alignment) -> None:
        self._it = alignment
        self._alike: dict[tuple[int, int], float] = {}

    @cached_property
    def _readers(self) -> tuple[dict[Hashable, list[int]], dict[Hashable, list[int]]]:
        return self._reading(is_old=True), self._reading(is_old=False)

    @cached_property
    def _ends(self) -> tuple[dict[int, set[tuple[int, int]]], dict[int, set[tuple[int, int]]]]:
        return _ends(self._it.old), _ends(self._it.new)

    def _reading(self, *, is_old: bool) -> dict[Hashable, list[int]]:
        """Readers of each input of the graph."""
        found: dict[Hashable, list[int]] = {}
        for node in (self._it.old if is_old else self._it.new).nodes:
            for source in node.every:
                if source.kind == "input":
                    found.setdefault(self._it.value(source, is_old=is_old), []).append(node.index)
        return found

    def spread(self) -> None:
        """Make counterparts of neighbours of counterparts, the best fit first, until there are no more."""
        heap: list[tuple[float, int, int]] = []
        for old, new in self._seeds():
            self._push(heap, old, new)
        while heap:
            expected, old, new = heapq.heappop(heap)
            if old in self._it.forth or new in self._it.back:
                continue
            fit = self.fit(old, new)
            if -expected != fit:
                heapq.heappush(heap, (-fit, old, new))
                continue
            self._it.pair(old, new)
            for pair in self._around(old, new):
                self._push(heap, *pair)

    def fit(self, old: int, new: int) -> float:
        """How well two nodes fit: inputs, readers and weights that agree, inputs most; a little for the rest."""
        around = _INPUTS * self._inputs(old, new) + self._outputs(old, new)
        return around + self._weights(old, new) + self._rest(old, new)

    def _push(self, heap: list[tuple[float, int, int]], old: int, new: int) -> None:
        free = old not in self._it.forth and new not in self._it.back
        if free and self._it.operators(old, new):
            heapq.heappush(heap, (-self.fit(old, new), old, new))

    def _seeds(self) -> Iterator[tuple[int, int]]:
        for old, new in list(self._it.forth.items()):
            yield from self._around(old, new)
        for key, readers in self._readers[0].items():
            yield from _product(readers, self._readers[1].get(key, ()))
        for a, b in zip(self._it.old.outputs, self._it.new.outputs, strict=False):
            if a.kind == b.kind == "node":
                yield a.node, b.node

    def _around(self, old: int, new: int) -> Iterator[tuple[int, int]]:
        """Makers of the same input, and readers of the same output."""
        before, after = self._it.old.nodes[old], self._it.new.nodes[new]
        for a, b in zip(before.every, after.every, strict=False):
            if a.kind == b.kind == "node" and a.index == b.index:
                yield a.node, b.node
        first, second = self._it.old.consumers[old], self._it.new.consumers[new]
        yield from _product([it[1] for it in first], [it[1] for it in second])

    def _inputs(self, old: int, new: int) -> float:
        before, after = (
            [it for it in wiring.nodes[index].every if it.kind != "nothing" and wiring.weight(it) is None]
            for wiring, index in ((self._it.old, old), (self._it.new, new))
        )
        agreeing = sum(self._it.same(a, b) for a, b in zip(before, after, strict=False))
        return agreeing / max(len(before), len(after), 1)

    def _outputs(self, old: int, new: int) -> float:
        first = {(out, self._it.forth.get(reader), slot) for out, reader, slot in self._it.old.consumers[old]}
        second = {(out, reader, slot) for out, reader, slot in self._it.new.consumers[new]}
        ends = self._ends[0].get(old, set()), self._ends[1].get(new, set())
        agreeing = len(first & second) + len(ends[0] & ends[1])
        most = max(len(self._it.old.consumers[old]) + len(ends[0]), len(second) + len(ends[1]), 1)
        return agreeing / most

    def _weights(self, old: int, new: int) -> float:
        first, second = _weights(self._it.old, old), _weights(self._it.new, new)
        agreeing = sum(self._likeness(weight, second.get(slot)) for slot, weight in first.items())
        return agreeing / max(len(first), len(second), 1)

    def _likeness(self, old: Weight, new: Weight | None) -> float:
        if new is None:
            return 0
        if old.content == new.content:
            return 1
        key = (id(old), id(new))
        if key not in self._alike:
            self._alike[key] = _ALIKE * resemble(old, new)
        return self._alike[key]

    def _rest(self, old: int, new: int) -> float:
        attributes = self._it.old.nodes[old].attributes == self._it.new.nodes[new].attributes
        return _ATTRIBUTES * attributes + _NAME * (self._it.names[0][old] == self._it.names[1][new])

    def through(self, old: Source, new: Source) -> bool:
        """Both come from one value, through nodes that have no counterparts alone."""
        first = self.origins(old, is_old=True)
        return bool(first) and not first.isdisjoint(self.origins(new, is_old=False))

    def origins(self, source: Source, *, is_old: bool) -> frozenset[Hashable]:
        """What a value is made of, up to nodes that have counterparts; weights tell nothing."""
        wiring, known = (self._it.old, self._it.forth) if is_old else (self._it.new, self._it.back)
        found: set[Hashable] = set()
        seen: set[int] = set()
        stack = [source]
        while stack and len(seen) < FAR:
            each = stack.pop()
            if each.kind == "node" and each.node not in known:
                stack += wiring.nodes[each.node].every if each.node not in seen else ()
                seen.add(each.node)
            elif each.kind in ("node", "input"):
                found.add(self._it.value(each, is_old=is_old))
            elif each.kind == "outer" and self._it.around is not None and wiring.parent is not None:
                around = Neighbours(self._it.around).origins(wiring.parent.resolve(each.name), is_old=is_old)
                found.update(("around", value) for value in around)
        return frozenset(found)


def _product(first: Iterable[int], second: Iterable[int]) -> Iterator[tuple[int, int]]:
    left, right = list(first), list(second)
    if len(left) <= CROWD and len(right) <= CROWD:
        for a in left:
            for b in right:
                yield a, b


def _weights(wiring: Wiring, index: int) -> dict[int, Weight]:
    found = ((slot, wiring.weight(source)) for slot, source in enumerate(wiring.nodes[index].sources))
    return {slot: weight for slot, weight in found if weight is not None}


def _ends(wiring: Wiring) -> dict[int, set[tuple[int, int]]]:
    """Which outputs of the graph each node makes."""
    found: dict[int, set[tuple[int, int]]] = {}
    for position, source in enumerate(wiring.outputs):
        if source.kind == "node":
            found.setdefault(source.node, set()).add((source.index, position))
    return found
