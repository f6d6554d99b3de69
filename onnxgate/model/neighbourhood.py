"""The neighbourhood of one node: what feeds it and what it feeds, two steps each way, few enough boxes to draw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from onnxgate.model.reading import operator_name
from onnxgate.model.structure import subgraphs

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

Kind = Literal["node", "failing", "input", "output", "weight", "more"]

MOST = 16
"""Boxes of a drawing; each box next to the node has at least one of its own beyond these."""
FIRST_UP, FIRST_DOWN, SECOND = 5, 3, 3
"""Boxes on either side of the node, and of each box next to it."""


@dataclass(frozen=True, slots=True)
class Box:
    """A node, a value that no node makes, or how many more there are."""

    name: str
    operator: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Arrow:
    """A value that flows from one box to another, both by their number."""

    source: int
    target: int
    value: str


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """What is to be drawn; the arrows are in the order of what they come from and go to."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def neighbourhood(model: ModelProto, name: str, output: str = "") -> Neighbourhood | None:
    """Around the node called `name`, or around the unnamed one that makes `output`.

    Subgraphs and local functions are looked through as well; None where there is no such node, or more than one.
    """
    found = [
        (chain, node)
        for chain in _chains(model)
        for node in chain[0].node
        if (node.name == name if name else not node.name and output in node.output)
    ]
    if not (name or output) or len(found) != 1:
        return None
    ((chain, node),) = found
    return _Around(_Scope(chain)).drawn(node)


def _chains(model: ModelProto) -> Iterator[tuple[GraphProto | FunctionProto, ...]]:
    """Each graph and function with those around it, whose values its nodes see too; the innermost comes first."""
    for outermost in (model.graph, *model.functions):
        yield from _chains_from((outermost,))


def _chains_from(
    chain: tuple[GraphProto | FunctionProto, ...],
) -> Iterator[tuple[GraphProto | FunctionProto, ...]]:
    yield chain
    for node in chain[0].node:
        for attribute in node.attribute:
            for graph in subgraphs(attribute):
                yield from _chains_from((graph, *chain))


Key = tuple[str, int] | tuple[str, str]
"""What a box stands for: ("node", its identity), or a kind and a value's name."""


