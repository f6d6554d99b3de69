"""Element types: ONNX's numbers, ONNX Runtime's spelling, and how many bits an element takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import TensorProto, TypeProto

STRING = 8
MOST_ELEMENTS = 2**63 - 1
"""No tensor has more. Source: sizes and offsets of ONNX Runtime are signed numbers of 64 bits."""


@dataclass(frozen=True, slots=True)
class ElementType:
    """One value of `TensorProto.DataType`."""

    name: str  # as ONNX Runtime spells it
    bits: int  # in raw_data; 0 where raw_data cannot hold it


ELEMENT_TYPES = {
    1: ElementType("float", 32),
    2: ElementType("uint8", 8),
    3: ElementType("int8", 8),
    4: ElementType("uint16", 16),
    5: ElementType("int16", 16),
    6: ElementType("int32", 32),
    7: ElementType("int64", 64),
    STRING: ElementType("string", 0),
    9: ElementType("bool", 8),
    10: ElementType("float16", 16),
    11: ElementType("double", 64),
    12: ElementType("uint32", 32),
    13: ElementType("uint64", 64),
    14: ElementType("complex64", 64),
    15: ElementType("complex128", 128),
    16: ElementType("bfloat16", 16),
    17: ElementType("float8e4m3fn", 8),
    18: ElementType("float8e4m3fnuz", 8),
    19: ElementType("float8e5m2", 8),
    20: ElementType("float8e5m2fnuz", 8),
    21: ElementType("uint4", 4),
    22: ElementType("int4", 4),
    23: ElementType("float4e2m1", 4),
    24: ElementType("float8e8m0", 8),
    25: ElementType("uint2", 2),
    26: ElementType("int2", 2),
    27: ElementType("float6e2m3", 6),
    28: ElementType("float6e3m2", 6),
}
"""Source: onnx.proto at IR version 14."""


def element_name(number: int) -> str:
    """ONNX Runtime's word for an element type; a number that ONNX did not yet know stays a number."""
    known = ELEMENT_TYPES.get(number)
    return known.name if known else f"type {number}"


def count_of(dims: Iterable[int]) -> int:
    """How many elements a shape has; 2^63 where it has as many or more, however long the shape is."""
    count = 1
    for dim in dims:
        if not dim:
            return 0
        count = min(count * abs(dim), MOST_ELEMENTS + 1)
    return count


def element_count(tensor: TensorProto) -> int:
    """How many elements the tensor's dims announce."""
    return count_of(tensor.dims)


def data_bytes(tensor: TensorProto) -> int | None:
    """How many bytes the tensor takes in raw or external data; None where that cannot be said."""
    known = ELEMENT_TYPES.get(tensor.data_type)
    if known is None or not known.bits or any(dim < 0 for dim in tensor.dims):
        return None
    return (element_count(tensor) * known.bits + 7) // 8


def type_name(proto: TypeProto) -> str:
    """A value's type as ONNX Runtime spells it; "" where the file does not say."""
    match proto.WhichOneof("value"):
        case "tensor_type":
            return f"tensor({element_name(proto.tensor_type.elem_type)})"
        case "sparse_tensor_type":
            return f"sparse_tensor({element_name(proto.sparse_tensor_type.elem_type)})"
        case "sequence_type":
            return f"seq({type_name(proto.sequence_type.elem_type)})"
        case "optional_type":
            return f"optional({type_name(proto.optional_type.elem_type)})"
        case "map_type":
            return f"map({element_name(proto.map_type.key_type)},{type_name(proto.map_type.value_type)})"
        case "opaque_type":
            return f"opaque({proto.opaque_type.domain},{proto.opaque_type.name})"
        case _:
            return ""


def type_proto(text: str) -> TypeProto:
    """The type that ONNX Runtime spells so, without a shape; without content where the spelling is not known."""
    from onnx import TypeProto

    made = TypeProto()
    kind, _, rest = text.partition("(")
    inside = rest[:-1]
    match kind:
        case "tensor" | "sparse_tensor":
            holder = made.tensor_type if kind == "tensor" else made.sparse_tensor_type
            holder.elem_type = _NUMBERS.get(inside, 0)
        case "seq":
            made.sequence_type.elem_type.CopyFrom(type_proto(inside))
        case "optional":
            made.optional_type.elem_type.CopyFrom(type_proto(inside))
        case "map":
            key, _, value = inside.partition(",")
            made.map_type.key_type = _NUMBERS.get(key, 0)
            made.map_type.value_type.CopyFrom(type_proto(value))
    return made


_NUMBERS = {element.name: number for number, element in ELEMENT_TYPES.items()}
