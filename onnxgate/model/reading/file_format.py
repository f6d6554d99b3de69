"""Protobuf wire format, Git LFS pointers, and detection of other file types."""

from __future__ import annotations

import json
import os
import re
import stat
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import msgspec

from onnxgate.core.files import open_regular

VARINT, FIXED64, LENGTH, GROUP, GROUP_END, FIXED32 = range(6)
"""Protobuf wire types. ONNX does not use groups; protobuf skips unknown groups. Source: protobuf.dev, "Encoding"."""
_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}
_WINDOW_BYTES = 64 * 1024
_VARINT_BYTES = 10
_MAX_FIELD_NUMBER = (1 << 29) - 1
_MAX_GROUP_DEPTH = 100
"""Maximum depth to which protobuf allows groups to be nested."""
_MAX_GROUP_FIELDS = 10_000


class UnreadableModel(ValueError):  # noqa: N818 - describes the file, not an error of onnxgate
    """The file is not a readable model; the message is a noun phrase that describes the file."""


class TruncatedModel(UnreadableModel):
    """The file ends inside a field."""


class FileWindow:
    """Random access to a file through a small buffer, without memory mapping."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._window = b""
        self._window_start = 0
        self.size_bytes = os.fstat(file.fileno()).st_size

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes of the file from position `start` to position `end`."""
        offset = start - self._window_start
        if offset >= 0 and end - self._window_start <= len(self._window):
            return self._window[offset : end - self._window_start]
        if end - start >= _WINDOW_BYTES:
            return self._exactly(start, end - start)
        self._window = self._at_most(start, _WINDOW_BYTES)
        self._window_start = start
        if len(self._window) < end - start:
            raise TruncatedModel(_truncation_message(self.size_bytes))
        return self._window[: end - start]

    def varint(self, position: int) -> tuple[int, int]:
        """Return the number encoded as a varint at `position`, and the position after it."""
        piece = self.read(position, min(position + _VARINT_BYTES, self.size_bytes))
        value = 0
        for index, byte in enumerate(piece):
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, position + index + 1
        if len(piece) < _VARINT_BYTES:
            raise TruncatedModel(_truncation_message(self.size_bytes))
        raise UnreadableModel(f"a corrupted model (invalid varint at byte {position:,})")

    def _exactly(self, start: int, count: int) -> bytes:
        pieces = []
        while count > 0:
            piece = self._at_most(start, count)
            if not piece:
                raise TruncatedModel(_truncation_message(self.size_bytes))
            pieces.append(piece)
            start, count = start + len(piece), count - len(piece)
        return b"".join(pieces)

    def _at_most(self, start: int, count: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._file.fileno(), count, start)
        self._file.seek(start)
        return self._file.read(count)


class Field(msgspec.Struct):
    """One field of a protobuf message.

    `value` is the value of a varint; for other fields, `start` and `end` are the positions of their bytes in the file.
    """

    number: int
    wire: int
    tag: int  # position of the field in the file
    start: int
    end: int
    value: int = 0


def iter_fields(source: FileWindow, start: int, end: int) -> Iterator[Field]:
    """Yield each field of the message between `start` and `end`, in file order.

    Raises:
        TruncatedModel: a field extends beyond the end of the file.
        UnreadableModel: the bytes are not a message.
    """
    position = start
    while position < end:
        key, after = source.varint(position)
        field = _read_field(source, key >> 3, key & 7, position, after, end)
        if field.end > end:
            raise _overrun_error(source, field, end)
        yield field
        position = field.end


def _read_field(source: FileWindow, number: int, wire: int, tag: int, after: int, end: int) -> Field:
    if not 0 < number <= _MAX_FIELD_NUMBER:
        raise UnreadableModel(f"a corrupted model (invalid field at byte {tag:,})")
    if wire == VARINT:
        value, position = source.varint(after)
        return Field(number, wire, tag, after, position, value)
    if wire == LENGTH:
        length, position = source.varint(after)
        return Field(number, wire, tag, position, position + length)
    if wire in _FIXED_BYTES:
        return Field(number, wire, tag, after, after + _FIXED_BYTES[wire])
    if wire == GROUP:
        return Field(number, wire, tag, after, _skip_group(source, number, after, end))
    raise UnreadableModel(f"a corrupted model (invalid field at byte {tag:,})")


