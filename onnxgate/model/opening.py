"""Opening what should be a regular file: never waiting for a pipe, and never reading a device."""

from __future__ import annotations

import errno
import os
import stat
from io import FileIO
from pathlib import Path

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path: Path) -> FileIO:
    """The file, unbuffered. What a path leads to may be another thing than when it was looked at before.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    file = FileIO(os.open(path, _FLAGS), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "no regular file", str(path))
    return file
