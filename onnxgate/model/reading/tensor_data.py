"""Reader for tensor data that was parsed, was omitted by the parser, or is external."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from onnxgate.core.files import open_regular
from onnxgate.model.facts import (
    BFLOAT16,
    ELEMENT_TYPES,
    STRING,
    count_elements,
    count_tensor_elements,
    required_bytes,
)
from onnxgate.model.reading.external_data import inspect_data_file, is_external, read_data_range, read_external_entries
from onnxgate.model.reading.file_format import UnreadableModel, encode_length_prefix
from onnxgate.model.reading.omitted_data import (
    OmittedData,
    OmittedList,
    find_constant_list,
    find_omitted_data,
    iter_omitted_list,
)
from onnxgate.model.reading.structure import RAW_DATA

if TYPE_CHECKING:
    import numpy as np
    from onnx import SparseTensorProto, TensorProto

    Array = np.ndarray[Any, Any]

CHUNK_BYTES = 4 * 1024 * 1024
_MAX_EQUAL_ULPS = 4
"""Maximum difference in ULP that rounding may cause in a weight if a model is exported on another machine."""
_FLOAT_DATA, _DOUBLE_DATA = 4, 10
_INT64 = 7
_INT4_TYPES = {21: 0, 22: 8}
"""Lowest encoded value that represents a negative number, for each 4-bit type; 0 for unsigned types.

