"""View of a model: the contents of its messages, collected in one traversal.

Static checks read the view, because accessing messages from Python takes longer than the checks themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from onnxgate.model.facts import DEFAULT_DOMAIN, ELEMENT_TYPES
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
"""Value of `TensorProto.EXTERNAL`, copied so that onnx does not have to be imported."""
OperatorKey = tuple[str, str, str]
"""Key of an operator: (domain, name, overload). The default domain is "ai.onnx"."""


class NodeView(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One node."""

    proto: Any  # NodeProto
    name: str  # often ""
    operator: OperatorKey
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[Any, ...]  # AttributeProto
    graphs: tuple[GraphView, ...]  # subgraphs in its attributes


class GraphView(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One graph or local function body."""

    proto: Any  # GraphProto or FunctionProto
    nodes: tuple[NodeView, ...]

    def all_nodes(self) -> Iterator[NodeView]:
        """Yield the nodes of the graph, then the nodes in their subgraphs."""
        yield from self.nodes
        for node in self.nodes:
            for graph in node.graphs:
                yield from graph.all_nodes()


class ModelView:
    """Graphs, nodes, tensors and strings of one model. The data of large tensors may be missing."""

    __slots__ = (
        "declared",
        "external",
        "functions",
        "graphs",
        "has_sparse_tensors",
        "has_unusual_types",
        "proto",
        "remarks",
        "sha256",
        "spells_default_domain",
        "tensors",
    )

    def __init__(self, proto: ModelProto, sha256: str = "") -> None:
        """Collect the contents of a model. `sha256` is the digest of its file, if known.

        Raises:
            UnreadableModel: a name is not valid UTF-8; protobuf returns such names as bytes.
        """
        walk = _Walk()
        walk.header(proto)
        walk.graph(proto.graph)
        functions = tuple(map(walk.function, proto.functions))
        walk.require_utf8()
        self.proto = proto
        self.sha256 = sha256
        self.graphs: tuple[GraphView, ...] = tuple(walk.graphs)  # main graph first, outer graphs before subgraphs
        self.functions: tuple[GraphView, ...] = functions
        self.tensors: tuple[tuple[str, TensorProto], ...] = tuple(walk.tensors())
        """All tensors with their names. An unnamed tensor gets the name of its `Constant` node's output."""
        self.declared: tuple[TensorProto, ...] = tuple(walk.declared)  # tensors that declare external data
        self.external = tuple(it for it in self.tensors if it[1].data_location == EXTERNAL) if self.declared else ()
        self.spells_default_domain = DEFAULT_DOMAIN in walk.domains  # a node uses it instead of ""
        self.has_sparse_tensors = walk.has_sparse_tensors
        self.has_unusual_types = walk.has_unusual_types  # a type is not known, or not that of a tensor
        self.remarks: tuple[str | bytes, ...] = tuple(walk.remarks)  # documentation and metadata values

    @property
    def scopes(self) -> tuple[GraphView, ...]:
        """All graphs and local functions."""
        return (*self.graphs, *self.functions)

    def nodes(self) -> Iterator[NodeView]:
        """Yield every node, including nodes in subgraphs and local functions."""
        return chain.from_iterable(scope.nodes for scope in self.scopes)


NamedTensors = list[tuple[str, "TensorProto"]]


class _Walk:
    """Contents of a model that have been collected so far."""

    def __init__(self) -> None:
        self.graphs: list[GraphView] = []
        self.declared: list[TensorProto] = []
        self.remarks: list[str | bytes] = []
        self.domains: set[str] = set()  # as written in nodes
        self.has_sparse_tensors = False
        self.has_unusual_types = False
        self._names: list[Any] = []  # must be UTF-8
        self._operators: dict[OperatorKey, OperatorKey] = {}  # one object for all nodes of an operator
        self._initializers: NamedTensors = []
        self._of_graphs: list[NamedTensors] = []  # tensors in attributes, by graph
        self._of_functions: list[NamedTensors] = []

    def require_utf8(self) -> None:
        """Raise `UnreadableModel` if one of the names is not valid UTF-8."""
        try:
            "".join(self._names)
        except TypeError:
            text = next(name for name in self._names if not isinstance(name, str))
            raise UnreadableModel(f"a corrupted model (the name {text!r} is not valid UTF-8)") from None

    def tensors(self) -> Iterator[tuple[str, TensorProto]]:
        """Yield all tensors of the model: first initializers, then tensors in attributes."""
        return chain(self._initializers, *self._of_graphs, *self._of_functions)

    def header(self, proto: ModelProto) -> None:
        """Collect the strings in the top-level fields of the model."""
        self._names += (proto.producer_name, proto.producer_version)
        self._names += [imported.domain for imported in proto.opset_import]
        self._names += [text for entry in proto.metadata_props for text in (entry.key, entry.value)]
        self._remark(proto)

    def function(self, proto: FunctionProto) -> GraphView:
        """Create the view of a local function body."""
        self._names += (proto.name, proto.domain, proto.overload, *proto.input, *proto.output, *proto.attribute)
        self._names += [imported.domain for imported in proto.opset_import]
        self._remark(proto)
        for value in proto.value_info:
            self._remark_metadata(value)
        tensors: NamedTensors = []
        self._of_functions.append(tensors)
        return GraphView(proto, self._nodes(proto, tensors))

    def graph(self, proto: GraphProto) -> GraphView:
        """Create the view of a graph and its subgraphs."""
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
            key = (domain or DEFAULT_DOMAIN, operator, overload)
            if key not in self._operators:
                self._operators[key] = key
                names += (operator, domain, overload)
            names.append(name)
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
            nodes.append(NodeView(node, name, self._operators[key], inputs, outputs, attributes, graphs))
        return tuple(nodes)

    def _attributes(
        self, attributes: tuple[AttributeProto, ...], holder: str, tensors: NamedTensors
    ) -> tuple[GraphView, ...]:
        """Collect the tensors and graphs in a node's attributes. Unnamed tensors get the name `holder`."""
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
        if tensor.data_type not in ELEMENT_TYPES:
            self.has_unusual_types = True
        if tensor.external_data or tensor.data_location == EXTERNAL:
            self.declared.append(tensor)
            self._names += [text for entry in tensor.external_data for text in (entry.key, entry.value)]

    def _sparse(self, tensors: NamedTensors, name: str, sparse: SparseTensorProto) -> None:
        self.has_sparse_tensors = True
        for part in (sparse.values, sparse.indices):
            self._tensor(tensors, name, part)

    def _values(self, proto: GraphProto) -> None:
        for values in (proto.input, proto.output, proto.value_info):
            for value in values:
                self._names.append(value.name)
                tensor_type = value.type.tensor_type
                self._names += [dim.dim_param for dim in tensor_type.shape.dim]
                if tensor_type.elem_type not in ELEMENT_TYPES:
                    self.has_unusual_types = True
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
    """Yield the graphs in an attribute."""
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def iter_node_subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the graphs in the attributes of a node."""
    return (graph for attribute in node.attribute for graph in iter_subgraphs(attribute))


def iter_sparse_tensors(attribute: AttributeProto) -> Iterator[SparseTensorProto]:
    """Yield the sparse tensors in an attribute."""
    if attribute.HasField("sparse_tensor"):
        yield attribute.sparse_tensor
    yield from attribute.sparse_tensors
