"""Files that are, by git's own proof, what it checked out: of those in Git LFS, their content's SHA-256 is known."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from onnxgate.baseline.git import ask
from onnxgate.model.pointer import LARGEST_BYTES, LfsPointer, parse_pointer

_TRUSTED = "H"
"""`git ls-files -v`: in the index, and to be compared with the file. "h" is assumed unchanged, "S" is not looked at."""

_NO_FILTER = ("-c", "filter.lfs.process=", "-c", "filter.lfs.clean=", "-c", "filter.lfs.required=false")
"""A file that changed while the index was written is compared by content: then let it differ, and no program run."""


def lfs_contents(root: Path, files: Iterable[Path]) -> dict[Path, LfsPointer]:
    """
    What each file holds, by the pointer that is committed or staged for it; without those that git cannot prove.

    Proven is a file whose size, times and numbers are those that git wrote down when it made or hashed it, of which
    git's index has a Git LFS pointer, and whose attributes name LFS as what turned one into the other.
    """
    names = {name: file for file in files if (name := _name(root, file))}
    if not names:
        return {}
    blobs = _blobs(root, list(names))
    unchanged = blobs.keys() - _changed(root, list(blobs))
    filtered = _filtered(root, sorted(unchanged))
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


def _blobs(root: Path, names: list[str]) -> dict[str, str]:
    """Name -> blob, of the files that git compares with its index."""
    done = ask(root, ["ls-files", "-s", "-v", "-z", "--", *_literal(names)], offline=True)
    if done.returncode != 0:
        return {}
    found = {}
    for entry in os.fsdecode(done.stdout).split("\0"):
        head, _, name = entry.partition("\t")
        tag, _, rest = head.partition(" ")
        words = rest.split(" ")
        if tag == _TRUSTED and len(words) == 3 and words[2] == "0":
            found[name] = words[1]
    return found


def _changed(root: Path, names: list[str]) -> set[str]:
    """Those that are not, or may not be, what the index says. Git compares times and sizes, and reads nothing."""
    if not names:
        return set()
    done = ask(root, [*_NO_FILTER, "diff-files", "--name-only", "-z", "--", *_literal(names)], offline=True)
    return set(os.fsdecode(done.stdout).split("\0")) if done.returncode == 0 else set(names)


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
            pointer = parse_pointer(ask(root, ["cat-file", "blob", blob], offline=True).stdout)
            if pointer is not None:
                found[name] = pointer
    return found
