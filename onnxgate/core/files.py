"""Files that stand in a second place."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path


def link_or_copy(file: Path, to: Path) -> None:
    """Have a file at a second place, by a hard link where there can be one.

    No symbolic link: runtimes refuse external data that are one. Source: onnxruntime 1.24 to 1.31.
    """
    try:
        os.link(os.path.realpath(file), to)
    except OSError:  # another device, or a system without links
        shutil.copyfile(file, to)


PREFIX = "onnxgate-"
OWNER = ".owner"
"""Locked for as long as whoever made the folder lives. The lock is the kernel's, so that no clock, no number of a
process and no container that shares the folder can be mistaken about that."""


@contextlib.contextmanager
def temporary_folder() -> Iterator[str]:
    """A new folder, which is removed at the end.

    Raises:
        OSError: none can be made.
    """
    path = tempfile.mkdtemp(dir=_process_root())
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def create_process_folder() -> Path:
    """A new folder, which is there until this process ends, or whoever has it removes it.

    Raises:
        OSError: none can be made.
    """
    return Path(tempfile.mkdtemp(dir=_process_root()))


@contextlib.contextmanager
def replace_atomically(target: Path) -> Iterator[Path]:
    """A file to be written, which takes the place of `target` at the end, in one step; nothing is left where it raises.

    What writers left that were killed is removed.
    """
    scratch = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    _remove_stale_parts(target)
    try:
        yield scratch
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)


def _remove_stale_parts(target: Path) -> None:
    with contextlib.suppress(OSError):
        for path in target.parent.iterdir():
            number = path.name.removeprefix(f".{target.name}.").removesuffix(".tmp")
            if path.name == f".{target.name}.{number}.tmp" and number.isdecimal() and not _is_running(int(number)):
                path.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    if sys.platform == "win32":
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


_process_roots: dict[int, str] = {}  # by process: one that was forked has none yet
_process_roots_lock = threading.Lock()


def _process_root() -> str:
    """The one folder below which all others of this process are."""
    with _process_roots_lock:
        own = os.getpid()
        if own not in _process_roots or not Path(_process_roots[own]).is_dir():
            _process_roots[own] = _create_process_root()
        return _process_roots[own]


def _create_process_root() -> str:
    import atexit

    _remove_abandoned_roots(tempfile.gettempdir())
    path = Path(tempfile.gettempdir(), f"{PREFIX}{os.urandom(8).hex()}")
    atexit.register(_remove_own_root, str(path), os.getpid())  # first: an interruption may come between any two lines
    path.mkdir(0o700)
    _lock_owner_file(str(path))
    return str(path)


def _remove_own_root(path: str, made_by: int) -> None:
    if os.getpid() == made_by:
        shutil.rmtree(path, ignore_errors=True)


def _lock_owner_file(path: str) -> None:
    """Say that it is in use. It gets its name locked, so that nobody ever sees it there and not locked."""
    if sys.platform == "win32":
        return
    import fcntl

    new = Path(path, f"{OWNER}.new")
    with contextlib.suppress(OSError):  # a file system without locks, or a full one: nobody will remove it
        descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)  # open until we end
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        new.rename(new.with_name(OWNER))


def _remove_abandoned_roots(where: str) -> None:
    """Remove what those left who were killed."""
    if sys.platform == "win32":
        return
    with contextlib.suppress(OSError), os.scandir(where) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and _is_abandoned(entry):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_abandoned(entry: os.DirEntry[str]) -> bool:
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
