"""Matching of the nodes of two graphs by their connections; names only break ties.

From the strongest evidence to the weakest: the same computation from the inputs, the same readers up to the outputs,
the same weights, the same order; then neighbours of matched nodes. An added or removed node does not affect how the
others are matched.
"""

from __future__ import annotations

import difflib
import heapq
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import zip_longest

from onnxgate.model.equality.similarity import KeyNumbers, NodeHashes, Strictness, WeightCriterion, is_similar
from onnxgate.model.reading.graph import NO_VALUE, Graph, OperatorKey, ValueSource, Weight, has_distinctive_weight

STRICTNESSES: tuple[Strictness, ...] = ("exact", "shaped", "loose", "bare")
SHARED_STRICTNESSES: tuple[Strictness, ...] = ("shaped", "loose")
KeyLists = tuple[list[int], list[int]]


class NodeMatching:
    """Matched nodes of one pair of graphs; `around` is the matching of the enclosing graphs, if any."""

    def __init__(
        self,
        old: Graph,
        new: Graph,
        symbols: KeyNumbers,
        operator: Callable[[OperatorKey], OperatorKey] = lambda it: it,
        around: NodeMatching | None = None,
    ) -> None:
        self.old, self.new, self.around = old, new, around
        self._symbols, self._operator = symbols, operator
        self.forth: dict[int, int] = {}
        self.back: dict[int, int] = {}
        self._inputs = _number_inputs(old, new, by_name=around is None)
        self._ranks = _topological_ranks(old), _topological_ranks(new)
        self._names = [node.name for node in old.nodes], [node.name for node in new.nodes]
        self._align()

    def pair(self, old: int, new: int) -> None:
        """Match two nodes, and drop their previous matches."""
        self.part(old)
        if new in self.back:
            self.part(self.back[new])
        self.forth[old] = new
        self.back[new] = old

    def part(self, old: int) -> None:
        """Drop the match of a node."""
        new = self.forth.pop(old, None)
        if new is not None:
            del self.back[new]

    def same(self, old: ValueSource, new: ValueSource) -> bool:
        """Return whether both are the same value by the matched nodes; weights are compared by content."""
        return self.value(old, is_old=True) == self.value(new, is_old=False)

    def value(self, source: ValueSource, *, is_old: bool) -> Hashable:
        """Return a key that is equal for the same value in both graphs."""
        wiring = self.old if is_old else self.new
        match source.kind:
            case "node":
                counterpart = source.node if not is_old else self.forth.get(source.node)
                if is_old or source.node in self.back:
                    if counterpart is None:
                        return ("gone", source.node, source.index)
                    return ("node", counterpart, source.index)
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
        if any(self._whole(level) and self._alike(level) for level in SHARED_STRICTNESSES):
            return
        forward, backward = self._keys("exact")
        self._group([forward, backward])
        self._group([forward])
        self._by_weights("exact")
        self._group([self._keys("exact")[0]])  # what follows a weight belongs to it rather than to what comes after
        self._group([self._keys("exact")[1]])
        self._by_weights("alike")
        for level in SHARED_STRICTNESSES:
            if self.is_complete:
                break
            self._group([*self._keys(level)])
            self._group([self._keys(level)[0]], names_first=True)
            self._group([self._keys(level)[1]], names_first=True)
            self._in_order(level)
            NeighbourMatching(self).spread()
        if not self.is_complete:
            self._by_name()
            self._in_order("bare")
        MatchRefinement(self).settle()

    @property
    def is_complete(self) -> bool:
        """All nodes of the smaller graph are matched."""
        return len(self.forth) == min(len(self.old.nodes), len(self.new.nodes))

    def _fingerprints(self, level: Strictness) -> tuple[NodeHashes, NodeHashes]:
        def old_leaf(source: ValueSource) -> Hashable:
            return self.value(source, is_old=True)

        def new_leaf(source: ValueSource) -> Hashable:
            return self.value(source, is_old=False)

        return (
            NodeHashes(self.old, self._symbols, level, lambda it: it, old_leaf),
            NodeHashes(self.new, self._symbols, level, self._operator, new_leaf),
        )

    def _keys(self, level: Strictness) -> tuple[KeyLists, KeyLists]:
        """Return forward and backward hashes, each for old and new."""
        old, new = self._prints[level]
        matched = {index: index for index in self.back}
        return (old.forward(self.forth), new.forward(matched)), (old.backward(self.forth), new.backward(matched))

    def _whole(self, level: Strictness) -> bool:
        """Return whether both graphs have the same structure."""
        old, new = self._prints[level]
        return len(self.old.nodes) == len(self.new.nodes) and old.whole() == new.whole()

    def _alike(self, level: Strictness) -> bool:
        """Match graphs of the same structure; the content of weights breaks ties."""
        keys, exact = self._keys(level), self._keys("exact")
        self._group([*keys, *exact])
        self._group([*keys, exact[0]])
        self._group([*keys, exact[1]])
        self._group([*keys])
        return len(self.forth) == len(self.old.nodes)

    def _group(self, keys: Sequence[KeyLists], *, names_first: bool = False) -> None:
        """Match nodes that agree in all the keys, if the match is unique."""
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
        """Match nodes of equal keys by name, then by order if there are as many in both graphs."""
        named = {self._names[1][index]: index for index in new}
        for index in old:
            other = named.pop(self._names[0][index], None)
            if other is not None:
                self.pair(index, other)
        rest = [index for index in old if index not in self.forth], [index for index in new if index not in self.back]
        if len(rest[0]) == len(rest[1]) and not (names_first and len(rest[0]) > 1):
            for index, other in zip(*rest, strict=True):
                self.pair(index, other)

    def _by_weights(self, likeness: WeightCriterion) -> None:
        """Match nodes with unique weights, by content or similarity, as far as their order is the same."""
        old, new = self._prints["shaped"]
        first = _nodes_with_unique_key(old.with_weights(likeness, [i for i in self.old.order if i not in self.forth]))
        second = _nodes_with_unique_key(new.with_weights(likeness, [i for i in self.new.order if i not in self.back]))
        pairs = [(first[key], second[key]) for key in first if key in second]
        pairs.sort(key=lambda it: self._ranks[0][it[0]])
        for place in longest_increasing_subsequence([self._ranks[1][new] for _, new in pairs]):
            self.pair(*pairs[place])

    def _by_name(self) -> None:
        """Match nodes of the same operator by unique names."""
        first = _nodes_with_unique_key(
            (i, (node.operator, node.name)) for i, node in enumerate(self.old.nodes) if i not in self.forth
        )
        second = _nodes_with_unique_key(
            (i, (self._operator(node.operator), node.name))
            for i, node in enumerate(self.new.nodes)
            if i not in self.back
        )
        for key, old in first.items():
            if key in second:
                self.pair(old, second[key])

    def _in_order(self, level: Strictness) -> None:
        """Match nodes of equal own hashes that are in the same order between matched nodes."""
        old, new = (it.own() for it in self._prints[level])
        ranks = sorted((self._ranks[0][i], self._ranks[1][j]) for i, j in self.forth.items())
        spine = [ranks[place] for place in longest_increasing_subsequence([rank for _, rank in ranks])]
        before = (-1, -1)
        for after in (*spine, (len(self.old.order), len(self.new.order))):
            first = [i for i in self.old.order[before[0] + 1 : after[0]] if i not in self.forth]
            second = [i for i in self.new.order[before[1] + 1 : after[1]] if i not in self.back]
            for i, j in common_subsequence([old[i] for i in first], [new[j] for j in second]):
                self.pair(first[i], second[j])
            before = after

    @property
    def names(self) -> tuple[list[str], list[str]]:
        """Names of the nodes of old and new."""
        return self._names

    def operators(self, old: int, new: int) -> bool:
        """Both nodes are of the same operator."""
        return self.old.nodes[old].operator == self._operator(self.new.nodes[new].operator)


