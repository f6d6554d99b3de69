"""Git LFS pointers: what stands where the content should be."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from onnxgate.model.opening import open_regular

LARGEST_BYTES = 1024
"""A pointer is smaller than this. Source: the Git LFS specification."""
_FIRST_LINE = b"version https://git-lfs.github.com/spec/v1\n"
_OID = re.compile(rb"^oid sha256:([0-9a-f]{64})\r?$", re.MULTILINE)
_SIZE = re.compile(rb"^size ([0-9]+)\r?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class LfsPointer:
    """A Git LFS pointer that stands where the content should be."""

    sha256: str
    size_bytes: int


def read_pointer(path: Path) -> LfsPointer | None:
    """The pointer that the file is, or None where it is anything else."""
    if not path.is_file() or path.stat().st_size >= LARGEST_BYTES:
        return None
    with open_regular(path) as file:
        return parse_pointer(file.read(LARGEST_BYTES))


def parse_pointer(content: bytes) -> LfsPointer | None:
    """The pointer that these bytes are; line ends may have been changed by a checkout on Windows."""
    if not content.replace(b"\r\n", b"\n").startswith(_FIRST_LINE):
        return None
    oid, size = _OID.search(content), _SIZE.search(content)
    if oid is None or size is None:
        return None
    return LfsPointer(oid[1].decode(), int(size[1]))
