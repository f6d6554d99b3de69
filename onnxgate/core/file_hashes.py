"""SHA-256 of regular files, cached as long as a file is unchanged; pipes and devices are never read."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Mapping
from io import FileIO
from pathlib import Path

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path: Path) -> FileIO:
    """Open a regular file, unbuffered. The check uses the open file, since a path can change in between.

    Raises:
        OSError: the file cannot be opened, or is not a regular file.
    """
    file = FileIO(os.open(path, _FLAGS), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "no regular file", str(path))
    return file


_CHUNK_BYTES = 1024 * 1024
REMEMBERED_BYTES = 1024 * 1024
"""Size in bytes below which a file is hashed faster than its digest is looked up."""
SETTLED_NS = 2 * 10**9
"""Minimum age in nanoseconds: a file that changed later than this before it was read may change with the same times.

Source: the coarsest clock of a file system in use, FAT's, ticks every two seconds; git calls such files racy.
"""

Identity = tuple[int, int, int, int, int]
"""Device, inode, size, mtime and ctime: git compares the same to detect changes. Programs cannot set
ctime."""

_known: dict[Identity, str] = {}


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with open_regular(path) as file:
        status = os.fstat(file.fileno())
        if found := _known.get(file_identity(status)):
            return found
        began_ns = time.time_ns()
        digest = hashlib.sha256()
        buffer = memoryview(bytearray(_CHUNK_BYTES))
        left = status.st_size  # a file that grows meanwhile is read up to its first size
        while left > 0 and (count := file.readinto(buffer[: min(left, _CHUNK_BYTES)])):
            digest.update(buffer[:count])
            left -= count
        found = digest.hexdigest()
        if file_identity(os.fstat(file.fileno())) == file_identity(status) and is_settled(status, began_ns):
            _known[file_identity(status)] = found
    return found


def file_identity(status: os.stat_result) -> Identity:
    """Return the fields that identify the unchanged file."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def is_settled(status: os.stat_result, now_ns: int) -> bool:
    """Return whether a large file is old enough that its times would show a change."""
    newest_ns = max(status.st_mtime_ns, status.st_ctime_ns)
    return status.st_size >= REMEMBERED_BYTES and newest_ns + SETTLED_NS < now_ns


def remember_digests(known: Mapping[Identity, str]) -> None:
    """Add digests that were computed from exactly these files."""
    _known.update(known)


def known_digest(status: os.stat_result) -> str | None:
    """Return the cached digest of a file, None if it must be read."""
    return _known.get(file_identity(status))