def _number_inputs(old: Graph, new: Graph, *, by_name: bool) -> tuple[dict[str, int], dict[str, int]]:
    """Number the inputs of both graphs, equally for the same name, and for renamed ones at the same position."""
    if not by_name:
        return old.inputs, new.inputs
    numbers = {name: index for index, name in enumerate(old.inputs)}
    gone = [name for name in old.inputs if name not in new.inputs]
    added = [name for name in new.inputs if name not in old.inputs]
    renamed = dict(zip(added, gone, strict=False)) if len(gone) == len(added) else {}
    fresh = {name: len(numbers) + index for index, name in enumerate(added)}
    return numbers, {name: numbers.get(renamed.get(name, name), fresh.get(name, -1)) for name in new.inputs}


def _topological_ranks(wiring: Graph) -> list[int]:
    """Return the position of each node in topological order."""
    ranks = [0] * len(wiring.nodes)
    for rank, index in enumerate(wiring.order):
        ranks[index] = rank
    return ranks


def _nodes_with_unique_key(keys: Iterable[tuple[int, Hashable]]) -> dict[Hashable, int]:
    """Return the nodes whose key is unique."""
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for index, key in keys:
        groups[key].append(index)
    return {key: indices[0] for key, indices in groups.items() if len(indices) == 1}


