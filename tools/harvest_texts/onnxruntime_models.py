"""Small models with one fault each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    StringStringEntryProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

FLOAT, DOUBLE, INT64, BOOL, INT8, UINT16, FLOAT16, BFLOAT16, STRING = (
    getattr(TensorProto, name)
    for name in ("FLOAT", "DOUBLE", "INT64", "BOOL", "INT8", "UINT16", "FLOAT16", "BFLOAT16", "STRING")
)


def value(name: str, kind: int = FLOAT, shape: Sequence[int | str | None] | None = (2,)) -> ValueInfoProto:
    """Return an input or an output."""
    return helper.make_tensor_value_info(name, kind, shape)


def node(
    kind: str, inputs: str, outputs: str = "y", name: str = "n0", domain: str = "", **attributes: Any
) -> NodeProto:
    """Return a node; names of inputs and outputs are separated by spaces."""
    return helper.make_node(kind, inputs.split(), outputs.split(), name=name, domain=domain, **attributes)


def weight(name: str, values: Sequence[Any], kind: int = FLOAT, shape: Sequence[int] | None = None) -> TensorProto:
    """Return an initializer."""
    return helper.make_tensor(name, kind, shape or [len(values)], values)


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto] = (value("x"),),
    outputs: Sequence[ValueInfoProto] = (value("y"),),
    weights: Sequence[TensorProto] = (),
    *,
    ir: int = 7,
    opsets: dict[str, int] | None = None,
) -> ModelProto:
    """Return a model with an IR version and an opset that old releases support."""
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), list(weights))
    imports = [helper.make_opsetid(domain, version) for domain, version in (opsets or {"": 12}).items()]
    return helper.make_model(graph, ir_version=ir, opset_imports=imports, producer_name="harvest")


def relu(**stamps: Any) -> ModelProto:
    """Return a model with one Relu."""
    return model([node("Relu", "x", "y")], **stamps)


def single(
    kind: str, types: Sequence[int], out: int, opset: int = 12, ir: int = 7, shape: Any = (2,), **more: Any
) -> ModelProto:
    """Return a model of one node with inputs of these types."""
    names = [f"x{place}" for place in range(len(types))]
    inputs = [value(name, each, shape) for name, each in zip(names, types, strict=True)]
    domain = more.pop("domain", "")
    opsets = {"": opset, **({domain: more.pop("domain_version", 1)} if domain else {})}
    made = node(kind, " ".join(names), "y", "first", domain=domain, **more)
    return model([made], inputs, [value("y", out, shape)], ir=ir, opsets=opsets)


def external(
    location: str | None = "nope.bin", length: int | None = 8, offset: int | str | None = None, **more: str
) -> ModelProto:
    """Return a model with two floats as external data, and with `more` entries about it."""
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, said in (("location", location), ("length", length), ("offset", offset), *more.items()):
        if said is not None:
            tensor.external_data.append(StringStringEntryProto(key=key, value=str(said)))
    return model([node("Add", "x w", "y", "add0")], weights=[tensor])


def external_twice(location: str) -> ModelProto:
    """Return a model with two floats as external data, whose location is written twice."""
    made = external(location)
    made.graph.initializer[0].external_data.add(key="location", value=location)
    return made


def raw_of_wrong_size() -> ModelProto:
    """Return a model with a weight of two floats but only six bytes of data."""
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[2], raw_data=b"123456")
    return model([node("Add", "x w", "y", "add0")], weights=[tensor])


def wrongly_typed_attribute() -> ModelProto:
    """Return a model with a Cast whose `to` is a float."""
    made = model([node("Cast", "x", "y", "cast0")])
    made.graph.node[0].attribute.append(helper.make_attribute("to", 1.5))
    assert made.graph.node[0].attribute[0].type == AttributeProto.FLOAT
    return made


def without_graph() -> ModelProto:
    """Return a model without a graph."""
    made = relu()
    made.ClearField("graph")
    return made


def branching() -> ModelProto:
    """Return a model with a cycle of two nodes."""
    return model([node("Add", "x b", "a", "n0"), node("Relu", "a", "b", "n1"), node("Relu", "a", "y", "n2")])


def function_of_unknown_kernel() -> ModelProto:
    """Return a model with a function whose body has an operator without a kernel for its type."""
    body = [node("Conv", "x w", "y", "inner", kernel_shape=[1])]
    made = single("Callee", [DOUBLE, DOUBLE], DOUBLE, 16, 8, (1, 1, 1), domain="local")
    made.functions.append(
        helper.make_function("local", "Callee", ["x", "w"], ["y"], body, [helper.make_opsetid("", 16)])
    )
    return made


def ones(*shape: int) -> TensorProto:
    """Return a weight of ones."""
    import numpy as np

    return numpy_helper.from_array(np.ones(shape, np.float32), "w")


def subgraph(nodes: Sequence[NodeProto], outputs: Sequence[ValueInfoProto]) -> GraphProto:
    """Return a branch of an If."""
    return helper.make_graph(list(nodes), "branch", [], list(outputs))


def save(made: ModelProto | bytes, path: Path) -> None:
    """Write the model without validation, which would repair or reject the fault."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
