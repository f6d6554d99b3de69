"""Generated inputs of findings, stored so that a finding can be reproduced."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from onnxgate.core.cache_entries import record_damage
from onnxgate.core.files import open_regular, remove_path, replace_atomically
from onnxgate.core.jobs import InputCase

MAX_STORED_FILES = 100
MAX_STORED_BYTES = 1 << 30
"""Maximum total size of stored inputs in bytes. Above it, the least recently used files are removed."""

MAX_STEM_LENGTH = 60


def store_case_inputs(case: InputCase, model: str, folder: Path) -> str:
    """Write the inputs of a case atomically to a file in `folder`. Return the file name, or "" if this failed.

    The name is a hash of the content, so that equal inputs are stored once.
    """
    digest = _digest_arrays((name, Path(path).read_bytes()) for name, path in case.inputs.items())
    stem = re.sub(r"[^A-Za-z0-9._-]+", "_", Path(model).stem)[:MAX_STEM_LENGTH].strip(".") or "model"
    file = folder / f"{stem}-{digest}.npz"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(file) and not touch_stored_inputs(file):
            record_damage(str(file))
            remove_path(file)
        if not file.exists():
            with replace_atomically(file) as part, zipfile.ZipFile(part, "w") as archive:
                for name, path in case.inputs.items():
                    archive.writestr(zipfile.ZipInfo(f"{name}.npy"), Path(path).read_bytes())
        _prune_archives(folder, file)
    except OSError:  # the cache is full or read-only, but the inputs can be generated again
        return ""
    return file.name


def touch_stored_inputs(file: Path) -> bool:
    """Mark a file with stored inputs as used; return False if it is missing or its content does not match its name."""
    try:
        with open_regular(file) as opened, zipfile.ZipFile(opened) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > MAX_STORED_BYTES:
                return False
            arrays = ((entry.filename.removesuffix(".npy"), archive.read(entry)) for entry in entries)
            is_intact = file.stem.endswith(f"-{_digest_arrays(arrays)}")
        os.utime(file)
    except (OSError, ValueError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error):
        return False  # RuntimeError: an entry appears to be encrypted; NotImplementedError: an unknown compression
    return is_intact


def _digest_arrays(arrays: Iterable[tuple[str, bytes]]) -> str:
    digest = hashlib.sha256()
    for name, content in arrays:
        digest.update(f"{len(name)}\0{name}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:12]


def _prune_archives(folder: Path, newest: Path) -> None:
    """Remove the least recently used files with stored inputs. Other processes may remove files at the same time."""
    files = []
    for file in folder.glob("*.npz"):
        with contextlib.suppress(OSError):
            state = file.stat()
            files.append((state.st_mtime_ns, file, state.st_size))
    total_bytes = 0
    for count, (_, file, size_bytes) in enumerate(sorted(files, reverse=True), 1):
        total_bytes += size_bytes
        if file != newest and (count > MAX_STORED_FILES or total_bytes > MAX_STORED_BYTES):
            with contextlib.suppress(OSError):
                file.unlink()
