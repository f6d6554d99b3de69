"""Arrays of any size, read chunk by chunk: outputs stay in their files, and little of them is in memory at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

CHUNK_ELEMENTS = 1 << 19
"""Elements of each array that are in memory at a time."""
MAPPED_BYTES = 1 << 20
"""Larger files are mapped."""


def load_array(path: str | Path) -> Array:
    """Return the array in a `.npy` file; a large one stays in the file until its elements are read."""
    is_large = Path(path).stat().st_size > MAPPED_BYTES
    return np.asarray(np.load(path, allow_pickle=False, mmap_mode="r" if is_large else None))


def save_chunks(path: Path, chunks: Iterable[bytes], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Write an array to a `.npy` file, given its elements in C order.

    Raises:
        ValueError: there are more or fewer bytes than the array has.
    """
    size_bytes = 0
    with path.open("wb") as file:
        header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for chunk in chunks:
            size_bytes += file.write(chunk)
    if size_bytes != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{size_bytes} bytes are not an array of shape {shape} and type {dtype}")


def iter_chunks(first: Array, second: Array) -> Iterator[tuple[int, Array, Array]]:
    """Yield the elements of two arrays of one shape, flat, with the position of the first element."""
    a, b = first.reshape(-1), second.reshape(-1)
    for start in range(0, a.size, CHUNK_ELEMENTS):
        chunk = slice(start, start + CHUNK_ELEMENTS)
        yield start, a[chunk], b[chunk]


def iter_parts(array: Array) -> Iterator[Array]:
    """Yield the elements of one array, flat."""
    return (part for _, part, _ in iter_chunks(array, array))
