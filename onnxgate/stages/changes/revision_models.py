"""Models at a revision, read from the lock there if a digest proves that it is about them, or from the file."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onnxgate.core.errors import LockError
from onnxgate.core.files import replace_atomically
from onnxgate.model.facts import ExternalFile, ModelFacts, ValueInfo
from onnxgate.model.reading import fact_extraction
from onnxgate.model.reading.external_data import is_external, read_external_entries
from onnxgate.model.reading.file_format import LfsPointer, UnreadableModel, detect_other_type
from onnxgate.model.reading.structure import iter_tensors, read_structure
from onnxgate.project.config.globs import covers, is_glob, matches
from onnxgate.project.config.project import LOCK_NAME, Project
from onnxgate.project.git import repository
from onnxgate.project.git.revisions import (
    FILE_MODES,
    MissingAtRevisionError,
    NewFile,
    Revision,
    Tree,
    find_moved,
    find_same_name,
    find_similar,
    resolve_data_path,
    write_model_at_revision,
)
from onnxgate.project.lock.comparison import facts_from_entry
from onnxgate.project.lock.lock_file import parse_lock
from onnxgate.project.lock.types import Lock, LockedModel

if TYPE_CHECKING:
    from onnx import ModelProto


class InvalidAtRevisionError(Exception):
    """The file at the revision is not a model, so that no change since can have broken it."""


@dataclass(slots=True)
class RevisionModels:
    """The models of one revision. Paths are relative to git's root; facts name them from the config's folder."""

    tree: Tree
    folder: str  # the config's, below git's root; "" if they are the same
    scratch: Path  # a folder that exists, for contents
    _locks: dict[str, Lock | None] = field(default_factory=dict)
    _facts: dict[str, ModelFacts] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)
    _submodules: dict[str, RevisionModels] = field(default_factory=dict)

    @classmethod
    def at(cls, revision: Revision, folder: str, scratch: Path) -> RevisionModels:
        """The models of a revision; `scratch` is made."""
        scratch.mkdir(parents=True)
        return cls(Tree(revision), folder, scratch)

    @property
    def revision(self) -> Revision:
        """The revision whose models are read."""
        return self.tree.revision

    @property
    def own_lock(self) -> Lock | None:
        """The lock at its present path; None if it did not exist or cannot be read."""
        return self._lock(posixpath.join(self.folder, LOCK_NAME))

    def relative(self, at: str) -> str:
        """A path as the project says it."""
        return posixpath.relpath(at, self.folder or ".")

    def located(self, at: str) -> tuple[RevisionModels, str]:
        """Who knows what a path was, and by which path: that of a submodule is known by a repository of its own.

        Raises:
            AbsentError: the commit of the submodule cannot be had.
        """
        at = self.tree.followed(at)
        submodule = self.tree.submodule(at)
        if not submodule:
            return self, self.tree.file(at)
        if submodule not in self._submodules:
            self._submodules[submodule] = self._submodule(submodule)
        inner = self._submodules[submodule]
        return inner, inner.tree.file(at[len(submodule) + 1 :])

    def _submodule(self, path: str) -> RevisionModels:
        revision, commit = self.revision, self.tree.entries[path].blob
        root = revision.root / path
        why = repository.fetch_commit(root, commit, offline=revision.offline)
        if why:
            raise MissingAtRevisionError(f"the submodule `{path}` was at `{commit[:12]}`: {why}")
        own = replace(revision, root=root, commit=commit)
        return RevisionModels.at(own, "", self.scratch / f"submodule-{len(self._submodules)}")

    def is_same(self, at: str, file: Path, facts: ModelFacts) -> bool:
        """Whether the model at `file` has the content that `at` had, data files included; proved by digests alone."""
        return self._is_same_file(at, file, facts.sha256) and all(
            self._is_same_data(at, file, facts, data) for data in facts.external
        )

    def facts(self, at: str, name: str = "") -> ModelFacts:
        """Return the facts of the model at the revision. `name` is its path in the project.

        Raises:
            AbsentError: its content is not available, and no lock describes it.
            BrokenError: it was not a readable model.
        """
        if at not in self._facts:
            pointer = self.tree.pointer(at)
            entry = self._proven(at, pointer) if pointer is not None and not self._is_stored(pointer) else None
            self._facts[at] = self._locked(at, entry) if entry is not None else self._read(at)
            if entry is not None:
                self._told.add(at)
        return msgspec.structs.replace(self._facts[at], path=name or self.relative(at))

    def is_told_by_lock(self, at: str) -> bool:
        """Return whether the facts of a model come from a lock instead of its file."""
        return at in self._told

    def structure(self, at: str, *, fetch: bool = False) -> ModelProto:
        """The model without its data.

        Raises:
            AbsentError: its content is not here; with `fetch`, it cannot be had either.
        """
        return read_structure(self._written(at, fetch=fetch))

    def content(self, at: str, folder: Path) -> Path:
        """The model with all of its data, as far as they are here, in a folder that is made.

        Raises:
            AbsentError: some of it is not.
        """
        return write_model_at_revision(replace(self.revision, offline=True), at, folder)

    def forget(self, at: str) -> None:
        """Free the memory of a content that is not needed any more."""
        self._file(at).unlink(missing_ok=True)

    def _is_stored(self, pointer: LfsPointer) -> bool:
        return self.revision.lfs_object(pointer.sha256).is_file()

    def _is_same_file(self, at: str, file: Path, sha256: str) -> bool:
        pointer = self.tree.pointer(at)
        return pointer.sha256 == sha256 if pointer is not None else self.tree.is_same(at, file)

    def _is_same_data(self, at: str, file: Path, facts: ModelFacts, data: ExternalFile) -> bool:
        """Of data that git does not have, what the lock said then; of what nobody knows, nothing can be told."""
        where = self._data_path(at, data.location)
        if where:
            return self._is_same_file(where, file.parent / data.location, data.sha256)
        entry = self._proven(at, LfsPointer(facts.sha256, facts.size_bytes))
        locked = {file.location: file.sha256 for file in entry.external} if entry is not None else {}
        return locked.get(data.location, data.sha256) == data.sha256

    def _data_path(self, at: str, location: str) -> str:
        path = resolve_data_path(at, location)
        return self.tree.file(path) if path is not None else ""

    def _locked(self, at: str, entry: LockedModel) -> ModelFacts:
        data = self._data(at, [file.location for file in entry.external], entry)
        return msgspec.structs.replace(facts_from_entry(self.relative(at), entry), external=tuple(data))

    def _read(self, at: str) -> ModelFacts:
        file = self._written(at, fetch=True)
        if what := detect_other_type(file):
            raise InvalidAtRevisionError(what)
        try:
            proto = read_structure(file)
        except UnreadableModel as reason:
            raise InvalidAtRevisionError(str(reason)) from reason
        facts = fact_extraction.extract_facts(proto, file, self.relative(at))
        named = sorted(
            {
                read_external_entries(tensor).get("location", "")
                for _, tensor in iter_tensors(proto)
                if is_external(tensor)
            }
        )
        entry = self._proven(at, LfsPointer(facts.sha256, facts.size_bytes))
        return msgspec.structs.replace(facts, external=tuple(self._data(at, named, entry)))

    def _data(self, at: str, locations: Sequence[str], entry: LockedModel | None) -> Iterator[ExternalFile]:
        """Return the data files from the tree, or else from the lock."""
        locked = {file.location: file for file in entry.external} if entry is not None else {}
        for location in sorted(locations):
            where = self._data_path(at, location)
            if where:
                sha256, size_bytes = self.tree.digest(where)
                yield ExternalFile(location, size_bytes, sha256)
            elif location in locked:
                yield locked[location]

    def _written(self, at: str, *, fetch: bool) -> Path:
        """The model's own file; written once."""
        file = self._file(at)
        if not file.is_file():
            revision = self.revision if fetch else replace(self.revision, offline=True)
            with replace_atomically(file) as part:
                revision.write(at, part)
        return file

    def _file(self, at: str) -> Path:
        return self.scratch / f"{self.tree.entries[at].blob}.onnx"

    # Locks as they were

    def _proven(self, at: str, content: LfsPointer) -> LockedModel | None:
        """What a lock that may speak of the path says of exactly this content; by digest, whatever name it gives it."""
        for lock in self._speaking(at):
            for entry in lock.models.values():
                if (entry.sha256, entry.size_bytes) == (content.sha256, content.size_bytes):
                    return entry
        return None

    def _speaking(self, at: str) -> Iterator[Lock]:
        """The lock where it is now, then those of the folders above the path: the config may have moved."""
        folders = [self.folder, *map(str, _parent_folders(at))]
        for path in dict.fromkeys(posixpath.join(folder, LOCK_NAME) for folder in folders):
            lock = self._lock(path)
            if lock is not None:
                yield lock

    def _lock(self, path: str) -> Lock | None:
        """Return a lock at the revision; None if it did not exist or cannot be read."""
        if path not in self._locks:
            text = self.tree.text(path)
            try:
                self._locks[path] = parse_lock(text, path) if text is not None else None
            except LockError:
                self._locks[path] = None
        return self._locks[path]


