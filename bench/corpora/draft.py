"""A model under construction: its nodes, and its weights with type and shape but no data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

FLOAT, INT8 = TensorProto.FLOAT, TensorProto.INT8
_ITEM_BYTES = {FLOAT: 4, INT8: 1}
_FIRST_IR_WITH_NODE_METADATA = 10


@dataclass(frozen=True, slots=True)
class Weight:
    """An initializer whose data is generated when it is written."""

    name: str
    data_type: int
    dims: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Size of the data."""
        return math.prod(self.dims) * _ITEM_BYTES[self.data_type]


@dataclass(slots=True)
class Draft:
    """Nodes of a model, in order, and its weights. All names are unique."""

    name: str
    ir_version: int = 8
    opset: int = 17
    nodes: list[NodeProto] = field(default_factory=list)
    inputs: list[ValueInfoProto] = field(default_factory=list)
    outputs: list[ValueInfoProto] = field(default_factory=list)
    constants: dict[str, TensorProto] = field(default_factory=dict)
    weights: list[Weight] = field(default_factory=list)
    functions: list[FunctionProto] = field(default_factory=list)
    traced: bool = False  # nodes have source lines in metadata, like those of torch's exporter

    def input(self, name: str, data_type: int, shape: Sequence[str | int]) -> str:
        """Add a graph input."""
        self.inputs.append(helper.make_tensor_value_info(name, data_type, shape))
        return name

    def output(self, name: str, data_type: int, shape: Sequence[str | int]) -> None:
        """Declare an existing value as a graph output."""
        self.outputs.append(helper.make_tensor_value_info(name, data_type, shape))

    def node(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output, and return the name of the output."""
        number = len(self.nodes)
        name = f"{operator.lower()}_{number}"
        node = helper.make_node(operator, list(inputs), [name], f"/layers/{name}", domain=domain, **attributes)
        if self.traced and self.ir_version >= _FIRST_IR_WITH_NODE_METADATA:
            entry = node.metadata_props.add()
            entry.key, entry.value = "namespace", f": model.Encoder/layers.{number}: model.Layer/{name}: aten.{name}"
        self.nodes.append(node)
        return name

    def weight(self, *dims: int, data_type: int = FLOAT) -> str:
        """Add a weight."""
        name = f"weight_{len(self.weights)}"
        self.weights.append(Weight(name, data_type, dims))
        return name

    def constant(self, name: str, value: Any, dtype: str) -> str:
        """Add a small initializer, unless one with this name exists, and return its name."""
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(np.asarray(value, dtype), name)
        return name

    @property
    def weights_bytes(self) -> int:
        """Size of the data of all weights."""
        return sum(weight.size_bytes for weight in self.weights)

    def model(self) -> ModelProto:
        """Return the model without its weights."""
        graph = GraphProto(name=self.name, node=self.nodes, input=self.inputs, output=self.outputs)
        graph.initializer.extend(self.constants.values())
        imports = [helper.make_opsetid("", self.opset)]
        imports += [helper.make_opsetid(domain, 1) for domain in {function.domain for function in self.functions}]
        model = ModelProto(ir_version=self.ir_version, producer_name="onnxgate-bench", graph=graph)
        model.opset_import.extend(imports)
        model.functions.extend(self.functions)
        return model
