"""Files that are, by git's own proof, what it checked out: of those in Git LFS, their content's SHA-256 is known."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from onnxgate.baseline.git import ask, words
from onnxgate.model.pointer import LARGEST_BYTES, LfsPointer, parse_pointer

_ENTRY = re.compile(
    rb"H [0-7]+ (?P<blob>[0-9a-f]+) 0\t(?P<name>[^\0]*)\0"
    rb"  ctime: (?P<changed>[0-9]+:[0-9]+)\n  mtime: (?P<modified>[0-9]+:[0-9]+)\n"
    rb"  dev: [0-9]+\tino: (?P<number>[0-9]+)\n[^\n]*\n  size: (?P<size>[0-9]+)\t[^\n]*\n"
)
"""One file in git's index, and what it was when git looked. "H": it is compared with the file at all; "h" is assumed
unchanged, "S" is not looked at. Git itself leaves out the fractions of a second.

Source: `git ls-files --stage -v --debug -z` of git 2.39.5; what is written otherwise proves nothing.
"""
_EXTENDED = b"\next-"
"""A pointer of what extensions of LFS made of the file: its digest is that of their work, not of the file."""
_WIDTH = 2**32
"""Numbers and sizes have 32 bits in the index."""


def lfs_contents(root: Path, files: Iterable[Path]) -> dict[Path, LfsPointer]:
    """
    What each file holds, by the pointer that is committed or staged for it; without those that git cannot prove.

    Proven is a file whose size, times and numbers are those that git wrote down when it made or hashed it, before it
    wrote its index; of which that has a Git LFS pointer; whose attributes name LFS as what turned one into the other.
    """
    names = {name: file for file in files if (name := _name(root, file))}
    if not names:
        return {}
    blobs = _unchanged(root, names)
    filtered = _filtered(root, sorted(blobs))
    pointers = _pointers(root, {name: blobs[name] for name in filtered})
    return {names[name]: pointer for name, pointer in pointers.items()}


def _name(root: Path, file: Path) -> str:
    """What git calls a file; "" for a link, and for what lies elsewhere."""
    real = Path(os.path.realpath(file))
    if file.is_symlink() or not real.is_relative_to(os.path.realpath(root)):
        return ""
    return real.relative_to(os.path.realpath(root)).as_posix()


def _literal(names: Iterable[str]) -> list[str]:
    return [f":(literal){name}" for name in names]


def _unchanged(root: Path, files: Mapping[str, Path]) -> dict[str, str]:
    """Name -> blob, of the files that are, to the fraction of a second, what they were when git looked."""
    done = ask(root, ["ls-files", "--stage", "-v", "--debug", "-z", "--", *_literal(files)], offline=True)
    found = {}
    written_ns = _index_written_ns(root)
    for entry in _ENTRY.finditer(done.stdout) if done.returncode == 0 else ():
        name = os.fsdecode(entry["name"])
        status = files[name].stat() if name in files else None
        if status is not None and _is_same(entry, status) and status.st_mtime_ns < written_ns:
            found[name] = entry["blob"].decode()
    return found


def _index_written_ns(root: Path) -> int:
    """When git wrote its index: a file that was made at that tick of the clock, or later, may be another by now."""
    try:
        return (root / words(root, ["rev-parse", "--git-path", "index"])).stat().st_mtime_ns
    except OSError:
        return 0


def _is_same(entry: re.Match[bytes], status: os.stat_result) -> bool:
    times = _ns(entry["changed"]), _ns(entry["modified"])
    numbers = int(entry["number"]), int(entry["size"])
    there = status.st_ino % _WIDTH, status.st_size % _WIDTH
    return times == (status.st_ctime_ns, status.st_mtime_ns) and numbers == there


def _ns(time: bytes) -> int:
    seconds, _, fraction = time.partition(b":")
    return int(seconds) * 10**9 + int(fraction)


def _filtered(root: Path, names: list[str]) -> list[str]:
    """Those of which LFS makes the file."""
    if not names:
        return []
    stdin = b"\0".join(map(os.fsencode, names)) + b"\0"
    done = ask(root, ["check-attr", "-z", "--stdin", "filter"], stdin=stdin, offline=True)
    words = os.fsdecode(done.stdout).split("\0")
    return [words[at] for at in range(0, len(words) - 2, 3) if words[at + 2] == "lfs"]


def _pointers(root: Path, blobs: dict[str, str]) -> dict[str, LfsPointer]:
    """Name -> pointer, of the blobs that are one."""
    if not blobs:
        return {}
    stdin = "".join(f"{blob}\n" for blob in blobs.values()).encode()
    sizes = ask(root, ["cat-file", "--batch-check=%(objecttype) %(objectsize)"], stdin=stdin, offline=True)
    told = sizes.stdout.decode("ascii", "replace").splitlines()
    found = {}
    for (name, blob), line in zip(blobs.items(), told, strict=False):
        kind, _, size = line.partition(" ")
        if kind == "blob" and size.isdigit() and int(size) < LARGEST_BYTES:
            content = ask(root, ["cat-file", "blob", blob], offline=True).stdout
            pointer = parse_pointer(content)
            if pointer is not None and _EXTENDED not in content:
                found[name] = pointer
    return found