def _parent_folders(path: str) -> Iterator[str]:
    """The folders that a path lies in, the nearest first."""
    folder = posixpath.dirname(path)
    while folder:
        yield folder
        folder = posixpath.dirname(folder)
    yield ""


MODEL_SUFFIX = ".onnx"
NEARLY_IDENTICAL_PERCENT = 90
"""So alike (per cent, as git counts) are files of which one was made from the other, whatever their inputs are."""


def find_renamed_models(
    past: RevisionModels,
    gone: Sequence[str],
    newcomers: Sequence[NewFile],
    facts: Mapping[str, ModelFacts],
    remarks: list[str],
) -> dict[str, str]:
    """Today's path -> what it was called. First by content; of others, where name or likeness and interface agree.

    All newcomers of the project take part, be they asked for or not; `facts` are of those that can be read.
    """

    def has_same_data(file: NewFile, path: str) -> bool:
        return file.path in facts and past.is_same(path, file.file, facts[file.path])

    found = find_moved(past.tree, gone, newcomers, has_same_data)
    rest = [newcomer for newcomer in newcomers if newcomer.path not in found]
    left = [path for path in gone if path not in found.values()]
    alike = find_similar(past.tree, left, rest) if rest and left else {}
    guesses = {**{path: (before, 0) for path, before in find_same_name(left, rest).items()}, **alike}
    for path, (before, percent) in sorted(guesses.items()):
        if path not in facts or before in found.values():
            continue
        if _is_renamed_from(past, before, facts[path], percent, remarks):
            found[path] = before
    return found


