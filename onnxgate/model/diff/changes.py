"""Changes to nodes, graph outputs and weights between two matched models."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from itertools import zip_longest

import msgspec

from onnxgate.model.diff.result import Detail, EndChange, NodeChange, WeightChange
from onnxgate.model.equality.model_matching import MatchedScope, ModelMatching, ScopeStep, WeightMatch
from onnxgate.model.equality.similarity import decode_weight, measure_distance
from onnxgate.model.facts import DEFAULT_DOMAIN, STRING, count_elements, element_name
from onnxgate.model.reading.fact_extraction import NOT_PROVIDED, format_change, format_source_change
from onnxgate.model.reading.graph import (
    NO_VALUE,
    Graph,
    Node,
    ValueSource,
    Weight,
    format_operator_key,
    trim_trailing_empty,
)
from onnxgate.model.reading.tensor_data import UnreadableWeightError

COMMUTATIVE_OPERATORS = {
    "Add",
    "Mul",
    "And",
    "Or",
    "Xor",
    "Equal",
    "Max",
    "Min",
    "Sum",
    "Mean",
    "BitwiseAnd",
    "BitwiseOr",
}


def collect_node_changes(models: ModelMatching) -> tuple[list[NodeChange], list[EndChange]]:
    """Collect the changes to the nodes and outputs of all graphs, in file order."""
    nodes: list[NodeChange] = []
    ends: list[EndChange] = []
    for scope in models.scopes:
        edits = NodeChangeCollector(scope, models)
        nodes += sorted(edits.nodes(), key=lambda it: it.position)
        ends += edits.ends()
    return nodes, ends


def _format_step(step: ScopeStep) -> str:
    if step.function is not None:
        return f"local function `{format_operator_key(step.function)}`"
    assert step.node is not None
    return f"{_format_node(step.node)}, {step.attribute}"


def _format_node(node: Node) -> str:
    operator = f"`{format_operator_key(node.operator)}`"
    return f"{operator} `{node.name}`" if node.name else operator


def _format_source(wiring: Graph, source: ValueSource) -> str:
    match source.kind:
        case "node":
            which = f"output {source.index} of " if source.index else ""
            return f"{which}{_format_node(wiring.nodes[source.node])}"
        case "nothing":
            return NOT_PROVIDED
        case "outer" if wiring.parent is not None:
            return _format_source(wiring.parent, wiring.parent.resolve(source.name))
        case "unknown":
            return f"`{source.name}` (not produced by any node)"
        case _:
            return f"{source.kind} `{source.name}`"


class NodeChangeCollector:
    """Finds the nodes and graph outputs that changed in a pair of matched graphs."""

    def __init__(self, scope: MatchedScope, models: ModelMatching) -> None:
        self._scope = tuple(map(_format_step, scope.steps))
        self._it, self._models = scope.alignment, models
        self._old, self._new = self._it.old, self._it.new
        self._outputs_of = _group_outputs(self._old), _group_outputs(self._new)
        pairs = list(self._outputs())
        self._paired = dict(pairs), {after: before for before, after in pairs}
        self._replaced = dict(self._replacements())
        self._replacing = {new: old for old, new in self._replaced.items()}

    def nodes(self) -> Iterator[NodeChange]:
        """Yield the added, removed, replaced and changed nodes."""
        for node in self._new.nodes:
            if node.index in self._it.back:
                yield from self._changed(self._old.nodes[self._it.back[node.index]], node)
            elif node.index in self._replacing:
                before = self._old.nodes[self._replacing[node.index]]
                was = format_operator_key(before.operator)
                yield self._change("replaced", node, was=was, was_name=before.name)
            else:
                yield self._unmatched("added", node, self._new)
        for node in self._old.nodes:
            if node.index not in self._it.forth and node.index not in self._replaced:
                yield self._unmatched("removed", node, self._old)

    def ends(self) -> Iterator[EndChange]:
        """Yield the graph outputs that are computed by a different node."""
        for before, after in self._outputs():
            a, b = self._old.outputs[before], self._new.outputs[after]
            if self._rewired(a, b):
                yield EndChange(
                    scope=self._scope,
                    output=self._new.output_names[after],
                    before=_format_source(self._old, a),
                    after=_format_source(self._new, b),
                )

    def _outputs(self) -> Iterator[tuple[int, int]]:
        """Pair the outputs of the two graphs.

        Outputs of the main graph are paired by name. Renamed outputs, and the outputs of other graphs, are paired by
        position.
        """
        old, new = self._old.output_names, self._new.output_names
        named = set(old) & set(new) if self._old.parent is None else set()
        positions = [{name: i for i, name in reversed(list(enumerate(names)))} for names in (old, new)]
        yield from ((positions[0][name], positions[1][name]) for name in new if name in named)
        rest = [[i for i, name in enumerate(names) if name not in named] for names in (old, new)]
        if len(rest[0]) == len(rest[1]):
            yield from zip(*rest, strict=True)

    def _replacements(self) -> Iterator[tuple[int, int]]:
        """Pair each removed node with the added node that replaces it.

        Both nodes have the same first input, and their outputs are used by the same matched node or graph output.
        """
        free = {node.index for node in self._new.nodes if node.index not in self._it.back}
        by_use: dict[object, list[int]] = {}
        for index in sorted(free):
            for use in self._new.consumers[index]:
                by_use.setdefault(use, []).append(index)
        by_end: dict[int, list[int]] = {}
        for before, after in self._outputs():
            by_end.setdefault(self._old.outputs[before].node, []).append(self._new.outputs[after].node)
        for node in self._old.nodes:
            if node.index in self._it.forth:
                continue
            uses = ((out, self._it.forth.get(reader), slot) for out, reader, slot in self._old.consumers[node.index])
            candidates = {index for use in uses for index in by_use.get(use, ())}
            candidates.update(by_end.get(node.index, ()))
            reads = self._first(self._old, node.index) if candidates & free else None
            for index in sorted(candidates & free):
                if self._first(self._new, index) == reads:
                    free.discard(index)
                    yield node.index, index
                    break

    def _first(self, wiring: Graph, index: int) -> object:
        """Return the origin of the node's first input that is not a weight; None if all its inputs are weights."""
        for source in wiring.nodes[index].sources:
            if source.kind != "nothing" and wiring.weight(source) is None:
                return self._it.origins(source, is_old=wiring is self._old)
        return None

    def _rewired(self, old: ValueSource, new: ValueSource) -> bool:
        """Return whether the value at a node input has a different origin.

        Added and removed nodes in between are ignored.
        """
        if self._it.same(old, new):
            return False
        before, after = self._old.weight(old), self._new.weight(new)
        if before is not None and after is not None:
            return self._models.partners.get(id(before)) is not after and before.content != after.content
        if new.kind == "node" and new.node not in self._it.back:
            return False
        return not self._it.through(old, new)

    def _changed(self, before: Node, after: Node) -> Iterator[NodeChange]:
        details = (*self._attributes(before, after), *self._inputs(before, after), *self._shape(before, after))
        was_name = before.name if before.name != after.name else ""
        if details:
            yield self._change("changed", after, was_name=was_name, details=details)

    def _change(self, change: str, node: Node, **more: object) -> NodeChange:
        return NodeChange(
            change=change,  # type: ignore[arg-type]
            scope=self._scope,
            operator=format_operator_key(node.operator),
            name=node.name,
            position=node.position,
            **more,  # type: ignore[arg-type]
        )

    def _unmatched(self, change: str, node: Node, wiring: Graph) -> NodeChange:
        """Describe an added or removed node, the origins of its inputs, and the nodes that use its outputs."""
        reads = [source for source in node.reads if source.kind != "nothing" and wiring.weight(source) is None]
        outputs = self._outputs_of[wiring is self._new].get(node.index, ())
        feeds = [*self._uses(node, wiring), *(f"output `{wiring.output_names[index]}`" for index in outputs)]
        return self._change(
            change,
            node,
            inserted=self._on_an_edge(node, wiring),
            reads=tuple(dict.fromkeys(_format_source(wiring, source) for source in reads)),
            feeds=tuple(dict.fromkeys(feeds)),
        )

    def _uses(self, node: Node, wiring: Graph) -> Iterator[str]:
        for _, reader, slot in wiring.consumers[node.index]:
            words = _format_node(wiring.nodes[reader])
            before = self._before(wiring, reader, slot)
            yield f"{words} (input {slot}, {before})" if before else words

    def _before(self, wiring: Graph, reader: int, slot: int) -> str:
        """Describe the previous source of a node input; "" if the node is new or the new source is computed from it."""
        if wiring is not self._new or reader not in self._it.back or slot < 0:
            return ""
        sources = self._old.nodes[self._it.back[reader]].sources
        old = sources[slot] if slot < len(sources) else NO_VALUE
        new = self._new.nodes[reader].sources[slot]
        if self._it.through(old, new):
            return ""
        return f"previously {_format_source(self._old, old)}"

    def _on_an_edge(self, node: Node, wiring: Graph) -> bool:
        """Return whether the consumers of the node's output use the node's first input directly in the other model."""
        first = next((it for it in node.reads if it.kind in ("node", "input", "outer") and not wiring.weight(it)), None)
        if first is None:
            return False
        is_new = wiring is self._new
        opposite, matched = (self._old, self._it.back) if is_new else (self._new, self._it.forth)
        pairs = [
            opposite.nodes[matched[reader]].sources[slot : slot + 1]
            for _, reader, slot in wiring.consumers[node.index]
            if reader in matched and slot >= 0
        ]
        outputs = self._outputs_of[is_new].get(node.index, ())
        ends = [(opposite.outputs[self._paired[is_new][it]],) for it in outputs if it in self._paired[is_new]]
        known_uses = [pair[0] for pair in (*pairs, *ends) if pair]
        return bool(known_uses) and all(
            self._it.same(it, first) if is_new else self._it.same(first, it) for it in known_uses
        )

    def _attributes(self, before: Node, after: Node) -> Iterator[Detail]:
        explicit = {attribute.name for node in (before, after) for attribute in node.proto.attribute}
        for name in sorted({*before.attributes, *after.attributes}):
            first, second = before.attributes.get(name), after.attributes.get(name)
            is_tensor = name in before.tensors or name in after.tensors
            if first != second and not is_tensor and name in explicit:  # inferred attributes depend on known shapes
                yield Detail(kind="attribute", text=f"attribute `{name}` {format_change(first, second)}")
        for name in sorted({*before.tensors, *after.tensors, *before.bodies, *after.bodies}):
            counts = [len(it.tensors.get(name, ())) + len(it.bodies.get(name, ())) for it in (before, after)]
            if counts[0] != counts[1]:
                change = (
                    "was added"
                    if not counts[0]
                    else "was removed"
                    if not counts[1]
                    else "has a different number of values"
                )
                yield Detail(kind="attribute", text=f"attribute `{name}` {change}")

    def _inputs(self, before: Node, after: Node) -> Iterator[Detail]:
        pairs = list(zip_longest(before.sources, after.sources, fillvalue=NO_VALUE))
        slots = [slot for slot, pair in enumerate(pairs) if self._rewired(*pair)]
        common = [slot for slot in slots if slot < min(len(before.sources), len(after.sources))]
        if (swapped := self._find_swapped({slot: pairs[slot] for slot in common})) is not None:
            harmless = after.operator[0] == DEFAULT_DOMAIN and after.operator[1] in COMMUTATIVE_OPERATORS
            remark = f" (no effect on `{after.operator[1]}`)" if harmless else ""
            yield Detail(kind="input", text=f"inputs {swapped[0]} and {swapped[1]} are swapped{remark}")
            slots = [slot for slot in slots if slot not in swapped]
        for slot in slots:
            was, origin = _format_source(self._old, pairs[slot][0]), _format_source(self._new, pairs[slot][1])
            yield Detail(kind="input", text=f"input {slot} {format_source_change(was, origin)}")
        if len(before.captured) == len(after.captured):
            known = {self._it.value(source, is_old=True) for source in before.captured}
            for a, b in zip(before.captured, after.captured, strict=True):
                if self._it.value(b, is_old=False) not in known and self._rewired(a, b):
                    change = format_source_change(_format_source(self._old, a), _format_source(self._new, b))
                    yield Detail(kind="input", text=f"captured value {change}")

    def _find_swapped(self, pairs: Mapping[int, tuple[ValueSource, ValueSource]]) -> tuple[int, int] | None:
        """Return the first two inputs whose values were swapped; None if there are none."""
        values = {
            slot: (self._it.value(old, is_old=True), self._it.value(new, is_old=False))
            for slot, (old, new) in pairs.items()
        }
        by_values: dict[tuple[Hashable, Hashable], list[int]] = {}
        for slot, both in values.items():
            by_values.setdefault(both, []).append(slot)
        swaps = ((slot, other) for slot, (old, new) in values.items() for other in by_values.get((new, old), ()))
        return next((swap for swap in swaps if swap[0] < swap[1]), None)

    def _shape(self, before: Node, after: Node) -> Iterator[Detail]:
        counts = [len(trim_trailing_empty(it.proto.output)) for it in (before, after)]
        if counts[0] != counts[1]:
            yield Detail(kind="outputs", text=f"number of outputs changed from {counts[0]} to {counts[1]}")
        for name, bodies in after.bodies.items():
            for old, new in zip(before.bodies.get(name, ()), bodies, strict=False):
                for what in ("input", "output"):
                    counts = [len(getattr(it.holder, what)) for it in (old, new)]
                    if counts[0] != counts[1]:
                        change = f"changed from {counts[0]} to {counts[1]}"
                        yield Detail(kind="graph", text=f"number of {what}s of `{name}` {change}")


