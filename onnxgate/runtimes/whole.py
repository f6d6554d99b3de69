"""Whether a file is an array that can be read to its end, before anybody reads it: a worker is not believed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import IO


def is_whole_file(path: Path) -> bool:
    """Whether a file is one whole array of numbers or texts."""
    try:
        with path.open("rb") as file:
            return is_whole(file, path.stat().st_size)
    except OSError:
        return False


def is_whole(file: IO[bytes], size_bytes: int) -> bool:
    """Whether what is read is as long as its own header says, and holds no objects of Python."""
    from numpy.lib import format as npy

    try:
        read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[npy.read_magic(file)]
        shape, _, dtype = read_header(file)
    except Exception:  # noqa: BLE001 - numpy reads the header as Python, which fails in as many ways
        return False
    return not dtype.hasobject and math.prod(shape) * dtype.itemsize == size_bytes - file.tell()
