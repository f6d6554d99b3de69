"""Models at a revision: read from the lock of that revision if a digest matches, otherwise from the file."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import msgspec
from msgspec.structs import replace

from onnxgate.core.errors import LockError
from onnxgate.core.files import link_or_copy, replace_atomically
from onnxgate.core.process_pool import CallFailure, describe_failure
from onnxgate.model.facts import ExternalFile, ModelFacts
from onnxgate.model.reading.file_format import LfsPointer
from onnxgate.project.config.project import LOCK_NAME, Project, selects
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
    write_data_at_revision,
)
from onnxgate.project.lock.comparison import facts_from_entry
from onnxgate.project.lock.lock_file import parse_lock
from onnxgate.project.lock.types import Lock, LockedModel
from onnxgate.stages.changes.file_comparison import FactsReading, FileCalls, read_base


class DataDigest(msgspec.Struct, frozen=True):
    """Digest of one data file at a revision."""

    sha256: str
    size_bytes: int


class InvalidAtRevisionError(Exception):
    """The file at the revision is not a valid model, so later changes cannot have broken it."""


@dataclass(slots=True)
class RevisionModels:
    """Models at one revision. Paths in facts are relative to the config folder, other paths to the repository root."""

    tree: Tree
    folder: str  # config folder, relative to the repository root; "" for the root
    scratch: Path  # an existing folder for the files that are written
    calls: FileCalls
    failures: dict[str, MissingAtRevisionError] = field(default_factory=dict)
    """Reasons why files could not be read, by path relative to the repository root; each must be reported."""
    _readings: dict[str, FactsReading] = field(default_factory=dict)
    _locks: dict[str, Lock | None] = field(default_factory=dict)
    _facts: dict[str, ModelFacts] = field(default_factory=dict)
    _from_lock: set[str] = field(default_factory=set)
    _submodules: dict[str, RevisionModels] = field(default_factory=dict)

    @classmethod
    def at(cls, revision: Revision, folder: str, scratch: Path, calls: FileCalls) -> RevisionModels:
        """Return the models at a revision, and create the folder `scratch`."""
        scratch.mkdir(parents=True)
        return cls(Tree(revision), folder, scratch, calls)

    @property
    def revision(self) -> Revision:
        """The revision whose models are read."""
        return self.tree.revision

    @property
    def own_lock(self) -> Lock | None:
        """The project's lock at the revision, looked up at its current path; None if it is missing or unreadable."""
        return self._lock(posixpath.join(self.folder, LOCK_NAME))

    def relative(self, at: str) -> str:
        """Return a path relative to the config folder."""
        return posixpath.relpath(at, self.folder or ".")

    def located(self, at: str) -> tuple[RevisionModels, str]:
        """Return the models in the repository or submodule that contains a path, and the path relative to it.

        Raises:
            MissingAtRevisionError: the commit of the submodule cannot be fetched.
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
            raise MissingAtRevisionError(f"commit `{commit[:12]}` of the submodule `{path}` is missing: {why}")
        own = replace(revision, root=root, commit=commit)
        return RevisionModels.at(own, "", self.scratch / f"submodule-{len(self._submodules)}", self.calls)

    def is_same(self, at: str, file: Path, facts: ModelFacts) -> bool:
        """Compare digests: return whether `file` and its data equal the model at the path `at` in the revision."""
        return self._is_same_file(at, file, facts.sha256) and all(
            self._is_same_data(at, file, facts, data) for data in facts.external
        )

    def facts(self, at: str, name: str = "") -> ModelFacts:
        """Return the facts of the model at the revision. `name` is its path in the project.

        Raises:
            MissingAtRevisionError: the content of the model is not available, and no lock describes it.
            InvalidAtRevisionError: the file was not a readable model.
        """
        if at not in self._facts:
            pointer = self.tree.pointer(at)
            is_stored = pointer is not None and self.revision.lfs_object(pointer.sha256).is_file()
            entry = self._find_locked(at, pointer) if pointer is not None and not is_stored else None
            if entry is not None:
                data = self._data(at, [file.location for file in entry.external], entry)
                facts = msgspec.structs.replace(facts_from_entry(self.relative(at), entry), external=tuple(data))
                self._from_lock.add(at)
            else:
                facts = self._read(at)
            self._facts[at] = facts
        return msgspec.structs.replace(self._facts[at], path=name or self.relative(at))

    def is_from_lock(self, at: str) -> bool:
        """Return whether the facts of a model come from a lock, not from its file."""
        return at in self._from_lock

    def file(self, at: str, *, fetch: bool = False) -> Path:
        """Return the model file, without its external data.

        Raises:
            MissingAtRevisionError: the content is missing and, with `fetch`, cannot be fetched.
        """
        file = self._written(at, fetch=fetch)
        if invalid := self._reading(at).invalid:
            raise MissingAtRevisionError(f"`{at}` at `{self.revision.name}` is {invalid}")
        return file

    def _written(self, at: str, *, fetch: bool) -> Path:
        """Return the model file, which is written on the first call."""
        file = self._file(at)
        if not file.is_file():
            revision = self.revision if fetch else replace(self.revision, offline=True)
            with replace_atomically(file) as part:
                revision.write(at, part)
        return file

    def complete_file(self, at: str, folder: Path) -> Path:
        """Return the model file. If it has external data, first copy the model and its data to `folder`.

        No content is fetched.

        Raises:
            MissingAtRevisionError: a file is missing.
        """
        file, locations = self.file(at), self._reading(at).locations
        if not any(locations):
            return file
        complete = folder / posixpath.basename(at)
        link_or_copy(file, complete)
        write_data_at_revision(replace(self.revision, offline=True), at, locations, folder)
        return complete

    def forget(self, at: str) -> None:
        """Delete the file of a model that is no longer needed."""
        self._file(at).unlink(missing_ok=True)

    def _is_same_file(self, at: str, file: Path, sha256: str) -> bool:
        pointer = self.tree.pointer(at)
        return pointer.sha256 == sha256 if pointer is not None else self.tree.is_same(at, file)

    def _is_same_data(self, at: str, file: Path, facts: ModelFacts, data: ExternalFile) -> bool:
        """Return whether a data file is unchanged.

        Untracked data is compared with the lock at the revision, and counts as unchanged if it is not in the lock.
        """
        where = self._data_path(at, data.location)
        if where:
            return self._is_same_file(where, file.parent / data.location, data.sha256)
        entry = self._find_locked(at, LfsPointer(facts.sha256, facts.size_bytes))
        locked = {file.location: file.sha256 for file in entry.external} if entry is not None else {}
        return locked.get(data.location, data.sha256) == data.sha256

    def _data_path(self, at: str, location: str) -> str:
        path = resolve_data_path(at, location)
        return self.tree.file(path) if path is not None else ""

    def _read(self, at: str) -> ModelFacts:
        reading = self._reading(at)
        if reading.facts is None:
            raise InvalidAtRevisionError(reading.invalid)
        facts = reading.facts
        entry = self._find_locked(at, LfsPointer(facts.sha256, facts.size_bytes))
        return msgspec.structs.replace(facts, external=tuple(self._data(at, reading.locations, entry)))

    def _reading(self, at: str) -> FactsReading:
        """Return the facts of the model file; they are cached."""
        if at not in self._readings:
            pointer = self.tree.pointer(at)
            key = ("base", pointer.sha256 if pointer is not None else f"git {self.tree.entries[at].blob}")
            reading = self.calls.recall(key, FactsReading)
            if reading is None:
                reading = self._read_file(at)
                facts = reading.facts
                if facts is not None and (pointer is None or pointer.sha256 == facts.sha256):
                    self.calls.keep(key, reading, {})
            self._readings[at] = reading
        return self._readings[at]

    def _read_file(self, at: str) -> FactsReading:
        if at in self.failures:
            raise self.failures[at]
        file = self._written(at, fetch=True)
        answer = self.calls.call(read_base, file, FactsReading, [file])
        if isinstance(answer, CallFailure):
            reason, hint = describe_failure(answer, "reading the file")
            self.failures[at] = MissingAtRevisionError(reason, hint=hint)
            raise self.failures[at]
        return answer

    def _data(self, at: str, locations: Collection[str], entry: LockedModel | None) -> Iterator[ExternalFile]:
        """Yield the data files as recorded in the git tree or, if they are missing there, in the lock."""
        locked = {file.location: file for file in entry.external} if entry is not None else {}
        for location in sorted(locations):
            where = self._data_path(at, location)
            if where:
                sha256, size_bytes = self._digest(where)
                yield ExternalFile(location, size_bytes, sha256)
            elif location in locked:
                yield locked[location]

    def _digest(self, at: str) -> tuple[str, int]:
        """Return the SHA-256 and size in bytes of a data file."""
        key = ("data", self.tree.entries[at].blob)
        known = self.calls.recall(key, DataDigest)
        if known is None:
            known = DataDigest(*self.tree.digest(at))
            self.calls.keep(key, known, {})
        return known.sha256, known.size_bytes

    def _file(self, at: str) -> Path:
        return self.scratch / f"{self.tree.entries[at].blob}.onnx"

    def _find_locked(self, at: str, content: LfsPointer) -> LockedModel | None:
        """Find a lock entry with exactly this content, under any name, in the locks that may list the model.

        The current path of the lock is tried first, then the parent folders of the model, because the config may have
        moved.
        """
        folders = (self.folder, *map(str, PurePosixPath(at).parents))
        for path in dict.fromkeys(posixpath.normpath(posixpath.join(folder, LOCK_NAME)) for folder in folders):
            lock = self._lock(path)
            for entry in lock.models.values() if lock is not None else ():
                if (entry.sha256, entry.size_bytes) == (content.sha256, content.size_bytes):
                    return entry
        return None

    def _lock(self, path: str) -> Lock | None:
        """Return a lock at the revision; None if it did not exist or cannot be read."""
        if path not in self._locks:
            text = self.tree.text(path)
            try:
                self._locks[path] = parse_lock(text, path) if text is not None else None
            except LockError:
                self._locks[path] = None
        return self._locks[path]


MODEL_SUFFIX = ".onnx"
NEARLY_IDENTICAL_PERCENT = 90
"""A file with at least this similarity (percent, from git) is treated as renamed even if its interface changed."""


def find_renamed_models(
    baseline: RevisionModels,
    missing: Sequence[str],
    newcomers: Sequence[NewFile],
    facts: Mapping[str, ModelFacts],
    remarks: list[str],
) -> dict[str, str]:
    """Map current paths to earlier paths: by content, then by equal name or similar content if the interface matches.

    `newcomers` are all new models in the project, selected or not; `facts` contains the facts of readable new models.
    """

    def has_same_data(file: NewFile, path: str) -> bool:
        return file.path in facts and baseline.is_same(path, file.file, facts[file.path])

    renamed = find_moved(baseline.tree, missing, newcomers, has_same_data)
    new = [newcomer for newcomer in newcomers if newcomer.path not in renamed]
    old = [path for path in missing if path not in renamed.values()]
    similar = find_similar(baseline.tree, old, [file.path for file in new]) if new and old else {}
    candidates = {**{path: (before, 0) for path, before in find_same_name(old, new).items()}, **similar}
    for path, (before, percent) in sorted(candidates.items()):
        if path not in facts or before in renamed.values():
            continue
        if _is_renamed_from(baseline, before, facts[path], percent, remarks):
            renamed[path] = before
    return renamed


def find_missing_files(baseline: RevisionModels) -> list[str]:
    """Return the models at the revision whose files no longer exist, including models of other projects."""
    root, lock = baseline.revision.root, baseline.own_lock
    locked = {posixpath.join(baseline.folder, path) for path in lock.models} if lock is not None else set()
    return [
        path
        for path, entry in baseline.tree.entries.items()
        if entry.mode in FILE_MODES
        if (path.endswith(MODEL_SUFFIX) or path in locked) and not os.path.lexists(root / path)
    ]


def find_removed_models(baseline: RevisionModels, project: Project, present: Collection[str]) -> Iterator[str]:
    """Yield models that are no longer in the project; `present` are current paths relative to the repository root."""
    lock = baseline.own_lock
    locked = lock.models.keys() if lock is not None else set()
    for path, entry in baseline.tree.entries.items():
        name = baseline.relative(path)
        if entry.mode in FILE_MODES and path not in present and (name in locked or selects(project.config, name)):
            yield path


def _is_renamed_from(baseline: RevisionModels, path: str, after: ModelFacts, percent: int, remarks: list[str]) -> bool:
    prefix, at = f"{after.path}: not compared with", f"`{baseline.relative(path)}` at `{baseline.revision.name}`"
    try:
        before = baseline.facts(path)
    except InvalidAtRevisionError:
        return False
    except MissingAtRevisionError as error:
        remarks.append(f"{prefix} {at}, which may be its earlier version: {error.reason}")
        return False
    if _interface(before) == _interface(after):
        return True
    old, new = ({value[:2] for value in _interface(facts)} for facts in (before, after))
    if percent >= NEARLY_IDENTICAL_PERCENT and 2 * len(old & new) >= max(len(old), len(new)):
        return True
    remarks.append(f"{prefix} {at}, which may be its earlier version: their inputs or outputs differ too much")
    return False


def _interface(facts: ModelFacts) -> set[tuple[str, str, str, int | None]]:
    """Return the role, name, type and rank of each input and output."""
    return {
        (role, value.name, value.type, None if value.shape is None else len(value.shape))
        for role, values in (("input", facts.inputs), ("output", facts.outputs))
        for value in values
    }