def _skip_group(source: FileWindow, number: int, position: int, end: int) -> int:
    """Return the position after the group whose fields begin at `position`. The group must end before `end`."""
    within = [number]
    for _ in range(_MAX_GROUP_FIELDS):
        tag = position
        key, position = source.varint(tag)
        number, wire = key >> 3, key & 7
        if wire == GROUP and len(within) < _MAX_GROUP_DEPTH:
            within.append(number)
        elif wire == GROUP_END and number == within.pop():
            if not within:
                return position
        elif wire in (GROUP, GROUP_END):
            raise UnreadableModel(f"a corrupted model (invalid field at byte {tag:,})")
        else:
            field = _read_field(source, number, wire, tag, position, end)
            position = field.end
            if position > end:
                raise _overrun_error(source, field, end)
    raise UnreadableModel(f"an unsupported model (a protobuf group contains more than {_MAX_GROUP_FIELDS:,} fields)")


def _overrun_error(source: FileWindow, field: Field, end: int) -> UnreadableModel:
    if end == source.size_bytes:
        return TruncatedModel(_truncation_message(source.size_bytes, field.end))
    return UnreadableModel(f"a corrupted model (the field at byte {field.tag:,} extends beyond its message)")


def _truncation_message(size_bytes: int, needed_bytes: int = 0) -> str:
    if not needed_bytes:
        return f"a truncated model (it ends at byte {size_bytes:,}, inside a field)"
    return f"a truncated model (it has {size_bytes:,} bytes, but at least {needed_bytes:,} are required)"


def encode_varint(value: int) -> bytes:
    """Encode a number as a varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_length_prefix(number: int, size_bytes: int) -> bytes:
    """Encode the tag and length of a length-delimited field."""
    return encode_varint(number << 3 | LENGTH) + encode_varint(size_bytes)


MAX_POINTER_BYTES = 1024
"""Maximum size of a Git LFS pointer in bytes. Source: Git LFS specification."""
_POINTER_FIRST_LINE = b"version https://git-lfs.github.com/spec/v1\n"
_POINTER_OID = re.compile(rb"^oid sha256:([0-9a-f]{64})\r?$", re.MULTILINE)
_POINTER_SIZE = re.compile(rb"^size ([0-9]+)\r?$", re.MULTILINE)


class LfsPointer(msgspec.Struct, frozen=True):
    """A Git LFS pointer: a small text file that git stores in place of a large file."""

    sha256: str
    size_bytes: int


def read_pointer(path: Path) -> LfsPointer | None:
    """Parse a file as a Git LFS pointer; None if it is not a pointer."""
    if not path.is_file() or path.stat().st_size >= MAX_POINTER_BYTES:
        return None
    with open_regular(path) as file:
        return parse_pointer(file.read(MAX_POINTER_BYTES))


def parse_pointer(content: bytes) -> LfsPointer | None:
    """Parse a Git LFS pointer, possibly with CRLF line endings from Windows; None if it is not a pointer."""
    if not content.replace(b"\r\n", b"\n").startswith(_POINTER_FIRST_LINE):
        return None
    oid, size = _POINTER_OID.search(content), _POINTER_SIZE.search(content)
    if oid is None or size is None:
        return None
    return LfsPointer(oid[1].decode(), int(size[1]))


_HEAD_BYTES = 4096
_MAGIC = (
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"PK\x05\x06", "an empty zip archive"),
    (0, b"\x1f\x8b", "gzip-compressed data"),
    (0, b"BZh", "bzip2-compressed data"),
    (0, b"\xfd7zXZ\x00", "xz-compressed data"),
    (0, b"\x28\xb5\x2f\xfd", "zstd-compressed data"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file (Keras writes these)"),
    (4, b"TFL3", "a TensorFlow Lite model"),
    (4, b"ORTM", "a model in the ORT format of ONNX Runtime (.ort)"),
    (0, b"GGUF", "a GGUF model"),
    (0, b"\x93NUMPY", "a NumPy array (.npy)"),
    (0, b"\x7fELF", "an executable or a shared library"),
    (0, b"MZ", "a Windows executable"),
    (0, b"\x89PNG", "a PNG image"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
    (0, b"%PDF", "a PDF document"),
)
_MODEL_FIELDS = {
    **dict.fromkeys((1, 5), VARINT),
    **dict.fromkeys((2, 3, 4, 6, 7, 8, 14, 20, 25, 26), LENGTH),
}
"""Wire type of each field of ModelProto, keyed by field number. Source: onnx.proto at IR version 14."""
_GRAPH_FIELD = 7
_IR_VERSION_FIELD = 1
_MAX_IR_VERSION = 1000
_MAX_TOP_LEVEL_FIELDS = 10_000
"""Maximum number of inspected top-level fields. A model has a few fields, and one more for each local function."""
_CONTROL_CHARACTER = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


def detect_other_type(path: Path) -> str:
    """Describe a file that is not a model, such as "an HTML page", from its start and end; "" if it may be a model."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return "not there"
    if not stat.S_ISREG(status.st_mode):
        return "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
    with open_regular(path) as file:
        source = FileWindow(file)
        head = source.read(0, min(_HEAD_BYTES, source.size_bytes))
        if description := _detect_from_head(head, source.size_bytes):
            return description
        for offset, magic, description in _MAGIC:
            if head[offset : offset + len(magic)] == magic:
                return _describe_zip(path) if magic == b"PK\x03\x04" else description
        return _detect_from_fields(source)


