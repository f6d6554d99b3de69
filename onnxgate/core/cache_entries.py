"""Entries of caches: a checksum over key and content, and strict decoding, so that a damaged entry is never used."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import msgspec

from onnxgate.core.files import remove_path, replace_atomically

Value = TypeVar("Value")

_CHECKSUM_DIGITS = hashlib.sha256().digest_size * 2
_damaged_entries: list[str] = []


def add_checksum(key: str, content: bytes) -> bytes:
    """Return the content of a cache entry after a line with the SHA-256 of its key and content.

    The checksum detects damage. It does not protect against someone who can write to the cache.
    """
    return _checksum(key, content) + b"\n" + content


def verify_checksum(key: str, entry: bytes) -> bytes | None:
    """Return the content of a cache entry; None if it is damaged or has another key."""
    content = entry[_CHECKSUM_DIGITS + 1 :]
    return content if entry[: _CHECKSUM_DIGITS + 1] == _checksum(key, content) + b"\n" else None


def _checksum(key: str, content: bytes) -> bytes:
    return hashlib.sha256(b"%b\0%b" % (os.fsencode(key), content)).hexdigest().encode()


def encode_entry(key: str, value: Value, kind: type[Value], codec: ModuleType = msgspec.msgpack) -> bytes | None:
    """Return a cache entry; None if `decode_entry` would not return the same value."""
    try:
        entry = add_checksum(key, codec.encode(value))
    except (msgspec.MsgspecError, UnicodeError, OverflowError, TypeError):
        return None
    return entry if decode_entry(key, entry, kind, codec) is not None else None


def decode_entry(key: str, entry: bytes, kind: type[Value], codec: ModuleType = msgspec.msgpack) -> Value | None:
    """Return the value of a cache entry; None if it is damaged, has another key, or was not encoded from its value.

    Encoding the value again detects unknown, missing and duplicate fields, for which a decoder uses defaults.
    """
    content = verify_checksum(key, entry)
    if content is None:
        return None
    try:
        value: Value = codec.decode(content, type=kind)
        return value if codec.encode(value) == content else None
    except (msgspec.MsgspecError, UnicodeError, ValueError, OverflowError, RecursionError):
        return None


def write_entry_file(path: Path, content: bytes) -> None:
    """Write a cache file atomically, also in place of something that is not a file.

    Raises:
        OSError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        remove_path(path)
    with replace_atomically(path) as scratch:
        scratch.write_bytes(content)


def record_damage(entry: str) -> None:
    """Record that a cache entry is damaged and its content is computed again."""
    _damaged_entries.append(entry)


def take_damaged_entries() -> list[str]:
    """Return the damaged cache entries that this process has found since the last call."""
    taken = list(dict.fromkeys(_damaged_entries))
    _damaged_entries.clear()
    return taken
