"""Equality of two model files, and messages about their differences.

Two models are the same when they compute the same from the same inputs by the same operators: metadata, document
strings, producer, names of nodes, of inner values and of graphs, and the order of nodes do not count, nor do numbers
that a converter gives to axes; defaults that one of them omits are filled in; weights are compared by content, wherever
they are stored. The IR version does not affect what a model computes, and is not compared either.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onnxgate.core.files import sha256_of
from onnxgate.core.text import join_quoted
from onnxgate.model.equality.model_matching import MatchedScope, ScopeStep, match_graphs
from onnxgate.model.equality.node_matching import NodeMatching
from onnxgate.model.facts import Dim, ValueInfo, element_name
from onnxgate.model.reading.fact_extraction import (
    count_operators,
    format_change,
    list_inputs,
    read_opsets,
    read_value_infos,
)
from onnxgate.model.reading.graph import (
    NO_VALUE,
    Graph,
    Node,
    ValueSource,
    Weight,
    build_graphs,
    format_operator_key,
    trim_trailing_empty,
)
from onnxgate.model.reading.structure import read_view
from onnxgate.model.reading.tensor_data import UnreadableWeightError, compare_tensors
from onnxgate.model.reading.view import ModelView, OperatorKey

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

MAX_DIFFERENCES = 10
GENERATED_AXIS_NAME = re.compile(r"unk__\d+")
"""Source: tf2onnx 1.17 names axes of unknown size by a number, which it goes on counting from export to export."""


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """List the first differences between two models; empty if they are the same model."""

    differences: tuple[str, ...] = ()
    rounded: tuple[str, ...] = ()  # weights of which floats differ by at most 4 ULP, and nothing else does


def compare_models(old: Path, new: Path) -> ComparisonResult:
    """Compare two models, and list separately what differs only by rounding.

    Raises:
        UnreadableModel: one of the files is not a model.
    """
    before, after = read_view(old), read_view(new)
    if old.stat().st_size == new.stat().st_size and not before.external and sha256_of(old) == sha256_of(new):
        return ComparisonResult()
    rounded: list[str] = []
    differences = tuple(islice(_iter_differences(before, old, after, new, rounded), MAX_DIFFERENCES))
    if not differences:
        differences = tuple(islice(_compare_unused_parts(before.proto, after.proto), MAX_DIFFERENCES))
    return ComparisonResult(differences, tuple(rounded[:MAX_DIFFERENCES]))


def _iter_differences(before: ModelView, old: Path, after: ModelView, new: Path, rounded: list[str]) -> Iterator[str]:
    """Each difference in words; weights that are only rounded go to `rounded`."""
    yield from _compare_opsets(before.proto, after.proto)
    yield from _compare_interfaces(before.proto, after.proto)
    graphs = GraphComparison(before, old, after, new)
    yield from (text for _, text in sorted(graphs.differences, key=itemgetter(0)))
    for pair in sorted(graphs.weights, key=lambda pair: pair.where):
        if text := _compare_weight(pair, old, new, rounded):
            yield text


def _compare_opsets(first: ModelProto, second: ModelProto) -> Iterator[str]:
    before, after = read_opsets(first), read_opsets(second)
    for domain in sorted({*before, *after}):
        if domain not in before:
            yield f"opset {domain} {after[domain]}, was not imported"
        elif domain not in after:
            yield f"opset {domain} is not imported, was {before[domain]}"
        elif before[domain] != after[domain]:
            yield f"opset {domain} {after[domain]}, was {before[domain]}"


def _compare_interfaces(first: ModelProto, second: ModelProto) -> Iterator[str]:
    (old_inputs, old_outputs), (new_inputs, new_outputs) = read_interface(first), read_interface(second)
    yield from _compare_values("input", old_inputs, new_inputs)
    yield from _compare_values("output", old_outputs, new_outputs)


def read_interface(model: ModelProto) -> tuple[tuple[ValueInfo, ...], tuple[ValueInfo, ...]]:
    """Inputs and outputs; names of axes that a converter made up are numbered from the first of them."""
    numbers: dict[Dim, str] = {}
    inputs, outputs = read_value_infos(list_inputs(model.graph)), read_value_infos(model.graph.output)
    for value in (*inputs, *outputs):
        for dim in value.shape or ():
            if isinstance(dim, str) and GENERATED_AXIS_NAME.fullmatch(dim):
                numbers.setdefault(dim, f"unk__{len(numbers)}")
    return _renumber_axes(inputs, numbers), _renumber_axes(outputs, numbers)


def _renumber_axes(side: tuple[ValueInfo, ...], numbers: dict[Dim, str]) -> tuple[ValueInfo, ...]:
    shapes = [value.shape and tuple(numbers.get(dim, dim) for dim in value.shape) for value in side]
    return tuple(msgspec.structs.replace(it, shape=shape) for it, shape in zip(side, shapes, strict=True))


def _compare_values(role: str, before: tuple[ValueInfo, ...], after: tuple[ValueInfo, ...]) -> Iterator[str]:
    old, new = {it.name: it for it in before}, {it.name: it for it in after}
    if sorted(old) == sorted(new):
        if [*old] != [*new]:
            yield f"{role}s are in the order {join_quoted(new)}, were {join_quoted(old)}"
    elif len(old) == len(new):
        yield from (f"{role} `{b}`, was `{a}`" for a, b in zip(old, new, strict=True) if a != b)
    else:
        yield from (f"{role} `{name}` is new" for name in new if name not in old)
        yield from (f"{role} `{name}` is gone" for name in old if name not in new)
    for name in new:
        if name in old:
            yield from describe_value_change(f"{role} `{name}`", old[name], new[name])


def describe_value_change(label: str, old: ValueInfo, new: ValueInfo) -> Iterator[str]:
    """What differs between two inputs or outputs, each beginning with the label."""
    if old.type != new.type:
        yield f"{label} is {new.type or 'of no type'}, was {old.type or 'of no type'}"
    if old.shape is None or new.shape is None or len(old.shape) != len(new.shape):
        if old.shape != new.shape:
            yield f"{label} has {_format_rank(new.shape)}, had {_format_rank(old.shape)}"
        return
    for axis, (a, b) in enumerate(zip(old.shape, new.shape, strict=True)):
        if a != b:
            yield f"{label}: axis {axis} is {_format_dim(b)}, was {_format_dim(a)}"


def _format_rank(shape: tuple[Dim, ...] | None) -> str:
    return "no shape" if shape is None else f"{len(shape)} {'axis' if len(shape) == 1 else 'axes'}"


def _format_dim(dim: Dim) -> str:
    return f"`{dim}`" if isinstance(dim, str) else str(dim)


def _compare_weight(pair: WeightPair, old: Path, new: Path, rounded: list[str]) -> str:
    if pair.old.data_type != pair.new.data_type:
        return f"{pair.label} is {element_name(pair.new.data_type)}, was {element_name(pair.old.data_type)}"
    if list(pair.old.dims) != list(pair.new.dims):
        return f"{pair.label} has shape {list(pair.new.dims)}, had {list(pair.old.dims)}"
    try:
        delta = compare_tensors(pair.old, old, pair.new, new)
    except UnreadableWeightError as reason:
        return f"{pair.label} cannot be compared: {reason}"
    if delta is not None and not delta.elements:
        rounded.append(f"{pair.label} in {delta.rounded:,} of {delta.total:,} elements")
    if delta is None or not delta.elements:
        return ""
    largest = f", by up to {delta.largest:.3g}" if delta.largest is not None else ""
    return f"{pair.label} differs in {delta.elements:,} of {delta.total:,} elements{largest}"


def _compare_unused_parts(first: ModelProto, second: ModelProto) -> Iterator[str]:
    """What no output needs, and is in one of the models only."""
    before, after = count_operators(ModelView(first)), count_operators(ModelView(second))
    for name in sorted({*before, *after}):
        if before.get(name, 0) != after.get(name, 0):
            yield f"{after.get(name, 0)} `{name}` nodes, was {before.get(name, 0)}"
    counts = len(first.graph.initializer), len(second.graph.initializer)
    if counts[0] != counts[1]:
        yield f"{counts[1]} weights, was {counts[0]}"


_Position = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WeightPair:
    """Two tensors that stand for each other, still to be compared; `where` orders them as the new model its nodes."""

    where: _Position
    label: str
    old: TensorProto
    new: TensorProto


class GraphComparison:
    """The differences between two models' graphs, and the pairs of weights whose data are yet to be compared."""

    def __init__(self, before: ModelView, old_path: Path, after: ModelView, new_path: Path) -> None:
        old = build_graphs(before, old_path, constants_as_nodes=True)
        new = build_graphs(after, new_path, constants_as_nodes=True)
        self.differences: list[tuple[_Position, str]] = []
        self.weights: list[WeightPair] = []
        self.values: dict[str, str] = {}  # value that a node of the old main graph makes -> its name in the new one
        self._old_functions, self._new_functions = old.functions, new.functions
        self._compared: set[tuple[int, int, ValueSource, ValueSource]] = set()
        self._reported_functions: set[OperatorKey] = set()
        self._calls: list[tuple[OperatorKey | None, _Position]] = [(None, ())]  # of local functions, the first of each
        scopes: defaultdict[OperatorKey | None, list[MatchedScope]] = defaultdict(list)
        for scope in match_graphs(old, new).scopes:
            scopes[scope.steps[0].function if scope.steps else None].append(scope)
        for function, where in self._calls:  # grows on the way
            for scope in scopes[function]:
                if _is_live(scope):
                    self._compare_scope(scope, where)

    def _compare_scope(self, scope: MatchedScope, where: _Position) -> None:
        """Compare the outputs of two graphs or function bodies, and the nodes that they need."""
        matching, label = scope.alignment, "".join(map(_format_step, scope.steps))
        where = (*where, *(step.node.position for step in scope.steps if step.node is not None))
        if scope.steps:
            self._compare_interfaces(matching.old, matching.new, where, label)
        end = len(matching.new.holder.node)
        for index, (a, b) in enumerate(zip(matching.old.outputs, matching.new.outputs, strict=False)):
            name = matching.new.output_names[index]
            self._compare_sources(matching, a, b, (*where, end, index), f"{label}output `{name}`")
        for index in sorted(matching.new.live):
            if index in matching.back:
                before, after = matching.old.nodes[matching.back[index]], matching.new.nodes[index]
                if before.operator == after.operator:
                    text = f"{label}node {after.position} `{format_operator_key(after.operator)}`"
                    self._compare_nodes(matching, before, after, (*where, after.position), text)
                    if not scope.steps:
                        self.values.update(zip(before.proto.output, after.proto.output, strict=False))

    def _compare_interfaces(self, old: Graph, new: Graph, where: _Position, label: str) -> None:
        if old.parent is None and old.imports != new.imports:
            self._report(where, f"{label.removesuffix(': ')} imports other opsets")
        for what in ("input", "output"):
            counts = len(getattr(old.holder, what)), len(getattr(new.holder, what))
            if counts[0] != counts[1]:
                self._report(where, f"{label}{counts[1]} {what}s, was {counts[0]}")

    def _compare_nodes(self, matching: NodeMatching, before: Node, after: Node, where: _Position, label: str) -> None:
        counts = [len(trim_trailing_empty(node.proto.output)) for node in (before, after)]
        if counts[0] != counts[1]:
            self._report(where, f"{label} has {counts[1]} outputs, had {counts[0]}")
        for name in sorted({*before.attributes, *after.attributes}):
            first, second = before.attributes.get(name), after.attributes.get(name)
            if first != second:
                self._report(where, f"{label}: attribute `{name}` {format_change(first, second)}")
        self._compare_nested_attributes(before, after, where, label)
        pairs = zip_longest(before.sources, after.sources, fillvalue=NO_VALUE)
        for index, (a, b) in enumerate(pairs):
            self._compare_sources(matching, a, b, where, f"{label}: input {index}")
        self._note_call(after.operator, where, f"local function `{format_operator_key(after.operator)}`")

    def _note_call(self, function: OperatorKey, where: _Position, label: str) -> None:
        if function not in (called for called, _ in self._calls):
            is_old, is_new = function in self._old_functions, function in self._new_functions
            if is_old and is_new:
                self._calls.append((function, where))
            elif (is_old or is_new) and function not in self._reported_functions:
                self._reported_functions.add(function)
                self._report(where, f"{label} is {'new' if is_new else 'gone'}")

    def _compare_nested_attributes(self, before: Node, after: Node, where: _Position, label: str) -> None:
        """Compare attributes that hold tensors or graphs, but not what is in the graphs."""
        old, new = (
            {it.name: it.type for it in node.proto.attribute if it.name not in node.attributes}
            for node in (before, after)
        )
        for name in new:
            text = f"{label}: attribute `{name}`"
            if old.get(name) != new[name]:
                self._report(where, f"{text} {'is of another type' if name in old else 'is new'}")
                continue
            sides = [[it for weight in node.tensors.get(name, ()) for it in weight.tensors] for node in (before, after)]
            bodies = [len(node.bodies.get(name, ())) for node in (before, after)]
            if len(sides[0]) != len(sides[1]) or bodies[0] != bodies[1]:
                self._report(where, f"{text} holds another number of values")
            self.weights += [WeightPair(where, text, a, b) for a, b in zip(*sides, strict=False)]
        for name in old:
            if name not in new:
                self._report(where, f"{label}: attribute `{name}` is gone")

    def _compare_sources(
        self, matching: NodeMatching, old: ValueSource, new: ValueSource, where: _Position, user: str
    ) -> None:
        """Compare two values that are used at the same place; of weights, what is not their data."""
        before, after = matching.old.weight(old), matching.new.weight(new)
        while old.kind == new.kind == "outer" and matching.around is not None:
            old, new = matching.around.old.resolve(old.name), matching.around.new.resolve(new.name)
            matching = matching.around
        key = (id(before or matching), id(after or matching), old, new)
        if key in self._compared:
            return
        self._compared.add(key)
        if before is not None and after is not None and before.kind == after.kind:
            self._compare_weights(before, after, where)
        elif before is not None or after is not None or not _is_same_value(matching, old, new):
            origin, was = _format_origin(matching.new, new), _format_origin(matching.old, old)
            self._report(where, f"{user} is {f'{origin}, was {was}' if origin != was else f'another {origin}'}")

    def _compare_weights(self, before: Weight, after: Weight, where: _Position) -> None:
        label = f"{'sparse ' if after.kind == 'sparse' else ''}weight `{after.name}`"
        if after.kind == "sparse" and before.dims != after.dims:
            self._report(where, f"{label} has shape {list(after.dims)}, had {list(before.dims)}")
        for a, b, part in zip(before.tensors, after.tensors, ("", " (indices)"), strict=False):
            self.weights.append(WeightPair(where, f"{label}{part}", a, b))
        if before.overridable != after.overridable and after.kind == "initializer":
            change = "can be given as an input too" if after.overridable else "is no input any more"
            self._report(where, f"{label} {change}")

    def _report(self, where: _Position, text: str) -> None:
        self.differences.append((where, text))


