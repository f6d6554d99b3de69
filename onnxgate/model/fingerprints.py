"""Numbers for what nodes compute: equal where two nodes compute the same, as strictly as is asked."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Literal

from onnxgate.model.drift import sketch
from onnxgate.model.wiring import Node, Operator, Source, Weight, Wiring, telling

Strictness = Literal["exact", "shaped", "loose", "bare"]
"""What of a node counts: everything; all but what weights hold; operators and which inputs are weights; operators."""


Likeness = Literal["exact", "alike"]
"""What counts of what a weight holds: all of it; where its largest and smallest elements stand, which fine-tuning and
another type of numbers leave in their places."""


class Symbols:
    """One number for each key, the same number for equal keys, in all graphs that share it."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def of(self, key: Hashable) -> int:
        """The key's number."""
        return self._numbers.setdefault(key, len(self._numbers))


def weight_key(weight: Weight, strictness: Strictness) -> Hashable:
    """What counts of a weight."""
    match strictness:
        case "exact":
            return weight.content
        case "shaped":
            return weight.form
        case _:
            return "weight"


class Fingerprints:
    """Those of one graph's nodes. `leaf` gives the key of what comes from outside of it."""

    def __init__(
        self,
        wiring: Wiring,
        symbols: Symbols,
        strictness: Strictness,
        operator: Callable[[Operator], Operator],
        leaf: Callable[[Source], Hashable],
    ) -> None:
        self._wiring, self._symbols, self._strictness = wiring, symbols, strictness
        self._operator, self._leaf = operator, leaf
        self._local_keys = [self._local(node) for node in wiring.nodes]
        self._weight_keys = [self._weights(node) for node in wiring.nodes]
        self._ends = _ends(wiring)

    def forward(self, known: Mapping[int, int]) -> list[int]:
        """By what each node computes from the graph's inputs. `known` gives nodes that have counterparts a number."""
        found = [-1] * len(self._wiring.nodes)
        for index in self._wiring.order:
            if index in known:
                found[index] = _anchor(known[index])
                continue
            sources = tuple([self._source(source, found) for source in self._wiring.nodes[index].every])
            found[index] = self._symbols.of(("forward", self._local_keys[index], sources))
        return found

    def backward(self, known: Mapping[int, int]) -> list[int]:
        """By what becomes of each node's outputs."""
        found = [-1] * len(self._wiring.nodes)
        for index in reversed(self._wiring.order):
            if index in known:
                found[index] = _anchor(known[index])
                continue
            uses = [(out, found[reader], slot) for out, reader, slot in self._wiring.consumers[index]]
            own = (self._local_keys[index], self._weight_keys[index], self._ends.get(index))
            found[index] = self._symbols.of(("backward", *own, tuple(sorted(uses))))
        return found

    def own(self) -> list[int]:
        """By each node alone: its operator, attributes and weights."""
        keys = zip(self._local_keys, self._weight_keys, strict=True)
        return [self._symbols.of(("own", *key)) for key in keys]

    def with_weights(self, likeness: Likeness, nodes: Iterable[int]) -> Iterator[tuple[int, Hashable]]:
        """Those of the nodes that have weights which tell them apart, each with a key of what these hold."""
        for index in nodes:
            if not telling(self._wiring, index):
                continue
            weights = map(self._wiring.weight, self._wiring.nodes[index].sources)
            keys = tuple([_likeness(weight, likeness) if weight is not None else None for weight in weights])
            if any(keys):
                yield index, (self._local_keys[index], keys)

    def whole(self) -> Hashable:
        """Of the whole graph: what its outputs are, and what its nodes without use compute."""
        forward = self.forward({})
        outputs = tuple(self._source(source, forward) for source in self._wiring.outputs)
        ends = {source.node for source in self._wiring.outputs}
        idle = (i for i, uses in enumerate(self._wiring.consumers) if not uses and i not in ends)
        return (outputs, tuple(sorted(forward[index] for index in idle)))

    def _source(self, source: Source, found: list[int]) -> Hashable:
        if source.kind == "node":
            return (found[source.node], source.index)
        return self._weight(source) or self._leaf(source)

    def _weight(self, source: Source) -> Hashable:
        if self._strictness == "bare" or source.kind not in ("weight", "outer"):
            return None
        weight = self._wiring.weight(source)
        return ("weight", weight_key(weight, self._strictness)) if weight is not None else None

    def _weights(self, node: Node) -> Hashable:
        return tuple([(slot, key) for slot, source in enumerate(node.sources) if (key := self._weight(source))])

    def _local(self, node: Node) -> int:
        operator = self._operator(node.operator)
        if self._strictness in ("loose", "bare"):
            return self._symbols.of((operator, tuple(node.bodies)))
        attributes = tuple(sorted(node.attributes.items()))
        if not node.held and not node.bodies:
            return self._symbols.of((operator, attributes))
        held = tuple(
            (name, tuple(weight_key(weight, self._strictness) for weight in weights))
            for name, weights in sorted(node.held.items())
        )
        return self._symbols.of((operator, attributes, held, self._bodies(node)))

    def _bodies(self, node: Node) -> Hashable:
        if self._strictness != "exact":
            return tuple(sorted((name, len(bodies)) for name, bodies in node.bodies.items()))
        return tuple(
            (name, tuple(self._body(body, node) for body in bodies)) for name, bodies in sorted(node.bodies.items())
        )

    def _body(self, body: Wiring, node: Node) -> Hashable:
        """A graph inside a node; what it captures is known by its place among all that the node captures."""
        places = {source.name: place for place, source in enumerate(node.captured)}

        def leaf(source: Source) -> Hashable:
            return (source.kind, places.get(source.name, source.name) if source.kind == "outer" else source.index)

        return Fingerprints(body, self._symbols, self._strictness, self._operator, leaf).whole()


def _anchor(number: int) -> int:
    """A fingerprint that no key has."""
    return -2 - number


def _ends(wiring: Wiring) -> dict[int, tuple[tuple[int, int], ...]]:
    """Which outputs of the graph each node makes: (its output, the graph's)."""
    found: dict[int, tuple[tuple[int, int], ...]] = {}
    for position, source in enumerate(wiring.outputs):
        if source.kind == "node":
            found[source.node] = (*found.get(source.node, ()), (source.index, position))
    return found


def _likeness(weight: Weight, likeness: Likeness) -> Hashable:
    return weight.content if likeness == "exact" else sketch(weight)
