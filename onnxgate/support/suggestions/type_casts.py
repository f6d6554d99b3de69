"""Casts of the inputs and outputs of an operation to other types."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from msgspec.structs import replace
from onnx import helper

from onnxgate.model.facts import DEFAULT_DOMAIN, ELEMENT_TYPES
from onnxgate.support.matching.node_checks import ArgumentTypes, find_parameter
from onnxgate.support.matching.operations import Attribute, Operation, TypeCast
from onnxgate.support.operators import MIXED, FormalParameter, Schema

_ELEMENT_TYPE_NUMBERS = {f"tensor({element.name})": number for number, element in ELEMENT_TYPES.items()}
_FLOAT_BITS: dict[str, tuple[int, int]] = {
    "tensor(float8e4m3fn)": (4, 4),
    "tensor(float8e5m2)": (3, 5),
    "tensor(bfloat16)": (8, 8),
    "tensor(float16)": (11, 5),
    "tensor(float)": (24, 8),
    "tensor(double)": (53, 11),
}
"""Numbers of significand and exponent bits of each float type. Source: IEEE 754 and ONNX's description of types."""
_INTEGER_BITS: dict[str, tuple[int, bool]] = {
    f"tensor({sign}int{bits})": (bits if sign else bits - 1, not sign)
    for bits in (2, 4, 8, 16, 32, 64)
    for sign in ("u", "")
}
"""Number of bits of each integer type, without the sign bit, and whether the type is signed."""
_INTEGER_BITS["tensor(bool)"] = (1, False)
NUMERIC_TYPES = _FLOAT_BITS.keys() | _INTEGER_BITS.keys()


def change_parameter_type(operation: Operation, schema: Schema, parameter: str, to: str) -> Operation | None:
    """Return the operation with a different type for one type parameter; None if a type is unknown or not numeric."""
    inputs = _change_argument_types(operation.inputs, schema.inputs, parameter, to)
    outputs = _change_argument_types(operation.outputs, schema.outputs, parameter, to)
    if inputs is None or outputs is None or to not in NUMERIC_TYPES:
        return None
    return replace(operation, inputs=inputs, outputs=outputs)


def _change_argument_types(
    types: ArgumentTypes, formals: Sequence[FormalParameter], parameter: str, to: str
) -> tuple[str | None, ...] | None:
    changed = []
    for index, value_type in enumerate(types):
        formal = find_parameter(formals, index)
        bound = formal is not None and formal.type == parameter and formal.option != MIXED and value_type is not None
        if bound and value_type not in NUMERIC_TYPES:
            return None
        changed.append(to if bound else value_type)
    return tuple(changed)


def list_casts(operation: Operation, schema: Schema, parameter: str, to: str) -> tuple[Operation, ...]:
    """Return the Cast operations that convert inputs to a parameter's new type, and outputs back to their old types."""
    changed = change_parameter_type(operation, schema, parameter, to)
    if changed is None:
        return ()
    inputs = [make_cast(operation.opset, *pair) for pair in list_changed_types(operation.inputs, changed.inputs)]
    outputs = [make_cast(operation.opset, *pair) for pair in list_changed_types(changed.outputs, operation.outputs)]
    return (*inputs, *outputs)


def list_changed_types(before: ArgumentTypes, after: ArgumentTypes) -> Iterator[tuple[str, str]]:
    """Yield the old and the new type of each argument whose type changes."""
    return ((old, new) for old, new in zip(before, after, strict=True) if old and new and old != new)


@functools.lru_cache(maxsize=512)
def make_cast(opset: int, source: str, to: str) -> Operation:
    """Return the Cast operation between two numeric types."""
    data = helper.make_attribute("to", _ELEMENT_TYPE_NUMBERS[to]).SerializeToString()
    return Operation(
        DEFAULT_DOMAIN, "Cast", opset, opset, (source,), (to,), (Attribute("to", "INT", data),), static=False
    )


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


def rank_type_cast(operation: Operation, changed: Operation, way: TypeCast) -> tuple[object, ...]:
    """Return a sort key that prefers few casts, then exact casts, then types of the same kind and of similar width."""
    before, after = (*operation.inputs, *operation.outputs), (*changed.inputs, *changed.outputs)
    pairs = list(list_changed_types(before, after))
    source, _ = pairs[0]
    widths = [ELEMENT_TYPES[_ELEMENT_TYPE_NUMBERS[name]].bits for name in (source, way.to)]
    distance = (source in _FLOAT_BITS) != (way.to in _FLOAT_BITS), abs(widths[0] - widths[1])
    return len(pairs), not way.exact, distance, way.to
