"""Matching of nodes in two graphs by their connections; names only break ties.

Graphs with equal structure are matched node by node. In other graphs, nodes with equal computations from the inputs and
equal uses up to the outputs are matched first, then nodes with equal or similar weights, and finally neighbors of
matched nodes, best fit first. Unmatched nodes are skipped when comparing neighbors, so that an added or removed node
does not affect other matches.
"""

from __future__ import annotations

import difflib
import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import product

from onnxgate.model.equality.similarity import is_similar, locate_extremes
from onnxgate.model.facts import count_elements
from onnxgate.model.reading.graph import Graph, Node, ValueSource, Weight
from onnxgate.model.reading.view import OperatorKey

_MAX_EXACT_PAIRS = 1_000_000
"""Maximum number of node pairs for which difflib compares all keys. Above it, difflib ignores frequent keys."""
_DISTINCTIVE_ELEMENTS = 4
"""Minimum number of elements of a weight whose content is used to distinguish nodes with equal operators."""
MAX_FOLLOWED_NODES = 200
"""Maximum number of unmatched nodes through which the origins of a value are traced."""


KeyNumbers = dict[Hashable, int]
"""Numbers assigned to keys. Graphs that are compared share one mapping, so that equal keys have equal numbers."""


class NodeHashes:
    """Hashes of the nodes in one graph. `leaf` returns the key of a value that comes from outside the graph.

    Exact hashes include attributes and weights; other hashes include only operators and the positions of weights.
    """

    def __init__(
        self,
        graph: Graph,
        numbers: KeyNumbers,
        operator: Callable[[OperatorKey], OperatorKey],
        leaf: Callable[[ValueSource], Hashable],
        *,
        exact: bool,
    ) -> None:
        self._graph, self._numbers, self._exact = graph, numbers, exact
        self._operator, self._leaf = operator, leaf
        self.own = [self._number((self._hash_node(node), self._hash_weights(node))) for node in graph.nodes]
        self.ends = index_outputs(graph)

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def forward(self) -> list[int]:
        """Return a hash for each node, computed from the node and all nodes on which its inputs depend."""
        numbers = [-1] * len(self._graph.nodes)
        for index in self._graph.order:
            sources = tuple([self._hash_source(source, numbers) for source in self._graph.nodes[index].reads])
            numbers[index] = self._number(("forward", self.own[index], sources))
        return numbers

    def backward(self) -> list[int]:
        """Return a hash for each node, computed from the node and all nodes and graph outputs that depend on it.

        Dependent nodes that do not affect any output are ignored.
        """
        numbers = [-1] * len(self._graph.nodes)
        for index in reversed(self._graph.order):
            uses = tuple(
                sorted(
                    (out, numbers[reader], slot)
                    for out, reader, slot in self._graph.consumers[index]
                    if reader in self._graph.live or index not in self._graph.live
                )
            )
            numbers[index] = self._number(("backward", self.own[index], tuple(self.ends.get(index, ())), uses))
        return numbers

    def forget_keys(self) -> None:
        """Free the memory of the keys that all compared graphs share. Later hashes differ from the previous ones."""
        self._numbers.clear()

    def outputs(self) -> Hashable:
        """Return a hash of the graph outputs and of all nodes on which they depend."""
        forward = self.forward()
        return tuple(self._hash_source(source, forward) for source in self._graph.outputs)

    def _hash_source(self, source: ValueSource, numbers: list[int]) -> Hashable:
        if source.kind == "node":
            return numbers[source.node], source.index
        weight = self._graph.weight(source)
        return self._leaf(source) if weight is None else ("weight", weight.content if self._exact else None)

    def _hash_weights(self, node: Node) -> Hashable:
        weights = enumerate(map(self._graph.weight, node.sources))
        return tuple((slot, it.content if self._exact else None) for slot, it in weights if it is not None)

    def _hash_node(self, node: Node) -> Hashable:
        operator = self._operator(node.operator)
        if not self._exact:
            return operator, tuple(node.bodies)
        tensors = [(name, tuple(it.content for it in weights)) for name, weights in sorted(node.tensors.items())]
        bodies = [(name, tuple(self._hash_body(it, node) for it in its)) for name, its in sorted(node.bodies.items())]
        return operator, tuple(sorted(node.attributes.items())), tuple(tensors), tuple(bodies)

    def _hash_body(self, body: Graph, node: Node) -> Hashable:
        """Return a hash of a node's subgraph.

        A captured value is identified by its index in the list of captured values.
        """
        positions = {source.name: position for position, source in enumerate(node.captured)}

        def leaf(source: ValueSource) -> Hashable:
            return source.kind, positions.get(source.name, source.name) if source.kind == "outer" else source.index

        return NodeHashes(body, self._numbers, self._operator, leaf, exact=True).outputs()


