"""How a graph is wired: its nodes, and where each of their inputs comes from, whatever values and nodes are called.

A `Constant` is a weight like any other here; graphs inside nodes are wired of their own, and what they take from around
them counts as inputs of the node that holds them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from onnxgate.model.attributes import Plain, plain_attributes
from onnxgate.model.reading import canonical_domain, opsets
from onnxgate.model.structure import subgraphs
from onnxgate.model.types import count_of
from onnxgate.model.weights import UnreadableWeightError, chunks

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

Operator = tuple[str, str, str]
"""Domain, name, overload."""
_FLOAT, _INT64 = 1, 7
_TELLING = 4
"""A weight of so many elements and more tells nodes apart by what it holds."""
_CONSTANTS = {"value", "value_float", "value_floats", "value_int", "value_ints"}


@dataclass(eq=False, slots=True)
class Weight:
    """A tensor that a model holds: an initializer, a `Constant`, or an attribute of a node. Nothing of it is in memory
    that the model's structure does not have."""

    name: str
    tensors: tuple[TensorProto, ...]  # one; of a sparse one its values and its indices
    dims: tuple[int, ...]
    type: int
    model: Path
    kind: Literal["initializer", "sparse", "constant", "attribute"] = "initializer"
    overridable: bool = False  # an input of the graph too
    problem: str = ""  # why it cannot be read; known once `digest` was asked for
    _digest: str | None = None

    @property
    def digest(self) -> str:
        """The SHA-256 of what it holds, however it is kept; "" where that cannot be read."""
        if self._digest is None:
            try:
                self._digest = self._hashed()
            except (UnreadableWeightError, OSError) as reason:
                self.problem, self._digest = str(reason), ""
        return self._digest

    def _hashed(self) -> str:
        digest = hashlib.sha256()
        for tensor in self.tensors:
            for chunk in chunks(tensor, self.model):
                digest.update(chunk)
        return digest.hexdigest()

    @property
    def content(self) -> tuple[object, ...]:
        """Equal for weights of the same type, shape and data; of what cannot be read, equal only to itself."""
        return (self.type, self.dims, self.digest or id(self))

    @property
    def form(self) -> tuple[object, ...]:
        """Its type and shape."""
        return (self.type, self.dims)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value comes from: `node` makes it as its output `index`, or it is the graph's input `index`."""

    kind: Literal["nothing", "input", "weight", "node", "outer", "unknown"]
    name: str = ""
    node: int = -1
    index: int = 0


NOTHING = Source("nothing")


@dataclass(eq=False, slots=True)
class Node:
    """One node. `captured` is what graphs inside it take from around it, in the order of its first use there."""

    proto: NodeProto
    index: int
    position: int  # in the file
    operator: Operator
    attributes: dict[str, Plain]
    sources: tuple[Source, ...]
    held: dict[str, tuple[Weight, ...]] = field(default_factory=dict)  # tensors by attribute
    bodies: dict[str, tuple[Wiring, ...]] = field(default_factory=dict)  # graphs by attribute
    captured: tuple[Source, ...] = ()

    @property
    def name(self) -> str:
        """What a reader knows it by: its name, else its first output's."""
        return str(self.proto.name or next(filter(None, self.proto.output), ""))

    @property
    def every(self) -> tuple[Source, ...]:
        """All that it reads."""
        return (*self.sources, *self.captured)


