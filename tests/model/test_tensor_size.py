"""Tensors with too much or too little data: the same message whether the data was read or omitted."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import TensorProto, helper

from onnxgate.model.reading.file_format import UnreadableModel, encode_length_prefix
from onnxgate.model.reading.structure import read_view
from onnxgate.model.validity import find_fault
from tests.harness.models import write

FIELDS = {
    TensorProto.FLOAT: "float_data",
    TensorProto.COMPLEX64: "float_data",
    TensorProto.DOUBLE: "double_data",
    TensorProto.INT32: "int32_data",
    TensorProto.BOOL: "int32_data",
    TensorProto.FLOAT16: "int32_data",
    TensorProto.INT4: "int32_data",
    TensorProto.INT64: "int64_data",
    TensorProto.UINT32: "uint64_data",
    TensorProto.UINT64: "uint64_data",
}
ELEMENTS = 60
LARGE = pytest.mark.parametrize("large_bytes", [0, 10**9], ids=["left in the file", "read"])


def fault_message(path: Path, tensor: TensorProto, large_bytes: int) -> str:
    """Return the fault message of a model with this tensor as a constant, or an empty string."""
    node = helper.make_node("Constant", [], ["y"], value=tensor)
    output = helper.make_tensor_value_info("y", tensor.data_type, list(tensor.dims))
    graph = helper.make_graph([node], "g", [], [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    write(path, model)
    fault = find_fault(read_view(path, large_bytes=large_bytes, small_bytes=4), path)
    return fault.message if fault else ""


def tensor_of(kind: int, entries: int, number: int = 1) -> TensorProto:
    """Return a tensor of 60 elements with this number of entries."""
    tensor = TensorProto(data_type=kind, dims=[6, 10], name="w")
    getattr(tensor, FIELDS[kind]).extend([number] * entries)
    return tensor


@LARGE
@pytest.mark.parametrize("kind", FIELDS)
def test_typed(tmp_path: Path, kind: int, large_bytes: int) -> None:
    """The required number of entries is valid; one more and half of them are not."""
    needed = {TensorProto.COMPLEX64: 2 * ELEMENTS, TensorProto.INT4: ELEMENTS // 2}.get(kind, ELEMENTS)

    assert fault_message(tmp_path / "m.onnx", tensor_of(kind, needed), large_bytes) == ""
    for entries in (needed + 1, needed // 2):
        expected = f"tensor `w` has {entries} values, but its shape and type require {needed}"
        assert fault_message(tmp_path / "m.onnx", tensor_of(kind, entries), large_bytes) == expected


@LARGE
@pytest.mark.parametrize("number", [0, 127, 128, -1, 2**40])
def test_numbers_of_any_length(tmp_path: Path, number: int, large_bytes: int) -> None:
    """Entries are counted correctly for varints of 1 to 10 bytes."""
    assert fault_message(tmp_path / "m.onnx", tensor_of(TensorProto.INT64, ELEMENTS, number), large_bytes) == ""
    assert "has 59 values" in fault_message(
        tmp_path / "m.onnx", tensor_of(TensorProto.INT64, ELEMENTS - 1, number), large_bytes
    )


@LARGE
def test_strings(tmp_path: Path, large_bytes: int) -> None:
    """Strings are counted as well."""
    tensor = TensorProto(data_type=TensorProto.STRING, dims=[3], name="w", string_data=[b"a" * 99] * 4)

    assert (
        fault_message(tmp_path / "m.onnx", tensor, large_bytes)
        == "tensor `w` has 4 values, but its shape and type require 3"
    )
    tensor.string_data.pop()
    assert fault_message(tmp_path / "m.onnx", tensor, large_bytes) == ""


@LARGE
def test_another_field(tmp_path: Path, large_bytes: int) -> None:
    """Data in the field of another type is reported by onnx.checker."""
    tensor = TensorProto(data_type=TensorProto.FLOAT, dims=[6, 10], name="w", double_data=[1.0] * ELEMENTS)

    assert "double_data" in fault_message(tmp_path / "m.onnx", tensor, large_bytes)


@LARGE
def test_strings_are_never_raw(tmp_path: Path, large_bytes: int) -> None:
    """Raw data of strings is invalid, because ONNX Runtime refuses it."""
    tensor = TensorProto(data_type=TensorProto.STRING, dims=[99], name="w", raw_data=b"a" * 99)

    assert "raw_data" in fault_message(tmp_path / "m.onnx", tensor, large_bytes)


@pytest.mark.parametrize("field", [4, 7])
def test_numbers_that_are_cut(tmp_path: Path, field: int) -> None:
    """Packed numbers that end inside a number are unreadable, as in protobuf."""
    data = b"\x80" * 99
    tensor = b"\x08\x63" + b"\x10" + bytes([{4: 1, 7: 7}[field]]) + encode_length_prefix(field, len(data)) + data
    attribute = b"\x0a\x05value" + encode_length_prefix(5, len(tensor)) + tensor
    node = b"\x12\x01y" + b"\x22\x08Constant" + encode_length_prefix(5, len(attribute)) + attribute
    graph = encode_length_prefix(1, len(node)) + node + b"\x62\x03\x0a\x01y"
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x08\x08" + encode_length_prefix(7, len(graph)) + graph + b"\x42\x02\x10\x12")

    for large_bytes in (0, 10**9):
        with pytest.raises(UnreadableModel):
            find_fault(read_view(path, large_bytes=large_bytes, small_bytes=4), path)


@LARGE
def test_two_fields(tmp_path: Path, large_bytes: int) -> None:
    """Data in two fields is a fault, regardless of order and size."""
    for floats in (1, ELEMENTS):
        tensor = TensorProto(data_type=TensorProto.FLOAT, dims=[6, 10], name="w", raw_data=bytes(4 * ELEMENTS))
        tensor.float_data.extend([1.0] * floats)

        assert "field" in fault_message(tmp_path / "m.onnx", tensor, large_bytes)


def test_empty_raw_data(tmp_path: Path) -> None:
    """ONNX Runtime reads `raw_data` if it is present, although it is empty, and refuses the model."""
    tensor = helper.make_tensor("t", TensorProto.FLOAT, [2], [1.0, 2.0])
    tensor.raw_data = b""

    assert "has an empty `raw_data`" in fault_message(tmp_path / "m.onnx", tensor, 10**9)
