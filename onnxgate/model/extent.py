"""Whether a tensor holds as much data as its shape and type announce.

ONNX Runtime refuses a tensor that holds more or less; `onnx.checker` minds less alone, and does not see what was left
in the file. Source: onnxruntime 1.18.1 and 1.31.1, both levels, each field of TensorProto.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.model.external import is_external
from onnxgate.model.opening import open_regular
from onnxgate.model.slim import DATA_FIELDS, RAW_DATA, Piece, pieces
from onnxgate.model.types import ELEMENT_TYPES, MOST_ELEMENTS, STRING, data_bytes, element_count
from onnxgate.model.wire import Source, UnreadableModel

if TYPE_CHECKING:
    from onnx import TensorProto

_FLOAT, _INT32, _INT64, _DOUBLE, _UINT64 = 4, 5, 7, 10, 11
_FIELD_OF = {1: _FLOAT, 14: _FLOAT, 11: _DOUBLE, 15: _DOUBLE, 7: _INT64, 12: _UINT64, 13: _UINT64}
"""Element type -> field of TensorProto; all others are in `int32_data`. Source: onnx.proto."""
_FIXED_BYTES = {_FLOAT: 4, _DOUBLE: 8}
_PAIRS = (14, 15)
_CHUNK_BYTES = 1024 * 1024
_CONTINUED = bytes(range(0x80, 0x100))


def wrong_extent(tensor: TensorProto, path: Path) -> str:
    """What is wrong with the amount of data of a tensor of the model at `path`; "" where nothing is.

    Nothing is said of external data, of a tensor without data, and of types that are not known.

    Raises:
        OSError, UnreadableModel: the file that data were left in cannot be read, or has changed.
    """
    count = element_count(tensor)
    if count > MOST_ELEMENTS:
        return f"announces more than {MOST_ELEMENTS:,} elements"
    known = ELEMENT_TYPES.get(tensor.data_type)
    if is_external(tensor) or known is None or any(dim < 0 for dim in tensor.dims):
        return ""
    omitted = pieces(tensor)
    if omitted and len(_fields(tensor, omitted)) > 1:
        return "holds data in more than one field"
    raw = sum(piece.length for piece in omitted if piece.field == RAW_DATA) or len(tensor.raw_data)
    if not raw:
        return _wrong_values(tensor, omitted, count, path)
    if tensor.data_type == STRING:
        return "holds `raw_data`, which is not for its type"
    needed = data_bytes(tensor)
    return "" if needed in (None, raw) else f"holds {raw:,} bytes; its shape and type need {needed:,}"


def _fields(tensor: TensorProto, omitted: Sequence[Piece]) -> set[str]:
    small = {name for name in (*DATA_FIELDS.values(), "string_data") if getattr(tensor, name)}
    return small | {DATA_FIELDS[piece.field] for piece in omitted}


def _wrong_values(tensor: TensorProto, omitted: Sequence[Piece], count: int, path: Path) -> str:
    field = _FIELD_OF.get(tensor.data_type, _INT32)
    for piece in omitted:
        if piece.field != field or tensor.data_type == STRING:
            return f"holds `{DATA_FIELDS[piece.field]}`, which is not for its type"
    name = "string_data" if tensor.data_type == STRING else DATA_FIELDS[field]
    held = len(getattr(tensor, name)) + _left_in_file(omitted, field, path)
    needed = _needed(tensor, count)
    return f"holds {held:,} values; its shape and type need {needed:,}" if held and needed not in (None, held) else ""


def _needed(tensor: TensorProto, count: int) -> int | None:
    """How many entries the field has: numbers of less than a byte share one, complex ones take two."""
    if tensor.data_type in _PAIRS:
        return 2 * count
    bits = ELEMENT_TYPES[tensor.data_type].bits
    if bits in (2, 4):
        return data_bytes(tensor)
    return None if bits == 6 else count


def _left_in_file(omitted: Sequence[Piece], field: int, path: Path) -> int:
    if not omitted:
        return 0
    if width := _FIXED_BYTES.get(field):
        if any(piece.length % width for piece in omitted):
            raise UnreadableModel("a damaged model (a number of a tensor is cut)")
        return sum(piece.length // width for piece in omitted)
    with open_regular(path) as file:
        source = Source(file)
        return sum(_varints(source, piece) for piece in omitted)


def _varints(source: Source, piece: Piece) -> int:
    """How many numbers end there: the last byte of each is below 128."""
    end = piece.offset + piece.length
    if source.read(end - 1, end)[0] >= _CONTINUED[0]:
        raise UnreadableModel("a damaged model (a number of a tensor is cut)")
    starts = range(piece.offset, end, _CHUNK_BYTES)
    return sum(len(source.read(at, min(at + _CHUNK_BYTES, end)).translate(None, _CONTINUED)) for at in starts)
