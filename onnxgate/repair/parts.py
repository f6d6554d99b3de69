"""A file that is not written yet: pieces of other files, and bytes between them. Weights are never in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_CHUNK_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of a file, from `start` to `end`."""

    file: Path
    start: int
    end: int


Part = bytes | Span


def size_of(parts: Iterable[Part]) -> int:
    """How many bytes they are together."""
    return sum(part.end - part.start if isinstance(part, Span) else len(part) for part in parts)


def write(parts: Sequence[Part], path: Path) -> None:
    """Write them one after the other.

    Raises:
        OSError: the file cannot be written, or one of the others is shorter than it was.
    """
    with path.open("wb") as target:
        for part in parts:
            if isinstance(part, Span):
                _copy(part, target)
            else:
                target.write(part)
        target.flush()
        os.fsync(target.fileno())


def _copy(span: Span, target: BinaryIO) -> None:
    left = span.end - span.start
    with span.file.open("rb") as source:
        source.seek(span.start)
        while left:
            chunk = source.read(min(left, _CHUNK_BYTES))
            if not chunk:
                raise OSError(f"`{span.file}` became shorter while it was read")
            target.write(chunk)
            left -= len(chunk)
