"""Git LFS pointers: what stands where the content should be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LfsPointer:
    """A Git LFS pointer that stands where the content should be."""

    sha256: str
    size_bytes: int
