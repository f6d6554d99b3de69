"""Facts about a model, which the lock, the rules and the input generator use, and the table of element types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from onnx import TensorProto, TypeProto


DEFAULT_DOMAIN = "ai.onnx"
"""Domain of the standard operators. Models may contain "" instead of it; facts and reports always contain this name."""
CONTRIB_DOMAIN = "com.microsoft"
"""Domain of the operators that ONNX Runtime adds to those of ONNX."""
INTERNAL_DOMAINS = frozenset({"com.microsoft.nchwc", "com.ms.internal.nhwc"})
"""Domains of operators that ONNX Runtime adds to a model when it optimizes the graph.

Source: optimized models saved by ONNX Runtime.
"""
Dim = int | str
"""Size of one axis: a fixed size, a symbolic name, or `"?"` if unknown."""


class ValueInfo(msgspec.Struct, frozen=True, order=True):
    """One graph input or output. `type` is written as in ONNX Runtime, such as `tensor(float)`."""

    name: str
    type: str
    shape: tuple[Dim, ...] | None = None  # None if the rank is unknown


class ExternalFile(msgspec.Struct, frozen=True, order=True, rename="kebab"):
    """One external data file of a model. `location` is the path as stored in the model."""

    location: str
    size_bytes: int
    sha256: str


class ModelFacts(msgspec.Struct, frozen=True):
    """Facts about one readable model. `path` is relative to the config folder, with `/` as the separator."""

    path: str
    sha256: str
    size_bytes: int
    ir_version: int
    opsets: dict[str, int]  # domain -> version; the default domain is "ai.onnx"
    producer: str  # such as "pytorch 2.13.0", without local build suffix
    inputs: tuple[ValueInfo, ...]  # inputs without an initializer
    outputs: tuple[ValueInfo, ...]
    operators: dict[str, int]  # "Conv" or "com.microsoft.Gelu" -> count, with subgraphs and local functions
    metadata_keys: tuple[str, ...]
    external: tuple[ExternalFile, ...] = ()
    function_opsets: dict[str, int] = {}  # newest opset per domain that local functions import
    # The following facts come only from the file; a lock does not contain them.
    optional_inputs: tuple[ValueInfo, ...] = ()  # inputs with an initializer as default value
    functions: tuple[str, ...] = ()  # sorted names of local functions, written as in `operators`
    unread: tuple[str, ...] = ()  # locations of external data that are not in `external`: missing or outside the folder

    @property
    def needed_opsets(self) -> dict[str, int]:
        """Opsets that a runtime must support, keyed by domain, including those that only unused local functions import.

        Source: ONNX Runtime 1.16–1.31.
        """
        domains = sorted({*self.opsets, *self.function_opsets})
        return {domain: max(self.opsets.get(domain, 0), self.function_opsets.get(domain, 0)) for domain in domains}


def wrap_opset(version: int) -> int:
    """Return the opset that ONNX Runtime reads: the low 32 bits of the version as a signed number.

    Source: 30 models with versions from -2^63 to 2^63 - 1 of used and unused domains, loaded on 5 releases.
    """
    return (version + 2**31) % 2**32 - 2**31


def canonical_domain(domain: str) -> str:
    """Return the name of a model's operator domain in facts and reports: "" becomes "ai.onnx"."""
    return domain or DEFAULT_DOMAIN


def model_domain(domain: str) -> str:
    """Return the name of an operator domain in the `onnx` package: "ai.onnx" becomes ""."""
    return "" if domain == DEFAULT_DOMAIN else domain


STRING, BFLOAT16 = 8, 16
MAX_ELEMENTS = 2**63 - 1
"""Maximum number of elements in a tensor. Source: ONNX Runtime uses signed 64-bit sizes and offsets."""


class ElementType(msgspec.Struct, frozen=True):
    """An element type: one value of `TensorProto.DataType`."""

    name: str  # name in ONNX Runtime
    bits: int  # bits per element in raw_data; 0 if not allowed there
    numpy: str = ""  # NumPy type code of an element in raw_data; "" if NumPy does not support it


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
"""Element types by number. Source: onnx.proto at IR version 14."""


def element_name(number: int) -> str:
    """Return the name that ONNX Runtime uses for an element type; if the type is unknown, return its number."""
    element = ELEMENT_TYPES.get(number)
    return element.name if element else f"type {number}"


def count_elements(dims: Iterable[int]) -> int:
    """Return the number of elements in a shape, at most 2^63."""
    count = 1
    for dim in dims:
        if not dim:
            return 0
        count = min(count * abs(dim), MAX_ELEMENTS + 1)
    return count


def count_tensor_elements(tensor: TensorProto) -> int:
    """Return the number of elements that a tensor's dims declare."""
    return count_elements(tensor.dims)


def required_bytes(tensor: TensorProto) -> int | None:
    """Return the size in bytes of a tensor's raw or external data; None if its type has no fixed size."""
    element = ELEMENT_TYPES.get(tensor.data_type)
    dims = tuple(tensor.dims)
    if element is None or not element.bits or (dims and min(dims) < 0):
        return None
    return (count_elements(dims) * element.bits + 7) // 8


def format_type(proto: TypeProto) -> str:
    """Return a type in the notation of ONNX Runtime, such as `tensor(float)`; "" if the type is missing."""
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
    """Return a `TypeProto` without a shape for a type in the notation of ONNX Runtime; empty if the type is unknown."""
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