The low half of a byte contains the first element.
"""
_FLOAT8_TYPES = {17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz"}


class UnreadableWeightError(Exception):
    """The data of a tensor cannot be read; the message is the reason."""


class TensorDifference(msgspec.Struct, frozen=True):
    """Difference between two tensors of the same type and shape."""

    elements: int  # 0 if rounding explains all differences
    total: int
    largest: float | None = None  # None if not numeric
    rounded: int = 0  # floats that differ by at most 4 ULP


def read_chunks(tensor: TensorProto, model: Path) -> Iterator[bytes]:
    """Yield the data of a tensor as little-endian bytes in chunks of `CHUNK_BYTES`, regardless of how it is stored.

    Raises:
        UnreadableWeightError: external data is missing.
    """
    if is_external(tensor):
        yield from _read_external(tensor, model)
    elif constant := find_constant_list(tensor):
        yield from _read_constant(tensor, constant, model)
    elif omitted := find_omitted_data(tensor):
        yield from _read_omitted(tensor, omitted, model)
    else:
        data = tensor.raw_data or _encode_typed_data(tensor)
        for start in range(0, len(data), CHUNK_BYTES):
            yield data[start : start + CHUNK_BYTES]


def _read_external(tensor: TensorProto, model: Path) -> Iterator[bytes]:
    location = read_external_entries(tensor).get("location", "")
    file = inspect_data_file(model, location)
    if not location or file.problem:
        raise UnreadableWeightError(f"`{location}` {file.detail or f'is {file.problem}'}")
    try:
        offset, length = read_data_range(tensor)
    except ValueError as error:
        raise UnreadableWeightError(str(error)) from error
    needed = required_bytes(tensor)
    yield from _read_span(file.path, offset, needed if needed is not None else length or 0)


def _read_omitted(tensor: TensorProto, omitted: tuple[OmittedData, ...], model: Path) -> Iterator[bytes]:
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    if len(omitted) == 1 and omitted[0].field in (RAW_DATA, _FLOAT_DATA, _DOUBLE_DATA):
        yield from _read_span(model, omitted[0].offset, omitted[0].length)
        return
    content = b"".join(
        part
        for piece in omitted
        for part in (encode_length_prefix(piece.field, piece.length), *_read_span(model, piece.offset, piece.length))
    )
    try:
        decoded = type(tensor).FromString(content)
    except DecodeError as error:
        raise UnreadableWeightError("its data is corrupted") from error
    decoded.data_type = tensor.data_type
    yield decoded.raw_data or _encode_typed_data(decoded)


def _read_constant(tensor: TensorProto, omitted: OmittedList, model: Path) -> Iterator[bytes]:
    try:
        for piece in iter_omitted_list(omitted, model):
            part = type(tensor)(float_data=piece.floats, int64_data=piece.ints, string_data=piece.strings)
            part.data_type = tensor.data_type
            yield _encode_typed_data(part)
    except UnreadableModel as error:
        raise UnreadableWeightError("its data is corrupted") from error


def _read_span(path: Path, offset: int, length: int) -> Iterator[bytes]:
    with open_regular(path) as file:
        if length > 0 and offset >= path.stat().st_size:  # the offset may exceed the limits of `seek`
            raise UnreadableWeightError(f"`{path.name}` is truncated")
        file.seek(offset)
        while length > 0:
            piece = _read_fully(file.read, min(length, CHUNK_BYTES))
            if not piece:
                raise UnreadableWeightError(f"`{path.name}` is truncated")
            yield piece
            length -= len(piece)


def _read_fully(read: Callable[[int], bytes | None], count: int) -> bytes:
    parts = []
    while count > 0 and (part := read(count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _encode_typed_data(tensor: TensorProto) -> bytes:
    """Encode data from typed fields as raw bytes. Source: onnx.proto, which specifies the field for each type."""
    import numpy as np

    if tensor.data_type == STRING:
        return b"".join(encode_length_prefix(1, len(text)) + text for text in tensor.string_data)
    if tensor.float_data:
        return np.array(tensor.float_data, "<f4").tobytes()
    if tensor.double_data:
        return np.array(tensor.double_data, "<f8").tobytes()
    if tensor.int64_data:
        return np.array(tensor.int64_data, "<i8").tobytes()
    element = ELEMENT_TYPES.get(tensor.data_type)
    width = max(element.bits // 8, 1) if element else 4
    if tensor.uint64_data:
        return np.array(tensor.uint64_data, "<u8").astype(f"<u{width}").tobytes()
    return np.array(tensor.int32_data, "<i4").astype(f"<i{min(width, 4)}").tobytes()


def decode_elements(content: bytes, data_type: int) -> Array | None:
    """Decode all complete elements at the start of little-endian bytes; None if the type is not numeric."""
    import numpy as np

    element = ELEMENT_TYPES.get(data_type)
    if element is None:
        return None
    if element.numpy:
        return np.frombuffer(content, element.numpy, count=len(content) // (element.bits // 8))
    if data_type == BFLOAT16:
        return _widen_bfloat16(np.frombuffer(content, "<u2", count=len(content) // 2))
    if data_type in _INT4_TYPES:
        both = np.frombuffer(content, np.uint8)
        halves = np.stack([both & 15, both >> 4], axis=1).ravel().astype(np.int8)
        wrap = _INT4_TYPES[data_type]
        return np.where(halves >= wrap, halves - 16, halves) if wrap else halves
    try:
        import ml_dtypes  # a dependency of onnx 1.19 and later
    except ImportError:
        return None
    float8 = getattr(ml_dtypes, _FLOAT8_TYPES.get(data_type, ""), None)
    return None if float8 is None else np.frombuffer(content, float8).astype(np.float32)


def _widen_bfloat16(bits: Array) -> Array:
    import numpy as np

    return np.asarray((bits.astype(np.uint32) << np.uint32(16)).view(np.float32))


def compare_tensors(old: TensorProto, old_model: Path, new: TensorProto, new_model: Path) -> TensorDifference | None:
    """Compare two tensors of the same type and shape; None if they are equal.

    Raises:
        UnreadableWeightError: data is missing.
    """
    total = count_tensor_elements(new)
    elements, largest, rounded = 0, -math.inf, 0
    element = ELEMENT_TYPES.get(new.data_type)
    element_bytes = max(element.bits // 8, 1) if element else 1
    pairs = _align_chunks(read_chunks(old, old_model), read_chunks(new, new_model))
    for before, after in pairs:
        if before == after:
            continue
        if len(before) != len(after) or new.data_type == STRING or len(before) % element_bytes:
            return TensorDifference(total, total)
        count, distance, close = _compare_chunk(before, after, new.data_type)
        elements, largest, rounded = elements + count, max(largest, distance), rounded + close
    if not elements and not rounded:
        return None
    return TensorDifference(elements, total, largest if math.isfinite(largest) else None, rounded)


def read_array(tensor: TensorProto) -> Array | None:
    """Return the values of a tensor whose data is in the `ModelProto`.

    None if the data is omitted or external, or does not fit the declared type and shape.
    """
    import numpy as np
    from onnx import numpy_helper

    if is_external(tensor) or find_omitted_data(tensor):
        return None
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except (LookupError, TypeError, ValueError, OverflowError):
        return None


def _align_chunks(old: Iterator[bytes], new: Iterator[bytes]) -> Iterator[tuple[bytes, bytes]]:
    before, after = b"", b""
    while True:
        before, after = before or next(old, b""), after or next(new, b"")
        if not before or not after:
            if before or after:
                yield before, after
            return
        size = min(len(before), len(after))
        yield before[:size], after[:size]
        before, after = before[size:], after[size:]


def _compare_chunk(before: bytes, after: bytes, data_type: int) -> tuple[int, float, int]:
    """Compare two chunks of tensor data.

    Return the number of differing elements, the largest difference (-inf if unknown), and the number of elements that
    differ only by rounding.
    """
    import numpy as np

    element = ELEMENT_TYPES.get(data_type)
    kind = np.dtype(element.numpy) if element is not None and element.numpy else None
    if data_type == BFLOAT16 or (kind is not None and kind.kind in "fc"):
        return _compare_float_chunk(before, after, data_type)
    a, b = np.frombuffer(before, kind or "u1"), np.frombuffer(after, kind or "u1")
    apart = a != b
    if kind is None:
        return int(apart.sum()), -math.inf, 0
    distance = np.abs(a[apart].astype(np.float64) - b[apart].astype(np.float64))
    return int(apart.sum()), float(distance.max()), 0


def _compare_float_chunk(before: bytes, after: bytes, data_type: int) -> tuple[int, float, int]:
    """Compare two arrays of floats. Complex numbers are compared as pairs of floats."""
    import numpy as np

    element = ELEMENT_TYPES[data_type]
    width = element.bits // (16 if element.numpy.startswith("<c") else 8)
    old, new = np.frombuffer(before, f"<i{width}"), np.frombuffer(after, f"<i{width}")
    a, b = (_widen_bfloat16(it) if data_type == BFLOAT16 else it.view(f"<f{width}") for it in (old, new))
    steps, both_nan = count_ulps(old, new), np.isnan(a) & np.isnan(b)
    apart = (steps > _MAX_EQUAL_ULPS) & ~both_nan
    rounded = int(((steps > 0) & ~apart & ~both_nan).sum())
    if not apart.any():
        return 0, -math.inf, rounded
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(a[apart].astype(np.float64) - b[apart].astype(np.float64))
    finite = distance[np.isfinite(distance)]
    return int(apart.sum()), float(finite.max()) if finite.size else -math.inf, rounded


def count_ulps(old: Array, new: Array) -> Array:
    """Return the distances in ULP between floats, given their bit patterns as integers."""
    import numpy as np

    def ordered(bits: Array) -> Array:  # integers in the order of the floats; positive and negative zero are 0
        wide = bits.astype(np.int64)
        return np.where(wide < 0, -(1 << (8 * bits.dtype.itemsize - 1)) - wide, wide)

    a, b = ordered(old), ordered(new)
    steps: Array = (np.maximum(a, b) - np.minimum(a, b)).view(np.uint64)
    return steps


MAX_SMALL_ELEMENTS = 64
"""Maximum number of elements of the constants that are read to find shapes, axes and scales."""
_SMALL_FORMATS = {
    1: ("f", "float_data"),
    2: ("B", "int32_data"),
    3: ("b", "int32_data"),
    4: ("H", "int32_data"),
    5: ("h", "int32_data"),
    6: ("i", "int32_data"),
    7: ("q", "int64_data"),
    11: ("d", "double_data"),
    12: ("I", "uint64_data"),
    13: ("Q", "uint64_data"),
}
"""Format of `struct` and field of TensorProto for each element type of integers and floats."""


def read_small_values(tensor: TensorProto, limit: int = MAX_SMALL_ELEMENTS) -> tuple[int | float, ...] | None:
    """Return the elements of a small tensor of integers or floats, without NumPy; None if they are not available."""
    count, small = count_tensor_elements(tensor), _SMALL_FORMATS.get(tensor.data_type)
    if small is None or count > limit or is_external(tensor) or find_omitted_data(tensor):
        return None
    code, field = small
    raw = tensor.raw_data
    if raw and len(raw) != count * struct.calcsize(f"<{code}"):
        return None
    values = struct.unpack(f"<{count}{code}", raw) if raw else tuple(getattr(tensor, field))
    return values if len(values) == count else None


def read_small_sparse_data(sparse: SparseTensorProto) -> bytes | None:
    """Return the elements of a small sparse tensor as raw data of a dense one; None if they are invalid or unavailable.

    Only `MAX_SMALL_ELEMENTS` elements are stored, whatever the tensor declares.
    """
    values, element = sparse.values, ELEMENT_TYPES.get(sparse.values.data_type)
    if element is None or element.bits < 8 or element.bits % 8 or not sparse.HasField("indices"):
        return None
    if count_elements(sparse.dims) > MAX_SMALL_ELEMENTS or is_external(values) or find_omitted_data(values):
        return None
    places, width = _list_places(sparse), element.bits // 8
    data = values.raw_data or _encode_typed_data(values)
    if places is None or list(values.dims) != [len(places)] or len(data) != len(places) * width:
        return None
    dense = bytearray(count_elements(sparse.dims) * width)
    for index, place in enumerate(places):
        dense[place * width : (place + 1) * width] = data[index * width : (index + 1) * width]
    return bytes(dense)


def _list_places(sparse: SparseTensorProto) -> Sequence[int] | None:
    """Return the places of the values in the dense tensor; None if they are out of range or not in order."""
    indices, dims = sparse.indices, tuple(sparse.dims)
    rank = len(dims) if len(indices.dims) > 1 else 1  # coordinates, or places
    numbers = read_small_values(indices, MAX_SMALL_ELEMENTS * rank) if indices.data_type == _INT64 else None
    if numbers is None or rank == 0 or tuple(indices.dims) not in ((len(numbers),), (len(numbers) // rank, rank)):
        return None
    sizes = dims if len(indices.dims) > 1 else (count_elements(dims),)
    places: list[int] = []
    for start in range(0, len(numbers), rank):
        place = 0
        for number, size in zip(map(int, numbers[start : start + rank]), sizes, strict=True):
            if not 0 <= number < size:
                return None
            place = place * size + number
        places.append(place)
    return places if all(map(operator.lt, places, places[1:])) else None
