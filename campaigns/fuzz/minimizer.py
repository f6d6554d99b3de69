"""The least input that still shows a find."""

from __future__ import annotations

from collections.abc import Callable

PATIENCE = 4000
"""So many inputs are tried at most."""


def minimised(data: bytes, shows: Callable[[bytes], bool]) -> bytes:
    """The data without pieces that it shows the find without: halves first, then ever smaller ones."""
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
