"""The inputs of a case, kept below the cache folder after the run: one `.npz` that `inputs` takes as it is."""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from onnxgate.runtimes.jobs import Case

FOLDER = "inputs"
"""Its name below the cache folder."""

KEPT = 100
KEPT_BYTES = 1 << 30
"""So many files, and so many bytes, stay at most; what was used last stays longest."""

LONGEST = 60


def store(case: Case, model: str, folder: Path) -> str:
    """The name of the file below `folder` that holds the inputs of a case; "" where it cannot be written.

    The name follows from the content, so that equal inputs are one file. Writing is atomic.
    """
    digest = hashlib.sha256()
    for name, path in case.inputs.items():
        digest.update(f"{len(name)}\0{name}\0".encode())
        digest.update(Path(path).read_bytes())
    file = folder / f"{_plain(Path(model).stem)}-{digest.hexdigest()[:12]}.npz"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(file, case.inputs)
        _prune(folder, file)
    except OSError:  # a cache that is full, or read-only: the inputs can be generated again
        return ""
    return file.name


def _plain(stem: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", stem)[:LONGEST].strip(".") or "model"


def _write(file: Path, inputs: Mapping[str, str]) -> None:
    if file.exists():
        file.touch()
        return
    scratch = file.with_name(f".{secrets.token_hex(4)}")
    try:
        with zipfile.ZipFile(scratch, "w") as archive:
            for name, path in inputs.items():
                archive.writestr(zipfile.ZipInfo(f"{name}.npy"), Path(path).read_bytes())
        scratch.replace(file)
    finally:
        scratch.unlink(missing_ok=True)


def _prune(folder: Path, newest: Path) -> None:
    """Remove what was not used for longest. Another gate may do the same at this moment."""
    size, count = 0, 0
    for file, file_size in _by_last_use(folder):
        count, size = count + 1, size + file_size
        if file != newest and (count > KEPT or size > KEPT_BYTES):
            with contextlib.suppress(OSError):
                file.unlink()


def _by_last_use(folder: Path) -> Iterator[tuple[Path, int]]:
    found = []
    for file in folder.glob("*.npz"):
        with contextlib.suppress(OSError):
            state = file.stat()
            found.append((state.st_mtime_ns, file, state.st_size))
    for _, file, size in sorted(found, reverse=True):
        yield file, size
