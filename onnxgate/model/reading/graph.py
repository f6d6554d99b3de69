"""Graphs with resolved names: nodes, and the source of each of their inputs.

A `Constant` node is treated as a weight. Subgraphs are separate graphs; the values that they capture are treated as
inputs of their node.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from onnxgate.model.facts import DEFAULT_DOMAIN, canonical_domain
from onnxgate.model.reading.fact_extraction import AttributeValue, read_attributes, read_opsets
from onnxgate.model.reading.omitted_data import find_constant_list
from onnxgate.model.reading.tensor_data import UnreadableWeightError, read_chunks
from onnxgate.model.reading.view import GraphView, ModelView, NodeView, OperatorKey, iter_sparse_tensors

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TensorProto

_FLOAT, _INT64 = 1, 7
_CONSTANT_ATTRIBUTES = {"value", "value_float", "value_floats", "value_int", "value_ints"}


class Weight(msgspec.Struct, eq=False):
    """A tensor in a model: an initializer, a `Constant` or an attribute. Omitted data is not kept in memory."""

    name: str
    tensors: tuple[TensorProto, ...]  # one tensor, or values and indices for sparse weights
    dims: tuple[int, ...]
    type: int
    model: Path
    kind: Literal["initializer", "sparse", "constant", "attribute"] = "initializer"
    overridable: bool = False  # also an input of the graph
    problem: str = ""  # reason why it is unreadable; set by `digest`
    _digest: str | None = None

    @property
    def digest(self) -> str:
        """SHA-256 of the weight's data, independent of how it is stored; "" if it is unreadable."""
        if self._digest is None:
            try:
                self._digest = self._hashed()
            except (UnreadableWeightError, OSError) as reason:
                self.problem, self._digest = str(reason), ""
        return self._digest

    def _hashed(self) -> str:
        digest = hashlib.sha256()
        for tensor in self.tensors:
            for chunk in read_chunks(tensor, self.model):
                digest.update(chunk)
        return digest.hexdigest()

    @property
    def content(self) -> tuple[object, ...]:
        """Key that is the same for weights with equal type, shape and data; each unreadable weight has a unique key."""
        return (self.type, self.dims, self.digest or id(self))

    @property
    def form(self) -> tuple[object, ...]:
        """Type and shape."""
        return (self.type, self.dims)


class ValueSource(msgspec.Struct, frozen=True, gc=False):
    """Origin of a value: output `index` of `node`, or input `index` of the graph."""

    kind: Literal["nothing", "input", "weight", "node", "outer", "unknown"]
    name: str = ""
    node: int = -1
    index: int = 0


NO_VALUE = ValueSource("nothing")
_EMPTY: Mapping[str, Any] = MappingProxyType({})
"""Shared by all nodes, because a dictionary takes more memory than a small node in the file."""


class Node(msgspec.Struct, eq=False):
    """One node of a graph. `captured` contains the outer values that its subgraphs use, in the order of first use."""

    proto: NodeProto
    index: int
    position: int  # in the file
    operator: OperatorKey
    attributes: Mapping[str, AttributeValue]
    sources: tuple[ValueSource, ...]
    tensors: Mapping[str, tuple[Weight, ...]] = _EMPTY  # by attribute
    bodies: Mapping[str, tuple[Graph, ...]] = _EMPTY  # by attribute
    captured: tuple[ValueSource, ...] = ()

    @property
    def name(self) -> str:
        """Name of the node, or of its first output if the node is unnamed."""
        return str(self.proto.name or next(filter(None, self.proto.output), ""))

    @property
    def reads(self) -> tuple[ValueSource, ...]:
        """Sources of all inputs of the node, and of the values that its subgraphs capture."""
        return (*self.sources, *self.captured)


