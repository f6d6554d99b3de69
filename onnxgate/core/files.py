"""File operations: links, removal, temporary folders, atomic replacement, checksums, and cached SHA-256 digests."""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from io import FileIO
from pathlib import Path

from onnxgate.core.errors import UsageError

if sys.platform != "win32":
    import fcntl


def link_or_copy(file: Path, to: Path) -> None:
    """Create a hard link to a file, or a copy if hard links are not possible.

    Symbolic links are not used, since runtimes reject external data that is a symbolic link. Source: onnxruntime 1.24
    to 1.31.
    """
    try:
        os.link(os.path.realpath(file), to)
    except OSError:  # another device, or a file system without hard links
        shutil.copyfile(file, to)


def remove_path(path: Path) -> None:
    """Remove a file, link or folder if it exists. Entries that cannot be removed from a folder remain.

    Raises:
        OSError: the file or link cannot be removed.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def cache_dir() -> Path:
    """Return onnxgate's cache folder, which `ONNXGATE_CACHE_DIR` overrides. It may not exist yet."""
    if chosen := os.environ.get("ONNXGATE_CACHE_DIR"):
        return Path(chosen).absolute()
    import platformdirs  # only for commands that use the cache

    return platformdirs.user_cache_path("onnxgate", appauthor=False)


PREFIX = "onnxgate-"
OWNER = ".owner"
"""Name of the file in a temporary folder that stays locked until the process that created the folder ends.

The kernel manages the lock, so it also works between containers that share the folder but have different clocks and
process IDs.
"""


@contextlib.contextmanager
def temporary_folder() -> Iterator[str]:
    """Yield the path of a new folder, which is removed at the end of the `with` block.

    Raises:
        OSError: the folder cannot be created.
    """
    path = tempfile.mkdtemp(dir=_process_root())
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def create_process_folder() -> Path:
    """Create a folder that is removed when this process ends, unless the caller removes it earlier.

    Raises:
        OSError: the folder cannot be created.
    """
    return Path(tempfile.mkdtemp(dir=_process_root()))


def follow_links(path: Path) -> Path:
    """Return the file that is written for a path, after links. Links must stay in the repository that contains them.

    Otherwise, a link that someone committed would choose which file of the user is overwritten.

    Raises:
        UsageError: a link leads out of the repository, or into its `.git`.
    """
    real, lexical = Path(os.path.realpath(path)), _make_absolute(path)
    root = next((parent for parent in lexical.parents if (parent / ".git").exists()), None)
    if root is None:
        return real
    real_root = Path(os.path.realpath(root))

    def find_problem(place: Path) -> str:
        if not place.is_relative_to(real_root):
            return "is outside the repository"
        is_git = ".git" in place.relative_to(real_root).parts and ".git" not in lexical.relative_to(root).parts
        return "belongs to git" if is_git else ""

    if not (problem := find_problem(real)):
        return real
    links = [it for it in (*reversed(path.parents), path) if it.is_symlink() and root in _make_absolute(it).parents]
    link = next((it for it in links if find_problem(Path(os.path.realpath(it)))), path)
    named, shown = (_make_absolute(it).relative_to(root) if it.is_absolute() else it for it in (path, link))
    target = os.path.realpath(link)
    hint = f"replace `{shown}` with a file or folder of the repository"
    raise UsageError(f"`{named}` cannot be written: the link `{shown}` leads to `{target}`, which {problem}", hint=hint)


def _make_absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 - removes `..` before links are followed


STALE_AFTER_S = 24 * 60 * 60
"""Age in seconds after which a temporary file of another machine or container is assumed to be abandoned."""
_STEM_LIMIT = 40
"""Maximum number of characters of a file's name in the name of its temporary file; names are limited to 255 bytes."""


