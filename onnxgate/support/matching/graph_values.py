"""Find what makes and takes the values of a graph, and which of them are constant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from onnxgate.model.facts import DEFAULT_DOMAIN
from onnxgate.model.reading.view import GraphView, NodeView
from onnxgate.support.matching.constant_nodes import read_constant
from onnxgate.support.matching.operations import ValueSource

if TYPE_CHECKING:
    from onnx import TensorProto, TypeProto

_COMPUTED = frozenset(
    (
        *("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Neg", "Not", "Or", "Range", "ReduceProd", "Sqrt"),
        *("Sub", "Where", "Xor"),
    )
)
_MOVED = frozenset(
    (
        *("Cast", "Concat", "ConstantOfShape", "Expand", "Gather", "Identity", "Reshape", "Shape", "Size", "Slice"),
        *("Squeeze", "Unsqueeze"),
    )
)
"""Operators of which ONNX Runtime computes nodes with constant inputs when it loads a model.

Source: 240 nodes of 13 types before If, loaded on 7 releases from 1.16.3 to 1.32.0. The first ones are not computed for
16-bit floats, of which they have no kernel.
"""
FOLDED = _COMPUTED | _MOVED
"""Names of all operators that ONNX Runtime computes."""
_SMALL_FLOATS = (10, 16)
_MAX_DEPTH = 32
"""Maximum number of nodes between a constant and a value that is computed from constants only."""


class Scope(Protocol):
    """Types and initializers of the values that a graph can use."""

    def type_of(self, name: str) -> TypeProto | None:
        """Return the type of a value; None if it is unknown."""

    def initializer(self, name: str) -> TensorProto | None:
        """Return the initializer with this name; None if the value is not an initializer."""


class GraphValues:
    """The values of one graph."""

    def __init__(
        self,
        graph: GraphView,
        scope: Scope,
        imports: Mapping[str, int],
        *,
        is_in_function: bool,
        outer: GraphValues | None = None,
        outer_constants: frozenset[str] = frozenset(),
    ) -> None:
        self.graph = graph
        self.imports = imports  # opset of each domain
        self.is_in_function = is_in_function
        self.type_of = scope.type_of
        self._scope = scope
        self._outer = outer  # of the graph that contains this one
        self._outer_constants = outer_constants  # inputs of a function for which calls pass constants of graphs around
        self._producers: Mapping[str, NodeView] | None = None
        self._users: dict[str, list[NodeView]] | None = None
        self._captured: set[str] | None = None
        self._outputs: set[str] | None = None
        self._initializers: set[str] | None = None
        self._inputs: set[str] | None = None
        self._sources: dict[str, ValueSource] = {}
        self._used: set[str] | None = None
        self._folded: set[str] | None = None
        self._dynamic: set[str] | None = None

    @property
    def is_inner(self) -> bool:
        """Whether another graph contains this one."""
        return self._outer is not None

    def with_nodes(self, nodes: tuple[NodeView, ...], captured: set[str]) -> GraphValues:
        """Return the values of the same graph with other nodes, and the names that nodes in subgraphs use."""
        graph = replace(self.graph, nodes=nodes)
        changed = GraphValues(
            graph,
            self._scope,
            self.imports,
            is_in_function=self.is_in_function,
            outer=self._outer,
            outer_constants=self._outer_constants,
        )
        changed._captured = captured
        return changed

    def list_users(self, name: str) -> Sequence[NodeView]:
        """Return the nodes of the graph that take a value."""
        if self._users is None:
            self._users = {}
            for node in self.graph.nodes:
                for value in set(node.inputs):
                    self._users.setdefault(value, []).append(node)
        return self._users.get(name, ())

    def element(self, name: str) -> int:
        """Return the number of a tensor's element type in ONNX; 0 if it is unknown."""
        value_type = self.type_of(name)
        return 0 if value_type is None else value_type.tensor_type.elem_type

    def find_source(self, name: str) -> ValueSource:
        """Return whether a value is computed from constants only, or from data that callers pass to the model."""
        if name not in self._sources:
            self._trace(name)
        return self._sources[name]

    def has_use(self, name: str) -> bool:
        """Return whether an output of the graph depends on a value."""
        if self._used is None:
            self._used = find_used_names(self.graph)
        return name in self._used

    def is_model_output(self, name: str) -> bool:
        """Return whether a value of this graph is an output of the model."""
        return self._outer is None and not self.is_in_function and self.is_output(name)

    def _trace(self, name: str) -> None:
        """Find the source of a value after the sources of the values that it is computed from."""
        ahead = [name]
        while ahead:
            producer = self.producer(ahead[-1])
            missing = [it for it in producer.inputs if it and it not in self._sources] if producer is not None else []
            if missing and len(ahead) <= len(self.graph.nodes):
                ahead += missing
                continue
            current = ahead.pop()
            if current not in self._sources:
                self._sources[current] = self._read_source(current) if producer is None else self._combine(producer)

    def _read_source(self, name: str) -> ValueSource:
        """Return the source of a value that no node of this graph computes."""
        if self._is_initializer(name):
            return "constant"
        if self._is_input(name):
            return "unknown" if self.is_in_function else "input" if self._outer is None else "computed"
        return "unknown" if self._outer is None else self._outer.find_source(name)

    def _is_initializer(self, name: str) -> bool:
        if self._initializers is None:
            self._initializers = {tensor.name for tensor in getattr(self.graph.proto, "initializer", ())}
        return name in self._initializers

    def _is_input(self, name: str) -> bool:
        if self._inputs is None:
            self._inputs = {getattr(value, "name", value) for value in getattr(self.graph.proto, "input", ())}
        return name in self._inputs

    def _combine(self, producer: NodeView) -> ValueSource:
        """Return the source of the outputs of a node. The shape of a value can be known although its data is not."""
        sources = {self._sources.get(name, "unknown") for name in producer.inputs if name}
        if producer.operator[1] in ("Shape", "Size"):
            return "constant" if sources == {"constant"} or self.is_fixed(producer.inputs[0]) else "unknown"
        if not sources.isdisjoint(("input", "computed")) or producer.operator[1].startswith("Random"):
            return "computed"
        return "constant" if sources <= {"constant"} and not producer.graphs else "unknown"

    def producer(self, name: str) -> NodeView | None:
        """Return the node of the graph that makes a value; None if there is none."""
        if self._producers is None:
            self._producers = {output: node for node in self.graph.nodes for output in node.outputs if output}
        return self._producers.get(name)

    def is_used(self, name: str) -> bool:
        """Return whether a node of the graph takes a value."""
        return bool(name and self.list_users(name))

    def is_needed(self, name: str) -> bool:
        """Return whether a node of the graph or of a subgraph takes a value, or the graph returns it."""
        return self.is_used(name) or self.is_output(name) or name in self.list_captured()

    def list_captured(self) -> set[str]:
        """Return the names that nodes in subgraphs use."""
        if self._captured is None:
            inside = (graph for outer in self.graph.nodes for graph in outer.graphs)
            self._captured = {name for graph in inside for inner in graph.all_nodes() for name in inner.inputs}
        return self._captured

    def is_output(self, name: str) -> bool:
        """Return whether the graph returns a value."""
        if self._outputs is None:
            self._outputs = {getattr(value, "name", value) for value in self.graph.proto.output}
        return name in self._outputs

    def rank(self, name: str) -> int:
        """Return the number of axes of a value; -1 if it is unknown."""
        value_type = self.type_of(name)
        if value_type is None or not value_type.tensor_type.HasField("shape"):
            return -1
        return len(value_type.tensor_type.shape.dim)

    def is_fixed(self, name: str) -> bool:
        """Return whether all sizes of a value of known rank are known. Negative ones are dynamic."""
        value_type = self.type_of(name)
        if value_type is None or not value_type.tensor_type.HasField("shape"):
            return False
        return all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in value_type.tensor_type.shape.dim)

    def constant(self, name: str) -> TensorProto | None:
        """Return the tensor that a value is; None if it is not constant."""
        producer = self.producer(name)
        if producer is None:
            tensor = self._scope.initializer(name)
            return tensor if tensor is not None or self._outer is None else self._outer.constant(name)
        if producer.operator[1] != "Constant":
            return None
        return next((read_constant(attribute) for attribute in producer.attributes), None)

    def is_folded(self, name: str) -> bool:
        """Return whether ONNX Runtime certainly replaces a value by a constant when it loads the model."""
        if self._folded is None:
            self._folded = set()
            for node in self.graph.nodes:  # follow all nodes once, since each may be the input of many others
                if self._is_folded(node):
                    self._folded.update(node.outputs)
        if self.producer(name) is not None:
            return name in self._folded
        if self._outer is None or self._is_initializer(name) or self._is_input(name):
            return self.is_stored(name)
        return self._outer.is_folded(name)

    def _is_folded(self, node: NodeView) -> bool:
        """Return whether a node is replaced by constants, given the values that earlier nodes are replaced by."""
        domain, name = node.operator[:2]
        if name == "Constant":
            return True
        if name == "Shape" and node.inputs and self.is_fixed(node.inputs[0]):
            return True
        inputs = [it for it in node.inputs if it]
        if domain != DEFAULT_DOMAIN or not inputs or (name not in _COMPUTED and name not in _MOVED):
            return False
        if not all(map(self.is_folded, inputs)):
            return False
        return name in _MOVED or not any(self.element(it) in _SMALL_FLOATS for it in inputs)

    def may_be_folded(self, name: str) -> bool:
        """Return whether ONNX Runtime may replace a value by a constant when it loads a model.

        In local functions, callers may pass a constant.
        """
        if self._dynamic is None:
            self._dynamic = set()
            for node in self.graph.nodes:
                is_known = node.operator[1] == "Shape" and bool(node.inputs) and self.is_fixed(node.inputs[0])
                if not is_known and not all(self.may_be_folded(it) for it in node.inputs if it):
                    self._dynamic.update(node.outputs)
        if self.producer(name) is not None:
            return name not in self._dynamic
        if self._is_input(name):
            return self.is_in_function
        return self._is_initializer(name) or self._outer is None or self._outer.may_be_folded(name)

    def is_stored(self, name: str) -> bool:
        """Return whether a constant belongs to this graph or one around it, and callers of the model cannot replace it.

        Source: nodes in branches with constants of their own and of the model, loaded on ONNX Runtime 1.16.3 to 1.31.1.
        """
        if self.is_stored_here(name) or name in self._outer_constants:
            return True
        return self._outer is not None and not self._is_input(name) and self._outer.is_stored(name)

    def is_stored_here(self, name: str) -> bool:
        """Return whether a constant belongs to this graph, and callers of the model cannot replace it."""
        if self.producer(name) is not None:
            return True
        return self._is_initializer(name) and name not in self._outer_constants and self.is_constant(name, 0)

    def is_constant(self, name: str, depth: int, visited: set[str] | None = None) -> bool:
        """Return whether a value may be computed from constants only, so that ONNX Runtime folds its consumers.

        All values in `visited` must be constant, too, so that none is followed again.
        """
        visited = set() if visited is None else visited
        if name in visited:
            return True
        visited.add(name)
        producer = self.producer(name)
        if producer is not None:
            inputs = [it for it in producer.inputs if it]
            return depth >= _MAX_DEPTH or all(self.is_constant(it, depth + 1, visited) for it in inputs)
        return not self._is_input(name)


def find_used_names(graph: GraphView) -> set[str]:
    """Return the names of the values on which the outputs of a graph depend, including values of graphs around it."""
    producers = {output: node for node in graph.nodes for output in node.outputs if output}
    used: set[str] = set()
    visited: set[int] = set()  # nodes with several outputs
    ahead = [getattr(value, "name", value) for value in graph.proto.output]
    while ahead:
        name = ahead.pop()
        if name not in used:
            used.add(name)
            producer = producers.get(name)
            if producer is not None and id(producer) not in visited:
                visited.add(id(producer))
                ahead += chain(producer.inputs, *map(find_used_names, producer.graphs))
    return used
