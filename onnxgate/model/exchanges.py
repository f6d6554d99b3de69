"""Counterparts that fit better elsewhere are exchanged, and those that nothing supports are parted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest

from onnxgate.model.neighbours import CROWD, FAR, Neighbours
from onnxgate.model.wiring import NOTHING, Source, Wiring, telling

_PASSES = 4
_MOST_DOUBTFUL = 4000
_GAIN = 0.05


class Exchanges(Neighbours):
    """Those of an alignment that is otherwise done."""

    def settle(self) -> None:
        """Exchange counterparts where others fit better, part those that nothing supports, and spread again."""
        for _ in range(_PASSES):
            doubtful = [old for old, new in self._it.forth.items() if not self._perfect(old, new)]
            exchanged = [self._exchange(old) for old in doubtful[:_MOST_DOUBTFUL]]
            self.spread()
            if not any(exchanged):
                break
        self._part()

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
                found.update(reader for _, reader, _ in uses[:CROWD])
            elif source.kind == "input":
                found.update(self._readers[1].get(self._it.value(source, is_old=True), ())[:CROWD])
        for _, reader, slot in self._it.old.consumers[old][:CROWD]:
            sources = self._it.new.nodes[self._it.forth[reader]].sources if reader in self._it.forth else ()
            found.update(it.node for it in sources[slot : slot + 1] if slot >= 0 and it.kind == "node")
        found.update(_made_by(self._it.new, self._ends[0].get(old, ())))
        return found

    def _near_back(self, new: int) -> set[int]:
        found: set[int] = set()
        for source in self._it.new.nodes[new].every:
            if source.kind == "node" and source.node in self._it.back:
                uses = self._it.old.consumers[self._it.back[source.node]]
                found.update(reader for _, reader, _ in uses[:CROWD])
            elif source.kind == "input":
                found.update(self._readers[0].get(self._it.value(source, is_old=False), ())[:CROWD])
        for _, reader, slot in self._it.new.consumers[new][:CROWD]:
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

    def _leads_to(self, old: int, new: int) -> bool:
        """Both lead to one reader, through nodes that have no counterparts alone."""
        first = {self._it.forth.get(it, it) for it in _ends_of(self._it.old, old, self._it.forth)}
        return bool(first & set(_ends_of(self._it.new, new, self._it.back)))


def _ends_of(wiring: Wiring, index: int, known: dict[int, int]) -> Iterator[int]:
    seen: set[int] = set()
    stack = [index]
    while stack and len(seen) < FAR:
        for _, reader, _ in wiring.consumers[stack.pop()]:
            if reader in known:
                yield reader
            elif reader not in seen:
                seen.add(reader)
                stack.append(reader)


def _made_by(wiring: Wiring, ends: Iterable[tuple[int, int]]) -> Iterator[int]:
    """What makes these outputs of a graph."""
    for _, position in ends:
        if position < len(wiring.outputs) and wiring.outputs[position].kind == "node":
            yield wiring.outputs[position].node
