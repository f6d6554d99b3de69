"""What the static stages said of the same content: kept by the digests of all that it depends on.

Only what follows from a model and its data alone is kept, and from what is named in the key. An entry that cannot be
read is none; where nothing can be written, nothing is kept.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import msgspec

from onnxgate.model.hashing import identity

LAYOUT = 1
"""Counts changes of what an entry means that the code of the stages does not show."""
MOST = 20_000
"""Entries of one project that are kept; beyond, those longest unused are forgotten."""
MOST_PROJECTS = 200
_PARTS = ("data", "evidence", "model", "rules", "stages", "support")
"""Folders whose code decides what the static stages say."""

_OTHERS = ("onnx", "numpy", "ml_dtypes", "google.protobuf", "google._upb")
"""Packages whose code reads models; the last is not there where protobuf is pure Python."""

Kind = TypeVar("Kind")


class Unchanged:
    """What was said before of the project in `project`: one file in `folder`, read at once and replaced at once."""

    def __init__(self, folder: Path, project: Path) -> None:
        name = hashlib.sha256(os.fsencode(project)).hexdigest()[:16]
        self._path = folder / f"{name}.msgpack"
        self._entries = _read(self._path)
        self._added = False

    def find(self, key: str, kind: type[Kind]) -> Kind | None:
        """The entry, None where there is none that can be read."""
        held = self._entries.pop(key, None)
        if held is None:
            return None
        try:
            found = msgspec.msgpack.decode(held, type=kind)
        except (msgspec.MsgspecError, UnicodeError, ValueError, RecursionError):
            return None
        self._entries[key] = held  # the last is the newest
        return found

    def keep(self, key: str, said: object) -> None:
        """Keep what was said."""
        with contextlib.suppress(msgspec.MsgspecError, UnicodeError, OverflowError):
            self._entries[key] = msgspec.Raw(msgspec.msgpack.encode(said))
            self._added = True

    def save(self) -> None:
        """Write what was added, where there is a place for it."""
        if not self._added:
            return
        from onnxgate.scratch import beside

        newest = dict(list(self._entries.items())[-MOST:])
        with contextlib.suppress(OSError, RuntimeError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with beside(self._path) as scratch:
                scratch.write_bytes(msgspec.msgpack.encode(newest))
            self._prune()

    def _prune(self) -> None:
        """Forget the projects that were checked longest ago."""
        projects = sorted(self._path.parent.glob(f"*{self._path.suffix}"), key=lambda path: -path.stat().st_mtime_ns)
        for path in projects[MOST_PROJECTS:]:
            path.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, msgspec.Raw]:
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=dict[str, msgspec.Raw])
    except (OSError, msgspec.MsgspecError, UnicodeError, ValueError, RecursionError):
        return {}


def key_of(*parts: object) -> str:
    """The key of what follows from these values and from this program."""
    text = msgspec.json.encode((_program(), *parts), order="sorted")
    return hashlib.sha256(text).hexdigest()


@functools.cache
def _program() -> tuple[str, ...]:
    """This program, and what of others it judges with: the very files, since wheels may all have the same times."""
    digest = hashlib.sha256()
    package = Path(__file__).parent
    ours = [str(package), *sorted(_below([str(package / part) for part in _PARTS]))]
    for folder in (*ours, *filter(None, map(_package, _OTHERS))):
        for entry in sorted(filter(os.DirEntry.is_file, os.scandir(folder)), key=lambda entry: entry.name):
            digest.update(f"{entry.path}\0{identity(entry.stat())}\n".encode(errors="surrogateescape"))
    return str(LAYOUT), digest.hexdigest(), sys.version


def _below(folders: list[str]) -> Iterator[str]:
    while folders:
        folder = folders.pop()
        yield folder
        folders += [entry.path for entry in os.scandir(folder) if entry.is_dir() and entry.name != "__pycache__"]


def _package(name: str) -> str | None:
    """Where a package lies, without importing it; None where it is not installed."""
    spec = find_spec(name)
    return next(iter(spec.submodule_search_locations or ()), None) if spec is not None else None