@contextlib.contextmanager
def replace_atomically(target: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a temporary path next to `target`. After the `with` block, the file there atomically replaces `target`.

    If the block raises, `target` remains unchanged and the temporary file is removed. The temporary name is also unique
    among containers that share the folder, where process IDs repeat. With `private`, the file is created in advance and
    readable only by its owner.
    """
    _remove_stale_temporaries(target)
    name = f".{target.name[:_STEM_LIMIT]}.{_pid_space()}-{os.getpid()}-{os.urandom(6).hex()}.tmp"
    temporary = target.with_name(name)
    try:
        if private:
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        yield temporary
        temporary.replace(target)
    except OSError as error:
        # The error of a failed write has no file name, and users do not know the temporary name.
        if error.errno and (error.filename is None or temporary in (Path(error.filename), Path(error.filename2 or ""))):
            raise OSError(error.errno, error.strerror, str(target)) from error
        raise
    finally:
        with contextlib.suppress(OSError):  # on a read-only file system this fails even if the file does not exist
            temporary.unlink()


def _remove_stale_temporaries(target: Path) -> None:
    """Remove temporary files of `target` that were left by processes that were killed."""
    pattern = re.compile(rf"\.{re.escape(target.name[:_STEM_LIMIT])}\.([0-9a-f]+)-([0-9]+)-[0-9a-f]+\.tmp")
    with contextlib.suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            name = pattern.fullmatch(entry.name)
            if name is not None and _is_stale(name[1], int(name[2]), entry):
                Path(entry.path).unlink(missing_ok=True)


def _is_stale(pid_space: str, pid: int, entry: os.DirEntry[str]) -> bool:
    """Return whether the process that wrote a temporary file was killed.

    This is decided by its process ID or, if that is not valid on this machine or in this container, by the file's age.
    """
    if pid_space == _pid_space() != _UNKNOWN_PID_SPACE:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        except OSError:  # the process belongs to another user
            return False
        return False
    return entry.stat(follow_symlinks=False).st_mtime < time.time() - STALE_AFTER_S


_UNKNOWN_PID_SPACE = "0"


@functools.cache
def _pid_space() -> str:
    """Return a string that identifies the boot of this machine and the PID namespace, in which process IDs are unique.

    Source: proc(5): `boot_id` is the same in all containers of a machine, and namespaces are numbered per boot.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        return hashlib.sha256(boot + str(Path("/proc/self/ns/pid").readlink()).encode()).hexdigest()[:8]
    except OSError:
        return _UNKNOWN_PID_SPACE


_process_roots: dict[int, Path] = {}  # process ID -> folder; a forked process has none yet
_process_roots_lock = threading.Lock()


def _process_root() -> Path:
    """Return the folder that contains all temporary folders of this process."""
    with _process_roots_lock:
        own = os.getpid()
        if own not in _process_roots or not _process_roots[own].is_dir():
            _process_roots[own] = _create_process_root()
        return _process_roots[own]


def _create_process_root() -> Path:
    temporary, creator = Path(tempfile.gettempdir()), os.getpid()
    _remove_abandoned_roots(temporary)
    root = temporary / f"{PREFIX}{os.urandom(8).hex()}"

    def remove() -> None:
        if os.getpid() == creator:  # not in a forked process
            shutil.rmtree(root, ignore_errors=True)

    atexit.register(remove)  # before `mkdir`, since an interruption can occur between two lines
    root.mkdir(0o700)
    if sys.platform != "win32":
        new = root / f"{OWNER}.new"  # renamed after it is locked, so that `OWNER` is never unlocked
        with contextlib.suppress(OSError):  # without locks or free space, other processes do not remove the folder
            descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)  # open until this process ends
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            new.rename(new.with_name(OWNER))
    return root


def _remove_abandoned_roots(folder: Path) -> None:
    """Remove the temporary folders of processes that were killed."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and _is_abandoned(entry):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_abandoned(entry: os.DirEntry[str]) -> bool:
    """Return whether the folder was created by a process of this user that no longer runs."""
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


_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path: Path) -> FileIO:
    """Open a regular file without buffering. The type is checked after opening, since the path could change before.

    Raises:
        OSError: the file cannot be opened, or is not a regular file.
    """
    file = FileIO(os.open(path, _OPEN_FLAGS), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def read_limited(path: Path, most_bytes: int) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: the file cannot be read, is not a regular file, or is larger than `most_bytes`.
    """
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        return file.readall()


_CHUNK_BYTES = 1024 * 1024
REMEMBERED_BYTES = 1024 * 1024
"""Minimum size in bytes of files whose digests are cached: hashing a smaller file is faster than the lookup."""
SETTLED_NS = 2 * 10**9
"""Minimum age in nanoseconds of files whose digests are cached: newer ones can change without a new modification time.

Source: FAT stores modification times in steps of two seconds; git calls such files racy.
"""
_FINE_SETTLED_NS = 10**8
"""As `SETTLED_NS`, on file systems that store times in steps of less than a millisecond.

Source: Linux takes these times from its timer interrupt, at least every 10 ms (`CONFIG_HZ` is 100 or more).
"""

Identity = tuple[int, int, int, int, int]
"""Device, inode, size, mtime and ctime of a file. Git compares the same values to detect changes."""

_digests: dict[Identity, str] = {}


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    with open_regular(path) as file:
        status = os.fstat(file.fileno())
        if known := _digests.get(file_identity(status)):
            return known
        began_ns = time.time_ns()
        digest = hashlib.sha256()
        buffer = memoryview(bytearray(min(_CHUNK_BYTES, status.st_size)))
        remaining = status.st_size  # if the file grows, only its initial size is read
        while remaining > 0 and (count := file.readinto(buffer[: min(remaining, _CHUNK_BYTES)])):
            digest.update(buffer[:count])
            remaining -= count
        if file_identity(os.fstat(file.fileno())) == file_identity(status) and is_settled(status, began_ns):
            _digests[file_identity(status)] = digest.hexdigest()
    return digest.hexdigest()


def file_identity(status: os.stat_result) -> Identity:
    """Return the values by which a file and its content are recognized: device, inode, size, mtime and ctime."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def is_settled(status: os.stat_result, now_ns: int) -> bool:
    """Return whether a file is large and old enough for its digest to be cached."""
    is_fine = status.st_ctime_ns % 10**6 != 0  # programs can set only the mtime
    age_ns = now_ns - max(status.st_mtime_ns, status.st_ctime_ns)
    return status.st_size >= REMEMBERED_BYTES and age_ns > (
        min(SETTLED_NS, _FINE_SETTLED_NS) if is_fine else SETTLED_NS
    )


def remember_digests(digests: Mapping[Identity, str]) -> None:
    """Add SHA-256 digests to this process's cache."""
    _digests.update(digests)


def known_digest(status: os.stat_result) -> str | None:
    """Return the cached digest of a file; None if it is not cached."""
    return _digests.get(file_identity(status))
