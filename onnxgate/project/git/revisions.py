"""Read the files of git revisions without a checkout, including Git LFS content, and find renamed files."""

from __future__ import annotations

import functools
import hashlib
import os
import posixpath
import re
import subprocess
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from onnxgate.core import text
from onnxgate.core.errors import UsageError
from onnxgate.core.files import link_or_copy, replace_atomically, sha256_of, temporary_folder
from onnxgate.core.text import quote_value
from onnxgate.model.reading.external_data import iter_data_locations
from onnxgate.model.reading.file_format import LfsPointer, UnreadableModel, parse_pointer, read_pointer
from onnxgate.model.reading.structure import read_view
from onnxgate.model.reading.view import ModelView
from onnxgate.project.git import repository

LINK_MODE, FILE_MODES = "120000", ("100644", "100755")
FETCH_HINT = (
    "fetch the revision first; in CI, fetch more history: `fetch-depth: 2` for `HEAD^1`, `fetch-depth: 0` for branches"
)


class MissingAtRevisionError(Exception):
    """A file does not exist at the revision, or its content is not available. `is_new`: the file did not exist yet."""

    def __init__(self, reason: str, *, hint: str = "", is_new: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.is_new = is_new


class Revision(msgspec.Struct, frozen=True):
    """One commit of the repository at `root`. `offline`: missing Git LFS content is not fetched."""

    root: Path
    name: str  # as the user wrote it, such as "origin/main"
    commit: str
    offline: bool = False

    def run_git(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
        """Run git in the repository, with network access unless `offline`."""
        return repository.run_git(self.root, arguments, offline=self.offline)

    def write(self, path: str, to: Path) -> None:
        """Write the content of a file at the revision; `path` is relative to the root.

        Raises:
            MissingAtRevisionError: the file does not exist, or its content is not available.
        """
        blob = self._blob(path)
        with to.open("wb") as file:
            result = repository.run_git(self.root, ["cat-file", "blob", blob], stdout=file, offline=self.offline)
        if result.returncode:
            reason = repository.last_line(result.stderr)
            raise MissingAtRevisionError(f"cannot read `{path}` at `{self.name}`: {reason}")
        if pointer := read_pointer(to):
            self._replace_pointer(path, to, pointer)

    def _blob(self, path: str) -> str:
        listed = repository.run_git(self.root, ["ls-tree", "-z", self.commit, "--", f":(literal){path}"])
        entry = listed.stdout.decode("utf-8", "replace").partition("\t")[0].split()
        if len(entry) != 3 or entry[1] != "blob":
            raise MissingAtRevisionError(f"`{path}` does not exist at `{self.name}`", is_new=True)
        if entry[0] not in FILE_MODES:
            raise MissingAtRevisionError(f"`{path}` is a link at `{self.name}`")
        return entry[2]

    def _replace_pointer(self, path: str, file: Path, pointer: LfsPointer) -> None:
        """Replace a pointer with its content, which is read from the local Git LFS storage or fetched by `git lfs`."""
        stored = self.lfs_object(pointer.sha256)
        if stored.is_file() and stored.stat().st_size == pointer.size_bytes:
            file.unlink()
            link_or_copy(stored, file)
            return
        lacking = f"`{path}` at `{self.name}` is a Git LFS pointer (content not fetched)"
        hint = f"run `git lfs fetch origin {self.commit} --include {quote_value(path)}`"
        if self.offline:
            raise MissingAtRevisionError(lacking, hint=hint)
        server = repository.select_lfs_server(self.root)
        command = [*server, "lfs", "smudge"]
        with replace_atomically(file) as smudged:
            with smudged.open("wb") as content:
                result = repository.run_git(self.root, command, stdin=file.read_bytes(), stdout=content)
            if result.returncode or smudged.stat().st_size != pointer.size_bytes:
                why = _describe_lfs_failure(result.stderr)
                hint += f"; onnxgate ignores the server in `{repository.LFS_CONFIG}`" if server else ""
                raise MissingAtRevisionError(f"{lacking}{f': {why}' if why else ''}", hint=hint)

    def lfs_object(self, oid: str) -> Path:
        """Return the path at which Git LFS stores fetched content."""
        common = self.root / repository.read_git_line(self.root, ["rev-parse", "--git-common-dir"])
        storage = repository.read_git_line(self.root, ["config", "--get", "lfs.storage"]) or "lfs"
        return (common / storage / "objects" / oid[:2] / oid[2:4] / oid).absolute()


def _describe_lfs_failure(stderr: bytes) -> str:
    match = re.search(rb"Smudge error: [^\n]*\([0-9a-f]{64}\): ([^\n]+)", stderr)
    return match[1].decode("utf-8", "replace") if match else repository.last_line(stderr)


def resolve_revision(root: Path | None, name: str, *, offline: bool = False) -> Revision:
    """Return the revision with this name.

    Raises:
        UsageError: the name or the repository does not exist.
    """
    if root is None:
        raise UsageError(f"`--against {name}`: the project is not in a git repository")
    checked = repository.run_git(root, ["rev-parse", "--git-dir"], offline=True)
    if checked.returncode:
        trouble = repository.last_line(checked.stderr) or f"exit status {checked.returncode}"
        hint = "check that git is installed and can read this repository: `git status`"
        raise UsageError(f"`--against {name}`: git failed: {trouble}", hint=hint)
    commit = repository.find_commit(root, name)
    why = ""
    if not commit and repository.is_commit_id(name):
        why = repository.fetch_commit(root, name, offline=offline)
        commit = "" if why else name
    elif not commit:
        try:
            commit, why = repository.resolve_ancestor(root, name, offline=offline)
        except repository.NoParentError as problem:
            raise UsageError(f"`--against {name}`: {problem}") from problem
    if not commit:
        advice = FETCH_HINT if why else _suggest_revision(root, name)
        raise UsageError(f"`--against {name}`: {why or 'it does not exist in this clone'}", hint=advice)
    return Revision(root, name, commit, offline)


def _suggest_revision(root: Path, name: str) -> str | None:
    """Return a hint with the most similar branch or tag, and to fetch the name if the repository has a remote."""
    refs = repository.read_git_line(root, ["for-each-ref", "--format=%(refname:short)"]).splitlines()
    base = re.split(r"[~^]", name, maxsplit=1)[0]
    near = text.find_similar(base, refs)
    meant = f"did you mean `{near}{name[len(base) :]}`?" if near else ""
    if not repository.read_git_line(root, ["remote"]):
        return meant or None
    return f"{meant} If not, {FETCH_HINT}" if meant else FETCH_HINT


def resolve_data_path(model: str, location: str) -> str | None:
    """Return the path of a model's external data, relative to the root; None if it is outside the model's folder."""
    path = PurePosixPath(location)
    if path.is_absolute() or ".." in path.parts or "\\" in location:
        return None
    return (PurePosixPath(model).parent / path).as_posix()


class WrittenModel(msgspec.Struct, frozen=True):
    """A model at a revision, written to a folder with its data."""

    path: Path
    view: ModelView


def write_model_at_revision(revision: Revision, path: str, folder: Path) -> WrittenModel:
    """Write the model with its data to a folder, which is created; `path` is relative to git's root.

    Raises:
        MissingAtRevisionError: the model, or some of its data, is not available.
    """
    folder.mkdir(parents=True)
    model = folder / "model.onnx"
    revision.write(path, model)
    try:
        view = read_view(model)
    except UnreadableModel as reason:
        raise MissingAtRevisionError(f"cannot read `{path}` at `{revision.name}`: it is {reason}") from reason
    write_data_at_revision(revision, path, iter_data_locations(view), folder)
    return WrittenModel(model, view)


def write_data_at_revision(revision: Revision, path: str, locations: Iterable[str], folder: Path) -> None:
    """Write the data files of the model at `path` to a folder, under the names that the model uses.

    Raises:
        MissingAtRevisionError: a data file is not available.
    """
    for location in sorted({*locations} - {""}):
        at = resolve_data_path(path, location)
        if at is None:
            raise MissingAtRevisionError(
                f"`{path}` at `{revision.name}` has external data outside the folder of the model: `{location}`"
            )
        to = folder / location
        to.parent.mkdir(parents=True, exist_ok=True)
        to.unlink(missing_ok=True)  # it may be a hard link into the storage of Git LFS
        revision.write(at, to)


SUBMODULE_MODE = "160000"
_MAX_LINKS = 8
_CHUNK_BYTES = 1024 * 1024


class TreeEntry(msgspec.Struct, frozen=True):
    """One entry of a git tree. `blob` is git's digest of the content, or the commit of a submodule."""

    mode: str
    blob: str


class Tree(msgspec.Struct, frozen=True, dict=True):
    """The files of one revision; paths are relative to git's root."""

    revision: Revision
    _pointers: dict[str, LfsPointer | None] = msgspec.field(default_factory=dict)

    @functools.cached_property
    def entries(self) -> Mapping[str, TreeEntry]:
        """All entries by path: files, links and submodules.

        Raises:
            MissingAtRevisionError: the revision is incomplete.
        """
        listed = self.revision.run_git(["ls-tree", "-r", "-z", "--full-tree", self.revision.commit])
        if listed.returncode:
            reason = repository.last_line(listed.stderr)
            raise MissingAtRevisionError(f"cannot list the files at `{self.revision.name}`: {reason}")
        entries = {}
        for row in filter(None, listed.stdout.split(b"\0")):
            entry, _, name = row.partition(b"\t")
            mode, _, blob = entry.decode("ascii").split(" ")
            entries[os.fsdecode(name)] = TreeEntry(mode, blob)
        return entries

    def file(self, path: str) -> str:
        """Return the path of a file with links inside the tree resolved; "" if the file does not exist."""
        for _ in range(_MAX_LINKS):
            path = self.followed(path)
            entry = self.entries.get(path)
            if entry is None or entry.mode != LINK_MODE:
                return path if entry is not None and entry.mode in FILE_MODES else ""
            path = self._target(path)
        return ""

    def followed(self, path: str) -> str:
        """Return the path with links to folders resolved; "" if the links are circular."""
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
        """Return the submodule that contains a path; "" if none does."""
        return self._first_above(path, SUBMODULE_MODE)

    def _first_above(self, path: str, mode: str) -> str:
        parts = path.split("/")
        above = ("/".join(parts[:length]) for length in range(1, len(parts)))
        return next((parent for parent in above if parent in self.entries and self.entries[parent].mode == mode), "")

    def text(self, path: str) -> str | None:
        """Return the text of a file; None if it does not exist or is not valid UTF-8."""
        at = self.file(path)
        try:
            return self._content(self.entries[at].blob).decode("utf-8") if at else None
        except UnicodeDecodeError:
            return None

    def pointer(self, path: str) -> LfsPointer | None:
        """Return the Git LFS pointer that is committed for a file; None for any other file."""
        self.learn_pointers([path])
        return self._pointers[self.entries[path].blob]

    def learn_pointers(self, paths: Iterable[str]) -> None:
        """Read the Git LFS pointers among these files in one batch."""
        unknown = {self.entries[path].blob for path in paths} - self._pointers.keys()
        self._pointers.update(dict.fromkeys(unknown))
        contents = repository.read_small_blobs(self.revision.root, unknown, offline=self.revision.offline)
        self._pointers.update((blob, parse_pointer(content)) for blob, content in contents)

    def is_same(self, path: str, file: Path) -> bool:
        """Return whether a file has the same bytes as the file at `path` in the tree."""
        return compute_blob_id(file, len(self.entries[path].blob)) == self.entries[path].blob

    def digest(self, path: str) -> tuple[str, int]:
        """Return the SHA-256 and size of a file's content; for a pointer, of the content that it refers to.

        Raises:
            MissingAtRevisionError: the file cannot be read.
        """
        if pointer := self.pointer(path):
            return pointer.sha256, pointer.size_bytes
        with temporary_folder() as folder:
            file = Path(folder) / "content"
            self.revision.write(path, file)
            return sha256_of(file), file.stat().st_size

    def _content(self, blob: str) -> bytes:
        return self.revision.run_git(["cat-file", "blob", blob]).stdout


def compute_blob_id(file: Path, digits: int = 40) -> str:
    """Return git's digest of a file's bytes; a repository uses digests of 40 or of 64 hexadecimal digits."""
    digest = hashlib.new("sha1" if digits == 40 else "sha256", usedforsecurity=False)
    digest.update(b"blob %d\0" % file.stat().st_size)
    with file.open("rb") as content:
        while chunk := content.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


MAX_COMPARED_FILES = 200
"""Maximum number of files to compare, since git compares all pairs of files."""


class NewFile(msgspec.Struct, frozen=True):
    """A file that does not exist at the revision under its present path."""

    path: str
    file: Path
    sha256: str  # of its content, which may not be fetched


def find_moved(
    tree: Tree, removed: Sequence[str], new: Sequence[NewFile], prefer: Callable[[NewFile, str], bool]
) -> dict[str, str]:
    """Return the old path of each new file whose content existed before, by new path.

    If there are several old paths, one that `prefer` accepts is chosen, or otherwise one with the same file name.
    """
    tree.learn_pointers(removed)
    remaining = list(removed)
    digits = {len(tree.entries[path].blob) for path in removed}
    moved: dict[str, str] = {}
    for file in new:
        name = posixpath.basename(file.path)
        blobs = {compute_blob_id(file.file, length) for length in digits if file.file.is_file()}
        same = [path for path in remaining if _has_same_content(tree, path, file, blobs)]
        if same:
            order = {path: (not prefer(file, path), posixpath.basename(path) != name, path) for path in same}
            moved[file.path] = min(order, key=order.__getitem__)
            remaining.remove(moved[file.path])
    return moved


def _has_same_content(tree: Tree, path: str, newcomer: NewFile, blobs: Collection[str]) -> bool:
    pointer = tree.pointer(path)
    return tree.entries[path].blob in blobs if pointer is None else pointer.sha256 == newcomer.sha256


def find_same_name(removed: Iterable[str], new: Iterable[NewFile]) -> dict[str, str]:
    """Return, by new path, the old path of the file with the same name in another folder, if the name is unique."""
    before = _unique_by_name(removed)
    after = _unique_by_name(file.path for file in new)
    return {after[name]: before[name] for name in sorted(after) if name in before}


def _unique_by_name(paths: Iterable[str]) -> dict[str, str]:
    by_name: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        by_name[posixpath.basename(path)].append(path)
    return {name: same[0] for name, same in by_name.items() if len(same) == 1}


def find_similar(tree: Tree, removed: Sequence[str], new: Sequence[str]) -> Mapping[str, tuple[str, int]]:
    """Return, by new path, the old path of the similar file that git found, and the similarity in percent.

    Git LFS pointers are skipped, because they are all similar. Files that are not in the index are skipped as well.
    """
    plain = [path for path in removed if tree.pointer(path) is None]
    if not plain or not new or len(plain) + len(new) > MAX_COMPARED_FILES:
        return {}
    names = set(new)
    paths = [f":(literal){path}" for path in (*plain, *new)]
    compare = ["diff-index", "--cached", "--raw", "-z", "--find-renames=50%", "--diff-filter=R", tree.revision.commit]
    result = tree.revision.run_git([*compare, "--", *paths])
    fields = iter(os.fsdecode(result.stdout).split("\0"))
    rows = zip(fields, fields, fields, strict=False)  # `:100644 100644 aa bb R087`, old name, new name
    return {after: (before, int(status.rpartition(" ")[2][1:])) for status, before, after in rows if after in names}


def find_exact_renames(tree: Tree) -> dict[str, str]:
    """Return, by new path, the old path of each file in git's index that was renamed without a change."""
    compare = ["diff-index", "--cached", "--raw", "-z", "--find-renames=100%", "--diff-filter=R", tree.revision.commit]
    fields = iter(os.fsdecode(tree.revision.run_git(compare).stdout).split("\0"))
    return {after: before for _, before, after in zip(fields, fields, fields, strict=False)}


def find_added(tree: Tree) -> list[str]:
    """Return the files in git's index that do not exist at the revision."""
    listed = os.fsdecode(tree.revision.run_git(["ls-files", "-z"]).stdout).split("\0")
    return [path for path in listed if path and path not in tree.entries]