class NodeMatching:
    """Matched nodes of two graphs. `around` contains the matched nodes of the enclosing graphs, if any."""

    def __init__(
        self,
        old: Graph,
        new: Graph,
        operator: Callable[[OperatorKey], OperatorKey],
        around: NodeMatching | None,
    ) -> None:
        self.old, self.new, self.around = old, new, around
        self.operator = operator  # maps operators in the new model to their names in the old model
        self.forth: dict[int, int] = {}
        self.back: dict[int, int] = {}
        self._inputs = _number_inputs(old, new, by_name=around is None)
        loose = self._hash_nodes(exact=False)
        own = loose[0].own, loose[1].own
        if loose[0].outputs() == loose[1].outputs():
            self._match_equal_hashes(loose, *([it for it in graph.order if it in graph.live] for graph in (old, new)))
        if len(self.forth) == len(old.nodes) == len(new.nodes):
            return
        del loose  # hashes take more memory than the graphs
        exact = self._hash_nodes(exact=True)
        self._match_equal_hashes(exact, self.unmatched(is_old=True), self.unmatched(is_old=False))
        del exact
        for key in (lambda weight: weight.content, locate_extremes):
            self._match_weights(key)
        NeighbourMatching(self).match(*own)

    def pair(self, old: int, new: int) -> None:
        """Match two nodes."""
        self.forth[old] = new
        self.back[new] = old

    def part(self, old: int) -> None:
        """Remove a node of the old graph, and its counterpart in the new graph, from the matched nodes."""
        del self.back[self.forth.pop(old)]

    def unmatched(self, *, is_old: bool) -> list[int]:
        """Return the indices of the unmatched nodes in topological order."""
        graph, matched = (self.old, self.forth) if is_old else (self.new, self.back)
        return [index for index in graph.order if index not in matched]

    def same(self, old: ValueSource, new: ValueSource) -> bool:
        """Return whether two values are the same output of matched nodes, a matched input, or equal weights."""
        return self.value(old, is_old=True) == self.value(new, is_old=False)

    def value(self, source: ValueSource, *, is_old: bool) -> Hashable:
        """Return a key for a value; matched values of both graphs have the same key."""
        graph = self.old if is_old else self.new
        match source.kind:
            case "node":
                if source.node not in (self.forth if is_old else self.back):
                    return ("removed" if is_old else "added", source.node, source.index)
                return ("node", self.forth[source.node] if is_old else source.node, source.index)
            case "input":
                return ("input", self._inputs[not is_old].get(source.name))
            case "weight":
                return ("weight", graph.weights[source.name].content)
            case "outer" if self.around is not None and graph.parent is not None:
                return ("around", self.around.value(graph.parent.resolve(source.name), is_old=is_old))
            case _:
                return (source.kind, source.name)

    def through(self, old: ValueSource, new: ValueSource) -> bool:
        """Return whether both values are computed from a common value through unmatched nodes only."""
        return not self.origins(old, is_old=True).isdisjoint(self.origins(new, is_old=False))

    def origins(self, source: ValueSource, *, is_old: bool, most: int = MAX_FOLLOWED_NODES) -> frozenset[Hashable]:
        """Return the graph inputs and outputs of matched nodes from which a value is computed. Weights are ignored."""
        graph, matched = (self.old, self.forth) if is_old else (self.new, self.back)
        values: set[Hashable] = set()
        followed: set[int] = set()
        stack = [source]
        while stack and len(followed) < most:
            current = stack.pop()
            if current.kind == "node" and current.node not in matched:
                stack += graph.nodes[current.node].reads if current.node not in followed else ()
                followed.add(current.node)
            elif current.kind in ("node", "input"):
                values.add(self.value(current, is_old=is_old))
            elif current.kind == "outer" and self.around is not None and graph.parent is not None:
                outer = graph.parent.resolve(current.name)
                around = self.around.origins(outer, is_old=is_old, most=most)
                values.update(("around", value) for value in around)
        return frozenset(values)

    def _hash_nodes(self, *, exact: bool) -> tuple[NodeHashes, NodeHashes]:
        numbers: KeyNumbers = {}
        return (
            NodeHashes(self.old, numbers, lambda it: it, lambda it: self.value(it, is_old=True), exact=exact),
            NodeHashes(self.new, numbers, self.operator, lambda it: self.value(it, is_old=False), exact=exact),
        )

    def _match_equal_hashes(
        self, hashes: tuple[NodeHashes, NodeHashes], old: Iterable[int], new: Iterable[int]
    ) -> None:
        """Match nodes of both graphs that have equal hashes.

        Several nodes with the same hash are matched by name. The rest are matched in order if both graphs have the same
        number of them.
        """
        forward = [it.forward() for it in hashes]
        hashes[0].forget_keys()
        backward = [it.backward() for it in hashes]
        hashes[0].forget_keys()
        groups: defaultdict[Hashable, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for side, nodes in enumerate((old, new)):
            for index in nodes:
                groups[forward[side][index], backward[side][index]][side].append(index)
        for first, second in groups.values():
            named = {self.new.nodes[index].name: index for index in second} if len(second) > 1 else {}
            for index in first:
                if (counterpart := named.pop(self.old.nodes[index].name, None)) is not None:
                    self.pair(index, counterpart)
            rest = [it for it in first if it not in self.forth], [it for it in second if it not in self.back]
            if len(rest[0]) == len(rest[1]):
                for pair in zip(*rest, strict=True):
                    self.pair(*pair)

    def _match_weights(self, key: Callable[[Weight], Hashable]) -> None:
        """Match nodes of both graphs, in order, if their operators and the keys of their weights are equal.

        Nodes without a weight of at least `_DISTINCTIVE_ELEMENTS` elements are ignored.
        """
        sides: list[list[tuple[Hashable, int]]] = []
        for graph, operator in ((self.old, lambda it: it), (self.new, self.operator)):
            sides.append([])
            for index in self.unmatched(is_old=graph is self.old):
                weights = _weights_by_slot(graph, index)
                is_distinctive = any(count_elements(it.dims) >= _DISTINCTIVE_ELEMENTS for it in weights.values())
                if is_distinctive and any(keys := tuple(map(key, weights.values()))):
                    sides[-1].append(((operator(graph.nodes[index].operator), keys), index))
        old, new = sides
        is_long = len(old) * len(new) > _MAX_EXACT_PAIRS
        sequences = difflib.SequenceMatcher(None, [it for it, _ in old], [it for it, _ in new], autojunk=is_long)
        for block in sequences.get_matching_blocks():
            for offset in range(block.size):
                self.pair(old[block.a + offset][1], new[block.b + offset][1])


def _number_inputs(old: Graph, new: Graph, *, by_name: bool) -> tuple[dict[str, int], dict[str, int]]:
    """Map the inputs of each graph to numbers, so that matched inputs have equal numbers.

    Inputs are matched by name. Renamed inputs are matched in order if both graphs have equally many of them. Without
    `by_name`, all inputs are matched by position.
    """
    if not by_name:
        return old.inputs, new.inputs
    numbers = {name: index for index, name in enumerate(old.inputs)}
    removed = [name for name in old.inputs if name not in new.inputs]
    added = [name for name in new.inputs if name not in old.inputs]
    renamed = dict(zip(added, removed, strict=True)) if len(removed) == len(added) else {}
    fresh = {name: len(numbers) + index for index, name in enumerate(added)}
    return numbers, {name: numbers.get(renamed.get(name, name), fresh.get(name, -1)) for name in new.inputs}


_MAX_PAIRS = 400
"""Maximum number of candidate pairs from a group of similar nodes, or from the consumers of two matched nodes.

Larger groups are skipped.
"""
_MAX_RESCORED_CONNECTIONS = 100
"""Maximum number of connections of a node whose score is updated whenever one of its neighbors is matched.

The score of a node with more of them is updated only when it is its turn, because each update compares all of them.
"""
_MAX_INDIRECT_NODES = 40
"""Maximum number of unmatched nodes that are searched for indirect neighbors when a pair of nodes is scored."""
_INPUT_FACTOR, _ATTRIBUTE_FACTOR, _SURROUNDINGS_FACTOR, _NAME_FACTOR = 1.2, 0.3, 0.2, 0.1
_INDIRECT_FACTOR = 0.9
"""Factors in the score of a pair of nodes. `_INDIRECT_FACTOR` applies to indirect neighbors and similar weights."""


class NeighbourMatching:
    """Matches nodes whose neighbors are already matched. The pairs with the highest scores are matched first."""

    def __init__(self, matching: NodeMatching) -> None:
        self._it = matching
        self._ends = index_outputs(matching.old), index_outputs(matching.new)
        self._similar: dict[tuple[int, int], bool] = {}

    def match(self, old_keys: Sequence[Hashable], new_keys: Sequence[Hashable]) -> None:
        """Match nodes until no candidate pair remains. Each key describes one node without its neighbors."""
        heap: list[tuple[float, int, int]] = []
        scored_once: set[tuple[int, int]] = set()

        def push(pairs: Iterable[tuple[int, int]]) -> None:
            for old, new in pairs:
                if old in self._it.forth or new in self._it.back or not self._has_same_operator(old, new):
                    continue
                if self._count_connections(old, new) > _MAX_RESCORED_CONNECTIONS:
                    if (old, new) in scored_once:
                        continue
                    scored_once.add((old, new))
                heapq.heappush(heap, (-self._fit(old, new), old, new))

        push(self._seeds(old_keys, new_keys))
        while heap:
            expected, old, new = heapq.heappop(heap)
            if old in self._it.forth or new in self._it.back:
                continue
            fit = self._fit(old, new)
            if -expected != fit:
                heapq.heappush(heap, (-fit, old, new))
                continue
            self._it.pair(old, new)
            push(self._iter_neighbours(old, new))
        for old, new in list(self._it.forth.items()):
            if not self._support(old, new):
                self._it.part(old)

    def _count_connections(self, old: int, new: int) -> int:
        sides = (self._it.old, old), (self._it.new, new)
        return max(len(graph.nodes[index].reads) + len(graph.consumers[index]) for graph, index in sides)

    def _has_same_operator(self, old: int, new: int) -> bool:
        return self._it.old.nodes[old].operator == self._it.operator(self._it.new.nodes[new].operator)

    def _seeds(self, old_keys: Sequence[Hashable], new_keys: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
        """Yield candidate pairs: nodes with equal keys, neighbors of matched nodes, and producers of a graph output."""
        groups: defaultdict[Hashable, list[int]] = defaultdict(list)
        for index in self._it.unmatched(is_old=False):
            groups[new_keys[index]].append(index)
        olds = self._it.unmatched(is_old=True)
        counts = Counter(old_keys[index] for index in olds)
        for index in olds:
            group = groups[old_keys[index]]
            if counts[old_keys[index]] * len(group) <= _MAX_PAIRS:
                yield from ((index, counterpart) for counterpart in group)
        for old, new in list(self._it.forth.items()):
            yield from self._iter_neighbours(old, new)
        for a, b in zip(self._it.old.outputs, self._it.new.outputs, strict=False):
            if a.kind == b.kind == "node":
                yield a.node, b.node

    def _iter_neighbours(self, old: int, new: int) -> Iterator[tuple[int, int]]:
        """Yield pairs of neighbors of two matched nodes: producers of the same input, and any two consumers."""
        for a, b in zip(self._it.old.nodes[old].reads, self._it.new.nodes[new].reads, strict=False):
            if a.kind == b.kind == "node" and a.index == b.index:
                yield a.node, b.node
        first, second = self._it.old.consumers[old], self._it.new.consumers[new]
        if len(first) * len(second) <= _MAX_PAIRS:
            yield from ((a, b) for (_, a, _), (_, b, _) in product(first, second))

    def _fit(self, old: int, new: int) -> float:
        """Score a pair of nodes; equal attributes and equal operators of the neighbors increase the score."""
        attributes = self._it.old.nodes[old].attributes == self._it.new.nodes[new].attributes
        around = _share(
            _list_neighbours(self._it.old, self._ends[0], lambda it: it, old),
            _list_neighbours(self._it.new, self._ends[1], self._it.operator, new),
        )
        return self._support(old, new) + _ATTRIBUTE_FACTOR * attributes + _SURROUNDINGS_FACTOR * around

    def _support(self, old: int, new: int) -> float:
        """Score a pair of nodes by the inputs, consumers, weights and names that they have in common."""
        name = self._it.old.nodes[old].name == self._it.new.nodes[new].name
        around = _INPUT_FACTOR * self._compare_inputs(old, new) + self._compare_readers(old, new)
        return around + self._compare_weights(old, new) + _NAME_FACTOR * name

    def _compare_inputs(self, old: int, new: int) -> float:
        before, after = (
            [it for it in graph.nodes[index].reads if it.kind != "nothing" and graph.weight(it) is None]
            for graph, index in ((self._it.old, old), (self._it.new, new))
        )
        agreeing = 0.0
        for a, b in zip(before, after, strict=False):
            if self._it.same(a, b):
                agreeing += 1
            else:
                origins = (
                    self._it.origins(it, is_old=is_old, most=_MAX_INDIRECT_NODES)
                    for it, is_old in ((a, True), (b, False))
                )
                agreeing += _INDIRECT_FACTOR * _share(*origins)
        return agreeing / max(len(before), len(after), 1)

    def _compare_readers(self, old: int, new: int) -> float:
        direct = _share(*self._collect_readers(old, new, direct=True))
        return direct if direct == 1 else max(direct, _INDIRECT_FACTOR * _share(*self._collect_readers(old, new)))

    def _collect_readers(self, old: int, new: int, *, direct: bool = False) -> Iterator[set[Hashable]]:
        """Yield, for each of the two nodes, the set of uses of its outputs.

        Without `direct`, unmatched consumers are followed until a matched node or a graph output is reached.
        """
        for graph, ends, start, number in (
            (self._it.old, self._ends[0], old, self._it.forth.get),
            (self._it.new, self._ends[1], new, lambda it: it if it in self._it.back else None),
        ):
            uses: set[Hashable] = set()
            followed, stack = {start}, [start]
            while stack and len(followed) <= _MAX_INDIRECT_NODES:
                node = stack.pop()
                uses.update(("end", out if direct else 0, position) for out, position in ends.get(node, ()))
                for out, reader, slot in graph.consumers[node]:
                    if (counterpart := number(reader)) is not None:
                        uses.add((out if direct else 0, counterpart, slot))
                    elif direct:
                        uses.add((graph is self._it.old, out, reader, slot))
                    elif reader not in followed:
                        followed.add(reader)
                        stack.append(reader)
            yield uses

    def _compare_weights(self, old: int, new: int) -> float:
        first, second = _weights_by_slot(self._it.old, old), _weights_by_slot(self._it.new, new)
        agreeing = sum(self._compare_weight(first[slot], second[slot]) for slot in first.keys() & second.keys())
        return agreeing / max(len(first), len(second), 1)

    def _compare_weight(self, old: Weight, new: Weight) -> float:
        if old.content == new.content:
            return 1
        key = (id(old), id(new))
        if key not in self._similar:
            self._similar[key] = is_similar(old, new)
        return _INDIRECT_FACTOR * self._similar[key]


def _share(first: Iterable[Hashable], second: Iterable[Hashable]) -> float:
    """Return the number of elements that two collections have in common, divided by the size of their union."""
    a, b = Counter(first), Counter(second)
    return (a & b).total() / max((a | b).total(), 1)


def _weights_by_slot(graph: Graph, index: int) -> dict[int, Weight]:
    weights = ((slot, graph.weight(source)) for slot, source in enumerate(graph.nodes[index].sources))
    return {slot: weight for slot, weight in weights if weight is not None}


def index_outputs(graph: Graph) -> dict[int, list[tuple[int, int]]]:
    """Map each node to the graph outputs that it computes, as (output of the node, output of the graph)."""
    outputs: dict[int, list[tuple[int, int]]] = {}
    for position, source in enumerate(graph.outputs):
        if source.kind == "node":
            outputs.setdefault(source.node, []).append((source.index, position))
    return outputs


def _list_neighbours(
    graph: Graph, ends: dict[int, list[tuple[int, int]]], operator: Callable[[OperatorKey], OperatorKey], index: int
) -> Iterator[Hashable]:
    """Yield the connections of a node to neighboring nodes and to graph outputs.

    Connections are distinguished by the operator of the neighbor and by output and input index.
    """
    yield from ends.get(index, ())
    for out, reader, slot in graph.consumers[index]:
        yield out, operator(graph.nodes[reader].operator), slot
    for slot, it in enumerate(graph.nodes[index].reads):
        if it.kind == "node":
            yield slot, operator(graph.nodes[it.node].operator)
