"""Digests of large files that earlier runs made, and those that Git LFS proves: a file of gigabytes is hashed once."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from onnxgate.model.hashing import REMEMBERED_BYTES, Identity, identity, is_settled, known_digest, remember

NAME = "digests.json"
MOST = 10_000
"""Files that are remembered; beyond, the ones longest unseen are forgotten."""
WORTH_ASKING_BYTES = 64 * 2**20
"""What takes git longer to be asked about is hashed."""


class Digests:
    """Digests by file, in `folder`; where it cannot be read or written, all is hashed."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._began_ns = time.time_ns()
        self._files: dict[str, tuple[Identity, str]] = {}
        self._loaded = False
        self._changed = False

    def recall(self, files: Iterable[Path], root: Path) -> None:
        """Make known what is known of these files; `root` is git's."""
        large = {path: status for path in files if (status := _large(path)) is not None}
        if not large:
            return
        self._load()
        for path, status in large.items():
            found, digest = self._files.get(str(path), (None, ""))
            if found == identity(status):
                remember({found: digest})
        unknown = {path: status for path, status in large.items() if known_digest(status) is None}
        if sum(status.st_size for status in unknown.values()) >= WORTH_ASKING_BYTES:
            self._ask_git(unknown, root)

    def keep(self, files: Iterable[Path]) -> None:
        """Keep what is known of these files as they are now; one that changed since it was hashed is another."""
        for path in files:
            status = _large(path)
            digest = known_digest(status) if status is not None else None
            if status is not None and digest is not None:
                self._load()
                entry = (identity(status), digest)
                if self._files.pop(str(path), None) != entry:
                    self._changed = True
                self._files[str(path)] = entry  # the last is the newest
        if self._changed:
            with contextlib.suppress(OSError):
                self._write()

    def _ask_git(self, files: Mapping[Path, os.stat_result], root: Path) -> None:
        from onnxgate.baseline.checked_out import lfs_contents

        for path, pointer in lfs_contents(root, files).items():
            if pointer.size_bytes == files[path].st_size and is_settled(files[path], self._began_ns):
                remember({identity(files[path]): pointer.sha256})

    def _load(self) -> None:
        """What earlier runs knew of any file, read once."""
        if not self._loaded:
            self._files, self._loaded = self._read(), True

    def _read(self) -> dict[str, tuple[Identity, str]]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, tuple[Identity, str]])
        except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
            return {}

    def _write(self) -> None:
        from onnxgate.scratch import beside

        newest = dict(list(self._files.items())[-MOST:])
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with beside(self._path) as scratch:
            scratch.write_bytes(msgspec.json.encode(newest))


def _large(path: Path) -> os.stat_result | None:
    """The status of a file that is worth remembering; None of others, and of what is no file."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status if stat.S_ISREG(status.st_mode) and status.st_size >= REMEMBERED_BYTES else None
