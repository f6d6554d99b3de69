"""Simplify a graph as ONNX Runtime's optimizer does first: without nodes that do nothing, and with equal nodes merged.

Source: 90 models with equal nodes, constants and nodes that do nothing, loaded on 8 releases from 1.16.3 to 1.32.0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from msgspec.structs import replace

from onnxgate.model.facts import DEFAULT_DOMAIN
from onnxgate.model.reading.tensor_data import read_small_values
from onnxgate.model.reading.view import NodeView
from onnxgate.support.matching.graph_values import GraphValues

if TYPE_CHECKING:
    from onnx import AttributeProto, TensorProto

NEUTRAL_ELEMENTS = {"Add": 0, "Div": 1, "Mul": 1, "Sub": 0}
"""Operators of which nodes with this constant do nothing."""
NEUTRAL_HALVES = {0x0000: 0, 0x8000: 0, 0x3C00: 1}
"""The numbers 0, -0 and 1 by their bits as float16."""
_TERMS = 2
_COMMUTATIVE = frozenset({"Add", "Mul"})
_FLOAT, _INT32, _INT64, _FLOAT16, _DOUBLE = 1, 6, 7, 10, 11
_SHARED_TYPES = frozenset({_FLOAT, _INT32, _INT64, _FLOAT16, _DOUBLE})
_MAX_SHARED = 8
"""Number of elements up to which equal constants become one."""
_DISTINCT = frozenset(
    ("Bernoulli", "Constant", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)
"""Operators of which equal nodes are not merged."""


def is_eliminated(values: GraphValues, node: NodeView) -> bool:
    """Return whether the optimizer removes an Identity or Dropout, so that it needs no kernel.

    It keeps nodes whose output a subgraph captures, Dropout with a ratio, a mask or as an output of the graph, and
    Identity whose input and output are those of the graph.
    Source: models with Identity and Dropout in 8 and 14 positions, loaded on ONNX Runtime 1.16.0 to 1.32.0.
    """
    is_output = any(map(values.is_output, node.outputs))
    if node.operator[1] == "Identity":
        is_output = is_output and values.producer(node.inputs[0]) is None
    elif len(node.inputs) > 1 or any(map(values.is_used, node.outputs[1:])):
        return False
    return not is_output and values.list_captured().isdisjoint(node.outputs)


class SimplifiedGraph:
    """The values of a graph with other nodes, and the nodes that take the places of the original ones."""

    def __init__(self, values: GraphValues, nodes: Mapping[NodeView, NodeView]) -> None:
        self.values = values
        self._nodes = nodes

    def find(self, node: NodeView) -> NodeView | None:
        """Return the node that takes the place of an original node; None if this is removed."""
        return self._nodes.get(node)

    def merge_equal(self) -> SimplifiedGraph:
        """Return the graph with equal nodes merged, which happens after some fusions and before others."""
        merges = _NodeMerges(self.values)
        nodes = {node: found for node, it in self._nodes.items() if (found := merges.nodes.get(it)) is not None}
        return SimplifiedGraph(merges.merged, nodes)


def simplify_graph(values: GraphValues) -> SimplifiedGraph:
    """Return a graph without the nodes that do nothing.

    An Identity that makes an output of the graph stays if other nodes take its input, too.
    """
    all_nodes = values.graph.nodes
    passed = {node.outputs[0]: name for node in all_nodes if (name := _find_passed(values, node))}

    def rename(name: str) -> str:
        met = set()
        while name in passed and name not in met:  # the graph may not be acyclic
            met.add(name)
            name = passed[name]
        return name

    for node in all_nodes:
        if name := _find_noop(values, node, rename):
            passed[node.outputs[0]] = name
    outputs = [node for node in all_nodes if node.outputs and node.outputs[0] in passed and _is_returned(values, node)]
    kept = [node for node in all_nodes if not any(name in passed for name in node.outputs[:1])]
    uses = Counter(rename(name) for node in kept for name in node.inputs)
    uses.update(rename(node.inputs[0]) for node in outputs)
    captured = set(map(rename, values.list_captured()))
    returned: dict[str, str] = {}  # value -> output of the graph that the node which makes it makes instead
    for node in outputs:
        source = rename(node.inputs[0])
        if uses[source] == 1 and source not in captured and not values.is_output(source):
            del passed[node.outputs[0]]
            returned[source] = node.outputs[0]
        else:
            kept.append(node)
    simplified = {
        node: replace(
            node,
            inputs=tuple(returned.get(name, name) for name in map(rename, node.inputs)),
            outputs=tuple(returned.get(name, name) for name in node.outputs),
        )
        for node in kept
    }
    nodes = {node: simplified[node] for node in all_nodes if node in simplified}
    return SimplifiedGraph(values.with_nodes(tuple(nodes.values()), captured), nodes)


def _is_returned(values: GraphValues, node: NodeView) -> bool:
    return any(map(values.is_output, node.outputs))


class _NodeMerges:
    """Equal nodes of one graph, of which the optimizer keeps the first in its own order."""

    def __init__(self, values: GraphValues) -> None:
        self._values = values
        self._names: dict[str, str] = {}  # value -> the one that replaces it
        self._equals: dict[str, str] = {}  # also of values that stay because the graph returns them
        self._constants: dict[tuple[object, ...], str] = {}
        self._candidates: dict[tuple[object, ...], list[NodeView]] = {}
        self.nodes: dict[NodeView, NodeView] = {}
        kept: dict[int, NodeView] = {}
        for index in _sort_nodes(values.graph.nodes):
            node = values.graph.nodes[index]
            merged = replace(node, inputs=tuple(map(self._rename, node.inputs)))
            equal = self._find_equal(merged)
            is_kept = equal is None or self._replace_outputs(node, equal)
            self.nodes[node] = merged if is_kept or equal is None else equal
            if is_kept:
                kept[index] = merged
        captured = {self._names.get(name, name) for name in values.list_captured()}
        self.merged = values.with_nodes(tuple(kept[index] for index in sorted(kept)), captured)

    def _find_equal(self, node: NodeView) -> NodeView | None:
        """Return an equal node that comes before; None if there is none."""
        if node.operator[1] in _DISTINCT or node.graphs:
            return None
        inputs = [self._equals.get(name, name) for name in node.inputs]
        while inputs and not inputs[-1]:
            del inputs[-1]
        candidates = self._candidates.setdefault((node.operator, *inputs), [])
        equal = next((it for it in candidates if self._have_equal_attributes(it, node)), None)
        if equal is None:
            candidates.append(node)
        return equal

    def _have_equal_attributes(self, node: NodeView, other: NodeView) -> bool:
        """Return whether two nodes of one operator have equal attributes; defaults may be omitted."""
        left, right = ({attribute.name: attribute for attribute in it.attributes} for it in (node, other))
        return all(
            left[name].SerializeToString() == right[name].SerializeToString() and not left[name].HasField("t")
            if name in left and name in right
            else self._is_default(node, left.get(name) or right[name])
            for name in left.keys() | right.keys()
        )

    def _is_default(self, node: NodeView, attribute: AttributeProto) -> bool:
        """Return whether an attribute has its default value in the version of the operator that the graph uses."""
        from onnx import defs  # only for equal nodes with different attributes

        domain, name, _ = node.operator
        key = (name, self._values.imports.get(domain, 0), "" if domain == DEFAULT_DOMAIN else domain)
        if not defs.has(*key):
            return False
        known: Mapping[str, defs.OpSchema.Attribute] = defs.get_schema(*key).attributes
        return attribute.name in known and known[attribute.name].default_value == attribute

    def _replace_outputs(self, node: NodeView, equal: NodeView) -> bool:
        """Replace the outputs of a node by those of an equal one. Return whether one of them stays."""
        is_kept = False
        for output, other in zip_longest(node.outputs, equal.outputs[: len(node.outputs)], fillvalue=""):
            if other:
                self._equals[output] = other
            if other and not self._values.is_output(output):
                self._names[output] = other
            else:
                is_kept = is_kept or bool(output)
        return is_kept

    def _rename(self, name: str) -> str:
        if name not in self._names and name:
            key = self._describe_constant(name)
            self._names[name] = self._constants.setdefault(key, name) if key else name
        return self._names.get(name, name)

    def _describe_constant(self, name: str) -> tuple[object, ...]:
        """Return the type, sizes and elements of a constant that becomes one with equal ones; () for other values."""
        values = self._values
        tensor = values.constant(name)
        if tensor is None or tensor.data_type not in _SHARED_TYPES or not 0 < math.prod(tensor.dims) <= _MAX_SHARED:
            return ()
        if values.is_inner or not values.is_stored_here(name) or values.is_output(name):
            return ()
        elements = _read_elements(tensor) if name not in values.list_captured() else None
        return (tensor.data_type, tuple(tensor.dims), *map(str, elements)) if elements else ()  # -0 is not 0


def _sort_nodes(nodes: Sequence[NodeView]) -> list[int]:
    """Return the indexes of nodes in the order of the optimizer: from the last node without users, inputs first.

    Nodes of cycles come last.
    """
    makers = {
        output: index
        for index, node in enumerate(nodes)
        if node.operator[1] != "Constant"
        for output in node.outputs
        if output
    }
    sources: list[list[int]] = []
    for node in nodes:
        captured = (name for graph in node.graphs for inner in graph.all_nodes() for name in inner.inputs)
        sources.append(sorted({makers[name] for name in (*node.inputs, *captured) if name in makers}))
    taken = {index for indexes in sources for index in indexes}
    ahead = [(index, False) for index in range(len(nodes)) if index not in taken]
    visited: set[int] = set()
    order: list[int] = []
    while ahead:
        index, is_ready = ahead.pop()
        if is_ready:
            order.append(index)
        elif index not in visited:
            visited.add(index)
            ahead.append((index, True))
            ahead += [(source, False) for source in sources[index] if source not in visited]
    return order + [index for index in range(len(nodes)) if index not in visited]


def _find_passed(values: GraphValues, node: NodeView) -> str:
    """Return the input that takes the place of the output of an Identity, Dropout or Cast; "" for other nodes."""
    if node.operator[0] != DEFAULT_DOMAIN or not node.inputs or not node.outputs:
        return ""
    if node.operator[1] in ("Dropout", "Identity"):
        return node.inputs[0] if is_eliminated(values, node) else ""
    if node.operator[1] != "Cast" or values.is_output(node.outputs[0]) or _is_captured(values, node):
        return ""
    before, after = (values.element(name) for name in (node.inputs[0], node.outputs[0]))
    return node.inputs[0] if before == after != 0 else ""


def _find_noop(values: GraphValues, node: NodeView, rename: Callable[[str], str]) -> str:
    """Return the input that takes the place of the output of a node with a neutral constant; "" for other nodes."""
    neutral = NEUTRAL_ELEMENTS.get(node.operator[1]) if node.operator[0] == DEFAULT_DOMAIN else None
    if neutral is None or len(node.inputs) != _TERMS or not node.outputs:
        return ""
    if values.is_output(node.outputs[0]) or _is_captured(values, node):
        return ""
    data, constant = node.inputs
    if node.operator[1] in _COMMUTATIVE and values.constant(constant) is None:
        data, constant = constant, data
    tensor = values.constant(constant)
    if tensor is None or values.constant(data) is not None or values.producer(rename(data)) is None:
        return ""
    is_scalar = math.prod(tensor.dims) == 1 and len(tensor.dims) <= values.rank(data)
    is_known = is_scalar and tensor.data_type in _SHARED_TYPES and values.is_stored(constant)
    elements = _read_elements(tensor) if is_known else None
    if elements and tensor.data_type == _FLOAT16:
        elements = tuple(NEUTRAL_HALVES.get(int(bits), bits) for bits in elements)
    return data if elements == (neutral,) else ""


def _is_captured(values: GraphValues, node: NodeView) -> bool:
    return not values.list_captured().isdisjoint(node.outputs)


def _read_elements(tensor: TensorProto) -> tuple[int | float, ...] | None:
    """Return the elements of a small tensor, or the bits of float16; None if they are not available."""
    if tensor.data_type != _FLOAT16:
        return read_small_values(tensor)
    raw = tensor.raw_data
    return tuple(int.from_bytes(raw[at : at + 2], "little") for at in range(0, len(raw), 2)) or (*tensor.int32_data,)