def _detect_from_head(head: bytes, size_bytes: int) -> str:
    if not head:
        return "an empty file"
    if size_bytes < MAX_POINTER_BYTES and parse_pointer(head):
        return "a Git LFS pointer"
    if not head.strip(b"\0"):
        return "a file that contains only null bytes"
    if head[8:10] == b'{"' and 0 < int.from_bytes(head[:8], "little") < size_bytes:
        return "a safetensors file"
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "a Python pickle (PyTorch and scikit-learn write these)"
    return _describe_text(head) if _is_text(head) else ""


def _describe_zip(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return "a corrupted zip archive"
    if any(name.endswith("/data.pkl") or name == "data.pkl" for name in names):
        return "a PyTorch checkpoint (a zip archive)"
    inside = [name for name in names if name.endswith(".onnx")]
    return f"a zip archive that contains `{inside[0]}`" if inside else "a zip archive"


def _is_text(head: bytes) -> bool:
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return True
    try:
        head.decode()
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:  # not a character that is cut at the end of `head`
            return False
    return not _CONTROL_CHARACTER.search(head)


_TEXTS = (
    ((b"<!doctype html", b"<html", b"<head", b"<body"), "an HTML page"),
    ((b"<?xml",), "an XML document"),
    ((b"<<<<<<< ",), "an unresolved merge conflict"),
    ((b"version https://git-lfs",), "a corrupted Git LFS pointer"),
    ((b"outs:",), "a DVC file"),
)


def _describe_text(head: bytes) -> str:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"{", b"[")) and _is_json(head):
        return "a JSON document"
    if start.startswith((b"<?xml", b"<net ")) and b"<net " in start:
        return "an OpenVINO model (.xml)"
    return next((description for prefixes, description in _TEXTS if start.startswith(prefixes)), "plain text")


def _is_json(head: bytes) -> bool:
    try:
        json.loads(head)
    except json.JSONDecodeError as error:
        return error.pos >= len(head) - 64 or len(head) == _HEAD_BYTES
    except (ValueError, RecursionError):
        return False
    return True


def _detect_from_fields(source: FileWindow) -> str:
    """Describe a file that contains no fields of a model, or ends inside a field."""
    fields: list[Field] = []
    unknown = "binary data of an unknown type"
    try:
        fields.extend(islice(iter_fields(source, 0, source.size_bytes), _MAX_TOP_LEVEL_FIELDS))
    except TruncatedModel as reason:
        if fields:  # exporters write the IR version or the graph first
            first = fields[0]
            is_model = first.number == _IR_VERSION_FIELD and first.wire == VARINT and first.value <= _MAX_IR_VERSION
        else:
            is_model = source.read(0, 1) == bytes([_GRAPH_FIELD << 3 | LENGTH])
        return str(reason) if is_model else unknown
    except UnreadableModel:
        return "a corrupted model" if any(field.number == _GRAPH_FIELD for field in fields) else unknown
    return "" if any(_MODEL_FIELDS.get(field.number) == field.wire for field in fields) else unknown
