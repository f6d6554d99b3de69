"""A view of a model: what its messages contain, collected in one walk over them.

Static checks read the view, because each access to a message from Python takes longer than the check itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from onnxgate.model.facts import DEFAULT_DOMAIN
from onnxgate.model.reading.file_format import UnreadableModel

if TYPE_CHECKING:
    from onnx import (
        AttributeProto,
        FunctionProto,
        GraphProto,
        ModelProto,
        NodeProto,
        SparseTensorProto,
        TensorProto,
    )

EXTERNAL = 1
"""`TensorProto.EXTERNAL`, without importing onnx."""
OperatorKey = tuple[str, str, str]
"""Domain ("ai.onnx" for the default one), name, overload."""


class NodeView(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One node."""

    proto: Any  # NodeProto
    name: str  # its own, often ""
    operator: OperatorKey
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[Any, ...]  # AttributeProto
    graphs: tuple[GraphView, ...]  # inside its attributes


class GraphView(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One graph, or the body of one local function."""

    proto: Any  # GraphProto or FunctionProto
    nodes: tuple[NodeView, ...]

    def all_nodes(self) -> Iterator[NodeView]:
        """Yield the nodes, then those of the graphs inside them."""
        yield from self.nodes
        for node in self.nodes:
            for graph in node.graphs:
                yield from graph.all_nodes()


class ModelView:
    """Graphs, nodes, tensors and texts of one model. The data of large tensors may be left out of its messages."""

    __slots__ = (
        "declared",
        "external",
        "functions",
        "graphs",
        "proto",
        "remarks",
        "sha256",
        "spells_default_domain",
        "tensors",
    )

    def __init__(self, proto: ModelProto, sha256: str = "") -> None:
        """Walk over the model. `sha256` is that of the file it was parsed from, if it is known.

        Raises:
            UnreadableModel: a name is not UTF-8. protobuf returns such a name as bytes, which fail wherever it is used.
        """
        walk = _Walk()
        walk.header(proto)
        walk.graph(proto.graph)
        functions = tuple(map(walk.function, proto.functions))
        walk.require_utf8()
        self.proto = proto
        self.sha256 = sha256
        self.graphs: tuple[GraphView, ...] = tuple(walk.graphs)  # the main one first, and outer ones before inner ones
        self.functions: tuple[GraphView, ...] = functions
        self.tensors: tuple[tuple[str, TensorProto], ...] = tuple(walk.tensors())
        """Each by its own name, or by the output of the Constant that holds it."""
        self.declared: tuple[TensorProto, ...] = tuple(walk.declared)  # those that say where their data are
        self.external = tuple(it for it in self.tensors if it[1].data_location == EXTERNAL) if self.declared else ()
        self.spells_default_domain = DEFAULT_DOMAIN in walk.domains  # a node names it, instead of ""
        self.remarks: tuple[str | bytes, ...] = tuple(walk.remarks)  # documentation, and values of metadata

    @property
    def scopes(self) -> tuple[GraphView, ...]:
        """All that holds nodes: every graph and every local function."""
        return (*self.graphs, *self.functions)

    def nodes(self) -> Iterator[NodeView]:
        """Yield every node, those of graphs inside nodes and of local functions included."""
        return chain.from_iterable(scope.nodes for scope in self.scopes)


NamedTensors = list[tuple[str, "TensorProto"]]


class _Walk:
    """What a walk over one model has collected so far."""

    def __init__(self) -> None:
        self.graphs: list[GraphView] = []
        self.declared: list[TensorProto] = []
        self.remarks: list[str | bytes] = []
        self.domains: set[str] = set()  # as nodes spell them
        self._names: list[Any] = []  # which must be UTF-8
        self._initializers: NamedTensors = []
        self._of_graphs: list[NamedTensors] = []  # tensors in the attributes of each graph
        self._of_functions: list[NamedTensors] = []

    def require_utf8(self) -> None:
        """Raise `UnreadableModel` if a name is not UTF-8."""
        try:
            "".join(self._names)
        except TypeError:
            text = next(name for name in self._names if not isinstance(name, str))
            raise UnreadableModel(f"a damaged model (the name {text!r} is not UTF-8)") from None

    def tensors(self) -> Iterator[tuple[str, TensorProto]]:
        """Yield all tensors: initializers, then those in attributes."""
        return chain(self._initializers, *self._of_graphs, *self._of_functions)

    def header(self, proto: ModelProto) -> None:
        """Collect the texts of the model itself."""
        self._names += (proto.producer_name, proto.producer_version)
        self._names += [imported.domain for imported in proto.opset_import]
        self._names += [text for entry in proto.metadata_props for text in (entry.key, entry.value)]
        self._remark(proto)

    def function(self, proto: FunctionProto) -> GraphView:
        """View the body of a local function."""
        self._names += (proto.name, proto.domain, proto.overload, *proto.input, *proto.output, *proto.attribute)
        self._names += [imported.domain for imported in proto.opset_import]
        self._remark(proto)
        for value in proto.value_info:
            self._remark_metadata(value)
        tensors: NamedTensors = []
        self._of_functions.append(tensors)
        return GraphView(proto, self._nodes(proto, tensors))

    def graph(self, proto: GraphProto) -> GraphView:
        """View a graph and those inside it."""
        place = len(self.graphs)
        self.graphs.append(GraphView(proto, ()))
        self._names.append(proto.name)
        self._remark(proto)
        self._values(proto)
        for tensor in proto.initializer:
            self._tensor(self._initializers, tensor.name, tensor)
            if tensor.metadata_props:
                self._remark_metadata(tensor)
        for sparse in proto.sparse_initializer:
            self._sparse(self._initializers, sparse.values.name, sparse)
        tensors: NamedTensors = []
        self._of_graphs.append(tensors)
        view = self.graphs[place] = GraphView(proto, self._nodes(proto, tensors))
        return view

    def _nodes(self, proto: GraphProto | FunctionProto, tensors: NamedTensors) -> tuple[NodeView, ...]:
        nodes, names = [], self._names
        for node in proto.node:
            operator, domain, name, overload = node.op_type, node.domain, node.name, node.overload
            inputs, outputs = tuple(node.input[:]), tuple(node.output[:])
            names += (operator, domain, name, overload)
            names += inputs
            names += outputs
            if node.metadata_props:
                names += [text for entry in node.metadata_props for text in (entry.key, entry.value)]
                self._remark_metadata(node)
            if node.doc_string:
                self.remarks.append(node.doc_string)
            attributes: tuple[AttributeProto, ...] = tuple(node.attribute[:])
            graphs = self._attributes(attributes, next(filter(None, outputs), name), tensors) if attributes else ()
            self.domains.add(domain)
            key = (domain or DEFAULT_DOMAIN, operator, overload)
            nodes.append(NodeView(node, name, key, inputs, outputs, attributes, graphs))
        return tuple(nodes)

    def _attributes(
        self, attributes: tuple[AttributeProto, ...], holder: str, tensors: NamedTensors
    ) -> tuple[GraphView, ...]:
        """Collect the tensors in attributes, and view the graphs in them. `holder` names a tensor without a name."""
        graphs: list[GraphView] = []
        for attribute in attributes:
            self._names += (attribute.name, attribute.ref_attr_name)
            if attribute.HasField("t"):
                self._tensor(tensors, attribute.t.name or holder, attribute.t)
            for tensor in attribute.tensors:
                self._tensor(tensors, tensor.name or holder, tensor)
            if attribute.HasField("sparse_tensor"):
                self._sparse(tensors, holder, attribute.sparse_tensor)
            for sparse in attribute.sparse_tensors:
                self._sparse(tensors, holder, sparse)
            if attribute.HasField("g"):
                graphs.append(self.graph(attribute.g))
            graphs += map(self.graph, attribute.graphs)
        return tuple(graphs)

    def _tensor(self, tensors: NamedTensors, name: str, tensor: TensorProto) -> None:
        tensors.append((name, tensor))
        self._names.append(tensor.name)
        if tensor.external_data or tensor.data_location == EXTERNAL:
            self.declared.append(tensor)
            self._names += [text for entry in tensor.external_data for text in (entry.key, entry.value)]

    def _sparse(self, tensors: NamedTensors, name: str, sparse: SparseTensorProto) -> None:
        for part in (sparse.values, sparse.indices):
            self._tensor(tensors, name, part)

    def _values(self, proto: GraphProto) -> None:
        for values in (proto.input, proto.output, proto.value_info):
            for value in values:
                self._names.append(value.name)
                self._names += [dim.dim_param for dim in value.type.tensor_type.shape.dim]
        for value in proto.value_info:
            if value.metadata_props:
                self._remark_metadata(value)

    def _remark(self, holder: ModelProto | GraphProto | FunctionProto | NodeProto) -> None:
        if holder.doc_string:
            self.remarks.append(holder.doc_string)
        self._remark_metadata(holder)

    def _remark_metadata(self, holder: Any) -> None:
        self.remarks += [entry.value for entry in holder.metadata_props]


def iter_subgraphs(attribute: AttributeProto) -> Iterator[GraphProto]:
    """The graphs that an attribute holds."""
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def iter_node_subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs that a node holds."""
    return (graph for attribute in node.attribute for graph in iter_subgraphs(attribute))


def iter_sparse_tensors(attribute: AttributeProto) -> Iterator[SparseTensorProto]:
    """The sparse tensors that an attribute holds."""
    if attribute.HasField("sparse_tensor"):
        yield attribute.sparse_tensor
    yield from attribute.sparse_tensors
