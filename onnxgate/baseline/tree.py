"""All files of a revision by their names, and what each of them was, told from its digest where that is enough."""

from __future__ import annotations

import functools
import hashlib
import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onnxgate.baseline import git
from onnxgate.baseline.revisions import FILES, LINK, AbsentError, Revision
from onnxgate.model.hashing import sha256_of
from onnxgate.model.pointer import LARGEST_BYTES, LfsPointer, parse_pointer
from onnxgate.scratch import scratch_folder

SUBMODULE = "160000"
_HOPS = 8
_CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Entry:
    """One name of a tree. `blob` is git's own digest of the content, of a submodule that of its commit."""

    mode: str
    blob: str


@dataclass(frozen=True)
class Tree:
    """The files of one revision; paths are relative to git's root."""

    revision: Revision
    _pointers: dict[str, LfsPointer | None] = field(default_factory=dict)

    @functools.cached_property
    def entries(self) -> Mapping[str, Entry]:
        """Every name: files, links and submodules.

        Raises:
            AbsentError: the revision is not all here.
        """
        revision = self.revision
        list_all = ["ls-tree", "-r", "-z", "--full-tree", revision.commit]
        listed = git.ask(revision.root, list_all, offline=revision.offline)
        if listed.returncode:
            raise AbsentError(f"the files at `{revision.name}` cannot be listed: {git.last_line(listed.stderr)}")
        entries = {}
        for row in filter(None, listed.stdout.split(b"\0")):
            about, _, name = row.partition(b"\t")
            mode, _, blob = about.decode("ascii").split(" ")
            entries[os.fsdecode(name)] = Entry(mode, blob)
        return entries

    def file(self, path: str) -> str:
        """The path of the file that a name stood for, links inside the tree followed; "" where it stood for none."""
        for _ in range(_HOPS):
            path = self.followed(path)
            entry = self.entries.get(path)
            if entry is None or entry.mode != LINK:
                return path if entry is not None and entry.mode in FILES else ""
            path = self._target(path)
        return ""

    def followed(self, path: str) -> str:
        """The path with the links to folders on its way followed; "" where they lead in a circle."""
        for _ in range(_HOPS):
            link = "" if path in self.entries else self._first_above(path, LINK)
            if not link:
                return path
            path = posixpath.normpath(posixpath.join(self._target(link), path[len(link) + 1 :]))
        return ""

    def _target(self, link: str) -> str:
        target = os.fsdecode(self._content(self.entries[link].blob))
        return posixpath.normpath(posixpath.join(posixpath.dirname(link), target))

    def submodule(self, path: str) -> str:
        """The submodule that a path lies in; "" where it lies in none."""
        return self._first_above(path, SUBMODULE)

    def _first_above(self, path: str, mode: str) -> str:
        parts = path.split("/")
        above = ("/".join(parts[:length]) for length in range(1, len(parts)))
        return next((each for each in above if each in self.entries and self.entries[each].mode == mode), "")

    def text(self, path: str) -> str | None:
        """What a file said; None where it is not there, or no text."""
        at = self.file(path)
        try:
            return self._content(self.entries[at].blob).decode("utf-8") if at else None
        except UnicodeDecodeError:
            return None

    def pointer(self, path: str) -> LfsPointer | None:
        """The Git LFS pointer that a file was."""
        self.learn_pointers([path])
        return self._pointers[self.entries[path].blob]

    def learn_pointers(self, paths: Iterable[str]) -> None:
        """Look at many files at once: which of them were pointers."""
        unknown = {self.entries[path].blob for path in paths} - self._pointers.keys()
        self._pointers.update(dict.fromkeys(unknown))
        small = [blob for blob, size_bytes in self._sizes(unknown).items() if 0 < size_bytes < LARGEST_BYTES]
        self._pointers.update((blob, parse_pointer(content)) for blob, content in self._contents(small))

    def is_same(self, path: str, file: Path) -> bool:
        """Whether a file of today has the very bytes that one of the tree had."""
        return blob_id(file, len(self.entries[path].blob)) == self.entries[path].blob

    def digest(self, path: str) -> tuple[str, int]:
        """SHA-256 and size of what a file held; of a pointer, of what it stood for.

        Raises:
            AbsentError: it cannot be read.
        """
        if pointer := self.pointer(path):
            return pointer.sha256, pointer.size_bytes
        with scratch_folder() as folder:
            file = Path(folder) / "content"
            self.revision.write(path, file)
            return sha256_of(file), file.stat().st_size

    def _sizes(self, blobs: Iterable[str]) -> dict[str, int]:
        asked = "".join(f"{blob}\n" for blob in sorted(blobs)).encode()
        if not asked:
            return {}
        check = ["cat-file", "--batch-check=%(objectname) %(objectsize)"]
        done = git.ask(self.revision.root, check, stdin=asked, offline=self.revision.offline)
        rows = (line.split(" ") for line in done.stdout.decode("ascii", "replace").splitlines())
        return {blob: int(size) for blob, size in rows if size.isdigit()}  # not of what is "missing"

    def _contents(self, blobs: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Small contents, all asked for at once."""
        asked = "".join(f"{blob}\n" for blob in blobs).encode()
        if not asked:
            return
        every = ["cat-file", "--batch=%(objectname) %(objectsize)"]
        rest = git.ask(self.revision.root, every, stdin=asked, offline=self.revision.offline).stdout
        while rest:
            about, _, rest = rest.partition(b"\n")
            blob, size = about.decode("ascii").split(" ")
            if size.isdigit():  # not of what is "missing"
                content, rest = rest[: int(size)], rest[int(size) + 1 :]
                yield blob, content

    def _content(self, blob: str) -> bytes:
        return git.ask(self.revision.root, ["cat-file", "blob", blob], offline=self.revision.offline).stdout


def blob_id(file: Path, digits: int = 40) -> str:
    """Git's own digest of a file's bytes; repositories have digests of 40 or of 64 digits."""
    digest = hashlib.new("sha1" if digits == 40 else "sha256", usedforsecurity=False)
    digest.update(b"blob %d\0" % file.stat().st_size)
    with file.open("rb") as content:
        while chunk := content.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
