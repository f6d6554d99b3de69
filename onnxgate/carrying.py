"""Results and costs that are carried from one run of the action to the next: what stays in their folders.

Nothing here says that they are right: `store` and `costs` look at each one where it is used.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from onnxgate import costs
from onnxgate.runtimes.keeping import COSTS, RESULTS, remove
from onnxgate.store import LARGEST_BYTES

MOST_BYTES = 512 * 2**20
"""What all results may take; a repository's caches may take 10 GB. Source: GitHub's documentation, 2026-08."""
LARGEST_RECORD_BYTES = 4 * 2**20
NOT_USED = 0
"""The time of what this run has not used so far: no clock is compared."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_OWN = re.compile(r"entry\.json|\d{1,6}/\d{1,6}\.npy")


def sweep(folder: Path, contents: Collection[str]) -> list[str]:
    """Remove what is not of our making, and costs of other contents; the names of results that were none."""
    for file in _entries(folder / COSTS):
        if file.name not in contents or not costs.is_ours(file):
            remove(file)
    strange = [entry for entry in _entries(folder / RESULTS) if not _is_result(entry)]
    for entry in strange:
        remove(entry)
    return [entry.name for entry in strange if _DIGEST.fullmatch(entry.name)]


def forget_use(folder: Path) -> None:
    """Count all that is there as not used."""
    for entry in (*_entries(folder / RESULTS), *_entries(folder / COSTS)):
        os.utime(entry, (NOT_USED, NOT_USED))


def drop_unused(folder: Path) -> str:
    """Remove results that were not used since, and the largest where all take too much; a digest of what is left."""
    left, total = [], 0
    for size, entry in sorted((_size_bytes(entry), entry) for entry in _entries(folder / RESULTS)):
        if _is_used(entry) and total + size <= MOST_BYTES:
            left.append(entry.name)
            total += size
        else:
            remove(entry)
    return hashlib.sha256("\n".join(sorted(left)).encode()).hexdigest()[:16] if left else ""


def measured(folder: Path) -> list[str]:
    """Of which contents the costs were measured since."""
    return [file.name for file in _entries(folder / COSTS) if _is_used(file)]


def _is_used(entry: Path) -> bool:
    return entry.stat().st_mtime != NOT_USED


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _is_result(entry: Path) -> bool:
    """Whether it is a folder with a record and arrays, plain files all of them, none of them too large."""
    if not _DIGEST.fullmatch(entry.name) or entry.is_symlink() or not entry.is_dir():
        return False
    found = list(_contents(entry))
    plain = all(
        (stat.S_ISDIR(about.st_mode) and name.isdecimal()) or (stat.S_ISREG(about.st_mode) and _OWN.fullmatch(name))
        for name, about in found
    )
    record_bytes = sum(about.st_size for name, about in found if name == "entry.json")
    return plain and record_bytes <= LARGEST_RECORD_BYTES and _size_bytes(entry) - record_bytes <= LARGEST_BYTES


def _contents(entry: Path) -> Iterator[tuple[str, os.stat_result]]:
    """All below, by its path there, links not followed."""
    for parent, folders, files in os.walk(entry):
        for name in (*folders, *files):
            path = Path(parent) / name
            yield path.relative_to(entry).as_posix(), path.lstat()


def _size_bytes(entry: Path) -> int:
    return sum(about.st_size for _, about in _contents(entry) if stat.S_ISREG(about.st_mode))