def _group_outputs(graph: Graph) -> dict[int, list[int]]:
    """Return the indices of the graph outputs that each node computes."""
    groups: dict[int, list[int]] = {}
    for index, source in enumerate(graph.outputs):
        groups.setdefault(source.node, []).append(index)
    return groups


_BOOL_TYPE = 9
MAX_SHOWN_ELEMENTS = 8
"""Maximum number of elements of a weight whose values are shown in the diff."""


def collect_weight_changes(models: ModelMatching) -> Iterator[WeightChange]:
    """Yield the added, removed, copied and changed weights."""
    names_by_content = {pair.old.content: pair.old.name for pair in models.weights if pair.old is not None}
    for pair in models.weights:
        if not pair.same:
            yield _describe_weight_change(pair, names_by_content)


def _describe_weight_change(pair: WeightMatch, names_by_content: dict[tuple[object, ...], str]) -> WeightChange:
    old, new = pair.old, pair.new
    fields: dict[str, object] = {}
    if old is not None:
        fields |= {"name": old.name, "was_type": element_name(old.type), "was_shape": old.dims}
        fields |= {"was_sha256": old.digest, "was_values": format_elements(old), "text": old.problem}
    if new is not None:
        fields |= {"name": new.name, "type": element_name(new.type), "shape": new.dims}
        fields |= {"sha256": new.digest, "values": format_elements(new), "text": new.problem}
    if old is not None and new is not None:
        fields |= {"was": old.name if old.name != new.name else "", **_measure_change(old, new, names_by_content)}
    elif pair.copy_of is not None:
        fields |= {"change": "copied", "was": pair.copy_of.name}
    else:
        fields["change"] = "added" if old is None else "removed"
    return msgspec.convert(fields, WeightChange)


