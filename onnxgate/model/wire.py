"""Protobuf's wire format, read straight from a file: where each field lies, without reading what it holds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

VARINT, FIXED64, LENGTH, GROUP, GROUP_END, FIXED32 = range(6)
"""Wire types. No ONNX file needs groups; protobuf skips one that it does not know. Source: protobuf.dev, "Encoding"."""
_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}
_WINDOW_BYTES = 64 * 1024
_VARINT_BYTES = 10
_LARGEST_FIELD_NUMBER = (1 << 29) - 1
_GROUPS = 100
"""Groups inside each other that protobuf accepts."""
_GROUP_FIELDS = 10_000


class UnreadableModel(ValueError):  # noqa: N818 - a state of the file, and no fault of ours
    """The file cannot be read as a model; the message is a noun phrase that says what it is instead."""


class Truncated(UnreadableModel):
    """The file ends before a field that it announces."""


class Source:
    """A file's bytes at any place. Only a small window is held in memory, and nothing is mapped."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._window = b""
        self._window_start = 0
        self.size_bytes = os.fstat(file.fileno()).st_size

    def read(self, start: int, end: int) -> bytes:
        """The bytes from `start` to `end`."""
        offset = start - self._window_start
        if offset >= 0 and end - self._window_start <= len(self._window):
            return self._window[offset : end - self._window_start]
        if end - start >= _WINDOW_BYTES:
            return self._exactly(start, end - start)
        self._window = self._at_most(start, _WINDOW_BYTES)
        self._window_start = start
        if len(self._window) < end - start:
            raise Truncated(_ends_early(self.size_bytes))
        return self._window[: end - start]

    def varint(self, position: int) -> tuple[int, int]:
        """The number at `position`, and the position after it."""
        piece = self.read(position, min(position + _VARINT_BYTES, self.size_bytes))
        value = 0
        for index, byte in enumerate(piece):
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, position + index + 1
        if len(piece) < _VARINT_BYTES:
            raise Truncated(_ends_early(self.size_bytes))
        raise UnreadableModel(f"a damaged model (no number at byte {position:,})")

    def _exactly(self, start: int, count: int) -> bytes:
        pieces = []
        while count > 0:
            piece = self._at_most(start, count)
            if not piece:
                raise Truncated(_ends_early(self.size_bytes))
            pieces.append(piece)
            start, count = start + len(piece), count - len(piece)
        return b"".join(pieces)

    def _at_most(self, start: int, count: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._file.fileno(), count, start)
        self._file.seek(start)
        return self._file.read(count)


@dataclass(slots=True)
class Field:
    """One field of a message. A varint's value is in `value`; the bytes of the others lie from `start` to `end`."""

    number: int
    wire: int
    tag: int  # where the field begins
    start: int
    end: int
    value: int = 0


def fields(source: Source, start: int, end: int) -> Iterator[Field]:
    """Each field of the message between `start` and `end`, in the file's order.

    Raises:
        Truncated: a field reaches past the end of the file.
        UnreadableModel: these bytes are no message.
    """
    position = start
    while position < end:
        key, after = source.varint(position)
        field = _field(source, key >> 3, key & 7, position, after, end)
        if field.end > end:
            raise _overrun(source, field, end)
        yield field
        position = field.end


def _field(source: Source, number: int, wire: int, tag: int, after: int, end: int) -> Field:
    if not 0 < number <= _LARGEST_FIELD_NUMBER:
        raise UnreadableModel(f"a damaged model (no field at byte {tag:,})")
    if wire == VARINT:
        value, position = source.varint(after)
        return Field(number, wire, tag, after, position, value)
    if wire == LENGTH:
        length, position = source.varint(after)
        return Field(number, wire, tag, position, position + length)
    if wire in _FIXED_BYTES:
        return Field(number, wire, tag, after, after + _FIXED_BYTES[wire])
    if wire == GROUP:
        return Field(number, wire, tag, after, _behind_group(source, number, after, end))
    raise UnreadableModel(f"a damaged model (no field at byte {tag:,})")


def _behind_group(source: Source, number: int, position: int, end: int) -> int:
    """The position behind the group whose fields begin there; it must lie before `end`."""
    within = [number]
    for _ in range(_GROUP_FIELDS):
        tag = position
        key, position = source.varint(tag)
        number, wire = key >> 3, key & 7
        if wire == GROUP and len(within) < _GROUPS:
            within.append(number)
        elif wire == GROUP_END and number == within.pop():
            if not within:
                return position
        elif wire in (GROUP, GROUP_END):
            raise UnreadableModel(f"a damaged model (no field at byte {tag:,})")
        else:
            field = _field(source, number, wire, tag, position, end)
            position = field.end
            if position > end:
                raise _overrun(source, field, end)
    raise UnreadableModel(f"a model with a group of more than {_GROUP_FIELDS:,} fields, which no model needs")


def _overrun(source: Source, field: Field, end: int) -> UnreadableModel:
    if end == source.size_bytes:
        return Truncated(_ends_early(source.size_bytes, field.end))
    return UnreadableModel(f"a damaged model (the field at byte {field.tag:,} is longer than what holds it)")


def _ends_early(size_bytes: int, needed_bytes: int = 0) -> str:
    if not needed_bytes:
        return f"a truncated model (it ends at byte {size_bytes:,}, in the middle of a field)"
    return f"a truncated model (it ends at byte {size_bytes:,}; its own lengths ask for {needed_bytes:,})"


def varint_bytes(value: int) -> bytes:
    """A number as the wire has it."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def length_field(number: int, size_bytes: int) -> bytes:
    """What precedes the bytes of a length-delimited field."""
    return varint_bytes(number << 3 | LENGTH) + varint_bytes(size_bytes)
