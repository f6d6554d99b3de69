"""The nodes of a model, each kind once, that can be loaded alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnxgate.model.cutting import FunctionKey, Surroundings, called, cut, function_key
from onnxgate.model.reading import canonical_domain
from onnxgate.model.structure import subgraphs
from onnxgate.support.operations import Operation, TypedNode
from onnxgate.support.typing import prepare

if TYPE_CHECKING:
    from onnx import FunctionProto, ModelProto, NodeProto, TensorProto

Constants = Mapping[str, "TensorProto | NodeProto"]


@dataclass(slots=True, eq=False)
class Single:
    """Nodes that ask for the same, of which the first stands for all."""

    first: TypedNode
    around: Surroundings
    nodes: list[TypedNode] = field(default_factory=list)

    @property
    def operation(self) -> Operation:
        """What they ask for."""
        return self.first.operation

    def model(self, ir_version: int) -> bytes | None:
        """The first node as a model of its own; None where it cannot be made."""
        return cut(self.first.proto, self.around, ir_version)


def singles(proto: ModelProto) -> tuple[Single, ...]:
    """Each kind of node once, in the order of the graph; what is inside a node comes before it.

    A call of a local function is what the function consists of.
    """
    walk = _Walk({function_key(each): each for each in proto.functions})
    imports = _imports(proto)
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    walk.enter(prepare(proto).nodes, constants, imports)
    return tuple(walk.found.values())


def _imports(holder: ModelProto | FunctionProto) -> dict[str, int]:
    return {canonical_domain(each.domain): each.version for each in holder.opset_import}


@dataclass(slots=True, eq=False)
class _Walk:
    functions: Mapping[FunctionKey, FunctionProto]
    found: dict[tuple[Operation, bytes], Single] = field(default_factory=dict)
    entered: set[int] = field(default_factory=set)  # bodies of functions, which equal calls share

    def enter(self, nodes: Sequence[TypedNode], constants: Constants, imports: Mapping[str, int]) -> None:
        """Take all nodes of a graph or a body."""
        visible = {**constants, **dict(_constant_nodes(nodes))}
        for node in nodes:
            if node.calls:
                self._enter_call(node)
            else:
                self.enter(node.inner, {**visible, **_initializers(node.proto)}, imports)
                self._take(node, visible, imports)

    def _enter_call(self, node: TypedNode) -> None:
        function = self.functions[called(node.proto)]
        if id(node.inner) not in self.entered:
            self.entered.add(id(node.inner))
            self.enter(node.inner, {}, _imports(function))

    def _take(self, node: TypedNode, constants: Constants, imports: Mapping[str, int]) -> None:
        key = (node.operation, node.proto.SerializeToString(deterministic=True) if node.inner else b"")
        if key not in self.found:
            around = Surroundings(_needed(node, imports), node.type_of, constants, self.functions)
            self.found[key] = Single(node, around)
        self.found[key].nodes.append(node)


def _needed(node: TypedNode, imports: Mapping[str, int]) -> dict[str, int]:
    """The imports that the node and what is inside it need, and ai.onnx, which function bodies are written in."""
    if any(each.calls for each in node.every()):
        return dict(imports)
    domains = {"ai.onnx", *(each.operation.domain for each in node.every())}
    return {domain: version for domain, version in imports.items() if domain in domains}


def _constant_nodes(nodes: Sequence[TypedNode]) -> Iterator[tuple[str, NodeProto]]:
    """Nodes `Constant` by what they make; branches may make values of the same name, which are then none."""
    made = Counter(name for node in nodes for name in node.proto.output)
    for node in nodes:
        operation = node.operation
        if (operation.domain, operation.name) == ("ai.onnx", "Constant") and len(node.proto.output) == 1:
            name = node.proto.output[0]
            if made[name] == 1:
                yield name, node.proto


def _initializers(node: NodeProto) -> dict[str, TensorProto]:
    graphs = [graph for attribute in node.attribute for graph in subgraphs(attribute)]
    made = Counter(tensor.name for graph in graphs for tensor in graph.initializer)
    return {tensor.name: tensor for graph in graphs for tensor in graph.initializer if made[tensor.name] == 1}
