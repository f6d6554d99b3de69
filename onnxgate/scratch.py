"""Folders and files for a while: none stays for good, however the process that made them ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

PREFIX = "onnxgate-"
OWNER = ".owner"
"""Locked for as long as whoever made the folder lives. The lock is the kernel's, so that no clock, no number of a
process and no container that shares the folder can be mistaken about that."""


@contextlib.contextmanager
def scratch_folder() -> Iterator[str]:
    """A new folder, which is removed at the end.

    Raises:
        OSError: none can be made.
    """
    path = tempfile.mkdtemp(dir=_home())
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def kept_folder() -> Path:
    """A new folder, which is there until this process ends, or whoever has it removes it.

    Raises:
        OSError: none can be made.
    """
    return Path(tempfile.mkdtemp(dir=_home()))


@contextlib.contextmanager
def beside(target: Path) -> Iterator[Path]:
    """A file to be written, which takes the place of `target` at the end, in one step; nothing is left where it raises.

    What writers left that were killed is removed.
    """
    scratch = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    _sweep_beside(target)
    try:
        yield scratch
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)


def _sweep_beside(target: Path) -> None:
    with contextlib.suppress(OSError):
        for each in target.parent.iterdir():
            number = each.name.removeprefix(f".{target.name}.").removesuffix(".tmp")
            if each.name == f".{target.name}.{number}.tmp" and number.isdecimal() and not _runs(int(number)):
                each.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    if sys.platform == "win32":
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


_homes: dict[int, str] = {}  # by process: one that was forked has none yet
_making = threading.Lock()


def _home() -> str:
    """The one folder below which all others of this process are."""
    with _making:
        own = os.getpid()
        if own not in _homes or not Path(_homes[own]).is_dir():
            _homes[own] = _made_home()
        return _homes[own]


def _made_home() -> str:
    import atexit

    _sweep(tempfile.gettempdir())
    path = Path(tempfile.gettempdir(), f"{PREFIX}{os.urandom(8).hex()}")
    atexit.register(_remove, str(path), os.getpid())  # first: an interruption may come between any two lines
    path.mkdir(0o700)
    _own(str(path))
    return str(path)


def _remove(path: str, made_by: int) -> None:
    if os.getpid() == made_by:
        shutil.rmtree(path, ignore_errors=True)


def _own(path: str) -> None:
    """Say that it is in use. It gets its name locked, so that nobody ever sees it there and not locked."""
    if sys.platform == "win32":
        return
    import fcntl

    new = Path(path, f"{OWNER}.new")
    with contextlib.suppress(OSError):  # a file system without locks, or a full one: nobody will remove it
        descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)  # open until we end
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        new.rename(new.with_name(OWNER))


def _sweep(where: str) -> None:
    """Remove what those left who were killed."""
    if sys.platform == "win32":
        return
    with contextlib.suppress(OSError), os.scandir(where) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and _is_left(entry):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_left(entry: os.DirEntry[str]) -> bool:
    """Whether it is ours, and nobody's any more."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        if not entry.is_dir(follow_symlinks=False) or entry.stat(follow_symlinks=False).st_uid != os.geteuid():
            return False
        descriptor = os.open(Path(entry.path, OWNER), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
