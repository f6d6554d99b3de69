"""Reduce an input that causes a failure."""

from __future__ import annotations

from collections.abc import Callable

PATIENCE = 4000
"""Maximum number of inputs to try."""


def minimised(data: bytes, shows: Callable[[bytes], bool]) -> bytes:
    """Return the data without pieces that the failure does not need: first remove halves, then smaller pieces."""
    size, tried = max(len(data) // 2, 1), 0
    while tried < PATIENCE:
        start, shrunk = 0, False
        while start < len(data) and tried < PATIENCE:
            candidate = data[:start] + data[start + size :]
            tried += 1
            if candidate and shows(candidate):
                data, shrunk = candidate, True
            else:
                start += size
        if size == 1 and not shrunk:
            break
        size = size if shrunk and size == 1 else max(size // 2, 1)
    return data
