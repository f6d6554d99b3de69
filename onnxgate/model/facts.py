"""Facts of a model that lock, rules and inputs use, and element types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from onnx import TensorProto, TypeProto


DEFAULT_DOMAIN = "ai.onnx"
"""The domain of ONNX's own operators; a model spells it "" too, facts and reports never do."""
Dim = int | str
"""A fixed size, a named symbol, or `"?"` where the file names neither."""


class ValueInfo(msgspec.Struct, frozen=True, order=True):
    """One graph input or output. `type` is spelled as ONNX Runtime spells it: `tensor(float)`, `seq(tensor(int64))`."""

    name: str
    type: str
    shape: tuple[Dim, ...] | None = None  # None: rank unknown


class ExternalFile(msgspec.Struct, frozen=True, order=True, rename="kebab"):
    """One file of external data that a model refers to. `location` is as the model writes it."""

    location: str
    size_bytes: int
    sha256: str


class ModelFacts(msgspec.Struct, frozen=True):
    """Facts of one readable model. `path` uses `/` and is relative to the config's folder."""

    path: str
    sha256: str
    size_bytes: int
    ir_version: int
    opsets: dict[str, int]  # domain -> version; the default domain is spelled "ai.onnx"
    producer: str  # "pytorch 2.13.0", without local build suffix
    inputs: tuple[ValueInfo, ...]  # without initializers
    outputs: tuple[ValueInfo, ...]
    operators: dict[str, int]  # "Conv" or "com.microsoft.Gelu" -> count, subgraphs and local functions included
    metadata_keys: tuple[str, ...]
    external: tuple[ExternalFile, ...] = ()
    function_opsets: dict[str, int] = {}  # what local functions import, the newest per domain; as `opsets`
    # Known from the file alone, and not in a lock:
    optional_inputs: tuple[ValueInfo, ...] = ()  # an initializer gives their value, and a caller may feed another
    functions: tuple[str, ...] = ()  # local functions, sorted, spelled as `operators`
    unread: tuple[str, ...] = ()  # locations of external data that `external` lacks: missing, or outside the folder

    @property
    def needed_opsets(self) -> dict[str, int]:
        """What a runtime must implement, for functions that nothing calls too. Source: ONNX Runtime 1.16 to 1.31."""
        domains = sorted({*self.opsets, *self.function_opsets})
        return {domain: max(self.opsets.get(domain, 0), self.function_opsets.get(domain, 0)) for domain in domains}


def canonical_domain(domain: str) -> str:
    """Return the spelling of a domain in facts and reports."""
    return domain or DEFAULT_DOMAIN


def model_domain(domain: str) -> str:
    """Return the spelling of a domain that `onnx` knows."""
    return "" if domain == DEFAULT_DOMAIN else domain


STRING, BFLOAT16 = 8, 16
MAX_ELEMENTS = 2**63 - 1
"""No tensor has more. Source: sizes and offsets of ONNX Runtime are signed numbers of 64 bits."""


class ElementType(msgspec.Struct, frozen=True):
    """One value of `TensorProto.DataType`."""

    name: str  # as ONNX Runtime spells it
    bits: int  # in raw_data; 0 where raw_data cannot hold it
    numpy: str = ""  # NumPy's code of the type of an element in raw_data; "" if NumPy has none


ELEMENT_TYPES = {
    1: ElementType("float", 32, "<f4"),
    2: ElementType("uint8", 8, "u1"),
    3: ElementType("int8", 8, "i1"),
    4: ElementType("uint16", 16, "<u2"),
    5: ElementType("int16", 16, "<i2"),
    6: ElementType("int32", 32, "<i4"),
    7: ElementType("int64", 64, "<i8"),
    STRING: ElementType("string", 0),
    9: ElementType("bool", 8, "u1"),
    10: ElementType("float16", 16, "<f2"),
    11: ElementType("double", 64, "<f8"),
    12: ElementType("uint32", 32, "<u4"),
    13: ElementType("uint64", 64, "<u8"),
    14: ElementType("complex64", 64, "<c8"),
    15: ElementType("complex128", 128, "<c16"),
    BFLOAT16: ElementType("bfloat16", 16),
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
    """Return ONNX Runtime's name of an element type, with the number if it is unknown."""
    element = ELEMENT_TYPES.get(number)
    return element.name if element else f"type {number}"


def count_elements(dims: Iterable[int]) -> int:
    """Count a shape's elements, up to 2^63."""
    count = 1
    for dim in dims:
        if not dim:
            return 0
        count = min(count * abs(dim), MAX_ELEMENTS + 1)
    return count


def count_tensor_elements(tensor: TensorProto) -> int:
    """Count the elements by the tensor's dims."""
    return count_elements(tensor.dims)


def required_bytes(tensor: TensorProto) -> int | None:
    """Return the tensor's size in raw or external data; None if the type has no fixed size."""
    element = ELEMENT_TYPES.get(tensor.data_type)
    dims = tuple(tensor.dims)
    if element is None or not element.bits or (dims and min(dims) < 0):
        return None
    return (count_elements(dims) * element.bits + 7) // 8


def format_type(proto: TypeProto) -> str:
    """Format a value's type as ONNX Runtime does; "" if the file has no type."""
    match proto.WhichOneof("value"):
        case "tensor_type":
            return f"tensor({element_name(proto.tensor_type.elem_type)})"
        case "sparse_tensor_type":
            return f"sparse_tensor({element_name(proto.sparse_tensor_type.elem_type)})"
        case "sequence_type":
            return f"seq({format_type(proto.sequence_type.elem_type)})"
        case "optional_type":
            return f"optional({format_type(proto.optional_type.elem_type)})"
        case "map_type":
            return f"map({element_name(proto.map_type.key_type)},{format_type(proto.map_type.value_type)})"
        case "opaque_type":
            return f"opaque({proto.opaque_type.domain},{proto.opaque_type.name})"
        case _:
            return ""


def parse_type(text: str) -> TypeProto:
    """Parse ONNX Runtime's spelling of a type, without a shape; empty if the spelling is unknown."""
    from onnx import TypeProto

    proto = TypeProto()
    kind, _, rest = text.partition("(")
    inside = rest[:-1]
    match kind:
        case "tensor" | "sparse_tensor":
            holder = proto.tensor_type if kind == "tensor" else proto.sparse_tensor_type
            holder.elem_type = _TYPE_NUMBERS.get(inside, 0)
        case "seq":
            proto.sequence_type.elem_type.CopyFrom(parse_type(inside))
        case "optional":
            proto.optional_type.elem_type.CopyFrom(parse_type(inside))
        case "map":
            key, _, value = inside.partition(",")
            proto.map_type.key_type = _TYPE_NUMBERS.get(key, 0)
            proto.map_type.value_type.CopyFrom(parse_type(value))
    return proto


_TYPE_NUMBERS = {element.name: number for number, element in ELEMENT_TYPES.items()}