class Wiring:
    """One graph or function body."""

    def __init__(
        self,
        holder: GraphProto | FunctionProto,
        imports: dict[str, int],
        model: Path,
        parent: Wiring | None = None,
    ) -> None:
        self.holder, self.imports, self.model, self.parent = holder, imports, model, parent
        self.weights: dict[str, Weight] = {weight.name: weight for weight in _initializers(holder, model)}
        names = [str(getattr(value, "name", value)) for value in holder.input]
        for name in names:
            if name in self.weights:
                self.weights[name].overridable = True
        self.inputs = {name: index for index, name in enumerate(it for it in names if it not in self.weights)}
        self.free: dict[str, None] = {}  # names that something around this graph must know
        self._made: dict[str, tuple[int, int]] = {}
        self.nodes: list[Node] = []
        self._fill()
        self.output_names = [str(getattr(value, "name", value)) for value in holder.output]
        self.outputs = [self.resolve(name) for name in self.output_names]
        self.order = _order(self)
        self.consumers = _consumers(self)

    def _fill(self) -> None:
        protos: list[tuple[int, NodeProto]] = []
        for position, proto in enumerate(self.holder.node):
            constant = _constant(proto, self.model)
            if constant is not None:
                self.weights.setdefault(constant.name, constant)
                continue
            for index, name in enumerate(proto.output):
                if name:
                    self._made.setdefault(name, (len(protos), index))
            protos.append((position, proto))
        self.nodes = [self._node(index, position, proto) for index, (position, proto) in enumerate(protos)]

    def _node(self, index: int, position: int, proto: NodeProto) -> Node:
        domain = canonical_domain(proto.domain)
        attributes = plain_attributes(proto, self.imports.get(domain, 1), self.dims)
        sources = tuple(map(self.resolve, trimmed(proto.input)))
        operator = (domain, proto.op_type, getattr(proto, "overload", ""))
        node = Node(proto, index, position, operator, attributes, sources)
        for attribute in proto.attribute:
            if held := tuple(self._held(node, attribute)):
                node.held[attribute.name] = held
            if bodies := tuple(Wiring(graph, self.imports, self.model, self) for graph in subgraphs(attribute)):
                node.bodies[attribute.name] = bodies
        free = dict.fromkeys(name for bodies in node.bodies.values() for body in bodies for name in body.free)
        node.captured = tuple(map(self.resolve, free))
        return node

    def _held(self, node: Node, attribute: AttributeProto) -> Iterator[Weight]:
        label = f"{attribute.name} of {node.name}"
        tensors = [attribute.t] if attribute.HasField("t") else []
        for tensor in (*tensors, *attribute.tensors):
            yield Weight(label, (tensor,), tuple(tensor.dims), tensor.data_type, self.model, "attribute")
        sparse = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
        for it in (*sparse, *attribute.sparse_tensors):
            both = (it.values, it.indices)
            yield Weight(label, both, tuple(it.dims), it.values.data_type, self.model, "attribute")

    def dims(self, name: str) -> Sequence[int] | None:
        """The dims of a weight, here or around."""
        scope: Wiring | None = self
        while scope is not None:
            if name in scope.weights:
                return scope.weights[name].dims
            scope = scope.parent
        return None

    def resolve(self, name: str) -> Source:
        """What a name means here; what it does not mean here is taken from around."""
        if not name:
            return NOTHING
        if name in self.weights:
            return Source("weight", name)
        if name in self.inputs:
            return Source("input", name, index=self.inputs[name])
        if name in self._made:
            node, index = self._made[name]
            return Source("node", name, node, index)
        self.free[name] = None
        return Source("outer" if self.parent is not None else "unknown", name)

    def weight(self, source: Source) -> Weight | None:
        """The weight that a source is, here or around."""
        scope: Wiring | None = self
        while scope is not None and source.kind == "outer":
            scope = scope.parent
            source = scope.resolve(source.name) if scope is not None else NOTHING
        return scope.weights[source.name] if scope is not None and source.kind == "weight" else None


@dataclass(frozen=True, slots=True)
class Wired:
    """A whole model: its main graph and its local functions, each wired."""

    main: Wiring
    functions: dict[Operator, Wiring]

    def scopes(self) -> Iterator[Wiring]:
        """Every graph and function body, outer ones first."""
        for wiring in (self.main, *self.functions.values()):
            yield from _within(wiring)


