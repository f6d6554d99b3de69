"""What the machine refuses us, in words: no bug of ours, and no fault of a model."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

ROOM = "make room there, or have `TMPDIR` and `ONNXGATE_CACHE_DIR` name folders elsewhere"
RIGHTS = "see that whoever runs onnxgate may read and write it"
FILES = "raise the limit of open files: `ulimit -n 1024`"
PROCESSES = "raise the limit of processes (`ulimit -u`), or have fewer at once: `--jobs 1`"
MEMORY = "have more memory, or fewer runtimes side by side: `--jobs 1`"
HINTS = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), ROOM),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), RIGHTS),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), FILES),
    errno.EAGAIN: PROCESSES,
    errno.ENOMEM: MEMORY,
    errno.EIO: "see what the system's log says of the disk",
    errno.ENXIO: "see what lies there: it cannot be read or written",
    errno.ENOTDIR: "see what lies there: a file where a folder is needed",
    errno.ESTALE: "run the command again",
}


def in_words(error: Exception) -> list[str]:
    """The message and its hint; nothing where it is no such thing."""
    return list(_in_words(error))


def _in_words(error: Exception) -> Iterator[str]:
    if isinstance(error, MemoryError):
        yield from ("error: there is not enough memory", f"hint: {MEMORY}")
    elif isinstance(error, RuntimeError) and "start new thread" in str(error):
        yield from ("error: no further thread can be started", f"hint: {PROCESSES}")
    elif isinstance(error, FileNotFoundError) and error.filename is None:
        yield from _without_a_folder(error)
    elif isinstance(error, OSError) and error.errno in HINTS:
        reason = os.strerror(error.errno).lower()
        yield from (f"error: {_what(error)}: {reason}", f"hint: {HINTS[error.errno]}")


def _what(error: OSError) -> str:
    if isinstance(error.filename, (str, bytes)):
        return f"`{os.fsdecode(error.filename)}`"
    return "a process cannot be started" if error.errno in (errno.EAGAIN, errno.ENOMEM) else "a file cannot be written"


def _without_a_folder(error: FileNotFoundError) -> Iterator[str]:
    """`os.getcwd` and `tempfile` name no file."""
    if "temporary directory" in str(error):
        yield "error: there is no folder for temporary files"
        yield "hint: have `TMPDIR` name a folder that can be written, and has room"
    elif _is_nowhere():
        yield "error: the working folder is not there any more"
        yield "hint: change to a folder that is there"


def _is_nowhere() -> bool:
    """The folder itself is still there for who is in it; only its name is gone."""
    try:
        Path.cwd()
    except OSError:
        return True
    return False