MAX_FOLLOWED_NODES = 200
"""At most this many unmatched nodes are followed from a value."""
MAX_READERS = 40
"""Values with more readers are not used to match neighbours."""
_INPUT_FACTOR, _SIMILAR_WEIGHT_FACTOR, _ATTRIBUTE_FACTOR, _NAME_FACTOR = 1.2, 0.9, 0.3, 0.1


class NeighbourMatching:
    """Matching of nodes by their matched neighbours."""

    def __init__(self, alignment: NodeMatching) -> None:
        self._it = alignment
        self._alike: dict[tuple[int, int], float] = {}

    @cached_property
    def _readers(self) -> tuple[dict[Hashable, list[int]], dict[Hashable, list[int]]]:
        return self._reading(is_old=True), self._reading(is_old=False)

    @cached_property
    def _ends(self) -> tuple[dict[int, set[tuple[int, int]]], dict[int, set[tuple[int, int]]]]:
        return _outputs_by_node(self._it.old), _outputs_by_node(self._it.new)

    def _reading(self, *, is_old: bool) -> dict[Hashable, list[int]]:
        """Map each input of the graph to its readers."""
        readers: dict[Hashable, list[int]] = {}
        for node in (self._it.old if is_old else self._it.new).nodes:
            for source in node.every:
                if source.kind == "input":
                    readers.setdefault(self._it.value(source, is_old=is_old), []).append(node.index)
        return readers

    def spread(self) -> None:
        """Match neighbours of matched nodes, the best fit first, until none is left."""
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
        """Score two nodes by equal inputs, readers and weights; attributes and names count little."""
        around = _INPUT_FACTOR * self._inputs(old, new) + self._outputs(old, new)
        return around + self._weights(old, new) + self._rest(old, new)

    def _push(self, heap: list[tuple[float, int, int]], old: int, new: int) -> None:
        free = old not in self._it.forth and new not in self._it.back
        if free and self._it.operators(old, new):
            heapq.heappush(heap, (-self.fit(old, new), old, new))

    def _seeds(self) -> Iterator[tuple[int, int]]:
        for old, new in list(self._it.forth.items()):
            yield from self._around(old, new)
        for key, readers in self._readers[0].items():
            yield from _iter_pairs(readers, self._readers[1].get(key, ()))
        for a, b in zip(self._it.old.outputs, self._it.new.outputs, strict=False):
            if a.kind == b.kind == "node":
                yield a.node, b.node

    def _around(self, old: int, new: int) -> Iterator[tuple[int, int]]:
        """Yield pairs of producers of the same input and of readers of the same output."""
        before, after = self._it.old.nodes[old], self._it.new.nodes[new]
        for a, b in zip(before.every, after.every, strict=False):
            if a.kind == b.kind == "node" and a.index == b.index:
                yield a.node, b.node
        first, second = self._it.old.consumers[old], self._it.new.consumers[new]
        yield from _iter_pairs([it[1] for it in first], [it[1] for it in second])

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
        first, second = _weights_by_slot(self._it.old, old), _weights_by_slot(self._it.new, new)
        agreeing = sum(self._likeness(weight, second.get(slot)) for slot, weight in first.items())
        return agreeing / max(len(first), len(second), 1)

    def _likeness(self, old: Weight, new: Weight | None) -> float:
        if new is None:
            return 0
        if old.content == new.content:
            return 1
        key = (id(old), id(new))
        if key not in self._alike:
            self._alike[key] = _SIMILAR_WEIGHT_FACTOR * is_similar(old, new)
        return self._alike[key]

    def _rest(self, old: int, new: int) -> float:
        attributes = self._it.old.nodes[old].attributes == self._it.new.nodes[new].attributes
        return _ATTRIBUTE_FACTOR * attributes + _NAME_FACTOR * (self._it.names[0][old] == self._it.names[1][new])

    def through(self, old: ValueSource, new: ValueSource) -> bool:
        """Return whether both derive from a common value through unmatched nodes only."""
        first = self.origins(old, is_old=True)
        return bool(first) and not first.isdisjoint(self.origins(new, is_old=False))

    def origins(self, source: ValueSource, *, is_old: bool) -> frozenset[Hashable]:
        """Return the matched values and inputs that a value derives from through unmatched nodes, without weights."""
        wiring, matched = (self._it.old, self._it.forth) if is_old else (self._it.new, self._it.back)
        values: set[Hashable] = set()
        seen: set[int] = set()
        stack = [source]
        while stack and len(seen) < MAX_FOLLOWED_NODES:
            current = stack.pop()
            if current.kind == "node" and current.node not in matched:
                stack += wiring.nodes[current.node].every if current.node not in seen else ()
                seen.add(current.node)
            elif current.kind in ("node", "input"):
                values.add(self._it.value(current, is_old=is_old))
            elif current.kind == "outer" and self._it.around is not None and wiring.parent is not None:
                around = NeighbourMatching(self._it.around).origins(wiring.parent.resolve(current.name), is_old=is_old)
                values.update(("around", value) for value in around)
        return frozenset(values)