def _measure_change(old: Weight, new: Weight, names_by_content: dict[tuple[object, ...], str]) -> dict[str, object]:
    """Compare the content of two matched weights, and return the resulting fields of `WeightChange`."""
    problem = next((it.problem for it in (old, new) if not it.digest), None)
    try:
        distance = measure_distance(old, new) if problem is None else None
    except (UnreadableWeightError, OSError) as reason:
        problem = str(reason)
    if problem is not None:
        return {"change": "unreadable", "text": f"could not be compared: {problem}"}
    fields: dict[str, object] = {"change": "changed"}
    remarks = []
    elsewhere = names_by_content.get(new.content, "")
    if elsewhere and count_elements(new.dims) > 1:
        remarks.append(f"has the previous content of `{elsewhere}`")
    if distance is not None:
        fields |= {"elements": distance.elements, "total": distance.total, "largest": distance.largest}
        fields["relative"] = distance.relative
        if distance.unbounded:
            elements = "changed element is" if distance.unbounded == 1 else "changed elements are"
            remarks.append(f"{distance.unbounded:,} {elements} NaN or infinite in one of the models")
    return {**fields, "text": "; ".join(remarks)}


def format_elements(weight: Weight) -> str:
    """Format the elements of a small weight, such as `[1, -1]` or `0.5`; "" for larger weights."""
    total = count_elements(weight.dims)
    if not 0 < total <= MAX_SHOWN_ELEMENTS or len(weight.tensors) != 1 or not weight.digest:
        return ""
    if weight.type == STRING:
        texts = [f'"{text.decode(errors="replace")}"' for text in weight.tensors[0].string_data]
        return texts[0] if not weight.dims and texts else f"[{', '.join(texts)}]"
    elements = decode_weight(weight)
    if elements is None:
        return ""
    shown = [str(value) for stretch in elements for value in stretch]  # shortest text that parses to the same value
    if weight.type == _BOOL_TYPE:
        shown = ["true" if value != "0" else "false" for value in shown]
    return shown[0] if not weight.dims and shown else f"[{', '.join(shown)}]"
