"""Convert types as spelled by runtimes to ONNX types."""

from __future__ import annotations

import re

from onnx import TensorProto, TypeProto, helper

_WRAPPED = re.compile(r"(seq|optional|tensor|sparse_tensor)\((.*)\)")
_MAP = re.compile(r"map\((\w+), ?(.*)\)")


def element(name: str) -> int:
    """Return the number of the innermost element type of `float`, `tensor(float)` or `seq(tensor(float))`."""
    return int(TensorProto.DataType.Value(name.rstrip(")").rpartition("(")[2].upper()))


def inner(name: str) -> str:
    """Return the element type of a sequence or an optional."""
    return name.partition("(")[2][:-1]


def tensor(name: str, size: int = 1) -> TensorProto:
    """Return a tensor with elements of a type: zeros or different strings."""
    made = TensorProto(name="t", data_type=element(name), dims=[size])
    if made.data_type == TensorProto.STRING:
        made.string_data.extend(b"a" * length for length in range(1, size + 1))
    else:
        made.raw_data = bytes(size * _size_bytes(made.data_type))
    return made


def _size_bytes(number: int) -> int:
    return int(helper.tensor_dtype_to_np_dtype(number).itemsize)  # one, also for types smaller than a byte


def type_proto(name: str) -> TypeProto:
    """Parse a type such as `seq(tensor(float))`; the result has no shapes."""
    if parsed := _MAP.fullmatch(name):
        return helper.make_map_type_proto(element(parsed.group(1)), type_proto(parsed.group(2)))
    parsed = _WRAPPED.fullmatch(name)
    if parsed is None:
        return helper.make_tensor_type_proto(element(name), None)
    kind, element_name = parsed.groups()
    match kind:
        case "seq":
            return helper.make_sequence_type_proto(type_proto(element_name))
        case "optional":
            return helper.make_optional_type_proto(type_proto(element_name))
        case "sparse_tensor":
            return helper.make_sparse_tensor_type_proto(element(element_name), None)
    return helper.make_tensor_type_proto(element(element_name), None)
