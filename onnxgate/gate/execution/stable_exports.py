"""Second exports that need not be repeated: the first export and the code behind both are what they were.

A first export is always made, because a source may read anything. The second one only shows whether other seeds and
another folder change the model. That follows from the code, the toolchain and what the first export wrote; if all of
these are as in an earlier check that found no difference, it would find none again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from onnxgate.core.files import sha256_of
from onnxgate.core.jobs import Export
from onnxgate.gate.outcome_cache import digest_program, read_entry, write_entry
from onnxgate.gate.result_cache import identify_machine, list_relevant_variables
from onnxgate.runtimes.environments.toolchain import Interpreter

LAYOUT = 1
"""Version of the meaning of an entry."""


class StableExport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An export whose repetition made the same model."""

    key: str
    written: dict[str, str]  # SHA-256 of each file that the first export wrote, by name
    imported: dict[str, str]  # and of each file of code that no package installed, by path


class StableExports:
    """Exports that were stable, in a folder; None remembers nothing. `fresh` reuses nothing and replaces entries."""

    def __init__(self, folder: Path | None, *, fresh: bool = False) -> None:
        self._folder = folder
        self._fresh = fresh

    def find(self, key: str) -> StableExport | None:
        """Return the stable export of that key if none of its code has changed."""
        if self._folder is None or self._fresh:
            return None
        entry = read_entry(self._folder / key, StableExport)
        if entry is None or entry.key != key or not entry.imported:
            return None
        with contextlib.suppress(OSError):
            if all(sha256_of(Path(path)) == digest for path, digest in entry.imported.items()):
                os.utime(self._folder / key)
                return entry
        return None

    def keep(self, key: str, written: Mapping[str, str], imported: Mapping[str, str]) -> None:
        """Remember an export whose repetition made the same model; errors of the disk are ignored."""
        if self._folder is None or not imported or not written:
            return
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeError):
            write_entry(self._folder / key, StableExport(key, dict(written), dict(imported)))


def digest_request(job: Export, interpreter: Interpreter) -> str:
    """Digest all that is known of an export before it is made; "" if that is not possible."""
    plain = msgspec.structs.replace(job, output="", cases=())
    toolchain = [os.fspath(interpreter.path), interpreter.python, interpreter.packages, interpreter.system]
    python = {name: value for name, value in sorted(os.environ.items()) if name.startswith("PYTHON")}
    values = [LAYOUT, digest_program(), identify_machine(), list_relevant_variables(), python, toolchain, plain]
    try:
        return hashlib.sha256(msgspec.json.encode(values, order="sorted")).hexdigest()
    except (OSError, UnicodeError):
        return ""


def digest_written(model: Path) -> dict[str, str]:
    """Return the SHA-256 of a model and of the files beside it, by name.

    Raises:
        OSError: one of them cannot be read.
    """
    return {path.name: sha256_of(path) for path in sorted(model.parent.iterdir()) if path.is_file()}