class Graph:
    """One graph or local function body, with its nodes and weights."""

    def __init__(
        self,
        view: GraphView,
        imports: dict[str, int],
        model: Path,
        parent: Graph | None = None,
        *,
        constants_as_nodes: bool = False,
    ) -> None:
        self._constants_as_nodes = constants_as_nodes
        holder: GraphProto | FunctionProto = view.proto
        self.holder, self.imports, self.model, self.parent = holder, imports, model, parent
        self.weights: dict[str, Weight] = {weight.name: weight for weight in _iter_initializers(holder, model)}
        names = [str(getattr(value, "name", value)) for value in holder.input]
        for name in names:
            if name in self.weights:
                self.weights[name].overridable = True
        self.inputs = {name: index for index, name in enumerate(it for it in names if it not in self.weights)}
        self.free: dict[str, None] = {}  # names that are defined outside this graph
        self._made: dict[str, tuple[int, int]] = {}
        self.nodes: list[Node] = []
        self._fill(view)
        self.output_names = [str(getattr(value, "name", value)) for value in holder.output]
        self.outputs = [self.resolve(name) for name in self.output_names]
        self.order = _topological_order(self)
        self.consumers = _index_consumers(self)
        self.live = set(_producer_indices(self.outputs))  # nodes that an output needs
        for index in reversed(self.order):
            if index in self.live:
                self.live.update(_producer_indices(self.nodes[index].reads))

    def _fill(self, graph: GraphView) -> None:
        views: list[tuple[int, NodeView]] = []
        for position, view in enumerate(graph.nodes):
            constant = None if self._constants_as_nodes else _constant_weight(view, self.model)
            if constant is not None:
                self.weights.setdefault(constant.name, constant)
                continue
            for index, name in enumerate(view.outputs):
                if name:
                    self._made.setdefault(name, (len(views), index))
            views.append((position, view))
        self.nodes = [self._node(index, position, view) for index, (position, view) in enumerate(views)]

    def _node(self, index: int, position: int, view: NodeView) -> Node:
        attributes = read_attributes(view.proto, self.imports.get(view.operator[0], 1), self.dims, self.model)
        sources = tuple(map(self.resolve, trim_trailing_empty(view.inputs)))
        node = Node(view.proto, index, position, view.operator, attributes or _EMPTY, sources)
        graphs = iter(view.graphs)  # in the order of the attributes
        for attribute in view.attributes:
            if tensors := tuple(self._read_tensors(node, attribute)):
                node.tensors = {**node.tensors, attribute.name: tensors}
            if bodies := tuple(
                Graph(graph, self.imports, self.model, self, constants_as_nodes=self._constants_as_nodes)
                for graph in islice(graphs, attribute.HasField("g") + len(attribute.graphs))
            ):
                node.bodies = {**node.bodies, attribute.name: bodies}
        free = dict.fromkeys(name for bodies in node.bodies.values() for body in bodies for name in body.free)
        node.captured = tuple(map(self.resolve, free))
        return node

    def _read_tensors(self, node: Node, attribute: AttributeProto) -> Iterator[Weight]:
        label = f"{attribute.name} of {node.name}"
        tensors = [attribute.t] if attribute.HasField("t") and find_constant_list(attribute.t) is None else []
        for tensor in (*tensors, *attribute.tensors):
            yield Weight(label, (tensor,), tuple(tensor.dims), tensor.data_type, self.model, "attribute")
        for it in iter_sparse_tensors(attribute):
            both = (it.values, it.indices)
            yield Weight(label, both, tuple(it.dims), it.values.data_type, self.model, "attribute")

    def dims(self, name: str) -> Sequence[int] | None:
        """Return the dims of the weight with this name in this graph or an enclosing graph."""
        scope: Graph | None = self
        while scope is not None:
            if name in scope.weights:
                return scope.weights[name].dims
            scope = scope.parent
        return None

    def resolve(self, name: str) -> ValueSource:
        """Return the source of the value with this name.

        A name that this graph does not define refers to enclosing graphs.
        """
        if not name:
            return NO_VALUE
        if name in self.weights:
            return ValueSource("weight", name)
        if name in self.inputs:
            return ValueSource("input", name, index=self.inputs[name])
        if name in self._made:
            node, index = self._made[name]
            return ValueSource("node", name, node, index)
        self.free[name] = None
        return ValueSource("outer" if self.parent is not None else "unknown", name)

    def weight(self, source: ValueSource) -> Weight | None:
        """Return the weight that `source` refers to; None if the source is not a weight."""
        scope: Graph | None = self
        while scope is not None and source.kind == "outer":
            scope = scope.parent
            source = scope.resolve(source.name) if scope is not None else NO_VALUE
        return scope.weights[source.name] if scope is not None and source.kind == "weight" else None


class ModelGraphs(msgspec.Struct, frozen=True):
    """The main graph and the local functions of a model."""

    main: Graph
    functions: dict[OperatorKey, Graph]

    def scopes(self) -> Iterator[Graph]:
        """Yield every graph and function body, outer graphs first."""
        for wiring in (self.main, *self.functions.values()):
            yield from _iter_nested(wiring)