def find_missing_files(past: RevisionModels) -> list[str]:
    """Return models of the revision, of any project, whose files were removed."""
    root, lock = past.revision.root, past.own_lock
    locked = {posixpath.join(past.folder, path) for path in lock.models} if lock is not None else set()
    return [
        path
        for path, entry in past.tree.entries.items()
        if entry.mode in FILE_MODES
        if (path.endswith(MODEL_SUFFIX) or path in locked) and not os.path.lexists(root / path)
    ]


def find_removed_models(past: RevisionModels, project: Project, here: Collection[str]) -> Iterator[str]:
    """The project's models that are no longer among its models; `here` are today's paths, relative to git's root."""
    lock = past.own_lock
    locked = lock.models.keys() if lock is not None else set()
    for path, entry in past.tree.entries.items():
        name = past.relative(path)
        if entry.mode in FILE_MODES and path not in here and (name in locked or _is_matched_by_config(project, name)):
            yield path


def _is_matched_by_config(project: Project, name: str) -> bool:
    """Whether today's config would take a file for a model."""
    patterns, excluded = project.config.models, project.config.exclude
    if name.startswith("../") or any(covers(file, name) for file in excluded):
        return False
    return (
        name.endswith(MODEL_SUFFIX)
        if patterns is None
        else any(_matches_pattern(pattern, name) for pattern in patterns)
    )


def _matches_pattern(pattern: str, name: str) -> bool:
    pattern = pattern.removeprefix("./").rstrip("/")
    if not is_glob(pattern):
        return name == pattern or (name.startswith(f"{pattern}/") and name.endswith(MODEL_SUFFIX))
    return matches(pattern, name) and (not pattern.endswith("*") or name.endswith(MODEL_SUFFIX))


def _is_renamed_from(past: RevisionModels, path: str, after: ModelFacts, percent: int, remarks: list[str]) -> bool:
    prefix, at = f"{after.path}: held against nothing:", f"`{past.relative(path)}` at `{past.revision.name}`"
    try:
        before = past.facts(path)
    except InvalidAtRevisionError:
        return False
    except MissingAtRevisionError as error:
        remarks.append(f"{prefix} whether it is {at} cannot be told: {error.reason}")
        return False
    if _value_kinds(before.inputs) == _value_kinds(after.inputs) and _value_kinds(before.outputs) == _value_kinds(
        after.outputs
    ):
        return True
    if percent >= NEARLY_IDENTICAL_PERCENT and _share_names(before, after):
        return True
    remarks.append(f"{prefix} {at} may be what it was called, and their inputs or outputs are too different to tell")
    return False


def _value_kinds(values: Sequence[ValueInfo]) -> set[tuple[str, str, int | None]]:
    return {(value.name, value.type, None if value.shape is None else len(value.shape)) for value in values}


def _share_names(before: ModelFacts, after: ModelFacts) -> bool:
    """Whether at least half of the inputs and outputs go by the same names."""
    then, now = _value_names(before), _value_names(after)
    return 2 * len(then & now) >= max(len(then), len(now))


def _value_names(facts: ModelFacts) -> set[tuple[str, str]]:
    return {*(("in", file.name) for file in facts.inputs), *(("out", output.name) for output in facts.outputs)}
