"""A corpus is a zip file of models, each under its name: the same models always make the same bytes."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

LONG_AGO = (1980, 1, 1, 0, 0, 0)


def write(models: Mapping[str, bytes], path: Path) -> Path:
    """Store models in their order; the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    with zipfile.ZipFile(partial, "w") as corpus:
        for name, data in models.items():
            corpus.writestr(zipfile.ZipInfo(name, LONG_AGO), data)
    return partial.replace(path)


def names(path: Path) -> list[str]:
    """The names of all models, in order."""
    with zipfile.ZipFile(path) as corpus:
        return corpus.namelist()


def models(path: Path) -> Iterator[tuple[str, bytes]]:
    """Every model with its name, in order."""
    with zipfile.ZipFile(path) as corpus:
        for name in corpus.namelist():
            yield name, corpus.read(name)


def digest(path: Path) -> str:
    """What tells one corpus from another."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
