"""Find sequences that OpenVINO refuses because of the nodes around them, which probes of single nodes cannot show.

OpenVINO replaces a sequence by its tensors, and knows several patterns of nodes for which it can. 2026.3.0 knows more.
Source: 233 models of several nodes with sequences, loaded on OpenVINO 2024.5.0 to 2026.4.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from onnxgate.core.findings import is_release_within
from onnxgate.model.reading.view import iter_subgraphs
from onnxgate.support.matching.operations import SupportGap, TypedModel, TypedNode
from onnxgate.support.operators import Implementation

if TYPE_CHECKING:
    from onnx import GraphProto, TypeProto

OUTSIDE = "outside of"
"""Beginning of the words for uses that are refused except inside an operator."""
_LAST_WITH_FEW_PATTERNS = "2026.2.1"
_ACCUMULATES = "OpenVINO may refuse a `Loop` that does more with a sequence than append tensors to concatenate"
_PASSES = "OpenVINO may refuse a sequence from `If`, `Identity`, `Loop` or a surrounding graph"
_MADE = frozenset({"SequenceConstruct", "SplitToSequence"})
_CHANGED = frozenset({"SequenceEmpty", "SequenceErase", "SequenceInsert"})
_PASSED = frozenset({"", "Identity", "If"})
_POSITIONS = {"SequenceErase": 1, "SequenceInsert": 2}
"""Index of the input `position` of operators that change a sequence."""


class _Graph(msgspec.Struct, frozen=True, eq=False):
    producers: dict[str, TypedNode]
    looped: frozenset[str]  # values that a Loop takes, and sequences to which tensors are appended to compute them
    carried: frozenset[str]  # inputs of the body of a Loop
    appended: frozenset[str]  # values of such a body that it returns, without tensors appended to them
    is_inside: bool  # it is a subgraph
    is_body: bool
    is_in_loop: bool

    def producer(self, name: str) -> str:
        """Return the operator that makes a value in this graph; "" if none does."""
        return self.producers[name].operation.name if name in self.producers else ""

    def is_carried(self, name: str) -> bool:
        """Return whether a value is an input of the body of a Loop."""
        return self.find_source(name, "Identity") in self.carried

    def find_source(self, name: str, operator: str) -> str:
        """Return the value before a chain of nodes with this operator; "" if the chain is a cycle."""
        passed: set[str] = set()
        while self.producer(name) == operator:
            if name in passed:
                return ""
            passed.add(name)
            name = self.producers[name].proto.input[0]
        return name


def find_sequence_problems(
    model: TypedModel, implementation: Implementation
) -> Iterator[tuple[TypedNode, SupportGap | str]]:
    """Yield nodes that a release refuses because of the nodes around them, or for which this is unknown, and why."""
    if implementation.engine == "openvino" and any("Sequence" in node.operation.name for node in model.kinds):
        yield from _walk(model.nodes, None, implementation.release, is_body=False, is_in_loop=False)


def _walk(
    nodes: Sequence[TypedNode], body: GraphProto | None, release: str, *, is_body: bool, is_in_loop: bool
) -> Iterator[tuple[TypedNode, SupportGap | str]]:
    producers = {name: node for node in nodes for name in node.proto.output if name}
    taken = (name for node in nodes if node.operation.name == "Loop" for name in node.proto.input)
    inputs, outputs = ((), ()) if body is None or not is_body else (body.input, body.output)
    graph = _Graph(
        producers,
        looped=_find_appended(producers, taken),
        carried=frozenset(value.name for value in inputs),
        appended=_find_appended(producers, (value.name for value in outputs)),
        is_inside=body is not None,
        is_body=is_body,
        is_in_loop=is_in_loop,
    )
    for node in nodes:
        if node.calls or not node.has_use:
            continue
        problem = _match(node, graph, release)
        if problem is not None:
            yield node, problem
        first = 0
        for inner in _list_subgraphs(node):
            is_loop = node.operation.name == "Loop"
            inside = node.inner[first : first + len(inner.node)]
            yield from _walk(inside, inner, release, is_body=is_loop, is_in_loop=is_in_loop or is_loop)
            first += len(inner.node)


def _list_subgraphs(node: TypedNode) -> list[GraphProto]:
    return [graph for attribute in node.proto.attribute for graph in iter_subgraphs(attribute)] if node.inner else []


def _find_appended(producers: dict[str, TypedNode], names: Iterable[str]) -> frozenset[str]:
    """Return values that nodes make, and the sequences to which tensors are appended to compute them."""
    found = set()
    for name in names:
        while name in producers and name not in found:
            found.add(name)
            if producers[name].operation.name == "SequenceInsert":
                name = producers[name].proto.input[0]
    return frozenset(found)


def _match(node: TypedNode, graph: _Graph, release: str) -> SupportGap | str | None:
    """Return why a release refuses a node because of the nodes around it, or why this is unknown."""
    for use in _REFUSED_USES.get(node.operation.name, ()):
        if use.is_refused_by(release) and use.applies(node, graph):
            problem = f"`{node.operation.label}` is refused {use.words}"
            return SupportGap("attribute-unsupported", problem, about=use.words)
    return _find_doubt(node, graph, is_old=is_release_within(release, "", _LAST_WITH_FEW_PATTERNS))


def _find_doubt(node: TypedNode, graph: _Graph, *, is_old: bool) -> str | None:
    """Return why it is unknown whether a release refuses a node; None if it accepts the node."""
    match node.operation.name:
        case "SequenceInsert" | "SequenceErase":
            return _find_doubt_about_change(node, graph, is_old=is_old)
        case "SequenceAt":
            producer = graph.producer(node.proto.input[0])
            if producer == "SequenceConstruct" and graph.is_inside:
                return "OpenVINO may refuse to take a tensor from a sequence that `If` or `Loop` constructs"
            return _ACCUMULATES if producer == "Loop" or graph.is_carried(node.proto.input[0]) else None
        case "SequenceLength":
            is_loop = graph.producer(node.proto.input[0]) == "Loop" or graph.is_carried(node.proto.input[0])
            return _ACCUMULATES if is_loop else None
        case "SplitToSequence" if _has_unknown_count(node):
            return "OpenVINO refuses `SplitToSequence` if it does not know the size along `axis`"
        case "Loop" if not _accumulates(node):
            return _ACCUMULATES
    return None


def _find_doubt_about_change(node: TypedNode, graph: _Graph, *, is_old: bool) -> str | None:
    """Return why it is unknown whether a release refuses to insert a tensor into a sequence, or to erase one."""
    is_appended = graph.is_body and node.proto.output[0] in graph.appended
    if is_old and not (graph.is_in_loop and is_appended):
        return _ACCUMULATES
    if graph.is_carried(node.proto.input[0]):
        has_position = len(node.proto.input) > _POSITIONS[node.operation.name]
        return None if is_appended and not has_position else _ACCUMULATES
    return None if graph.producer(node.proto.input[0]) in _MADE | _CHANGED else _PASSES


def _has_unknown_count(node: TypedNode) -> bool:
    """Return whether a SplitToSequence does not show into how many tensors it splits."""
    names = node.proto.input
    if _lists_sizes(node):
        return False
    value_type = node.type_of(names[0])
    if value_type is None or not value_type.tensor_type.HasField("shape"):
        return False
    axis = next((attribute.i for attribute in node.proto.attribute if attribute.name == "axis"), 0)
    dims = value_type.tensor_type.shape.dim
    return -len(dims) <= axis < len(dims) and not dims[axis].HasField("dim_value")


def _lists_sizes(node: TypedNode) -> bool:
    """Return whether `split` of a SplitToSequence is a list of sizes. A number is the size of all tensors."""
    split = _get_split(node)
    return split is not None and len(split.tensor_type.shape.dim) > 0


def _get_split(node: TypedNode) -> TypeProto | None:
    names = node.proto.input
    return node.type_of(names[1]) if len(names) > 1 and names[1] else None


def _accumulates(node: TypedNode) -> bool:
    """Return whether the body of a Loop computes the used sequences only by appending tensors."""
    bodies = _list_subgraphs(node)
    if not bodies:
        return True
    producers = {name: inner for inner in node.inner for name in inner.proto.output if name}
    carried = frozenset(value.name for value in bodies[0].input)
    graph = _Graph(producers, frozenset(), carried, frozenset(), is_inside=True, is_body=True, is_in_loop=True)
    outputs = zip(bodies[0].output[1:], node.proto.output, node.operation.outputs, strict=False)
    names = [value.name for value, name, kind in outputs if (kind or "").startswith("seq(") and node.is_used(name)]
    for name in names:
        if graph.producer(name) != "SequenceInsert":
            return False
        name = graph.find_source(name, "SequenceInsert")
        if not graph.is_carried(name) and graph.producer(name) != "SequenceEmpty":
            return False
    return True


def _is_computed(node: TypedNode, index: int) -> bool:
    names = node.proto.input
    return index < len(names) and bool(names[index]) and node.source_of(names[index]) in ("input", "computed")


class _RefusedUse(msgspec.Struct, frozen=True):
    """A use of an operator on sequences that releases refuse."""

    words: str  # after "is refused"
    applies: Callable[[TypedNode, _Graph], bool]
    last: str = ""  # release that refuses it; "": all known ones do

    def is_refused_by(self, release: str) -> bool:
        """Return whether a release refuses the use."""
        return is_release_within(release, "", self.last)


_WITH_POSITION = "with `position` that is not constant"
_CHANGES = (
    _RefusedUse(_WITH_POSITION, lambda node, _: _is_computed(node, _POSITIONS[node.operation.name])),
    _RefusedUse(
        f"{OUTSIDE} `Loop`",
        lambda node, graph: not graph.is_in_loop and node.proto.output[0] not in graph.looped,
        _LAST_WITH_FEW_PATTERNS,
    ),
)
_REFUSED_USES = {
    "SequenceInsert": _CHANGES,
    "SequenceErase": _CHANGES,
    "SequenceAt": (
        _RefusedUse(_WITH_POSITION, lambda node, _: _is_computed(node, 1), _LAST_WITH_FEW_PATTERNS),
        _RefusedUse(
            "with a sequence from other operators than `SequenceConstruct` and `SplitToSequence`",
            lambda node, graph: graph.producer(node.proto.input[0]) not in _MADE,
            _LAST_WITH_FEW_PATTERNS,
        ),
    ),
    "ConcatFromSequence": (
        _RefusedUse(
            "with a sequence from `If`, `Identity` or a surrounding graph",
            lambda node, graph: graph.producer(node.proto.input[0]) in _PASSED,
        ),
    ),
    "SplitToSequence": (
        _RefusedUse(
            "with a number as `split` that is not constant",
            lambda node, _: _get_split(node) is not None and not _lists_sizes(node) and _is_computed(node, 1),
        ),
        _RefusedUse(
            "with an unknown size along `axis`, unless `split` lists sizes",
            lambda node, _: _has_unknown_count(node) and node.source_of(node.proto.input[0]) == "input",
        ),
    ),
}
"""Refused uses of operators on sequences, which answers to questions about an operator state, too."""


def list_refused_uses(name: str, release: str) -> tuple[str, ...]:
    """Return the uses of an operator on sequences that a release refuses, such as "outside of `Loop`"."""
    return tuple(use.words for use in _REFUSED_USES.get(name, ()) if use.is_refused_by(release))
