"""What a file that is called a model really is, told from its first bytes."""

from __future__ import annotations

import json
import re
import stat
from itertools import islice
from pathlib import Path

from onnxgate.model.opening import open_regular
from onnxgate.model.pointer import LARGEST_BYTES, parse_pointer
from onnxgate.model.wire import LENGTH, VARINT, Field, Source, Truncated, UnreadableModel, fields

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
    (4, b"ORTM", "a model in ONNX Runtime's own format (.ort)"),
    (0, b"GGUF", "a GGUF model"),
    (0, b"\x93NUMPY", "a NumPy array (.npy)"),
    (0, b"\x7fELF", "an executable or a shared library"),
    (0, b"MZ", "a Windows executable"),
    (0, b"\x89PNG", "a PNG image"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
    (0, b"%PDF", "a PDF document"),
)
_TOP_LEVEL = {
    **dict.fromkeys((1, 5), VARINT),
    **dict.fromkeys((2, 3, 4, 6, 7, 8, 14, 20, 25, 26), LENGTH),
}
"""The fields of ModelProto and their wire types. Source: onnx.proto at IR version 14."""
_GRAPH = 7
_IR_VERSION = 1
_LARGEST_IR_VERSION = 1000
_MANY = 10_000
"""So many top-level fields are looked at; real models have a few, and one for each local function."""
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


def really(path: Path) -> str:
    """What the file is instead of a model ("an HTML page"), "" where it may be one. Only its edges are read."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return "not there"
    if not stat.S_ISREG(status.st_mode):
        return "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
    with open_regular(path) as file:
        source = Source(file)
        head = source.read(0, min(_HEAD_BYTES, source.size_bytes))
        return _of_head(head, source.size_bytes) or _of_archive(path, head) or _of_messages(source)


def _of_head(head: bytes, size_bytes: int) -> str:
    if not head:
        return "an empty file"
    if size_bytes < LARGEST_BYTES and parse_pointer(head):
        return "a Git LFS pointer"
    if not head.strip(b"\0"):
        return "a file of zero bytes"
    if head[8:10] == b'{"' and 0 < int.from_bytes(head[:8], "little") < size_bytes:
        return "a safetensors file"
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "a Python pickle (PyTorch and scikit-learn write these)"
    return _text(head) if _is_text(head) else ""


def _of_archive(path: Path, head: bytes) -> str:
    for offset, magic, words in _MAGIC:
        if head[offset : offset + len(magic)] == magic:
            return _of_zip(path) if magic == b"PK\x03\x04" else words
    return ""


def _of_zip(path: Path) -> str:
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return "a damaged zip archive"
    if any(name.endswith("/data.pkl") or name == "data.pkl" for name in names):
        return "a PyTorch checkpoint (a zip archive)"
    inside = [name for name in names if name.endswith(".onnx")]
    return f"a zip archive that holds `{inside[0]}`" if inside else "a zip archive"


def _is_text(head: bytes) -> bool:
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return True
    try:
        head.decode()
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:  # not merely a character cut in two by the end of `head`
            return False
    return not _CONTROL.search(head)


def _text(head: bytes) -> str:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype html", b"<html", b"<head", b"<body")):
        return "an HTML page"
    if start.startswith((b"<?xml", b"<net ")):
        return "an OpenVINO model (.xml)" if b"<net " in start else "an XML document"
    if start.startswith(b"<<<<<<< "):
        return "an unresolved merge conflict"
    if start.startswith(b"version https://git-lfs"):
        return "a damaged Git LFS pointer"
    if start.startswith(b"outs:"):
        return "a DVC file"
    if start.startswith((b"{", b"[")):
        return "a JSON document" if _is_json(head) else "plain text"
    return "plain text"


def _is_json(head: bytes) -> bool:
    try:
        json.loads(head)
    except json.JSONDecodeError as error:
        return error.pos >= len(head) - 64 or len(head) == _HEAD_BYTES
    except (ValueError, RecursionError):
        return False
    return True


def _of_messages(source: Source) -> str:
    """Where no top-level field is one of a model's, this is no model; where the last one is cut, a truncated one."""
    seen: list[Field] = []
    try:
        seen.extend(islice(fields(source, 0, source.size_bytes), _MANY))
    except Truncated as reason:
        return str(reason) if _like_a_model(source, seen) else "binary data of no known kind"
    except UnreadableModel:
        return "a damaged model" if any(field.number == _GRAPH for field in seen) else "binary data of no known kind"
    return "" if any(map(_is_ours, seen)) else "binary data of no known kind"


def _is_ours(field: Field) -> bool:
    return _TOP_LEVEL.get(field.number) == field.wire


def _like_a_model(source: Source, seen: list[Field]) -> bool:
    """The file begins as every exporter begins one: with the IR version, or else with the graph itself."""
    if seen:
        first = seen[0]
        return first.number == _IR_VERSION and first.wire == VARINT and first.value <= _LARGEST_IR_VERSION
    return source.read(0, 1) == bytes([_GRAPH << 3 | LENGTH])
