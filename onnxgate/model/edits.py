"""What was done to the nodes of a graph: put in, taken out, replaced, changed, wired otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxgate.model.alignment import Alignment
from onnxgate.model.attributes import changed
from onnxgate.model.difference import Detail, EndChange, NodeChange
from onnxgate.model.neighbours import Neighbours
from onnxgate.model.pairing import Models, Scope, Step
from onnxgate.model.reading import DEFAULT_DOMAIN
from onnxgate.model.wiring import NOTHING, Node, Operator, Source, Wiring, trimmed

COMMUTATIVE = {"Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min", "Sum", "Mean", "BitwiseAnd", "BitwiseOr"}


def node_edits(models: Models) -> tuple[list[NodeChange], list[EndChange]]:
    """Those of all graphs, each in the order of its file."""
    nodes: list[NodeChange] = []
    ends: list[EndChange] = []
    for scope in models.scopes:
        edits = Edits(scope, models)
        nodes += sorted(edits.nodes(), key=lambda it: it.position)
        ends += edits.ends()
    return nodes, ends


def operator_words(operator: Operator) -> str:
    """`Conv`, or with its domain where that is not the default one."""
    domain, name, overload = operator
    shown = name if domain == DEFAULT_DOMAIN else f"{domain}.{name}"
    return f"{shown}:{overload}" if overload else shown


def step_words(step: Step) -> str:
    """A step down to a graph inside."""
    if step.function is not None:
        return f"local function `{operator_words(step.function)}`"
    assert step.node is not None
    return f"{node_words(step.node)}, {step.attribute}"


def node_words(node: Node) -> str:
    """A node as messages name it."""
    operator = f"`{operator_words(node.operator)}`"
    return f"{operator} `{node.name}`" if node.name else operator


def source_words(wiring: Wiring, source: Source) -> str:
    """A value, by what makes it."""
    match source.kind:
        case "node":
            which = f"output {source.index} of " if source.index else ""
            return f"{which}{node_words(wiring.nodes[source.node])}"
        case "nothing":
            return "not given"
        case "outer" if wiring.parent is not None:
            return source_words(wiring.parent, wiring.parent.resolve(source.name))
        case "unknown":
            return f"`{source.name}`, which nothing makes"
        case _:
            return f"{source.kind} `{source.name}`"


class Edits:
    """The edits of one graph."""

    def __init__(self, scope: Scope, models: Models) -> None:
        self._scope = tuple(map(step_words, scope.steps))
        self._it, self._models = scope.alignment, models
        self._old, self._new = self._it.old, self._it.new
        self._near = Neighbours(self._it)
        self._replaced = dict(self._replacements())
        self._replacing = {new: old for old, new in self._replaced.items()}

    def nodes(self) -> Iterator[NodeChange]:
        """Every node that is not as it was."""
        for node in self._new.nodes:
            if node.index in self._it.back:
                yield from self._changed(self._old.nodes[self._it.back[node.index]], node)
            elif node.index in self._replacing:
                yield self._replacement(self._old.nodes[self._replacing[node.index]], node)
            else:
                yield self._one("added", node, self._new, self._it)
        for node in self._old.nodes:
            if node.index not in self._it.forth and node.index not in self._replaced:
                yield self._one("removed", node, self._old, self._it)

    def ends(self) -> Iterator[EndChange]:
        """Outputs of the graph that come from elsewhere."""
        for before, after in self._outputs():
            a, b = self._old.outputs[before], self._new.outputs[after]
            if self._rewired(a, b):
                yield EndChange(
                    scope=self._scope,
                    output=self._new.output_names[after],
                    before=source_words(self._old, a),
                    after=source_words(self._new, b),
                )

    def _outputs(self) -> Iterator[tuple[int, int]]:
        """Outputs of the main graph are the same by name, those that were renamed and all others by position."""
        old, new = self._old.output_names, self._new.output_names
        if self._old.parent is not None or len(old) != len(new) or set(old) != set(new):
            named = set(old) & set(new) if self._old.parent is None else set()
            yield from ((old.index(name), new.index(name)) for name in new if name in named)
            rest = (
                [i for i, name in enumerate(old) if name not in named],
                [i for i, name in enumerate(new) if name not in named],
            )
            if len(rest[0]) == len(rest[1]):
                yield from zip(*rest, strict=True)
        else:
            yield from ((old.index(name), new.index(name)) for name in new)

    def _replacements(self) -> Iterator[tuple[int, int]]:
        """Nodes that are gone, each with a new one of another operator that reads the same and feeds the same."""
        free = {node.index for node in self._new.nodes if node.index not in self._it.back}
        by_reads: dict[object, list[int]] = {}
        for index in sorted(free):
            by_reads.setdefault(self._first(self._new, index), []).append(index)
        for node in self._old.nodes:
            if node.index in self._it.forth:
                continue
            for other in by_reads.get(self._first(self._old, node.index), ()):
                if other in free and self._feed_the_same(node.index, other):
                    free.discard(other)
                    yield node.index, other
                    break

    def _first(self, wiring: Wiring, index: int) -> object:
        """What the first thing that a node reads, and that is no weight, comes from."""
        for source in wiring.nodes[index].sources:
            if source.kind != "nothing" and wiring.weight(source) is None:
                return self._near.origins(source, is_old=wiring is self._old)
        return None

    def _feed_the_same(self, old: int, new: int) -> bool:
        first = {(out, self._it.forth.get(reader), slot) for out, reader, slot in self._old.consumers[old]}
        ends = {(self._old.outputs[a].node, self._new.outputs[b].node) for a, b in self._outputs()}
        return bool(first & set(self._new.consumers[new])) or (old, new) in ends

    def _rewired(self, old: Source, new: Source) -> bool:
        """An input comes from elsewhere, and no node that was put in or taken out explains it."""
        if self._it.same(old, new):
            return False
        before, after = self._old.weight(old), self._new.weight(new)
        if before is not None and after is not None:
            return self._models.partners.get(id(before)) is not after and before.content != after.content
        if new.kind == "node" and new.node not in self._it.back:
            return False
        return not self._near.through(old, new)

    def _changed(self, before: Node, after: Node) -> Iterator[NodeChange]:
        details = (*self._attributes(before, after), *self._inputs(before, after), *self._shape(before, after))
        if details:
            yield self._change("changed", after, was_name=_other_name(before, after), details=details)

    def _replacement(self, before: Node, after: Node) -> NodeChange:
        return self._change(
            "replaced",
            after,
            was=operator_words(before.operator),
            was_name=before.name,
            details=(*self._inputs(before, after, only_later=True),),
        )

    def _change(self, change: str, node: Node, **more: object) -> NodeChange:
        return NodeChange(
            change=change,  # type: ignore[arg-type]
            scope=self._scope,
            operator=operator_words(node.operator),
            name=node.name,
            position=node.position,
            **more,  # type: ignore[arg-type]
        )

    def _one(self, change: str, node: Node, wiring: Wiring, alignment: Alignment) -> NodeChange:
        """A node that was put in or taken out, and where it stands."""
        reads = [source for source in node.every if source.kind != "nothing" and wiring.weight(source) is None]
        feeds = [*self._uses(node, wiring), *self._graph_outputs(node, wiring)]
        return self._change(
            change,
            node,
            inserted=self._on_an_edge(node, wiring),
            reads=tuple(dict.fromkeys(source_words(wiring, source) for source in reads)),
            feeds=tuple(dict.fromkeys(feeds)),
        )

    def _uses(self, node: Node, wiring: Wiring) -> Iterator[str]:
        for _, reader, slot in wiring.consumers[node.index]:
            words = node_words(wiring.nodes[reader])
            before = self._before(wiring, reader, slot)
            yield f"{words} (input {slot}, {before})" if before else words

    def _before(self, wiring: Wiring, reader: int, slot: int) -> str:
        """What an input of a node that was there before was, where that is not what the new node is made of."""
        if wiring is not self._new or reader not in self._it.back or slot < 0:
            return ""
        sources = self._old.nodes[self._it.back[reader]].sources
        old = sources[slot] if slot < len(sources) else NOTHING
        new = self._new.nodes[reader].sources[slot]
        if self._near.through(old, new):
            return ""
        return "which was not given" if old is NOTHING else f"which was {source_words(self._old, old)}"

    def _graph_outputs(self, node: Node, wiring: Wiring) -> Iterator[str]:
        for name, source in zip(wiring.output_names, wiring.outputs, strict=True):
            if source.kind == "node" and source.node == node.index:
                yield f"output `{name}`"

    def _on_an_edge(self, node: Node, wiring: Wiring) -> bool:
        """Without it, or before it was there, its readers read what it reads."""
        first = next((it for it in node.every if it.kind in ("node", "input", "outer") and not wiring.weight(it)), None)
        if first is None:
            return False
        is_new = wiring is self._new
        other, known = (self._old, self._it.back) if is_new else (self._new, self._it.forth)
        pairs = [
            other.nodes[known[reader]].sources[slot : slot + 1]
            for _, reader, slot in wiring.consumers[node.index]
            if reader in known and slot >= 0
        ]
        ends = [(other.outputs[a if is_new else b],) for a, b in self._outputs() if self._made_by(node, wiring, a, b)]
        known_uses = [each[0] for each in (*pairs, *ends) if each]
        return bool(known_uses) and all(
            self._it.same(it, first) if is_new else self._it.same(first, it) for it in known_uses
        )

    def _made_by(self, node: Node, wiring: Wiring, old: int, new: int) -> bool:
        source = wiring.outputs[new if wiring is self._new else old]
        return source.kind == "node" and source.node == node.index

    def _attributes(self, before: Node, after: Node) -> Iterator[Detail]:
        for name in sorted({*before.attributes, *after.attributes}):
            first, second = before.attributes.get(name), after.attributes.get(name)
            held = name in before.held or name in after.held
            if first != second and not held and _is_said(name, before, after):
                yield Detail(kind="attribute", text=f"attribute `{name}` {changed(first, second)}")
        for name in sorted({*before.held, *after.held, *before.bodies, *after.bodies}):
            counts = [len(it.held.get(name, ())) + len(it.bodies.get(name, ())) for it in (before, after)]
            if counts[0] != counts[1]:
                said = "is new" if not counts[0] else "is gone" if not counts[1] else "holds another number of values"
                yield Detail(kind="attribute", text=f"attribute `{name}` {said}")

    def _inputs(self, before: Node, after: Node, *, only_later: bool = False) -> Iterator[Detail]:
        first, second = before.sources, after.sources
        if only_later:  # of a replaced node: inputs mean other things, and the first one is the same
            return
        slots = [slot for slot in range(max(len(first), len(second))) if self._rewired(*_at(first, second, slot))]
        if swapped := self._swapped(first, second, slots):
            harmless = after.operator[0] == DEFAULT_DOMAIN and after.operator[1] in COMMUTATIVE
            beside = f", which is the same to `{after.operator[1]}`" if harmless else ""
            yield Detail(kind="input", text=f"inputs {swapped[0]} and {swapped[1]} are swapped{beside}")
            slots = [slot for slot in slots if slot not in swapped]
        for slot in slots:
            a, b = _at(first, second, slot)
            was = source_words(self._old, a)
            yield Detail(kind="input", text=f"input {slot} is {source_words(self._new, b)}, was {was}")
        if len(before.captured) == len(after.captured):
            for a, b in zip(before.captured, after.captured, strict=True):
                if not any(self._it.same(each, b) for each in before.captured) and self._rewired(a, b):
                    was = source_words(self._old, a)
                    yield Detail(kind="input", text=f"takes {source_words(self._new, b)} from around, was {was}")

    def _swapped(self, first: Sequence[Source], second: Sequence[Source], slots: Sequence[int]) -> tuple[int, ...]:
        for i in slots:
            for j in slots:
                if i < j < min(len(first), len(second)) and self._are_swapped(first, second, i, j):
                    return i, j
        return ()

    def _are_swapped(self, first: Sequence[Source], second: Sequence[Source], i: int, j: int) -> bool:
        return self._it.same(first[i], second[j]) and self._it.same(first[j], second[i])

    def _shape(self, before: Node, after: Node) -> Iterator[Detail]:
        counts = [len(trimmed(it.proto.output)) for it in (before, after)]
        if counts[0] != counts[1]:
            yield Detail(kind="outputs", text=f"has {counts[1]} outputs, had {counts[0]}")
        for name, bodies in after.bodies.items():
            for old, new in zip(before.bodies.get(name, ()), bodies, strict=False):
                yield from _sides(name, old, new)


def _sides(name: str, old: Wiring, new: Wiring) -> Iterator[Detail]:
    for what in ("input", "output"):
        counts = [len(getattr(it.holder, what)) for it in (old, new)]
        if counts[0] != counts[1]:
            yield Detail(kind="graph", text=f"{name} has {counts[1]} {what}s, had {counts[0]}")


def _at(first: Sequence[Source], second: Sequence[Source], slot: int) -> tuple[Source, Source]:
    a = first[slot] if slot < len(first) else NOTHING
    b = second[slot] if slot < len(second) else NOTHING
    return a, b


def _is_said(name: str, before: Node, after: Node) -> bool:
    """One of the nodes spells the attribute out; what is filled in depends on shapes that are not known of both."""
    return any(attribute.name == name for node in (before, after) for attribute in node.proto.attribute)


def _other_name(before: Node, after: Node) -> str:
    return before.name if before.name != after.name else ""
