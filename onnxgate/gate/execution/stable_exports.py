"""Cache of stable exports: models that do not have to be exported twice in a check.

A check exports each model twice with different seeds and compares the bytes. If an export is cached, the check exports
once with the other seed and compares the bytes with the cached digests. If the code has changed, equal bytes do not
prove that the export is stable, because seed-dependent code can produce the same bytes by chance: a set of two names
has only two orders. A cached export is therefore valid only for one state of the repository, the installed packages and
onnxgate. This state does not include environment variables or files outside the repository.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from onnxgate.core.files import REMEMBERED_BYTES, file_identity, sha256_of
from onnxgate.gate.outcome_cache import digest_program, read_entry, write_entry
from onnxgate.gate.result_cache import prune
from onnxgate.project.config.project import SelectedModel

LAYOUT = 2
"""Version of the entry format."""
MAX_REPOSITORY_FILES = 20_000
"""Maximum number of files in the repository; reading more files takes longer than most exports."""
MAX_HASHED_BYTES = 64 * 2**20
"""Maximum total size in bytes of the hashed files; all other files are identified by size and timestamps."""
_DERIVED_FOLDERS = frozenset({".git", "__pycache__"})
_DERIVED_FOLDER_MARKS = frozenset({"CACHEDIR.TAG", "pyvenv.cfg"})
"""Files that mark a folder as a cache or a virtual environment."""
_PACKAGE_SUFFIXES = (".dist-info", ".egg-info", ".egg-link", ".pth")


class StableExport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An export that was equal to a second export with a different seed in a different folder."""

    key: str
    seed: int  # 0 or 1
    written: dict[str, str]  # path of each written file -> SHA-256


class StableExports:
    """Cache of stable exports for the repository at `root`.

    Without a folder, no exports are stored. `fresh` disables reuse.
    """

    def __init__(self, folder: Path | None, root: Path | None = None, *, fresh: bool = False) -> None:
        self._folder = folder
        self._root = root
        self._fresh = fresh
        self._states: dict[Path, str] = {}  # by interpreter, before the first export of this check

    def find(self, model: SelectedModel, python: Path) -> StableExport | None:
        """Return the cached export of a model by this interpreter in the current repository state, or None."""
        if self._folder is None or not (key := self._digest_key(model, python)) or self._fresh:
            return None
        entry = read_entry(self._folder / key, StableExport)
        with contextlib.suppress(OSError):
            os.utime(self._folder / key)
        return entry if entry is not None and entry.key == key and entry.written else None

    def keep(self, model: SelectedModel, python: Path, seed: int, written: Mapping[str, str]) -> None:
        """Store a stable export; write errors are ignored."""
        if self._folder is None or not written or not (key := self._digest_key(model, python)):
            return
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeError):
            if write_entry(self._folder / key, StableExport(key, seed, dict(written))):
                prune(self._folder)

    def _digest_key(self, model: SelectedModel, python: Path) -> str:
        """Return the cache key of an export; "" if there is none."""
        if python not in self._states:
            self._states[python] = digest_state(self._root, python) if self._root is not None else ""
        if not (state := self._states[python]):
            return ""
        settings = model.settings
        names = [LAYOUT, os.fspath(model.absolute), settings.source, settings.command, os.fspath(python), state]
        try:
            return hashlib.sha256(msgspec.json.encode(names)).hexdigest()
        except UnicodeError:
            return ""


def digest_state(root: Path, python: Path) -> str:
    """Digest the files of a repository, the packages of an interpreter, and onnxgate.

    Return "" if there are too many files, a file is unreadable, or the interpreter is not in a virtual environment.
    """
    remaining = MAX_HASHED_BYTES
    if not _has_own_packages(python):
        return ""
    try:
        digest = hashlib.sha256(digest_program().encode())
        for number, (name, status) in enumerate(_iter_files(root)):
            if number >= MAX_REPOSITORY_FILES:
                return ""
            identity = str((status.st_mode, *file_identity(status)))
            if stat.S_ISREG(status.st_mode) and status.st_size <= min(REMEMBERED_BYTES, remaining):
                remaining -= status.st_size
                identity = sha256_of(root / name)
            digest.update(os.fsencode(f"{name}\0{identity}\n"))
        for name, time_ns in sorted(_iter_packages(python)):
            digest.update(os.fsencode(f"{name}\0{time_ns}\n"))
    except OSError:
        return ""
    return digest.hexdigest()


def _iter_files(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the path and `stat` result of each file and linked folder below `root`, except in caches and environments.

    Raises:
        OSError: a folder cannot be read.
    """
    for folder, folders, files in os.walk(root, onerror=_raise):
        if folder != os.fspath(root) and not _DERIVED_FOLDER_MARKS.isdisjoint(files):
            folders.clear()
            continue
        folders[:] = sorted(set(folders) - _DERIVED_FOLDERS)
        for name in (*folders, *sorted(files)):
            path = Path(folder, name)
            status = path.lstat()
            if stat.S_ISLNK(status.st_mode) and path.is_file():
                status = path.stat()
            if not stat.S_ISDIR(status.st_mode):
                yield path.relative_to(root).as_posix(), status


def _raise(error: OSError) -> None:
    raise error


def _has_own_packages(python: Path) -> bool:
    """Return whether an interpreter imports packages only from its virtual environment."""
    try:
        settings = (python.parent.parent / "pyvenv.cfg").read_text(encoding="utf-8").lower()
    except (OSError, UnicodeError):
        return False
    return "include-system-site-packages = true" not in settings and "PYTHONPATH" not in os.environ


def _iter_packages(python: Path) -> Iterator[tuple[str, int]]:
    """Yield the installed packages of an environment with their modification times in nanoseconds."""
    environment = python.parent.parent
    for packages in (*environment.glob("lib*/python*/site-packages"), environment / "Lib" / "site-packages"):
        if packages.is_dir():
            with os.scandir(packages) as entries:
                yield from ((it.name, it.stat().st_mtime_ns) for it in entries if it.name.endswith(_PACKAGE_SUFFIXES))


def digest_written(model: Path, others: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return the SHA-256 of all files in a model's folder and its subfolders, by path.

    The result is empty if there is an entry that cannot be digested, such as an unreadable file, a link to a folder or
    a pipe. Folders in `others` are skipped.
    """
    top = os.fspath(model.parent)
    written: dict[str, str] = {}
    try:
        for folder, folders, files in os.walk(top, onerror=_raise):
            if folder == top:
                folders[:] = set(folders) - others
            if any(Path(folder, name).is_symlink() for name in folders):
                return {}
            paths = (Path(folder, name) for name in files)
            written.update((path.relative_to(top).as_posix(), sha256_of(path)) for path in paths)
    except OSError:
        return {}
    return written
