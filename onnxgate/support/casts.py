"""Casts around an operation: from which types to which, and what they lose."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from onnxgate.model.types import ELEMENT_TYPES
from onnxgate.support.binding import Types, formal_of
from onnxgate.support.operations import Attribute, Operation
from onnxgate.support.table import MIXED, Formal, Schema

DEFAULT = "ai.onnx"
_NUMBERS = {f"tensor({element.name})": number for number, element in ELEMENT_TYPES.items()}
_FLOATS: dict[str, tuple[int, int]] = {
    "tensor(float8e4m3fn)": (4, 4),
    "tensor(float8e5m2)": (3, 5),
    "tensor(bfloat16)": (8, 8),
    "tensor(float16)": (11, 5),
    "tensor(float)": (24, 8),
    "tensor(double)": (53, 11),
}
"""How many significant bits and how many bits of exponent. Source: IEEE 754, and ONNX's description of its types."""
_INTEGERS: dict[str, tuple[int, bool]] = {
    f"tensor({sign}int{bits})": (bits if sign else bits - 1, not sign)
    for bits in (2, 4, 8, 16, 32, 64)
    for sign in ("u", "")
}
"""How many bits without the sign, and whether there is one."""
_INTEGERS["tensor(bool)"] = (1, False)


def retyped(operation: Operation, schema: Schema, parameter: str, to: str) -> Operation | None:
    """The operation with another type for one parameter; None where a type of it is not known or is no number."""
    inputs = _retype(operation.inputs, schema.inputs, parameter, to)
    outputs = _retype(operation.outputs, schema.outputs, parameter, to)
    if inputs is None or outputs is None or not _is_number(to):
        return None
    return replace(operation, inputs=inputs, outputs=outputs)


def _retype(types: Types, formals: Sequence[Formal], parameter: str, to: str) -> tuple[str | None, ...] | None:
    changed = []
    for index, each in enumerate(types):
        formal = formal_of(formals, index)
        bound = formal is not None and formal.type == parameter and formal.option != MIXED and each is not None
        if bound and not _is_number(each or ""):
            return None
        changed.append(to if bound else each)
    return tuple(changed)


def casts(operation: Operation, schema: Schema, parameter: str, to: str) -> tuple[Operation, ...]:
    """The casts that a parameter's other type asks for: of inputs to it, and of outputs back."""
    other = retyped(operation, schema, parameter, to)
    return () if other is None else tuple(_casts(operation, other))


def _casts(operation: Operation, other: Operation) -> Iterator[Operation]:
    for before, after in zip(operation.inputs, other.inputs, strict=True):
        if before and after and before != after:
            yield _cast(operation.opset, before, after)
    for before, after in zip(operation.outputs, other.outputs, strict=True):
        if before and after and before != after:
            yield _cast(operation.opset, after, before)


@functools.lru_cache(maxsize=512)
def _cast(opset: int, source: str, to: str) -> Operation:
    from onnx import helper

    data = helper.make_attribute("to", _NUMBERS[to]).SerializeToString()
    return Operation(DEFAULT, "Cast", opset, opset, (source,), (to,), (Attribute("to", "INT", data),), static=False)


def is_exact(operation: Operation, other: Operation) -> bool:
    """Whether the casts of its inputs keep every value."""
    pairs = zip(operation.inputs, other.inputs, strict=True)
    return all(keeps(before, after) for before, after in pairs if before and after and before != after)


def keeps(source: str, to: str) -> bool:
    """Whether every value of one type is a value of the other."""
    if source in _INTEGERS and to in _INTEGERS:
        (bits, signed), (room, takes_sign) = _INTEGERS[source], _INTEGERS[to]
        return bits <= room and (takes_sign or not signed)
    if source in _INTEGERS and to in _FLOATS:
        significant, exponent = _FLOATS[to]
        return _INTEGERS[source][0] <= min(significant, 1 << (exponent - 1))
    if source in _FLOATS and to in _FLOATS:
        return all(has <= takes for has, takes in zip(_FLOATS[source], _FLOATS[to], strict=True))
    return False


def distance(operation: Operation, schema: Schema, parameter: str, to: str) -> tuple[bool, int]:
    """How far a parameter's other type is from the one that it has: another kind first, then bits."""
    other = retyped(operation, schema, parameter, to)
    if other is None:
        return True, 0
    pairs = zip((*operation.inputs, *operation.outputs), (*other.inputs, *other.outputs), strict=True)
    source = next((before for before, after in pairs if before and before != after), to)
    return (source in _FLOATS) != (to in _FLOATS), abs(_bits(source) - _bits(to))


def _bits(name: str) -> int:
    return ELEMENT_TYPES[_NUMBERS[name]].bits


def _is_number(name: str) -> bool:
    return name in _FLOATS or name in _INTEGERS
