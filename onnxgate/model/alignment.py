"""Which node of one graph is which of another, by how they are wired; names decide only where nothing else does.

From the surest to the least sure: what computes the same from the inputs, what has the same future up to the outputs,
what holds the same weights, what stands in the same order; then neighbours of what is known. A node that was put in or
taken out leaves the counterparts of all others as they were.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence

from onnxgate.model.exchanges import Exchanges
from onnxgate.model.fingerprints import Fingerprints, Likeness, Strictness, Symbols
from onnxgate.model.neighbours import Neighbours
from onnxgate.model.sequences import common, increasing
from onnxgate.model.wiring import Operator, Source, Wiring

STRICTNESSES: tuple[Strictness, ...] = ("exact", "shaped", "loose", "bare")
LEVELS: tuple[Strictness, ...] = ("shaped", "loose")
Keys = tuple[list[int], list[int]]


class Alignment:
    """The counterparts of one pair of graphs; of those inside nodes, with the one around them as `around`."""

    def __init__(
        self,
        old: Wiring,
        new: Wiring,
        symbols: Symbols,
        operator: Callable[[Operator], Operator] = lambda it: it,
        around: Alignment | None = None,
    ) -> None:
        self.old, self.new, self.around = old, new, around
        self._symbols, self._operator = symbols, operator
        self.forth: dict[int, int] = {}
        self.back: dict[int, int] = {}
        self._inputs = _inputs(old, new, by_name=around is None)
        self._ranks = _ranks(old), _ranks(new)
        self._names = [node.name for node in old.nodes], [node.name for node in new.nodes]
        self._align()

    def pair(self, old: int, new: int) -> None:
        """Make these counterparts, and nothing else of either."""
        self.part(old)
        if new in self.back:
            self.part(self.back[new])
        self.forth[old] = new
        self.back[new] = old

    def part(self, old: int) -> None:
        """Take a node's counterpart from it."""
        new = self.forth.pop(old, None)
        if new is not None:
            del self.back[new]

    def same(self, old: Source, new: Source) -> bool:
        """Both are the same value, as far as counterparts are known; weights are by what they hold."""
        return self.value(old, is_old=True) == self.value(new, is_old=False)

    def value(self, source: Source, *, is_old: bool) -> Hashable:
        """The same for what is the same value in both graphs."""
        wiring = self.old if is_old else self.new
        match source.kind:
            case "node":
                known = source.node if not is_old else self.forth.get(source.node)
                if is_old or source.node in self.back:
                    return ("node", known, source.index) if known is not None else ("gone", source.node, source.index)
                return ("new", source.node, source.index)
            case "input":
                return ("input", self._inputs[not is_old].get(source.name))
            case "weight":
                weight = wiring.weights[source.name]
                return ("weight", weight.content)
            case "outer" if self.around is not None and wiring.parent is not None:
                return ("around", self.around.value(wiring.parent.resolve(source.name), is_old=is_old))
            case _:
                return (source.kind, source.name)

    def _align(self) -> None:
        self._prints = {level: self._fingerprints(level) for level in STRICTNESSES}
        if any(self._whole(level) and self._alike(level) for level in LEVELS):
            return
        forward, backward = self._keys("exact")
        self._group([forward, backward])
        self._group([forward])
        self._by_weights("exact")
        self._group([self._keys("exact")[0]])  # what follows a weight belongs to it rather than to what comes after
        self._group([self._keys("exact")[1]])
        self._by_weights("alike")
        for level in LEVELS:
            if self.is_complete:
                break
            self._group([*self._keys(level)])
            self._group([self._keys(level)[0]], names_first=True)
            self._group([self._keys(level)[1]], names_first=True)
            self._in_order(level)
            Neighbours(self).spread()
        if not self.is_complete:
            self._by_name()
            self._in_order("bare")
        Exchanges(self).settle()

    @property
    def is_complete(self) -> bool:
        """There is no pair of nodes left that could be counterparts."""
        return len(self.forth) == min(len(self.old.nodes), len(self.new.nodes))

    def _fingerprints(self, level: Strictness) -> tuple[Fingerprints, Fingerprints]:
        def old_leaf(source: Source) -> Hashable:
            return self.value(source, is_old=True)

        def new_leaf(source: Source) -> Hashable:
            return self.value(source, is_old=False)

        return (
            Fingerprints(self.old, self._symbols, level, lambda it: it, old_leaf),
            Fingerprints(self.new, self._symbols, level, self._operator, new_leaf),
        )

    def _keys(self, level: Strictness) -> tuple[Keys, Keys]:
        """Forward and backward fingerprints, each of old and new."""
        old, new = self._prints[level]
        known = {index: index for index in self.back}
        return (old.forward(self.forth), new.forward(known)), (old.backward(self.forth), new.backward(known))

    def _whole(self, level: Strictness) -> bool:
        """Both graphs are wired alike altogether."""
        old, new = self._prints[level]
        return len(self.old.nodes) == len(self.new.nodes) and old.whole() == new.whole()

    def _alike(self, level: Strictness) -> bool:
        """Counterparts of graphs that are wired alike; what weights hold tells twins apart."""
        keys, exact = self._keys(level), self._keys("exact")
        self._group([*keys, *exact])
        self._group([*keys, exact[0]])
        self._group([*keys, exact[1]])
        self._group([*keys])
        return len(self.forth) == len(self.old.nodes)

    def _group(self, keys: Sequence[Keys], *, names_first: bool = False) -> None:
        """Make counterparts of nodes that agree in all the keys, where it is clear which is which."""
        groups: defaultdict[tuple[int, ...], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for index in self.old.order:
            if index not in self.forth:
                groups[tuple(key[0][index] for key in keys)][0].append(index)
        for index in self.new.order:
            if index not in self.back:
                groups[tuple(key[1][index] for key in keys)][1].append(index)
        for old, new in groups.values():
            if len(old) == len(new) == 1:
                self.pair(old[0], new[0])
            elif old and new:
                self._ties(old, new, names_first=names_first)

    def _ties(self, old: Sequence[int], new: Sequence[int], *, names_first: bool) -> None:
        """Twins: those of one name, then the others in their order, where there are as many of them."""
        named = {self._names[1][index]: index for index in new}
        for index in old:
            other = named.pop(self._names[0][index], None)
            if other is not None:
                self.pair(index, other)
        rest = [index for index in old if index not in self.forth], [index for index in new if index not in self.back]
        if len(rest[0]) == len(rest[1]) and not (names_first and len(rest[0]) > 1):
            for index, other in zip(*rest, strict=True):
                self.pair(index, other)

    def _by_weights(self, likeness: Likeness) -> None:
        """Nodes with weights that no other node has, or like no other's, as far as they stand in the same order."""
        old, new = self._prints["shaped"]
        first = _unique(old.with_weights(likeness, [i for i in self.old.order if i not in self.forth]))
        second = _unique(new.with_weights(likeness, [i for i in self.new.order if i not in self.back]))
        found = [(first[key], second[key]) for key in first if key in second]
        found.sort(key=lambda it: self._ranks[0][it[0]])
        for place in increasing([self._ranks[1][new] for _, new in found]):
            self.pair(*found[place])

    def _by_name(self) -> None:
        """Nodes of the same operator which nothing else in their graph is called like."""
        first = _unique((i, (node.operator, node.name)) for i, node in enumerate(self.old.nodes) if i not in self.forth)
        second = _unique(
            (i, (self._operator(node.operator), node.name))
            for i, node in enumerate(self.new.nodes)
            if i not in self.back
        )
        for key, old in first.items():
            if key in second:
                self.pair(old, second[key])

    def _in_order(self, level: Strictness) -> None:
        """Nodes of equal fingerprints of their own that stand in the same order between those that are known."""
        old, new = (it.own() for it in self._prints[level])
        known = sorted((self._ranks[0][i], self._ranks[1][j]) for i, j in self.forth.items())
        spine = [known[place] for place in increasing([rank for _, rank in known])]
        before = (-1, -1)
        for after in (*spine, (len(self.old.order), len(self.new.order))):
            first = [i for i in self.old.order[before[0] + 1 : after[0]] if i not in self.forth]
            second = [i for i in self.new.order[before[1] + 1 : after[1]] if i not in self.back]
            for i, j in common([old[i] for i in first], [new[j] for j in second]):
                self.pair(first[i], second[j])
            before = after

    @property
    def names(self) -> tuple[list[str], list[str]]:
        """What readers call the nodes of old and new."""
        return self._names

    def operators(self, old: int, new: int) -> bool:
        """Both nodes are of the same operator."""
        return self.old.nodes[old].operator == self._operator(self.new.nodes[new].operator)


def _inputs(old: Wiring, new: Wiring, *, by_name: bool) -> tuple[dict[str, int], dict[str, int]]:
    """A number for each input, the same for counterparts: by name, the others by position."""
    if not by_name:
        return old.inputs, new.inputs
    numbers = {name: index for index, name in enumerate(old.inputs)}
    gone = [name for name in old.inputs if name not in new.inputs]
    added = [name for name in new.inputs if name not in old.inputs]
    renamed = dict(zip(added, gone, strict=False)) if len(gone) == len(added) else {}
    fresh = {name: len(numbers) + index for index, name in enumerate(added)}
    return numbers, {name: numbers.get(renamed.get(name, name), fresh.get(name, -1)) for name in new.inputs}


def _ranks(wiring: Wiring) -> list[int]:
    """For each node its place in the order of the wiring."""
    ranks = [0] * len(wiring.nodes)
    for rank, index in enumerate(wiring.order):
        ranks[index] = rank
    return ranks


def _unique(keys: Iterable[tuple[int, Hashable]]) -> dict[Hashable, int]:
    """The nodes that alone have their key."""
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for index, key in keys:
        groups[key].append(index)
    return {key: indices[0] for key, indices in groups.items() if len(indices) == 1}
