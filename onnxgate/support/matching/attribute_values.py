"""Read the values of an operation's attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from onnxgate.model.facts import count_elements
from onnxgate.support.matching.operations import Operation

if TYPE_CHECKING:
    from onnx import AttributeProto, TensorProto


class LongList(msgspec.Struct, frozen=True):
    """A list that is too long to be read, or a tensor of numbers, whose elements were counted."""

    count: int


AttributeValue = int | float | str | tuple[int | float | str, ...] | LongList | None
"""Value of an attribute; None if its kind is not supported or if the attribute is too long to be read."""
AttributeValues = Mapping[str, AttributeValue]


def number_of(values: AttributeValues, name: str, default: float) -> float:
    """Return the value of a numeric attribute; the default if it is absent or unknown."""
    value = values.get(name)
    return value if isinstance(value, int | float) else default


def integers_of(values: AttributeValues, name: str) -> tuple[int, ...]:
    """Return the elements of a list of integers; () if it is absent or unknown."""
    listed = values.get(name)
    return tuple(map(int, listed)) if isinstance(listed, tuple) else ()


def _read_tensor(tensor: TensorProto) -> AttributeValue:
    """Return the elements of a tensor of strings, and the number of elements of others."""
    if tensor.data_type == tensor.STRING:
        return tuple(text.decode(errors="replace") for text in tensor.string_data)
    return LongList(count_elements(tensor.dims))


_READERS: Mapping[str, Callable[[AttributeProto], AttributeValue]] = {
    "INT": lambda proto: int(proto.i),
    "FLOAT": lambda proto: float(proto.f),
    "STRING": lambda proto: proto.s.decode(errors="replace"),
    "INTS": lambda proto: tuple(proto.ints),
    "FLOATS": lambda proto: tuple(proto.floats),
    "STRINGS": lambda proto: tuple(text.decode(errors="replace") for text in proto.strings),
    "TENSOR": lambda proto: _read_tensor(proto.t),
}
"""Functions that read the value of an attribute, by its kind."""


def read_attribute_values(operation: Operation) -> AttributeValues:
    """Return the values of an operation's attributes by name; None if a value is not a number or text, or unknown."""
    from onnx import AttributeProto

    values: dict[str, AttributeValue] = {}
    for attribute in operation.attributes:
        read = _READERS.get(attribute.kind) if attribute.data else None
        long = LongList(attribute.count) if attribute.count else None
        values[attribute.name] = read(AttributeProto.FromString(attribute.data)) if read is not None else long
    return values


def list_untyped_results(operation: Operation, name: str) -> tuple[str, ...]:
    """Return the outputs without a type of the graph in an attribute; () if there is none, or it is too long."""
    from onnx import AttributeProto

    graphs = (it for it in operation.attributes if it.name == name and it.kind == "GRAPH" and it.data)
    outputs = (value for it in graphs for value in AttributeProto.FromString(it.data).g.output)
    return tuple(value.name for value in outputs if not value.HasField("type"))
