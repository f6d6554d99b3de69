"""Git revisions: files as they were, without a checkout; Git LFS pointers are followed to their content."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from onnxgate.baseline import commits, git
from onnxgate.errors import UsageError
from onnxgate.model.linking import link
from onnxgate.model.pointer import read_pointer

LINK, FILES = "120000", ("100644", "100755")
FETCH = (
    "fetch it first; a CI job's checkout has one commit, unless it asks for more: `fetch-depth: 2` for `HEAD^1`, "
    "`fetch-depth: 0` for branches"
)


class AbsentError(Exception):
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
            done = git.ask(self.root, ["cat-file", "blob", blob], stdout=file, offline=self.offline)
        if done.returncode:
            raise AbsentError(f"`{path}` at `{self.name}` cannot be read: {git.last_line(done.stderr)}")
        if read_pointer(to) is not None:
            self._follow(path, to)

    def _blob(self, path: str) -> str:
        listed = git.ask(self.root, ["ls-tree", "-z", self.commit, "--", f":(literal){path}"])
        entry = listed.stdout.decode("utf-8", "replace").partition("\t")[0].split()
        if len(entry) != 3 or entry[1] != "blob":
            raise AbsentError(f"`{path}` is not at `{self.name}`", is_new=True)
        if entry[0] not in FILES:
            raise AbsentError(f"`{path}` is a link at `{self.name}`")
        return entry[2]

    def _follow(self, path: str, file: Path) -> None:
        """Put the content in the place of its pointer: what lies here, else what `git lfs` fetches."""
        pointer = read_pointer(file)
        assert pointer is not None
        stored = self.lfs_object(pointer.sha256)
        if stored.is_file() and stored.stat().st_size == pointer.size_bytes:
            file.unlink()
            link(stored, file)
            return
        lacking = f"`{path}` at `{self.name}` is a Git LFS pointer, and its content is not here"
        hint = f'git lfs fetch origin {self.commit} --include "{path}"'
        if self.offline:
            raise AbsentError(lacking, hint=hint)
        smudged = file.with_name(f"{file.name}.smudged")
        with smudged.open("wb") as content:
            done = git.ask(self.root, ["lfs", "smudge"], stdin=file.read_bytes(), stdout=content)
        if done.returncode or smudged.stat().st_size != pointer.size_bytes:
            why = git.last_line(done.stderr)
            raise AbsentError(f"{lacking}{f': {why}' if why else ''}", hint=hint)
        smudged.replace(file)

    def lfs_object(self, oid: str) -> Path:
        """Where Git LFS keeps a content here, once it was fetched."""
        common = self.root / git.words(self.root, ["rev-parse", "--git-common-dir"])
        storage = git.words(self.root, ["config", "--get", "lfs.storage"]) or "lfs"
        return (common / storage / "objects" / oid[:2] / oid[2:4] / oid).absolute()


def resolve(root: Path | None, name: str, *, offline: bool = False) -> Revision:
    """The commit that a name means.

    Raises:
        UsageError: it means none, or there is no repository.
    """
    if root is None:
        raise UsageError(f"`--against {name}`: this is no git repository")
    if trouble := git.trouble(root):
        hint = "see that git is installed and can read this repository: `git status`"
        raise UsageError(f"`--against {name}`: git cannot be asked: {trouble}", hint=hint)
    commit = commits.commit_of(root, name)
    why = ""
    if not commit and commits.ID.fullmatch(name):
        why = commits.obtained(root, name, offline=offline)
        commit = "" if why else name
    elif not commit:
        commit, why = commits.walked(root, name, offline=offline)
    if not commit:
        raise UsageError(f"`--against {name}`: {why or 'git knows no such revision here'}", hint=FETCH)
    return Revision(root, name, commit, offline)


def inside(model: str, location: str) -> str | None:
    """Where external data of a model lie, relative to the root; None for what leaves the model's folder."""
    path = PurePosixPath(location)
    if path.is_absolute() or ".." in path.parts or "\\" in location:
        return None
    return (PurePosixPath(model).parent / path).as_posix()
