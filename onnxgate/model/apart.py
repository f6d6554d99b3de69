"""Some nodes of a model, each fed on its own, in one model: what one of them gets wrong reaches none of the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnxgate.model.copying import is_away
from onnxgate.model.cutting import needed
from onnxgate.model.structure import FIRST_IR_WITHOUT_INPUTS

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

SUFFIX = "#apart"


@dataclass(frozen=True, slots=True)
class Known:
    """A value that can be fed."""

    element: int  # `TensorProto.DataType`
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Apart:
    """The model, what it must be fed, and what its outputs are called."""

    model: ModelProto
    values: tuple[str, ...]  # values of the model, fed by name
    weights: tuple[TensorProto, ...]  # whose data are not at hand, fed by name too
    outputs: dict[str, str]  # value that a node makes -> its name here


def apart(proto: ModelProto, targets: Sequence[int], known: Mapping[str, Known]) -> Apart:
    """The nodes at `targets`, each fed with what is known.

    What a node needs and is not known is made here, by the nodes that make it, from what is known.
    """
    return _Building(proto, known).build(targets)


@dataclass(slots=True)
class _Building:
    proto: ModelProto
    known: Mapping[str, Known]
    values: dict[str, None] = field(default_factory=dict)
    weights: dict[str, None] = field(default_factory=dict)
    inner: set[int] = field(default_factory=set)
    made: dict[str, int] = field(default_factory=dict)
    initializers: dict[str, TensorProto] = field(default_factory=dict)

    def build(self, targets: Sequence[int]) -> Apart:
        graph = self.proto.graph
        self.made = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
        self.initializers = {tensor.name: tensor for tensor in graph.initializer}
        self._require(targets)
        model = _empty(self.proto)
        for name in self.values:
            _declare(model.graph, name, self.known[name].element, self.known[name].shape)
        fed = self._give_weights(model.graph)
        for index in sorted(self.inner):
            self._add_inner(model.graph, graph.node[index])
        outputs = dict(pair for index in targets for pair in _add_target(model.graph, graph.node[index]))
        return Apart(model, tuple(self.values), tuple(fed), outputs)

    def _require(self, targets: Iterable[int]) -> None:
        """Find all that the targets need, back to what is known."""
        graph = self.proto.graph
        ahead = list(dict.fromkeys(name for index in targets for name in needed(graph.node[index])))
        seen: set[str] = set()
        while ahead:
            name = ahead.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in self.known:
                self.values[name] = None
            elif name in self.initializers:
                self.weights[name] = None
            elif name in self.made:
                self.inner.add(self.made[name])
                ahead += needed(graph.node[self.made[name]])

    def _give_weights(self, graph: GraphProto) -> list[TensorProto]:
        fed = []
        for name in self.weights:
            tensor = self.initializers[name]
            if is_away(tensor):
                _declare(graph, name, tensor.data_type, tensor.dims)
                fed.append(tensor)
            else:
                graph.initializer.add().CopyFrom(tensor)
        graph.sparse_initializer.extend(self.proto.graph.sparse_initializer)
        return fed

    def _add_inner(self, graph: GraphProto, node: NodeProto) -> None:
        """A node whose values others need; what is known already is fed instead."""
        added = graph.node.add()
        added.CopyFrom(node)
        added.name = f"{node.name}#inner" if node.name else ""
        for position, name in enumerate(node.output):
            if name in self.values:
                added.output[position] = f"{name}#inner"


def _empty(proto: ModelProto) -> ModelProto:
    model = type(proto)(ir_version=max(proto.ir_version, FIRST_IR_WITHOUT_INPUTS))
    model.graph.name = "apart"
    model.opset_import.extend(proto.opset_import)
    model.functions.extend(proto.functions)
    return model


def _declare(graph: GraphProto, name: str, element: int, shape: Iterable[int]) -> None:
    value = graph.input.add(name=name)
    value.type.tensor_type.elem_type = element
    value.type.tensor_type.shape.SetInParent()
    for size in shape:
        value.type.tensor_type.shape.dim.add().dim_value = size


def _add_target(graph: GraphProto, node: NodeProto) -> Iterable[tuple[str, str]]:
    added = graph.node.add()
    added.CopyFrom(node)
    for position, name in enumerate(node.output):
        if name:
            added.output[position] = f"{name}{SUFFIX}"
            graph.output.add(name=added.output[position])
            yield name, added.output[position]
