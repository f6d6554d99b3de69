"""Access to arrays of any size in chunks. Large outputs stay in their files."""

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
"""Maximum number of elements that are read from each array at a time."""
MAPPED_BYTES = 1 << 20
"""Files of at least this size in bytes are memory-mapped."""


def load_array(path: str | Path) -> Array:
    """Load an array from a `.npy` file; large files are memory-mapped."""
    is_large = Path(path).stat().st_size > MAPPED_BYTES
    return np.asarray(np.load(path, allow_pickle=False, mmap_mode="r" if is_large else None))


def save_chunks(path: Path, chunks: Iterable[bytes], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Write the elements of an array in C order to a `.npy` file.

    Raises:
        ValueError: the number of bytes does not match the shape and type.
    """
    size_bytes = 0
    with path.open("wb") as file:
        header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for chunk in chunks:
            size_bytes += file.write(chunk)
    if size_bytes != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{size_bytes} bytes do not match shape {shape} and type {dtype}")


def iter_chunks(first: Array, second: Array) -> Iterator[tuple[int, Array, Array]]:
    """Yield flat chunks of two arrays with the same shape, and the position of their first element."""
    a, b = first.reshape(-1), second.reshape(-1)
    for start in range(0, a.size, CHUNK_ELEMENTS):
        chunk = slice(start, start + CHUNK_ELEMENTS)
        yield start, a[chunk], b[chunk]


def iter_parts(array: Array) -> Iterator[Array]:
    """Yield flat chunks of one array."""
    return (part for _, part, _ in iter_chunks(array, array))
