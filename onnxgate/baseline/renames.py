"""Which file of a revision a file of today may have been: by content, by git's own likeness, by its name."""

from __future__ import annotations

import os
import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxgate.baseline import git
from onnxgate.baseline.tree import Tree, blob_id

MOST_LOOKED_AT = 200
"""Git compares each with each."""


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A file that the revision does not have under this name."""

    path: str
    file: Path
    sha256: str  # of its content, whether or not that is here


def moved(
    tree: Tree, gone: Sequence[str], new: Sequence[Newcomer], prefer: Callable[[Newcomer, str], bool]
) -> dict[str, str]:
    """Today's path -> what it was, where the content is the very same. Of several, the preferred, then the namesake."""
    tree.learn_pointers(gone)
    left = list(gone)
    found: dict[str, str] = {}
    for each in new:
        alike = [path for path in left if _is_content(tree, path, each)]
        if alike:
            found[each.path] = min(alike, key=lambda path: (not prefer(each, path), not _namesakes(path, each), path))
            left.remove(found[each.path])
    return found


def _is_content(tree: Tree, path: str, newcomer: Newcomer) -> bool:
    pointer, blob = tree.pointer(path), tree.entries[path].blob
    if pointer is not None:
        return pointer.sha256 == newcomer.sha256
    return newcomer.file.is_file() and blob_id(newcomer.file, len(blob)) == blob


def _namesakes(path: str, newcomer: Newcomer) -> bool:
    return posixpath.basename(path) == posixpath.basename(newcomer.path)


def same_name(gone: Iterable[str], new: Iterable[Newcomer]) -> dict[str, str]:
    """Today's path -> the one that is gone and has the same name in another folder, where either is the only one."""
    before = _by_name(gone)
    after = _by_name(each.path for each in new)
    return {after[name]: before[name] for name in sorted(after) if name in before}


def _by_name(paths: Iterable[str]) -> dict[str, str]:
    every = list(paths)
    counts = Counter(map(posixpath.basename, every))
    return {posixpath.basename(path): path for path in every if counts[posixpath.basename(path)] == 1}


def similar(tree: Tree, gone: Sequence[str], new: Sequence[Newcomer]) -> Mapping[str, tuple[str, int]]:
    """Today's path -> what git takes it for, and how alike they are in per cent.

    Git LFS pointers are left out: they are all alike. What is not in the index is not looked at.
    """
    plain = [path for path in gone if tree.pointer(path) is None]
    if not plain or not new or len(plain) + len(new) > MOST_LOOKED_AT:
        return {}
    names = [f":(literal){path}" for path in (*plain, *(each.path for each in new))]
    compare = ["diff-index", "--cached", "--raw", "-z", "--find-renames=50%", "--diff-filter=R", tree.revision.commit]
    done = git.ask(tree.revision.root, [*compare, "--", *names], offline=tree.revision.offline)
    wanted = {each.path for each in new}
    return {after: (before, score) for before, after, score in _renames(done.stdout) if after in wanted}


def _renames(raw: bytes) -> Iterator[tuple[str, str, int]]:
    """Rows as git writes them: `:100644 100644 aa bb R087`, the old name, the new name, each behind a zero."""
    fields = raw.split(b"\0")
    for index in range(0, len(fields) - 2, 3):
        status = fields[index].rpartition(b" ")[2]
        yield os.fsdecode(fields[index + 1]), os.fsdecode(fields[index + 2]), int(status[1:])
