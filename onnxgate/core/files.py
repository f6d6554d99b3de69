"""Links, temporary folders and atomic replacement of files."""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

if sys.platform != "win32":
    import fcntl


def link_or_copy(file: Path, to: Path) -> None:
    """Put a file at a second path, by a hard link if possible.

    Not by a symbolic link: runtimes refuse external data behind one. Source: onnxruntime 1.24 to 1.31.
    """
    try:
        os.link(os.path.realpath(file), to)
    except OSError:  # another device, or a system without links
        shutil.copyfile(file, to)


PREFIX = "onnxgate-"
OWNER = ".owner"
"""File that is locked as long as the process that created the folder lives. The kernel holds the lock, so it is right
also among containers that share the folder, whatever their clocks and process ids."""


@contextlib.contextmanager
def temporary_folder() -> Iterator[str]:
    """Yield a new folder, and remove it at the end.

    Raises:
        OSError: it cannot be created.
    """
    path = tempfile.mkdtemp(dir=_process_root())
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def create_process_folder() -> Path:
    """Create a folder that exists until this process ends or its user removes it.

    Raises:
        OSError: it cannot be created.
    """
    return Path(tempfile.mkdtemp(dir=_process_root()))


STALE_AFTER_S = 24 * 60 * 60
"""Age at which a temporary file of another machine or container counts as one of a killed writer."""
_STEM_LIMIT = 40
"""Characters of the target's name in the name of its temporary file, which must not become longer than 255 bytes."""


@contextlib.contextmanager
def replace_atomically(target: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a path to write to, in the folder of `target`, and let that file replace `target` in one step at the end.

    If the block raises, `target` stays as it was and the temporary file is removed. Its name is unique also among
    containers that share the folder, where process ids repeat. `private`: create it, readable by its owner alone.
    """
    _remove_stale_temporaries(target)
    name = f".{target.name[:_STEM_LIMIT]}.{_pid_space()}-{os.getpid()}-{os.urandom(6).hex()}.tmp"
    temporary = target.with_name(name)
    try:
        if private:
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _remove_stale_temporaries(target: Path) -> None:
    """Remove the temporary files of writers of `target` that were killed."""
    pattern = re.compile(rf"\.{re.escape(target.name[:_STEM_LIMIT])}\.([0-9a-f]+)-([0-9]+)-[0-9a-f]+\.tmp")
    with contextlib.suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            name = pattern.fullmatch(entry.name)
            if name is not None and _is_stale(name[1], int(name[2]), entry):
                Path(entry.path).unlink(missing_ok=True)


def _is_stale(pid_space: str, pid: int, entry: os.DirEntry[str]) -> bool:
    """Return whether the writer was killed: by its process id if that means anything here, else by the file's age."""
    if pid_space == _pid_space() != _UNKNOWN_PID_SPACE:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        except OSError:  # a process of another user
            return False
        return False
    return entry.stat(follow_symlinks=False).st_mtime < time.time() - STALE_AFTER_S


_UNKNOWN_PID_SPACE = "0"


@functools.cache
def _pid_space() -> str:
    """Return a name of the machine's boot and the pid namespace: within one, a process id means one process.

    Source: proc(5): `boot_id` is the same in all containers of a machine, and namespaces are numbered per boot.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        return hashlib.sha256(boot + str(Path("/proc/self/ns/pid").readlink()).encode()).hexdigest()[:8]
    except OSError:
        return _UNKNOWN_PID_SPACE


_process_roots: dict[int, str] = {}  # by process id: a forked process has none yet
_process_roots_lock = threading.Lock()


def _process_root() -> str:
    """Return the folder that contains all others of this process."""
    with _process_roots_lock:
        own = os.getpid()
        if own not in _process_roots or not Path(_process_roots[own]).is_dir():
            _process_roots[own] = _create_process_root()
        return _process_roots[own]


def _create_process_root() -> str:
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
    """Mark the folder as in use. The file gets its name once locked, so that it is never visible unlocked."""
    if sys.platform == "win32":
        return

    new = Path(path, f"{OWNER}.new")
    with contextlib.suppress(OSError):  # a file system without locks, or a full one: it is not removed
        descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)  # open until this process ends
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        new.rename(new.with_name(OWNER))


def _remove_abandoned_roots(where: str) -> None:
    """Remove the folders of processes that were killed."""
    if sys.platform == "win32":
        return
    with contextlib.suppress(OSError), os.scandir(where) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and _is_abandoned(entry):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_abandoned(entry: os.DirEntry[str]) -> bool:
    """Return whether this user's process created the folder and no longer runs."""
    if sys.platform == "win32":
        return False

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
