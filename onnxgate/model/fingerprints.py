"""Numbers for what nodes compute: equal where two nodes compute the same, as strictly as is asked."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Literal

from onnxgate.model.wiring import Node, Operator, Source, Weight, Wiring

Strictness = Literal["exact", "shaped", "loose"]
"""What of a node counts: everything; all but what weights hold; the operators alone."""


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
    """Those of one graph's nodes. `leaf` gives the key of what comes from outside of it, `anchor` that of a node whose
    counterpart is known (None: it is not)."""

    def __init__(
        self,
        wiring: Wiring,
        symbols: Symbols,
        strictness: Strictness,
        operator: Callable[[Operator], Operator],
        leaf: Callable[[Source], Hashable],
        anchor: Callable[[int], int | None] = lambda _: None,
    ) -> None:
        self._wiring, self._symbols, self._strictness = wiring, symbols, strictness
        self._operator, self._leaf, self._anchor = operator, leaf, anchor
        self.local = [self._local(node) for node in wiring.nodes]

    def forward(self) -> list[int]:
        """By what each node computes from the graph's inputs."""
        found = [-1] * len(self._wiring.nodes)
        for index in self._wiring.order:
            anchor = self._anchor(index)
            if anchor is not None:
                found[index] = self._symbols.of(("pair", anchor))
                continue
            sources = tuple(self._source(source, found) for source in self._wiring.nodes[index].every)
            found[index] = self._symbols.of(("forward", self.local[index], sources))
        return found

    def backward(self) -> list[int]:
        """By what becomes of each node's outputs."""
        found = [-1] * len(self._wiring.nodes)
        ends: dict[int, list[Hashable]] = {}
        for position, source in enumerate(self._wiring.outputs):
            if source.kind == "node":
                ends.setdefault(source.node, []).append((source.index, "output", position))
        for index in reversed(self._wiring.order):
            anchor = self._anchor(index)
            if anchor is not None:
                found[index] = self._symbols.of(("pair", anchor))
                continue
            uses = sorted((out, found[reader], slot) for out, reader, slot in self._wiring.consumers[index])
            key = ("backward", self.local[index], self._weights(index), tuple(uses), tuple(ends.get(index, ())))
            found[index] = self._symbols.of(key)
        return found

    def own(self) -> list[int]:
        """By each node alone: its operator, attributes and weights."""
        return [
            self._symbols.of(("own", self.local[node.index], self._weights(node.index))) for node in self._wiring.nodes
        ]

    def whole(self) -> Hashable:
        """Of the whole graph: what its outputs are, and what its nodes without use compute."""
        forward = self.forward()
        outputs = tuple(self._source(source, forward) for source in self._wiring.outputs)
        ends = {source.node for source in self._wiring.outputs}
        idle = (i for i, uses in enumerate(self._wiring.consumers) if not uses and i not in ends)
        return (outputs, tuple(sorted(forward[index] for index in idle)))

    def _source(self, source: Source, found: list[int]) -> Hashable:
        if source.kind == "node":
            return (found[source.node], source.index)
        return self._weight(source) or self._leaf(source)

    def _weight(self, source: Source) -> Hashable:
        weight = self._wiring.weight(source) if source.kind in ("weight", "outer") else None
        return ("weight", weight_key(weight, self._strictness)) if weight is not None else None

    def _weights(self, index: int) -> Hashable:
        sources: Iterable[Source] = self._wiring.nodes[index].sources
        return tuple((slot, key) for slot, source in enumerate(sources) if (key := self._weight(source)))

    def _local(self, node: Node) -> int:
        operator = self._operator(node.operator)
        if self._strictness == "loose":
            return self._symbols.of((operator, tuple(node.bodies)))
        held = tuple(
            (name, tuple(weight_key(weight, self._strictness) for weight in weights))
            for name, weights in sorted(node.held.items())
        )
        return self._symbols.of((operator, tuple(sorted(node.attributes.items())), held, self._bodies(node)))

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