def _iter_pairs(first: Iterable[int], second: Iterable[int]) -> Iterator[tuple[int, int]]:
    left, right = list(first), list(second)
    if len(left) <= MAX_READERS and len(right) <= MAX_READERS:
        for a in left:
            for b in right:
                yield a, b


def _weights_by_slot(wiring: Graph, index: int) -> dict[int, Weight]:
    weights = ((slot, wiring.weight(source)) for slot, source in enumerate(wiring.nodes[index].sources))
    return {slot: weight for slot, weight in weights if weight is not None}


def _outputs_by_node(wiring: Graph) -> dict[int, set[tuple[int, int]]]:
    """Map each node to the graph outputs that it produces."""
    outputs: dict[int, set[tuple[int, int]]] = {}
    for position, source in enumerate(wiring.outputs):
        if source.kind == "node":
            outputs.setdefault(source.node, set()).add((source.index, position))
    return outputs


_MAX_PASSES = 4
_MAX_DOUBTFUL = 4000
_MIN_GAIN = 0.05


class MatchRefinement(NeighbourMatching):
    """Local search that improves a complete matching."""

    def settle(self) -> None:
        """Exchange matches for better ones, match neighbours again, and drop matches without support."""
        for _ in range(_MAX_PASSES):
            doubtful = [old for old, new in self._it.forth.items() if not self._perfect(old, new)]
            exchanged = [self._exchange(old) for old in doubtful[:_MAX_DOUBTFUL]]
            self.spread()
            if not any(exchanged):
                break
        self._part()

    def _perfect(self, old: int, new: int) -> bool:
        return self._inputs(old, new) >= 1 and self._outputs(old, new) >= 1

    def _exchange(self, old: int) -> bool:
        """Match a node with another one if there are fewer changes to report then, or the neighbours fit better."""
        new = self._it.forth.get(old)
        return new is not None and any(self._try(proposal) for proposal in self._proposals(old, new))

    def _proposals(self, old: int, new: int) -> Iterator[dict[int, int | None]]:
        """Yield other matches for a node and for its current counterpart; None drops a match."""
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
        """Apply the exchange if it is an improvement."""
        was = {old: self._it.forth.get(old) for old in proposal}
        olds = list(proposal)
        news = list({new for new in (*proposal.values(), *was.values()) if new is not None})
        affected = self._affected(olds, news)
        self._assign(proposal)
        affected |= self._affected(olds, news)
        after = self._worth(olds, news, affected)
        self._assign(was)
        before = self._worth(olds, news, affected)
        gains = after[0] < before[0] or (after[0] == before[0] and after[1] > before[1] + _MIN_GAIN)
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
        """Return the number of changes to report for these nodes and their readers, and how well they fit."""
        forth = self._it.forth
        count = sum(old not in forth for old in olds) + sum(new not in self._it.back for new in news)
        count += sum(self.changes(old, forth[old]) for old in {*affected, *olds} if old in forth)
        count += self._changed_ends(olds, news)
        return count, sum(self.fit(old, forth[old]) for old in olds if old in forth)

    def _affected(self, olds: list[int], news: list[int]) -> set[int]:
        """Return matched nodes of old that read these, directly or through unmatched nodes."""
        readers = {reader for old in olds for reader in _iter_matched_readers(self._it.old, old, self._it.forth)}
        return readers | {
            self._it.back[reader] for new in news for reader in _iter_matched_readers(self._it.new, new, self._it.back)
        }

    def changes(self, old: int, new: int) -> int:
        """Count the differing inputs of two matched nodes, two swapped ones once, and differing attributes as one."""
        before, after = self._it.old.nodes[old], self._it.new.nodes[new]
        slots = list(zip_longest(before.every, after.every, fillvalue=NO_VALUE))
        others = [pair for pair in slots if self._is_other(*pair)]
        swapped = (
            len(others) == 2 and self._it.same(others[0][0], others[1][1]) and self._it.same(others[1][0], others[0][1])
        )
        return (1 if swapped else len(others)) + (before.attributes != after.attributes)

    def _is_other(self, old: ValueSource, new: ValueSource) -> bool:
        """Return whether the values differ and no unmatched node explains it."""
        return not self._it.same(old, new) and not self.through(old, new)

    def _changed_ends(self, olds: list[int], news: list[int]) -> int:
        ends = {position for old in olds for _, position in self._ends[0].get(old, ())}
        ends |= {position for new in news for _, position in self._ends[1].get(new, ())}
        old, new = self._it.old.outputs, self._it.new.outputs
        return sum(self._is_other(old[it], new[it]) for it in ends if it < min(len(old), len(new)))

    def _near(self, old: int) -> set[int]:
        """Return the candidates in the neighbourhood of the node's matched neighbours."""
        nodes: set[int] = set()
        for source in self._it.old.nodes[old].every:
            if source.kind == "node" and source.node in self._it.forth:
                uses = self._it.new.consumers[self._it.forth[source.node]]
                nodes.update(reader for _, reader, _ in uses[:MAX_READERS])
            elif source.kind == "input":
                nodes.update(self._readers[1].get(self._it.value(source, is_old=True), ())[:MAX_READERS])
        for _, reader, slot in self._it.old.consumers[old][:MAX_READERS]:
            sources = self._it.new.nodes[self._it.forth[reader]].sources if reader in self._it.forth else ()
            nodes.update(it.node for it in sources[slot : slot + 1] if slot >= 0 and it.kind == "node")
        nodes.update(_iter_output_producers(self._it.new, self._ends[0].get(old, ())))
        return nodes

    def _near_back(self, new: int) -> set[int]:
        nodes: set[int] = set()
        for source in self._it.new.nodes[new].every:
            if source.kind == "node" and source.node in self._it.back:
                uses = self._it.old.consumers[self._it.back[source.node]]
                nodes.update(reader for _, reader, _ in uses[:MAX_READERS])
            elif source.kind == "input":
                nodes.update(self._readers[0].get(self._it.value(source, is_old=False), ())[:MAX_READERS])
        for _, reader, slot in self._it.new.consumers[new][:MAX_READERS]:
            sources = self._it.old.nodes[self._it.back[reader]].sources if reader in self._it.back else ()
            nodes.update(it.node for it in sources[slot : slot + 1] if slot >= 0 and it.kind == "node")
        nodes.update(_iter_output_producers(self._it.old, self._ends[1].get(new, ())))
        return nodes

    def _part(self) -> None:
        """Drop matches that agree only in the operator."""
        for old, new in list(self._it.forth.items()):
            if not self._supported(old, new):
                self._it.part(old)

    def _supported(self, old: int, new: int) -> bool:
        if self._inputs(old, new) or self._outputs(old, new):
            return True
        if has_distinctive_weight(self._it.new, new) and self._weights(old, new):
            return True
        if self._it.names[0][old] == self._it.names[1][new]:
            return True
        before, after = self._it.old.nodes[old].every, self._it.new.nodes[new].every
        return any(self.through(a, b) for a, b in zip(before, after, strict=False)) or self._leads_to(old, new)

    def _leads_to(self, old: int, new: int) -> bool:
        """Return whether both reach a common reader, directly or through unmatched nodes."""
        first = {self._it.forth.get(it, it) for it in _iter_matched_readers(self._it.old, old, self._it.forth)}
        return bool(first & set(_iter_matched_readers(self._it.new, new, self._it.back)))


