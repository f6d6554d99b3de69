"""Attributes for one node of the fuzz: what a schema requires, with values that its operator can be made with."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import AttributeProto, GraphProto, TensorProto, helper

from tests.conformance.schemas import Schema
from tests.conformance.spelling import element, type_proto

OF_RESULT = ("to", "dtype", "output_dtype", "output_datatype")
"""Attributes that name the element type of a result."""
BY_KIND = {"INT": 1, "FLOAT": 1.0, "STRING": "a", "INTS": [1, 1], "FLOATS": [1.0, 1.0], "STRINGS": ["a", "b"]}
BY_NAME = {
    "axis": 0,
    "axes": [0],
}


def attributes(schema: Schema, binding: dict[str, str], inputs: int) -> Iterator[AttributeProto]:
    """The attributes of one node."""
    values = {name: _plausible(name, schema.attributes[name]) for name in schema.required}
    values |= _of_result(schema, binding)
    for name, value in sorted(values.items()):
        if value is not None:
            yield helper.make_attribute(name, value)


def _plausible(name: str, kind: str) -> object:
    if kind == "TENSOR":
        return helper.make_tensor("t", TensorProto.FLOAT, [1], [1.0])
    if kind == "GRAPH":
        return helper.make_graph([], "inner", [], [])
    return BY_NAME.get(name, BY_KIND[kind])


def _of_result(schema: Schema, binding: dict[str, str]) -> dict[str, object]:
    of_inputs = {formal.type for formal in schema.inputs}
    of_outputs = [formal.type for formal in schema.outputs if formal.type not in of_inputs]
    for parameter in of_outputs:
        for name in OF_RESULT:
            if parameter in binding and schema.attributes.get(name) == "INT":
                return {name: element(binding[parameter])}
    return {}
