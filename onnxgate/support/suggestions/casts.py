"""Casts around an operation: source and target types, and loss of precision."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from onnx import helper

from onnxgate.model.facts import ELEMENT_TYPES
from onnxgate.support.matching.node_checks import ArgumentTypes, find_parameter
from onnxgate.support.matching.operations import Attribute, Operation
from onnxgate.support.tables.operators import MIXED, FormalParameter, Schema

DEFAULT_DOMAIN = "ai.onnx"
_ELEMENT_TYPE_NUMBERS = {f"tensor({element.name})": number for number, element in ELEMENT_TYPES.items()}
_FLOAT_BITS: dict[str, tuple[int, int]] = {
    "tensor(float8e4m3fn)": (4, 4),
    "tensor(float8e5m2)": (3, 5),
    "tensor(bfloat16)": (8, 8),
    "tensor(float16)": (11, 5),
    "tensor(float)": (24, 8),
    "tensor(double)": (53, 11),
}
"""Significant bits and exponent bits. Source: IEEE 754, and ONNX's description of its types."""
_INTEGER_BITS: dict[str, tuple[int, bool]] = {
    f"tensor({sign}int{bits})": (bits if sign else bits - 1, not sign)
    for bits in (2, 4, 8, 16, 32, 64)
    for sign in ("u", "")
}
"""Bits without the sign, and whether the type is signed."""
_INTEGER_BITS["tensor(bool)"] = (1, False)


def change_parameter_type(operation: Operation, schema: Schema, parameter: str, to: str) -> Operation | None:
    """Return the operation with another type for one parameter; None if a type is unknown or not numeric."""
    inputs = _change_argument_types(operation.inputs, schema.inputs, parameter, to)
    outputs = _change_argument_types(operation.outputs, schema.outputs, parameter, to)
    if inputs is None or outputs is None or not _is_numeric_type(to):
        return None
    return replace(operation, inputs=inputs, outputs=outputs)


def _change_argument_types(
    types: ArgumentTypes, formals: Sequence[FormalParameter], parameter: str, to: str
) -> tuple[str | None, ...] | None:
    changed = []
    for index, value_type in enumerate(types):
        formal = find_parameter(formals, index)
        bound = formal is not None and formal.type == parameter and formal.option != MIXED and value_type is not None
        if bound and not _is_numeric_type(value_type or ""):
            return None
        changed.append(to if bound else value_type)
    return tuple(changed)


def list_casts(operation: Operation, schema: Schema, parameter: str, to: str) -> tuple[Operation, ...]:
    """Return the casts that another type of a parameter requires: of inputs to it, and of outputs back."""
    other = change_parameter_type(operation, schema, parameter, to)
    return () if other is None else tuple(_iterate_casts(operation, other))


def _iterate_casts(operation: Operation, other: Operation) -> Iterator[Operation]:
    for before, after in zip(operation.inputs, other.inputs, strict=True):
        if before and after and before != after:
            yield _make_cast(operation.opset, before, after)
    for before, after in zip(operation.outputs, other.outputs, strict=True):
        if before and after and before != after:
            yield _make_cast(operation.opset, after, before)


@functools.lru_cache(maxsize=512)
def _make_cast(opset: int, source: str, to: str) -> Operation:
    data = helper.make_attribute("to", _ELEMENT_TYPE_NUMBERS[to]).SerializeToString()
    return Operation(
        DEFAULT_DOMAIN, "Cast", opset, opset, (source,), (to,), (Attribute("to", "INT", data),), static=False
    )


def is_lossless(operation: Operation, other: Operation) -> bool:
    """Return whether the casts of the inputs preserve all values."""
    pairs = zip(operation.inputs, other.inputs, strict=True)
    return all(is_lossless_cast(before, after) for before, after in pairs if before and after and before != after)


def is_lossless_cast(source: str, to: str) -> bool:
    """Return whether the target type can represent all values of the source type."""
    if source in _INTEGER_BITS and to in _INTEGER_BITS:
        (bits, signed), (target_bits, takes_sign) = _INTEGER_BITS[source], _INTEGER_BITS[to]
        return bits <= target_bits and (takes_sign or not signed)
    if source in _INTEGER_BITS and to in _FLOAT_BITS:
        significant, exponent = _FLOAT_BITS[to]
        return _INTEGER_BITS[source][0] <= min(significant, 1 << (exponent - 1))
    if source in _FLOAT_BITS and to in _FLOAT_BITS:
        return all(has <= takes for has, takes in zip(_FLOAT_BITS[source], _FLOAT_BITS[to], strict=True))
    return False


def measure_type_distance(operation: Operation, schema: Schema, parameter: str, to: str) -> tuple[bool, int]:
    """Return the distance of a parameter's new type from the old one: whether the kind differs, then bits."""
    other = change_parameter_type(operation, schema, parameter, to)
    if other is None:
        return True, 0
    pairs = zip((*operation.inputs, *operation.outputs), (*other.inputs, *other.outputs), strict=True)
    source = next((before for before, after in pairs if before and before != after), to)
    return (source in _FLOAT_BITS) != (to in _FLOAT_BITS), abs(_get_bit_width(source) - _get_bit_width(to))


def _get_bit_width(name: str) -> int:
    return ELEMENT_TYPES[_ELEMENT_TYPE_NUMBERS[name]].bits


def _is_numeric_type(name: str) -> bool:
    return name in _FLOAT_BITS or name in _INTEGER_BITS
