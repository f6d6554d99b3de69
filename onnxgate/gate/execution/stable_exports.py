"""Exports whose second export is skipped: an earlier check has exported the same bytes with the other seed.

A check with known exports makes its first exports with the seed that they were not made with. Equal bytes then show
what a second export would show, whatever has changed in the meantime: code that depends on the seed, on the order of a
set or on a clock would have written others.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from onnxgate.core.files import sha256_of
from onnxgate.gate.outcome_cache import read_entry, write_entry
from onnxgate.gate.result_cache import prune
from onnxgate.project.config.project import SelectedModel

LAYOUT = 1
"""Version of the meaning of an entry."""


class StableExport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An export that was equal to another one, made with the other seed and from another folder."""

    key: str
    seed: int  # 0 or 1
    written: dict[str, str]  # SHA-256 of each file that it wrote, by name


class StableExports:
    """Stable exports of earlier checks, in a folder. Without a folder, nothing is stored; `fresh` reuses nothing."""

    def __init__(self, folder: Path | None, *, fresh: bool = False) -> None:
        self._folder = folder
        self._fresh = fresh

    def find(self, model: SelectedModel, python: Path) -> StableExport | None:
        """Return the last stable export of a model with an interpreter."""
        if self._folder is None or self._fresh or not (key := _digest_names(model, python)):
            return None
        entry = read_entry(self._folder / key, StableExport)
        with contextlib.suppress(OSError):
            os.utime(self._folder / key)
        return entry if entry is not None and entry.key == key and entry.written else None

    def keep(self, model: SelectedModel, python: Path, seed: int, written: Mapping[str, str]) -> None:
        """Store a stable export; errors of the disk are ignored."""
        if self._folder is None or not written or not (key := _digest_names(model, python)):
            return
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeError):
            if write_entry(self._folder / key, StableExport(key, seed, dict(written))):
                prune(self._folder)


def _digest_names(model: SelectedModel, python: Path) -> str:
    """Digest what an export is stored under; "" if that is not possible."""
    settings = model.settings
    names = [LAYOUT, os.fspath(model.absolute), settings.source, settings.command, os.fspath(python)]
    try:
        return hashlib.sha256(msgspec.json.encode(names)).hexdigest()
    except UnicodeError:
        return ""


def digest_written(model: Path) -> dict[str, str]:
    """Return the SHA-256 of a model and of the files beside it, by name; empty if one of them cannot be read."""
    try:
        return {path.name: sha256_of(path) for path in sorted(model.parent.iterdir()) if path.is_file()}
    except OSError:
        return {}
