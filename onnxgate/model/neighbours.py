"""Counterparts of nodes by their neighbours: found where they lack, and corrected where others fit better."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING

from onnxgate.model.drift import resemble
from onnxgate.model.wiring import NOTHING, Source, Weight, Wiring, telling

if TYPE_CHECKING:
    from onnxgate.model.alignment import Alignment

_PASSES = 4
_MOST_DOUBTFUL = 4000
_FAR = 200
"""Through so many nodes without counterparts nothing is followed."""
_CROWD = 40
"""Of so many readers of one value and more, neighbours tell nothing."""
_INPUTS, _ALIKE, _ATTRIBUTES, _NAME = 1.2, 0.9, 0.3, 0.1
_GAIN = 0.05


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

    def settle(self) -> None:
        """Exchange counterparts where others fit better, part those that nothing supports, and spread again."""
        for _ in range(_PASSES):
            doubtful = [old for old, new in self._it.forth.items() if not self._perfect(old, new)]
            exchanged = [self._exchange(old) for old in doubtful[:_MOST_DOUBTFUL]]
            self.spread()
            if not any(exchanged):
                break
        self._part()

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

    def _perfect(self, old: int, new: int) -> bool:
        return self._inputs(old, new) >= 1 and self._outputs(old, new) >= 1

    def _exchange(self, old: int) -> bool:
        """Give a node another counterpart where that leaves less to be said, or both neighbourhoods fit better."""
        new = self._it.forth.get(old)
        return new is not None and any(self._try(proposal) for proposal in self._proposals(old, new))

    def _proposals(self, old: int, new: int) -> Iterator[dict[int, int | None]]:
        """Other counterparts for a node and for the one that it has now; None takes a node's from it."""
        free = [
            it
            for it in sorted(self._near_back(new))
            if it != old and it not in self._it.forth and self._it.operators(it, new)
        ]
        others = [it for it in self._near(old) if it != new and self._it.operators(old, it)]
        for other in sorted(others, key=lambda it: (-self.fit(old, it), it))[:3]:
            holder = self._it.back.get(other)
            if holder is not None:
                yield {old: other, holder: new if self._it.operators(holder, new) else None}
            else:
                for rival in free[:3]:
                    yield {old: other, rival: new}
                yield {old: other}
        for rival in free[:3]:
            yield {old: None, rival: new}

    def _try(self, proposal: dict[int, int | None]) -> bool:
        """Make the exchange where it gains something."""
        was = {old: self._it.forth.get(old) for old in proposal}
        olds = list(proposal)
        news = list({new for new in (*proposal.values(), *was.values()) if new is not None})
        affected = self._affected(olds, news)
        self._assign(proposal)
        affected |= self._affected(olds, news)
        after = self._worth(olds, news, affected)
        self._assign(was)
        before = self._worth(olds, news, affected)
        gains = after[0] < before[0] or (after[0] == before[0] and after[1] > before[1] + _GAIN)
        if gains:
            self._assign(proposal)
        return gains

    def _assign(self, counterparts: dict[int, int | None]) -> None:
        for old in counterparts:
            self._it.part(old)
        for old, new in counterparts.items():
            if new is not None:
                self._it.pair(old, new)

    def _worth(self, olds: list[int], news: list[int], affected: set[int]) -> tuple[int, float]:
        """How much there is to be said of these nodes and of what they affect, and how well they fit."""
        forth = self._it.forth
        said = sum(old not in forth for old in olds) + sum(new not in self._it.back for new in news)
        said += sum(self.changes(old, forth[old]) for old in {*affected, *olds} if old in forth)
        said += self._changed_ends(olds, news)
        return said, sum(self.fit(old, forth[old]) for old in olds if old in forth)

    def _affected(self, olds: list[int], news: list[int]) -> set[int]:
        """Nodes of old that have counterparts and read from these, or through nodes that have none."""
        found = {reader for old in olds for reader in _ends_of(self._it.old, old, self._it.forth)}
        return found | {self._it.back[reader] for new in news for reader in _ends_of(self._it.new, new, self._it.back)}

    def changes(self, old: int, new: int) -> int:
        """How many inputs of two counterparts are others, two that are swapped as one; one more for attributes."""
        before, after = self._it.old.nodes[old], self._it.new.nodes[new]
        slots = list(zip_longest(before.every, after.every, fillvalue=NOTHING))
        others = [pair for pair in slots if self._is_other(*pair)]
        swapped = (
            len(others) == 2 and self._it.same(others[0][0], others[1][1]) and self._it.same(others[1][0], others[0][1])
        )
        return (1 if swapped else len(others)) + (before.attributes != after.attributes)

    def _is_other(self, old: Source, new: Source) -> bool:
        """It comes from elsewhere and no node without a counterpart explains it, or it holds something else."""
        return not self._it.same(old, new) and not self.through(old, new)

    def _changed_ends(self, olds: list[int], news: list[int]) -> int:
        ends = {position for old in olds for _, position in self._ends[0].get(old, ())}
        ends |= {position for new in news for _, position in self._ends[1].get(new, ())}
        old, new = self._it.old.outputs, self._it.new.outputs
        return sum(self._is_other(old[it], new[it]) for it in ends if it < min(len(old), len(new)))

    def _near(self, old: int) -> set[int]:
        """Where the counterparts of a node's neighbours say that its own is."""
        found: set[int] = set()
        for source in self._it.old.nodes[old].every:
            if source.kind == "node" and source.node in self._it.forth:
                uses = self._it.new.consumers[self._it.forth[source.node]]
                found.update(reader for _, reader, _ in uses[:_CROWD])
            elif source.kind == "input":
                found.update(self._readers[1].get(self._it.value(source, is_old=True), ())[:_CROWD])
        for _, reader, slot in self._it.old.consumers[old][:_CROWD]:
            sources = self._it.new.nodes[self._it.forth[reader]].sources if reader in self._it.forth else ()
            found.update(it.node for it in sources[slot : slot + 1] if slot >= 0 and it.kind == "node")
        found.update(_made_by(self._it.new, self._ends[0].get(old, ())))
        return found

    def _near_back(self, new: int) -> set[int]:
        found: set[int] = set()
        for source in self._it.new.nodes[new].every:
            if source.kind == "node" and source.node in self._it.back:
                uses = self._it.old.consumers[self._it.back[source.node]]
                found.update(reader for _, reader, _ in uses[:_CROWD])
            elif source.kind == "input":
                found.update(self._readers[0].get(self._it.value(source, is_old=False), ())[:_CROWD])
        for _, reader, slot in self._it.new.consumers[new][:_CROWD]:
            sources = self._it.old.nodes[self._it.back[reader]].sources if reader in self._it.back else ()
            found.update(it.node for it in sources[slot : slot + 1] if slot >= 0 and it.kind == "node")
        found.update(_made_by(self._it.old, self._ends[1].get(new, ())))
        return found

    def _part(self) -> None:
        """Part counterparts that agree in nothing but their operator."""
        for old, new in list(self._it.forth.items()):
            if not self._supported(old, new):
                self._it.part(old)

    def _supported(self, old: int, new: int) -> bool:
        if self._inputs(old, new) or self._outputs(old, new):
            return True
        if telling(self._it.new, new) and self._weights(old, new):
            return True
        if self._it.names[0][old] == self._it.names[1][new]:
            return True
        before, after = self._it.old.nodes[old].every, self._it.new.nodes[new].every
        return any(self.through(a, b) for a, b in zip(before, after, strict=False)) or self._leads_to(old, new)

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
        while stack and len(seen) < _FAR:
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

    def _leads_to(self, old: int, new: int) -> bool:
        """Both lead to one reader, through nodes that have no counterparts alone."""
        first = {self._it.forth.get(it, it) for it in _ends_of(self._it.old, old, self._it.forth)}
        return bool(first & set(_ends_of(self._it.new, new, self._it.back)))


def _ends_of(wiring: Wiring, index: int, known: dict[int, int]) -> Iterator[int]:
    seen: set[int] = set()
    stack = [index]
    while stack and len(seen) < _FAR:
        for _, reader, _ in wiring.consumers[stack.pop()]:
            if reader in known:
                yield reader
            elif reader not in seen:
                seen.add(reader)
                stack.append(reader)


def _product(first: Iterable[int], second: Iterable[int]) -> Iterator[tuple[int, int]]:
    left, right = list(first), list(second)
    if len(left) <= _CROWD and len(right) <= _CROWD:
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


def _made_by(wiring: Wiring, ends: Iterable[tuple[int, int]]) -> Iterator[int]:
    """What makes these outputs of a graph."""
    for _, position in ends:
        if position < len(wiring.outputs) and wiring.outputs[position].kind == "node":
            yield wiring.outputs[position].node
