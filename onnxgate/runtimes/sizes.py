"""What folders take on disk, where files may have several names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


class Sizes:
    """Counts each file once, and knows which of them have names elsewhere."""

    def __init__(self) -> None:
        self._files: dict[tuple[int, int], list[int]] = {}  # bytes, names that it has, names that were seen

    def add(self, path: Path) -> None:
        """Count a file, or a folder with all below it; links are not followed."""
        for found in _files(path):
            entry = self._files.setdefault((found.st_dev, found.st_ino), [_bytes(found), found.st_nlink, 0])
            entry[2] += 1

    @property
    def size_bytes(self) -> int:
        """What they take together."""
        return sum(size for size, _, _ in self._files.values())

    @property
    def freed_bytes(self) -> int:
        """What is free once they are removed: a file that has another name stays."""
        return sum(size for size, names, seen in self._files.values() if seen >= names)


def _bytes(found: os.stat_result) -> int:
    blocks = getattr(found, "st_blocks", None)
    return found.st_size if blocks is None else int(blocks) * 512


def _files(path: Path) -> Iterator[os.stat_result]:
    try:
        if path.is_dir() and not path.is_symlink():
            for entry in path.iterdir():
                yield from _files(entry)
        else:
            yield path.lstat()
    except OSError:  # it went away meanwhile, or may not be seen
        return