def wire(proto: ModelProto, model: Path) -> Wired:
    """The model whose structure was read from `model`."""
    functions = {
        (canonical_domain(it.domain), str(it.name), str(getattr(it, "overload", ""))): Wiring(
            it, {canonical_domain(imported.domain): imported.version for imported in it.opset_import}, model
        )
        for it in proto.functions
    }
    return Wired(Wiring(proto.graph, opsets(proto), model), functions)


def telling(wiring: Wiring, index: int) -> bool:
    """The node has a weight that is large enough to tell it from others by what that holds."""
    weights = map(wiring.weight, wiring.nodes[index].sources)
    return any(weight is not None and count_of(weight.dims) >= _TELLING for weight in weights)


def _within(wiring: Wiring) -> Iterator[Wiring]:
    yield wiring
    for node in wiring.nodes:
        for bodies in node.bodies.values():
            for body in bodies:
                yield from _within(body)


def trimmed(names: Sequence[str]) -> list[str]:
    """Inputs or outputs without trailing empty ones, which say nothing."""
    kept = list(names)
    while kept and not kept[-1]:
        kept.pop()
    return kept


def _initializers(holder: GraphProto | FunctionProto, model: Path) -> Iterator[Weight]:
    for tensor in getattr(holder, "initializer", ()):
        yield Weight(tensor.name, (tensor,), tuple(tensor.dims), tensor.data_type, model)
    for sparse in getattr(holder, "sparse_initializer", ()):
        both, kind = (sparse.values, sparse.indices), sparse.values.data_type
        yield Weight(sparse.values.name, both, tuple(sparse.dims), kind, model, "sparse")


def _constant(node: NodeProto, model: Path) -> Weight | None:
    """The tensor that a `Constant` stands for; None for any other node, and for strings and sparse tensors."""
    if node.op_type != "Constant" or canonical_domain(node.domain) != "ai.onnx" or len(node.output) != 1:
        return None
    given = [attribute for attribute in node.attribute if not attribute.ref_attr_name]
    if len(given) != 1 or len(node.attribute) != 1 or given[0].name not in _CONSTANTS or not node.output[0]:
        return None
    tensor = given[0].t if given[0].name == "value" else _tensor(given[0])
    return Weight(node.output[0], (tensor,), tuple(tensor.dims), tensor.data_type, model, "constant")


def _tensor(attribute: AttributeProto) -> TensorProto:
    from onnx import TensorProto

    match attribute.name:
        case "value_float":
            return TensorProto(data_type=_FLOAT, float_data=[attribute.f])
        case "value_floats":
            return TensorProto(data_type=_FLOAT, dims=[len(attribute.floats)], float_data=attribute.floats)
        case "value_int":
            return TensorProto(data_type=_INT64, int64_data=[attribute.i])
        case _:
            return TensorProto(data_type=_INT64, dims=[len(attribute.ints)], int64_data=attribute.ints)


def _order(wiring: Wiring) -> list[int]:
    """The nodes, makers before users, in an order that follows from how they are wired and not from the file's."""
    done: dict[int, None] = {}
    begun: set[int] = set()
    for root in (*_makers(wiring.outputs), *range(len(wiring.nodes))):
        stack = [] if root in begun else [root]
        while stack:
            node = stack[-1]
            if node in begun:
                stack.pop()
                done[node] = None
                continue
            begun.add(node)
            stack.extend(it for it in reversed(list(_makers(wiring.nodes[node].every))) if it not in begun)
    return list(done)


def _makers(sources: Iterable[Source]) -> Iterator[int]:
    return (source.node for source in sources if source.kind == "node")


def _consumers(wiring: Wiring) -> list[list[tuple[int, int, int]]]:
    """For each node who reads it: (its output, reader, the reader's input); `-1` is what a graph inside captures."""
    found: list[list[tuple[int, int, int]]] = [[] for _ in wiring.nodes]
    for node in wiring.nodes:
        for slot, source in enumerate(node.sources):
            if source.kind == "node":
                found[source.node].append((source.index, node.index, slot))
        for source in node.captured:
            if source.kind == "node":
                found[source.node].append((source.index, node.index, -1))
    return found