def _is_live(scope: MatchedScope) -> bool:
    """Return whether an output needs the nodes that the graph is inside of."""
    matching: NodeMatching | None = scope.alignment
    for step in reversed(scope.steps):
        matching = matching.around if matching is not None else None
        if step.node is not None and matching is not None and step.node.index not in matching.new.live:
            return False
    return True


def _is_same_value(matching: NodeMatching, old: ValueSource, new: ValueSource) -> bool:
    """Return whether both are the same value, made by the same operator: calls of renamed functions are matched too."""
    if not matching.same(old, new):
        return False
    return old.kind != "node" or matching.old.nodes[old.node].operator == matching.new.nodes[new.node].operator


def _format_step(step: ScopeStep) -> str:
    if step.function is not None:
        return f"local function `{format_operator_key(step.function)}`: "
    assert step.node is not None
    return f"node {step.node.position} `{format_operator_key(step.node.operator)}`, attribute `{step.attribute}`: "


def _format_origin(graph: Graph, source: ValueSource) -> str:
    match source.kind:
        case "node":
            which = f"output {source.index} of " if source.index else ""
            return f"{which}`{format_operator_key(graph.nodes[source.node].operator)}`"
        case "weight":
            return f"{'sparse' if graph.weights[source.name].kind == 'sparse' else 'weight'} `{source.name}`"
        case "input":
            return f"input `{source.name}`"
        case "outer" if graph.parent is not None:
            return _format_origin(graph.parent, graph.parent.resolve(source.name))
        case "nothing":
            return "not given"
        case _:
            return f"`{source.name}`, which nothing makes"
