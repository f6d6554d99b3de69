"""Static results and file digests by content.

Only results that follow from a model, its data and the values in the key are cached. Entries that cannot be read or
written are ignored.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import msgspec

from onnxgate.core.files import (
    REMEMBERED_BYTES,
    Identity,
    file_identity,
    is_settled,
    known_digest,
    remember_digests,
    replace_atomically,
)
from onnxgate.project.git.repository import find_lfs_contents

ENTRY_LAYOUT = 1
"""Version of the meaning of an entry, for changes that the code of the stages does not show."""
MAX_ENTRIES = 20_000
"""Limit for one project; beyond it, the least recently used entries are removed."""
MOST_PROJECTS = 200
_JUDGING_FOLDERS = (
    "core",
    "diagnostics",
    "evidence",
    "gate",
    "model",
    "project",
    "rules",
    "stages",
    "support",
)
"""Folders whose code determines static results."""

_READING_PACKAGES = ("onnx", "numpy", "ml_dtypes", "google.protobuf", "google._upb")
"""Packages whose code reads models; the last is absent if protobuf is pure Python."""

ResultType = TypeVar("ResultType")


class StaticResultCache:
    """Static results of the project in `project`: one file in `folder`, read and replaced as a whole."""

    def __init__(self, folder: Path, project: Path) -> None:
        name = hashlib.sha256(os.fsencode(project)).hexdigest()[:16]
        self._path = folder / f"{name}.msgpack"
        self._entries = _read_entries(self._path)
        self._added = False

    def find(self, key: str, kind: type[ResultType]) -> ResultType | None:
        """Return the entry; None if there is none that can be read."""
        encoded = self._entries.pop(key, None)
        if encoded is None:
            return None
        try:
            decoded = msgspec.msgpack.decode(encoded, type=kind)
        except (msgspec.MsgspecError, UnicodeError, ValueError, RecursionError):
            return None
        self._entries[key] = encoded  # the last is the newest
        return decoded

    def keep(self, key: str, value: object) -> None:
        """Add an entry."""
        with contextlib.suppress(msgspec.MsgspecError, UnicodeError, OverflowError):
            self._entries[key] = msgspec.Raw(msgspec.msgpack.encode(value))
            self._added = True

    def save(self) -> None:
        """Write the file if entries were added; errors of the disk are ignored."""
        if not self._added:
            return

        newest = dict(list(self._entries.items())[-MAX_ENTRIES:])
        with contextlib.suppress(OSError, RuntimeError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with replace_atomically(self._path) as scratch:
                scratch.write_bytes(msgspec.msgpack.encode(newest))
            self._prune()

    def _prune(self) -> None:
        """Remove the projects that were checked longest ago."""
        projects = sorted(self._path.parent.glob(f"*{self._path.suffix}"), key=lambda path: -path.stat().st_mtime_ns)
        for path in projects[MOST_PROJECTS:]:
            path.unlink(missing_ok=True)


def _read_entries(path: Path) -> dict[str, msgspec.Raw]:
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=dict[str, msgspec.Raw])
    except (OSError, msgspec.MsgspecError, UnicodeError, ValueError, RecursionError):
        return {}


def digest_static_key(*parts: object) -> str:
    """Return the key of a result that follows from these values and from this program."""
    text = msgspec.json.encode((_digest_program(), *parts), order="sorted")
    return hashlib.sha256(text).hexdigest()


@functools.cache
def _digest_program() -> tuple[str, ...]:
    """Digest the files of this program and of the packages that read models; versions alone are not enough."""
    digest = hashlib.sha256()
    package = Path(__file__).parents[2]
    ours = [str(package), *sorted(_list_folders([str(package / part) for part in _JUDGING_FOLDERS]))]
    for folder in (*ours, *filter(None, map(_find_package, _READING_PACKAGES))):
        for entry in sorted(filter(os.DirEntry.is_file, os.scandir(folder)), key=lambda entry: entry.name):
            digest.update(f"{entry.path}\0{file_identity(entry.stat())}\n".encode(errors="surrogateescape"))
    return str(ENTRY_LAYOUT), digest.hexdigest(), sys.version


def _list_folders(folders: list[str]) -> Iterator[str]:
    while folders:
        folder = folders.pop()
        yield folder
        folders += [entry.path for entry in os.scandir(folder) if entry.is_dir() and entry.name != "__pycache__"]


def _find_package(name: str) -> str | None:
    """Return the folder of a package without importing it; None if it is not installed."""
    spec = find_spec(name)
    return next(iter(spec.submodule_search_locations or ()), None) if spec is not None else None


DIGESTS_FILE_NAME = "digests.json"
MAX_REMEMBERED_FILES = 10_000
"""Limit of the cache; beyond it, the files seen longest ago are removed."""
MIN_GIT_QUERY_BYTES = 64 * 2**20
"""Below this size, hashing is faster than a query to git."""


class FileDigestCache:
    """Digests by file, in `folder`; files are hashed if it cannot be read or written."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / DIGESTS_FILE_NAME
        self._began_ns = time.time_ns()
        self._files: dict[str, tuple[Identity, str]] = {}
        self._loaded = False
        self._changed = False

    def recall(self, files: Iterable[Path], root: Path) -> None:
        """Load the digests of these files; `root` is git's root."""
        large = {path: status for path in files if (status := _stat_large_file(path)) is not None}
        if not large:
            return
        self._load()
        for path, status in large.items():
            identity, digest = self._files.get(str(path), (None, ""))
            if identity == file_identity(status):
                remember_digests({identity: digest})
        unknown = {path: status for path, status in large.items() if known_digest(status) is None}
        if sum(status.st_size for status in unknown.values()) >= MIN_GIT_QUERY_BYTES:
            self._ask_git(unknown, root)

    def keep(self, files: Iterable[Path]) -> None:
        """Store the digests of these files in their current state; changed files are left out."""
        for path in files:
            status = _stat_large_file(path)
            digest = known_digest(status) if status is not None else None
            if status is not None and digest is not None:
                self._load()
                entry = (file_identity(status), digest)
                if self._files.pop(str(path), None) != entry:
                    self._changed = True
                self._files[str(path)] = entry  # the last is the newest
        if self._changed:
            with contextlib.suppress(OSError):
                self._write()

    def _ask_git(self, files: Mapping[Path, os.stat_result], root: Path) -> None:
        for path, pointer in find_lfs_contents(root, files).items():
            if pointer.size_bytes == files[path].st_size and is_settled(files[path], self._began_ns):
                remember_digests({file_identity(files[path]): pointer.sha256})

    def _load(self) -> None:
        """Read the digests of earlier runs, once."""
        if not self._loaded:
            self._files, self._loaded = self._read(), True

    def _read(self) -> dict[str, tuple[Identity, str]]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, tuple[Identity, str]])
        except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
            return {}

    def _write(self) -> None:
        newest = dict(list(self._files.items())[-MAX_REMEMBERED_FILES:])
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with replace_atomically(self._path) as scratch:
            scratch.write_bytes(msgspec.json.encode(newest))


def _stat_large_file(path: Path) -> os.stat_result | None:
    """Return the status of a large regular file; None for anything else."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status if stat.S_ISREG(status.st_mode) and status.st_size >= REMEMBERED_BYTES else None