def _iter_matched_readers(wiring: Graph, index: int, matched: dict[int, int]) -> Iterator[int]:
    seen: set[int] = set()
    stack = [index]
    while stack and len(seen) < MAX_FOLLOWED_NODES:
        for _, reader, _ in wiring.consumers[stack.pop()]:
            if reader in matched:
                yield reader
            elif reader not in seen:
                seen.add(reader)
                stack.append(reader)


def _iter_output_producers(wiring: Graph, ends: Iterable[tuple[int, int]]) -> Iterator[int]:
    """Yield the producers of these outputs of a graph."""
    for _, position in ends:
        if position < len(wiring.outputs) and wiring.outputs[position].kind == "node":
            yield wiring.outputs[position].node


_MAX_EXACT_PAIRS = 1_000_000
"""Above so many pairs of elements, `difflib` ignores frequent elements: its time grows with the pairs."""


def longest_increasing_subsequence(numbers: Sequence[int]) -> list[int]:
    """Return the positions of a longest increasing subsequence of distinct numbers."""
    ends: list[int] = []
    places: list[int] = []
    before = [-1] * len(numbers)
    for place, number in enumerate(numbers):
        at = bisect_left(ends, number)
        before[place] = places[at - 1] if at else -1
        ends[at : at + 1] = [number]
        places[at : at + 1] = [place]
    selected: list[int] = []
    place = places[-1] if places else -1
    while place >= 0:
        selected.append(place)
        place = before[place]
    return selected[::-1]


def common_subsequence(old: Sequence[int], new: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield positions of a long common subsequence; long gaps are compared without elements that occur often."""
    is_long = len(old) * len(new) > _MAX_EXACT_PAIRS
    for block in difflib.SequenceMatcher(None, old, new, autojunk=is_long).get_matching_blocks():
        for offset in range(block.size):
            yield block.a + offset, block.b + offset
