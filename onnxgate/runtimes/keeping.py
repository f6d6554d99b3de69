"""What is kept from machine to machine: wheels, as their index gave them, believed by the hash that the lock has.

Environments are not kept. Making one from a wheel costs less than hashing its files again (0.28 s against 0.35 s for
numpy and onnxruntime 1.23.2, measured), and no file that was added or changed in one can then go unseen.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from onnxgate.lock.types import LockedPackage, Pinned, Wheel
from onnxgate.runtimes import wheels

WHEELS = "wheels"
NPM = "npm"
RESULTS = "results"
COSTS = "costs"
CHUNK_BYTES = 2**20
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Source(Protocol):
    """Where bytes come from."""

    def chunks(self) -> Iterator[bytes]:
        """All of them; raises `OSError`."""


Find = Callable[[Sequence[LockedPackage]], Mapping[str, Source]]
"""Where the wheels of these packages can be had, by file name."""


class Keeper:
    """Wheels in a folder that anybody may have written to."""

    def __init__(self, folder: Path, find: Find) -> None:
        self._folder = folder / WHEELS
        self._find = find

    def gather(self, needed: Sequence[LockedPackage], target: Path) -> bool:
        """Whether one locked wheel of each package lies in `target` now; those that were fetched are kept."""
        missing = [package for package in needed if not self._take(package, target)]
        found = self._find(missing) if missing else {}
        return all(self._get(package, found, target) for package in missing)

    def _take(self, package: LockedPackage, target: Path) -> bool:
        return any(
            copy(_chunks(place), target / wheel.file, wheel.sha256)
            for wheel in wheels.by_preference(package)
            if (place := _place(self._folder, wheel)) is not None
        )

    def _get(self, package: LockedPackage, found: Mapping[str, Source], target: Path) -> bool:
        wheel = next((each for each in wheels.by_preference(package) if each.file in found), None)
        place = _place(self._folder, wheel) if wheel else None
        if wheel is None or place is None:
            return False
        fetched = copy(found[wheel.file].chunks(), target / wheel.file, wheel.sha256)
        if fetched:
            _keep(target / wheel.file, place)
        return fetched


def _place(folder: Path, wheel: Wheel) -> Path | None:
    """Where a wheel is kept; None for a name that leads elsewhere, which packaging 24 takes."""
    plain = Path(wheel.file).name == wheel.file and wheel.file.endswith(".whl") and "\\" not in wheel.file
    return folder / wheel.sha256 / wheel.file if plain and _SHA256.fullmatch(wheel.sha256) else None


def copy(source: Iterator[bytes], target: Path, sha256: str) -> bool:
    """Whether what comes has that hash; nothing is left in `target` of what has not, or cannot be read."""
    digest = hashlib.sha256()
    try:
        with target.open("wb") as file:
            for chunk in source:
                digest.update(chunk)
                file.write(chunk)
    except OSError:
        target.unlink(missing_ok=True)
        return False
    if digest.hexdigest() != sha256:
        target.unlink()
    return digest.hexdigest() == sha256


def _chunks(place: Path) -> Iterator[bytes]:
    """The bytes of a file; a link is none, and nothing is waited for where it is a pipe."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(place, flags), "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _keep(wheel: Path, place: Path) -> None:
    scratch = place.with_name(f"{secrets.token_hex(4)}.part")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(wheel, scratch)
        scratch.replace(place)
    except OSError:  # a full disk: it is fetched again where it is needed next
        scratch.unlink(missing_ok=True)


def sweep(folder: Path, packages: Iterable[Pinned]) -> list[str]:
    """Remove all that the lock does not vouch for; what was not the locked thing that it claimed to be.

    What is left: wheels that have the hash which the lock names; the cache of npm, which npm believes by the integrity
    of each package that the lock has; and the folders of results and costs (`carrying`). What is removed without a
    word was left by another lock.
    """
    locked = {wheel.sha256: wheel for each in packages if isinstance(each, LockedPackage) for wheel in each.wheels}
    if folder.is_symlink() or not folder.is_dir():
        remove(folder)
        return []
    for entry in sorted(folder.iterdir()):
        if entry.name not in (WHEELS, NPM, RESULTS, COSTS) or entry.is_symlink() or not entry.is_dir():
            remove(entry)
    _remove_links(folder / NPM)
    return [entry.name for entry in _kept(folder / WHEELS) if _is_forged(entry, locked.get(entry.parent.name))]


def _kept(folder: Path) -> Iterator[Path]:
    """The one entry of each folder that is called like a hash; all else is removed."""
    for home in sorted(folder.iterdir()) if folder.is_dir() else ():
        entries = sorted(home.iterdir()) if home.is_dir() and not home.is_symlink() else []
        if len(entries) == 1 and _SHA256.fullmatch(home.name):
            yield entries[0]
        else:
            remove(home)


def _is_forged(entry: Path, wheel: Wheel | None) -> bool:
    """Whether it claims to be a locked wheel and is none; one that is not locked is removed as well."""
    if wheel is not None and entry.name == wheel.file and _has(entry, wheel.sha256):
        return False
    remove(entry.parent)
    return wheel is not None


def _has(entry: Path, sha256: str) -> bool:
    digest = hashlib.sha256()
    try:
        for chunk in _chunks(entry):
            digest.update(chunk)
    except OSError:
        return False
    return digest.hexdigest() == sha256


def _remove_links(folder: Path) -> None:
    """A folder that is a link would have others write elsewhere."""
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            if (Path(parent) / name).is_symlink():
                (Path(parent) / name).unlink()


def remove(entry: Path) -> None:
    """Have nothing there, be it a folder, a file or a link."""
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        entry.unlink(missing_ok=True)
