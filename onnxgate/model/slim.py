"""A model's bytes without its large weights: the same messages, where each weight's data is replaced by where it lies.

What is left is an ordinary serialized `ModelProto` that protobuf itself parses. A tensor whose data was left out has an
entry of ours in `external_data`, while its `data_location` stays as it was; `pieces` reads it back.
"""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxgate.model.wire import LENGTH, Field, Source, UnreadableModel, fields, length_field

if TYPE_CHECKING:
    from onnx import TensorProto

OMITTED = f"onnxgate.omitted.{os.urandom(8).hex()}"
"""Differs from run to run, so that no file can hold it."""
SMALL_BYTES = 4096
"""Messages and tensor data up to this size are kept as they are. Whatever shape inference reads is smaller."""
_DEPTH = 100
"""Nesting that protobuf accepts. Source: protobuf's default recursion limit."""
_PATIENCE = 256
"""An attribute with more plain values than this holds numbers or strings, and no tensor or graph."""


class Kind(enum.Enum):
    """The messages that large weights may lie in."""

    MODEL = enum.auto()
    TRAINING = enum.auto()
    FUNCTION = enum.auto()
    GRAPH = enum.auto()
    NODE = enum.auto()
    ATTRIBUTE = enum.auto()
    SPARSE = enum.auto()
    TENSOR = enum.auto()


_INSIDE: dict[Kind, dict[int, Kind]] = {
    Kind.MODEL: {7: Kind.GRAPH, 20: Kind.TRAINING, 25: Kind.FUNCTION},
    Kind.TRAINING: {1: Kind.GRAPH, 2: Kind.GRAPH},
    Kind.FUNCTION: {7: Kind.NODE},
    Kind.GRAPH: {1: Kind.NODE, 5: Kind.TENSOR, 15: Kind.SPARSE},
    Kind.NODE: {5: Kind.ATTRIBUTE},
    Kind.ATTRIBUTE: {
        5: Kind.TENSOR,
        6: Kind.GRAPH,
        10: Kind.TENSOR,
        11: Kind.GRAPH,
        22: Kind.SPARSE,
        23: Kind.SPARSE,
    },
    Kind.SPARSE: {1: Kind.TENSOR, 2: Kind.TENSOR},
    Kind.TENSOR: {},
}
"""Field number -> message, as `onnx.proto` has them."""
RAW_DATA = 9
DATA_FIELDS = {
    4: "float_data",
    5: "int32_data",
    7: "int64_data",
    RAW_DATA: "raw_data",
    10: "double_data",
    11: "uint64_data",
}
"""Fields of TensorProto that hold a tensor's data in one run of bytes."""
_EXTERNAL_DATA = 13


@dataclass(frozen=True, slots=True)
class Piece:
    """Data of a tensor that was left out: the field that it came from, and where in the file it lies."""

    field: int
    offset: int
    length: int


def pieces(tensor: TensorProto) -> tuple[Piece, ...]:
    """Where the data that was left out lies; empty where the tensor is whole."""
    for entry in tensor.external_data:
        if entry.key == OMITTED:
            return tuple(Piece(*map(int, piece.split(":"))) for piece in entry.value.split(","))
    return ()


def slim(source: Source, small_bytes: int = SMALL_BYTES) -> bytes:
    """The file's bytes without the data of tensors that hold more than `small_bytes`.

    Raises:
        UnreadableModel: the file is no sequence of whole messages.
    """
    return b"".join(_Slimming(source, small_bytes).message(Kind.MODEL, 0, source.size_bytes, 0))


class _Slimming:
    def __init__(self, source: Source, small_bytes: int) -> None:
        self._source = source
        self._small_bytes = small_bytes

    def message(self, kind: Kind, start: int, end: int, depth: int) -> list[bytes]:
        """The parts of one message. Spans without anything large are copied whole, unread."""
        if depth > _DEPTH:
            raise UnreadableModel(f"a model nested more than {_DEPTH} messages deep")
        parts: list[bytes] = []
        copied = start
        plain = 0
        for field in fields(self._source, start, end):
            inside = self._inside(kind, field)
            if inside is not None:
                parts.append(self._source.read(copied, field.tag))
                parts += self._replaced(field, inside, depth)
                copied = field.end
            elif kind is Kind.ATTRIBUTE and (plain := plain + 1) > _PATIENCE:
                break
        parts.append(self._source.read(copied, end))
        return parts

    def _inside(self, kind: Kind, field: Field) -> Kind | None:
        if field.wire != LENGTH or (field.end - field.start <= self._small_bytes and kind is not Kind.MODEL):
            return None
        return _INSIDE[kind].get(field.number)

    def _replaced(self, field: Field, kind: Kind, depth: int) -> list[bytes]:
        if kind is Kind.TENSOR:
            parts = self._tensor(field.start, field.end)
        else:
            parts = self.message(kind, field.start, field.end, depth + 1)
        return [length_field(field.number, sum(map(len, parts))), *parts]

    def _tensor(self, start: int, end: int) -> list[bytes]:
        parts: list[bytes] = []
        omitted: list[Piece] = []
        copied = start
        for index, field in enumerate(fields(self._source, start, end)):
            large = field.wire == LENGTH and field.end - field.start > self._small_bytes
            if large and field.number in DATA_FIELDS:
                parts.append(self._source.read(copied, field.tag))
                omitted.append(Piece(field.number, field.start, field.end - field.start))
                copied = field.end
            elif not omitted and index > _PATIENCE:  # strings, or numbers that are not packed
                break
        parts.append(self._source.read(copied, end))
        return parts + _mark(omitted)


def _mark(omitted: list[Piece]) -> list[bytes]:
    if not omitted:
        return []
    raw = [piece for piece in omitted if piece.field == RAW_DATA][-1:]  # not repeated: the last one counts
    omitted = [piece for piece in omitted if piece.field != RAW_DATA] + raw
    value = ",".join(f"{piece.field}:{piece.offset}:{piece.length}" for piece in omitted).encode()
    entry = length_field(1, len(OMITTED)) + OMITTED.encode() + length_field(2, len(value)) + value
    return [length_field(_EXTERNAL_DATA, len(entry)) + entry]
