"""Checks whether tensors have as much data as their shapes and types require."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.core.files import open_regular
from onnxgate.model.facts import ELEMENT_TYPES, MAX_ELEMENTS, STRING, count_tensor_elements, required_bytes
from onnxgate.model.reading.external_data import is_external
from onnxgate.model.reading.file_format import FileWindow, UnreadableModel
from onnxgate.model.reading.omitted_data import OmittedData, find_omitted_data
from onnxgate.model.reading.structure import DATA_FIELDS, RAW_DATA

if TYPE_CHECKING:
    from onnx import TensorProto


_FLOAT_FIELD, _INT32_FIELD, _INT64_FIELD, _DOUBLE_FIELD, _UINT64_FIELD = 4, 5, 7, 10, 11
_FIELD_BY_TYPE = {
    **dict.fromkeys((1, 14), _FLOAT_FIELD),
    **dict.fromkeys((11, 15), _DOUBLE_FIELD),
    7: _INT64_FIELD,
    **dict.fromkeys((12, 13), _UINT64_FIELD),
}
"""Field of TensorProto that contains the data of each element type; others use `int32_data`. Source: onnx.proto."""
_FIXED_BYTES = {_FLOAT_FIELD: 4, _DOUBLE_FIELD: 8}
_COMPLEX_TYPES = (14, 15)
_CHUNK_BYTES = 1024 * 1024
_CONTINUATION_BYTES = bytes(range(0x80, 0x100))


def has_right_raw_data(tensor: TensorProto) -> bool:
    """Return whether the tensor has raw data of exactly the size that its shape and type require."""
    element = ELEMENT_TYPES.get(tensor.data_type)
    raw = len(tensor.raw_data)
    return bool(raw and element is not None and element.bits) and required_bytes(tensor) == raw


def check_tensor_size(tensor: TensorProto, path: Path) -> str:
    """Describe the problem if a tensor has too little or too much data; "" if the amount is correct.

    External data, tensors without data and unknown types are not checked.

    Raises:
        OSError, UnreadableModel: omitted data cannot be read from the file, or the file has changed.
    """
    count = count_tensor_elements(tensor)
    if count > MAX_ELEMENTS:
        return f"has more than {MAX_ELEMENTS:,} elements"
    element = ELEMENT_TYPES.get(tensor.data_type)
    if is_external(tensor) or element is None or any(dim < 0 for dim in tensor.dims):
        return ""
    omitted = find_omitted_data(tensor)
    if any(piece.is_list for piece in omitted):
        return ""
    fields = {name for name in (*DATA_FIELDS.values(), "string_data") if getattr(tensor, name)}
    if omitted and len(fields | {DATA_FIELDS[piece.field] for piece in omitted}) > 1:
        return "stores its data in more than one field"
    raw = sum(piece.length for piece in omitted if piece.field == RAW_DATA) or len(tensor.raw_data)
    if not raw and not omitted and count and fields and tensor.data_type != STRING and tensor.HasField("raw_data"):
        return "has an empty `raw_data`, which runtimes read instead of its values"
    if not raw:
        return _check_value_count(tensor, omitted, count, path)
    if tensor.data_type == STRING:
        return "has `raw_data`, which its type does not allow"
    needed = required_bytes(tensor)
    unit = "byte" if raw == 1 else "bytes"
    return "" if needed in (None, raw) else f"has {raw:,} {unit}, but its shape and type require {needed:,}"


def _check_value_count(tensor: TensorProto, omitted: Sequence[OmittedData], count: int, path: Path) -> str:
    field = _FIELD_BY_TYPE.get(tensor.data_type, _INT32_FIELD)
    for piece in omitted:
        if piece.field != field or tensor.data_type == STRING:
            return f"has `{DATA_FIELDS[piece.field]}`, which its type does not allow"
    name = "string_data" if tensor.data_type == STRING else DATA_FIELDS[field]
    count_in_field = len(getattr(tensor, name)) + _count_omitted_entries(omitted, field, path)
    bits = ELEMENT_TYPES[tensor.data_type].bits
    needed: int | None = 2 * count if tensor.data_type in _COMPLEX_TYPES else count
    if bits in (2, 4):  # several elements share an entry
        needed = required_bytes(tensor)
    elif bits == 6:
        needed = None
    return (
        f"has {count_in_field:,} value{'' if count_in_field == 1 else 's'}, but its shape and type require {needed:,}"
        if count_in_field and needed not in (None, count_in_field)
        else ""
    )


def _count_omitted_entries(omitted: Sequence[OmittedData], field: int, path: Path) -> int:
    if not omitted:
        return 0
    if width := _FIXED_BYTES.get(field):
        if any(piece.length % width for piece in omitted):
            raise UnreadableModel("a corrupted model (a value in a tensor is cut off)")
        return sum(piece.length // width for piece in omitted)
    with open_regular(path) as file:
        source, count = FileWindow(file), 0
        for piece in omitted:
            end = piece.offset + piece.length
            if source.read(end - 1, end)[0] >= _CONTINUATION_BYTES[0]:
                raise UnreadableModel("a corrupted model (a value in a tensor is cut off)")
            for at in range(piece.offset, end, _CHUNK_BYTES):  # the last byte of each varint is below 128
                count += len(source.read(at, min(at + _CHUNK_BYTES, end)).translate(None, _CONTINUATION_BYTES))
    return count
