"""Git revisions: files as they were, without a checkout; Git LFS pointers are followed to their content."""

from __future__ import annotations

import functools
import hashlib
import os
import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from onnxgate.core.errors import UsageError
from onnxgate.core.file_hashes import sha256_of
from onnxgate.core.files import link_or_copy, replace_atomically, temporary_folder
from onnxgate.model.reading.external_data import is_external, read_external_entries
from onnxgate.model.reading.file_format import (
    MAX_POINTER_BYTES,
    LfsPointer,
    UnreadableModel,
    parse_pointer,
    read_pointer,
)
from onnxgate.model.reading.structure import iter_tensors, read_structure
from onnxgate.project.git import repository

LINK_MODE, FILE_MODES = "120000", ("100644", "100755")
FETCH_HINT = (
    "fetch it first; a CI job's checkout has one commit, unless it asks for more: `fetch-depth: 2` for `HEAD^1`, "
    "`fetch-depth: 0` for branches"
)


class MissingAtRevisionError(Exception):
    """A file is not at the revision, or its content cannot be had. `is_new`: it was not there yet."""

    def __init__(self, reason: str, *, hint: str = "", is_new: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.is_new = is_new


@dataclass(frozen=True, slots=True)
class Revision:
    """One commit of the repository at `root`. `offline`: Git LFS content that is not here is not fetched."""

    root: Path
    name: str  # as the user wrote it: "origin/main"
    commit: str
    offline: bool = False

    def write(self, path: str, to: Path) -> None:
        """Write the content that a file had; `path` is relative to the root.

        Raises:
            AbsentError: there is none.
        """
        blob = self._blob(path)
        with to.open("wb") as file:
            done = repository.run_git(self.root, ["cat-file", "blob", blob], stdout=file, offline=self.offline)
        if done.returncode:
            raise MissingAtRevisionError(
                f"`{path}` at `{self.name}` cannot be read: {repository.last_line(done.stderr)}"
            )
        if read_pointer(to) is not None:
            self._follow(path, to)

    def _blob(self, path: str) -> str:
        listed = repository.run_git(self.root, ["ls-tree", "-z", self.commit, "--", f":(literal){path}"])
        entry = listed.stdout.decode("utf-8", "replace").partition("\t")[0].split()
        if len(entry) != 3 or entry[1] != "blob":
            raise MissingAtRevisionError(f"`{path}` is not at `{self.name}`", is_new=True)
        if entry[0] not in FILE_MODES:
            raise MissingAtRevisionError(f"`{path}` is a link at `{self.name}`")
        return entry[2]

    def _follow(self, path: str, file: Path) -> None:
        """Put the content in the place of its pointer: what lies here, else what `git lfs` fetches."""
        pointer = read_pointer(file)
        assert pointer is not None
        stored = self.lfs_object(pointer.sha256)
        if stored.is_file() and stored.stat().st_size == pointer.size_bytes:
            file.unlink()
            link_or_copy(stored, file)
            return
        lacking = f"`{path}` at `{self.name}` is a Git LFS pointer, and its content is not here"
        hint = f'git lfs fetch origin {self.commit} --include "{path}"'
        if self.offline:
            raise MissingAtRevisionError(lacking, hint=hint)
        with replace_atomically(file) as smudged:
            with smudged.open("wb") as content:
                done = repository.run_git(self.root, ["lfs", "smudge"], stdin=file.read_bytes(), stdout=content)
            if done.returncode or smudged.stat().st_size != pointer.size_bytes:
                why = repository.last_line(done.stderr)
                raise MissingAtRevisionError(f"{lacking}{f': {why}' if why else ''}", hint=hint)

    def lfs_object(self, oid: str) -> Path:
        """Where Git LFS keeps a content here, once it was fetched."""
        common = self.root / repository.read_git_line(self.root, ["rev-parse", "--git-common-dir"])
        storage = repository.read_git_line(self.root, ["config", "--get", "lfs.storage"]) or "lfs"
        return (common / storage / "objects" / oid[:2] / oid[2:4] / oid).absolute()


def resolve_revision(root: Path | None, name: str, *, offline: bool = False) -> Revision:
    """The commit that a name means.

    Raises:
        UsageError: it means none, or there is no repository.
    """
    if root is None:
        raise UsageError(f"`--against {name}`: this is no git repository")
    if trouble := repository.find_git_problem(root):
        hint = "see that git is installed and can read this repository: `git status`"
        raise UsageError(f"`--against {name}`: git cannot be asked: {trouble}", hint=hint)
    commit = repository.find_commit(root, name)
    why = ""
    if not commit and repository.COMMIT_ID.fullmatch(name):
        why = repository.fetch_commit(root, name, offline=offline)
        commit = "" if why else name
    elif not commit:
        commit, why = repository.resolve_ancestor(root, name, offline=offline)
    if not commit:
        raise UsageError(f"`--against {name}`: {why or 'git knows no such revision here'}", hint=FETCH_HINT)
    return Revision(root, name, commit, offline)


def resolve_data_path(model: str, location: str) -> str | None:
    """Where external data of a model lie, relative to the root; None for what leaves the model's folder."""
    path = PurePosixPath(location)
    if path.is_absolute() or ".." in path.parts or "\\" in location:
        return None
    return (PurePosixPath(model).parent / path).as_posix()


def write_model_at_revision(revision: Revision, path: str, folder: Path) -> Path:
    """Write the model; `path` is relative to git's root.

    Raises:
        AbsentError: the model, or some of its data, cannot be had.
    """
    folder.mkdir(parents=True)
    model = folder / "model.onnx"
    revision.write(path, model)
    for location in _external_locations(model, path, revision):
        at = resolve_data_path(path, location)
        if at is None:
            raise MissingAtRevisionError(f"`{path}` at `{revision.name}` has data outside of its folder: `{location}`")
        to = folder / location
        to.parent.mkdir(parents=True, exist_ok=True)
        revision.write(at, to)
    return model


def _external_locations(model: Path, path: str, revision: Revision) -> list[str]:
    try:
        proto = read_structure(model)
    except UnreadableModel as reason:
        raise MissingAtRevisionError(f"`{path}` at `{revision.name}` cannot be read: it is {reason}") from reason
    found = (
        read_external_entries(tensor).get("location", "") for _, tensor in iter_tensors(proto) if is_external(tensor)
    )
    return sorted({location for location in found if location})


SUBMODULE_MODE = "160000"
_MAX_LINKS = 8
_CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One name of a tree. `blob` is git's own digest of the content, of a submodule that of its commit."""

    mode: str
    blob: str


@dataclass(frozen=True)
class Tree:
    """The files of one revision; paths are relative to git's root."""

    revision: Revision
    _pointers: dict[str, LfsPointer | None] = field(default_factory=dict)

    @functools.cached_property
    def entries(self) -> Mapping[str, TreeEntry]:
        """Every name: files, links and submodules.

        Raises:
            AbsentError: the revision is not all here.
        """
        revision = self.revision
        list_all = ["ls-tree", "-r", "-z", "--full-tree", revision.commit]
        listed = repository.run_git(revision.root, list_all, offline=revision.offline)
        if listed.returncode:
            raise MissingAtRevisionError(
                f"the files at `{revision.name}` cannot be listed: {repository.last_line(listed.stderr)}"
            )
        entries = {}
        for row in filter(None, listed.stdout.split(b"\0")):
            about, _, name = row.partition(b"\t")
            mode, _, blob = about.decode("ascii").split(" ")
            entries[os.fsdecode(name)] = TreeEntry(mode, blob)
        return entries

    def file(self, path: str) -> str:
        """The path of the file that a name stood for, links inside the tree followed; "" where it stood for none."""
        for _ in range(_MAX_LINKS):
            path = self.followed(path)
            entry = self.entries.get(path)
            if entry is None or entry.mode != LINK_MODE:
                return path if entry is not None and entry.mode in FILE_MODES else ""
            path = self._target(path)
        return ""

    def followed(self, path: str) -> str:
        """The path with the links to folders on its way followed; "" where they lead in a circle."""
        for _ in range(_MAX_LINKS):
            link = "" if path in self.entries else self._first_above(path, LINK_MODE)
            if not link:
                return path
            path = posixpath.normpath(posixpath.join(self._target(link), path[len(link) + 1 :]))
        return ""

    def _target(self, link: str) -> str:
        target = os.fsdecode(self._content(self.entries[link].blob))
        return posixpath.normpath(posixpath.join(posixpath.dirname(link), target))

    def submodule(self, path: str) -> str:
        """The submodule that a path lies in; "" where it lies in none."""
        return self._first_above(path, SUBMODULE_MODE)

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
        small = [blob for blob, size_bytes in self._sizes(unknown).items() if 0 < size_bytes < MAX_POINTER_BYTES]
        self._pointers.update((blob, parse_pointer(content)) for blob, content in self._contents(small))

    def is_same(self, path: str, file: Path) -> bool:
        """Whether a file of today has the very bytes that one of the tree had."""
        return compute_blob_id(file, len(self.entries[path].blob)) == self.entries[path].blob

    def digest(self, path: str) -> tuple[str, int]:
        """SHA-256 and size of what a file held; of a pointer, of what it stood for.

        Raises:
            AbsentError: it cannot be read.
        """
        if pointer := self.pointer(path):
            return pointer.sha256, pointer.size_bytes
        with temporary_folder() as folder:
            file = Path(folder) / "content"
            self.revision.write(path, file)
            return sha256_of(file), file.stat().st_size

    def _sizes(self, blobs: Iterable[str]) -> dict[str, int]:
        asked = "".join(f"{blob}\n" for blob in sorted(blobs)).encode()
        if not asked:
            return {}
        check = ["cat-file", "--batch-check=%(objectname) %(objectsize)"]
        done = repository.run_git(self.revision.root, check, stdin=asked, offline=self.revision.offline)
        rows = (line.split(" ") for line in done.stdout.decode("ascii", "replace").splitlines())
        return {blob: int(size) for blob, size in rows if size.isdigit()}  # not of what is "missing"

    def _contents(self, blobs: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Small contents, all asked for at once."""
        asked = "".join(f"{blob}\n" for blob in blobs).encode()
        if not asked:
            return
        every = ["cat-file", "--batch=%(objectname) %(objectsize)"]
        rest = repository.run_git(self.revision.root, every, stdin=asked, offline=self.revision.offline).stdout
        while rest:
            about, _, rest = rest.partition(b"\n")
            blob, size = about.decode("ascii").split(" ")
            if size.isdigit():  # not of what is "missing"
                content, rest = rest[: int(size)], rest[int(size) + 1 :]
                yield blob, content

    def _content(self, blob: str) -> bytes:
        return repository.run_git(self.revision.root, ["cat-file", "blob", blob], offline=self.revision.offline).stdout


def compute_blob_id(file: Path, digits: int = 40) -> str:
    """Git's own digest of a file's bytes; repositories have digests of 40 or of 64 digits."""
    digest = hashlib.new("sha1" if digits == 40 else "sha256", usedforsecurity=False)
    digest.update(b"blob %d\0" % file.stat().st_size)
    with file.open("rb") as content:
        while chunk := content.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


MAX_COMPARED_FILES = 200
"""Git compares each with each."""


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that the revision does not have under this name."""

    path: str
    file: Path
    sha256: str  # of its content, whether or not that is here


def find_moved(
    tree: Tree, gone: Sequence[str], new: Sequence[NewFile], prefer: Callable[[NewFile, str], bool]
) -> dict[str, str]:
    """Today's path -> what it was, where the content is the very same. Of several, the preferred, then the namesake."""
    tree.learn_pointers(gone)
    left = list(gone)
    found: dict[str, str] = {}
    for each in new:
        alike = [path for path in left if _has_same_content(tree, path, each)]
        if alike:
            found[each.path] = min(
                alike, key=lambda path: (not prefer(each, path), not _has_same_name(path, each), path)
            )
            left.remove(found[each.path])
    return found


def _has_same_content(tree: Tree, path: str, newcomer: NewFile) -> bool:
    pointer, blob = tree.pointer(path), tree.entries[path].blob
    if pointer is not None:
        return pointer.sha256 == newcomer.sha256
    return newcomer.file.is_file() and compute_blob_id(newcomer.file, len(blob)) == blob


def _has_same_name(path: str, newcomer: NewFile) -> bool:
    return posixpath.basename(path) == posixpath.basename(newcomer.path)


def find_same_name(gone: Iterable[str], new: Iterable[NewFile]) -> dict[str, str]:
    """Today's path -> the one that is gone and has the same name in another folder, where either is the only one."""
    before = _unique_by_name(gone)
    after = _unique_by_name(each.path for each in new)
    return {after[name]: before[name] for name in sorted(after) if name in before}


def _unique_by_name(paths: Iterable[str]) -> dict[str, str]:
    every = list(paths)
    counts = Counter(map(posixpath.basename, every))
    return {posixpath.basename(path): path for path in every if counts[posixpath.basename(path)] == 1}


def find_similar(tree: Tree, gone: Sequence[str], new: Sequence[NewFile]) -> Mapping[str, tuple[str, int]]:
    """Today's path -> what git takes it for, and how alike they are in per cent.

    Git LFS pointers are left out: they are all alike. What is not in the index is not looked at.
    """
    plain = [path for path in gone if tree.pointer(path) is None]
    if not plain or not new or len(plain) + len(new) > MAX_COMPARED_FILES:
        return {}
    names = [f":(literal){path}" for path in (*plain, *(each.path for each in new))]
    compare = ["diff-index", "--cached", "--raw", "-z", "--find-renames=50%", "--diff-filter=R", tree.revision.commit]
    done = repository.run_git(tree.revision.root, [*compare, "--", *names], offline=tree.revision.offline)
    wanted = {each.path for each in new}
    return {after: (before, score) for before, after, score in _parse_renames(done.stdout) if after in wanted}


def _parse_renames(raw: bytes) -> Iterator[tuple[str, str, int]]:
    """Rows as git writes them: `:100644 100644 aa bb R087`, the old name, the new name, each behind a zero."""
    fields = raw.split(b"\0")
    for index in range(0, len(fields) - 2, 3):
        status = fields[index].rpartition(b" ")[2]
        yield os.fsdecode(fields[index + 1]), os.fsdecode(fields[index + 2]), int(status[1:])