@dataclass(slots=True)
class _Scope:
    """Who makes and who takes each value that the nodes of one graph see."""

    chain: Sequence[GraphProto | FunctionProto]
    nodes: dict[Key, NodeProto] = field(default_factory=dict)
    makers: dict[str, Key] = field(default_factory=dict)
    takers: dict[str, list[Key]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for holder in reversed(self.chain):  # an inner value hides an outer one of its name
            self._enter_values(holder)
            for node in holder.node:
                key = self._key(node)
                self.makers.update((value, key) for value in node.output if value)
        for node in self.chain[0].node:
            for value in dict.fromkeys(read(node)):
                self.takers.setdefault(value, []).append(self._key(node))
        for value in _outputs(self.chain[0]):
            self.takers.setdefault(value, []).append(("output", value))

    def _enter_values(self, holder: GraphProto | FunctionProto) -> None:
        self.makers.update((value, ("input", value)) for value in _inputs(holder))
        self.makers.update((value, ("weight", value)) for value in _weights(holder))

    def _key(self, node: NodeProto) -> Key:
        key: Key = ("node", id(node))
        self.nodes[key] = node
        return key

    def before(self, key: Key) -> list[Key]:
        """What makes the values that a box takes, in its own order."""
        return [self.makers[value] for value in self._taken(key) if value in self.makers]

    def after(self, key: Key) -> list[Key]:
        """What takes the values that a box makes."""
        made = (
            (value for value in self.nodes[key].output if value and self.makers[value] == key)
            if key in self.nodes
            else ()
        )
        return [taker for value in made for taker in self.takers.get(value, ())]

    def values(self, source: Key, target: Key) -> Iterator[str]:
        """What flows from one box to another."""
        return (value for value in self._taken(target) if self.makers.get(value) == source)

    def _taken(self, key: Key) -> Iterable[str]:
        if key in self.nodes:
            return dict.fromkeys(read(self.nodes[key]))
        return (str(key[1]),) if key[0] == "output" else ()

    def box(self, key: Key) -> Box:
        """What is drawn: a Constant is a weight."""
        if key not in self.nodes:
            kind: Kind = "input" if key[0] == "input" else "output" if key[0] == "output" else "weight"
            return Box(str(key[1]), "", kind)
        node = self.nodes[key]
        name = node.name or next(filter(None, node.output), "")
        return Box(name, operator_name(node), "weight" if node.op_type == "Constant" and not node.domain else "node")


def read(node: NodeProto) -> Iterator[str]:
    """The values that a node takes: its inputs, and what its subgraphs take from around them."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for graph in subgraphs(attribute):
            own = {*_inputs(graph), *_weights(graph), *(value for each in graph.node for value in each.output)}
            taken = (value for each in graph.node for value in read(each))
            outer = (value for value in (*taken, *_outputs(graph)) if value not in own)
            yield from outer


def _inputs(holder: GraphProto | FunctionProto) -> Iterator[str]:
    return (each if isinstance(each, str) else each.name for each in holder.input)


def _outputs(holder: GraphProto | FunctionProto) -> Iterator[str]:
    return (each if isinstance(each, str) else each.name for each in holder.output)


def _weights(holder: GraphProto | FunctionProto) -> Iterator[str]:
    if not hasattr(holder, "initializer"):
        return
    yield from (tensor.name for tensor in holder.initializer)
    yield from (sparse.values.name for sparse in holder.sparse_initializer)


@dataclass(slots=True)
class _Around:
    """Boxes gathered around one node, the nearest first."""

    scope: _Scope
    kept: dict[Key, Box] = field(default_factory=dict)
    more: list[tuple[Key, bool, int]] = field(default_factory=list)  # (box, before it, how many are left out)

    def drawn(self, node: NodeProto) -> Neighbourhood:
        """Two steps each way."""
        centre: Key = ("node", id(node))
        own = self.scope.box(centre)
        self.kept[centre] = Box(own.name, own.operator, "failing")
        up = self._extend(centre, self.scope.before(centre), True, FIRST_UP)
        down = self._extend(centre, self.scope.after(centre), False, FIRST_DOWN)
        further = [(key, self.scope.before(key), True) for key in up]
        further += [(key, self.scope.after(key), False) for key in down]
        for waiting, (key, others, before) in zip(range(len(further) - 1, -1, -1), further, strict=True):
            room = MOST - len(self.kept) - len(self.more) - waiting
            self._extend(key, others, before, max(1, min(SECOND, room)))
        return Neighbourhood(*self._numbered())

    def _extend(self, key: Key, others: Iterable[Key], before: bool, limit: int) -> list[Key]:
        """Keep the neighbours on one side that fit, and count the rest."""
        fresh = [each for each in dict.fromkeys(others) if each not in self.kept]
        shown = fresh if len(fresh) <= limit else fresh[: limit - 1]
        self.kept.update((each, self.scope.box(each)) for each in shown)
        if len(fresh) > len(shown):
            self.more.append((key, before, len(fresh) - len(shown)))
        return shown

    def _numbered(self) -> tuple[tuple[Box, ...], tuple[Arrow, ...]]:
        numbers = {key: index for index, key in enumerate(self.kept)}
        arrows = [
            Arrow(numbers[source], numbers[target], value)
            for target in self.kept
            for source in dict.fromkeys(self.scope.before(target))
            if source in numbers
            for value in self.scope.values(source, target)
        ]
        boxes = list(self.kept.values())
        for key, before, count in self.more:
            arrow = (len(boxes), numbers[key]) if before else (numbers[key], len(boxes))
            arrows.append(Arrow(*arrow, ""))
            boxes.append(Box(f"{count} more", "", "more"))
        return tuple(boxes), tuple(sorted(arrows, key=lambda each: (each.source, each.target)))