def build_graphs(view: ModelView, model: Path, *, constants_as_nodes: bool = False) -> ModelGraphs:
    """Build the graphs of a model that was read from the file `model`. By default, each `Constant` becomes a weight."""

    def build(graph: GraphView, imports: dict[str, int]) -> Graph:
        return Graph(graph, imports, model, constants_as_nodes=constants_as_nodes)

    functions = {}
    for body in view.functions:
        proto = body.proto
        imports = {canonical_domain(imported.domain): imported.version for imported in proto.opset_import}
        functions[canonical_domain(proto.domain), proto.name, proto.overload] = build(body, imports)
    return ModelGraphs(build(view.graphs[0], read_opsets(view.proto)), functions)


def format_operator_key(operator: OperatorKey) -> str:
    """Format an operator, such as `Conv`, with its domain unless it is the default domain."""
    domain, name, overload = operator
    shown = name if domain == DEFAULT_DOMAIN else f"{domain}.{name}"
    return f"{shown}:{overload}" if overload else shown


def _iter_nested(wiring: Graph) -> Iterator[Graph]:
    yield wiring
    for node in wiring.nodes:
        for bodies in node.bodies.values():
            for body in bodies:
                yield from _iter_nested(body)


def trim_trailing_empty(names: Sequence[str]) -> list[str]:
    """Remove the empty names at the end of a node's list of inputs or outputs; they have no meaning."""
    trimmed = list(names)
    while trimmed and not trimmed[-1]:
        trimmed.pop()
    return trimmed


def _iter_initializers(holder: GraphProto | FunctionProto, model: Path) -> Iterator[Weight]:
    for tensor in getattr(holder, "initializer", ()):
        yield Weight(tensor.name, (tensor,), tuple(tensor.dims), tensor.data_type, model)
    for sparse in getattr(holder, "sparse_initializer", ()):
        both, kind = (sparse.values, sparse.indices), sparse.values.data_type
        yield Weight(sparse.values.name, both, tuple(sparse.dims), kind, model, "sparse")


def _constant_weight(node: NodeView, model: Path) -> Weight | None:
    """Return the value of a `Constant` node as a weight; None for other nodes, strings and sparse tensors."""
    from onnx import TensorProto

    if node.operator[:2] != (DEFAULT_DOMAIN, "Constant") or len(node.outputs) != 1 or not node.outputs[0]:
        return None
    if len(node.attributes) != 1 or node.attributes[0].ref_attr_name:
        return None
    attribute = node.attributes[0]
    constant = find_constant_list(attribute.t)
    if (constant.name if constant else attribute.name) not in _CONSTANT_ATTRIBUTES:
        return None
    match attribute.name:
        case "value":
            tensor = attribute.t
        case "value_float":
            tensor = TensorProto(data_type=_FLOAT, float_data=[attribute.f])
        case "value_floats":
            tensor = TensorProto(data_type=_FLOAT, dims=[len(attribute.floats)], float_data=attribute.floats)
        case "value_int":
            tensor = TensorProto(data_type=_INT64, int64_data=[attribute.i])
        case _:
            tensor = TensorProto(data_type=_INT64, dims=[len(attribute.ints)], int64_data=attribute.ints)
    return Weight(node.outputs[0], (tensor,), tuple(tensor.dims), tensor.data_type, model, "constant")


def _topological_order(wiring: Graph) -> list[int]:
    """Return the node indices in a topological order that depends on the nodes' connections, not on the file order."""
    ordered: dict[int, None] = {}
    begun: set[int] = set()
    for root in (*_producer_indices(wiring.outputs), *range(len(wiring.nodes))):
        stack = [] if root in begun else [root]
        while stack:
            node = stack[-1]
            if node in begun:
                stack.pop()
                ordered[node] = None
                continue
            begun.add(node)
            stack.extend(it for it in reversed(list(_producer_indices(wiring.nodes[node].reads))) if it not in begun)
    return list(ordered)


def _producer_indices(sources: Iterable[ValueSource]) -> Iterator[int]:
    return (source.node for source in sources if source.kind == "node")


def _index_consumers(wiring: Graph) -> list[list[tuple[int, int, int]]]:
    """List the consumers of each node as (output of the node, consumer, input of the consumer).

    The input is -1 for a captured value.
    """
    consumers: list[list[tuple[int, int, int]]] = [[] for _ in wiring.nodes]
    for node in wiring.nodes:
        for slot, source in (*enumerate(node.sources), *((-1, source) for source in node.captured)):
            if source.kind == "node":
                consumers[source.node].append((source.index, node.index, slot))
    return consumers
