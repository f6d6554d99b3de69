"""Checksums of cache entries."""

from __future__ import annotations

from onnxgate.core.cache_entries import add_checksum, verify_checksum


def test_checksum() -> None:
    """An entry with another key, another content or no checksum has no content."""
    entry = add_checksum("key", b"content")

    assert verify_checksum("key", entry) == b"content"
    assert verify_checksum("key", add_checksum("key", b"")) == b""
    for other in (b"", b"content", entry[:-1], entry + b"x", add_checksum("ke", b"y\0content")):
        assert verify_checksum("key", other) is None
