"""A corpus is a zip file of models by name; equal models give equal bytes."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

LONG_AGO = (1980, 1, 1, 0, 0, 0)


def write(models: Mapping[str, bytes], path: Path) -> Path:
    """Store models in order, and return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    with zipfile.ZipFile(partial, "w") as corpus:
        for name, data in models.items():
            corpus.writestr(zipfile.ZipInfo(name, LONG_AGO), data)
    return partial.replace(path)


def names(path: Path) -> list[str]:
    """Return the names of all models, in order."""
    with zipfile.ZipFile(path) as corpus:
        return corpus.namelist()


def models(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield every model with its name, in order."""
    with zipfile.ZipFile(path) as corpus:
        for name in corpus.namelist():
            yield name, corpus.read(name)


def digest(path: Path) -> str:
    """Return a digest of the corpus."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
