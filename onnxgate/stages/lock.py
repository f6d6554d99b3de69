"""Lock stage: compare models and config with the lock, without running models or accessing the network."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from msgspec.structs import replace

from onnxgate.core.bug_reports import contain_errors
from onnxgate.core.errors import LockError
from onnxgate.core.files import sha256_of
from onnxgate.core.findings import IncompleteCheck, Place, Stage
from onnxgate.core.text import quote_value
from onnxgate.evidence.file import ModelFile
from onnxgate.evidence.lock import LockConfigComparison, ModelLockComparison
from onnxgate.model.facts import ExternalFile
from onnxgate.model.reading.external_data import inspect_data_file
from onnxgate.project.config.project import Project
from onnxgate.project.lock.comparison import (
    describe_model_changes,
    entry_from_facts,
    facts_from_entry,
    find_misrecorded_keys,
    policy_differences,
)
from onnxgate.project.lock.lock_file import parse_lock
from onnxgate.project.lock.types import REVISION, Lock, LockedModel
from onnxgate.project.toml import Keys, find_key_lines, find_nearest_line

if TYPE_CHECKING:
    from onnxgate.project.git.revisions import Revision


def leave_unknown_pointers_undecided(
    project: Project, files: Sequence[ModelFile], revision: Revision | None
) -> tuple[ModelFile, ...]:
    """
    Return the files; those whose Git LFS content is neither fetched nor described by the lock are undecided.

    With a baseline, the entry must be in the baseline's lock, too: a change can add any facts next to a pointer.
    """
    if not any(file.pointer or _unfetched_data(file) for file in files):
        return tuple(files)
    base = _list_entries_at(project, revision) if revision is not None else []
    return tuple(_check_pointers(file, base, revision) for file in files)


def _check_pointers(file: ModelFile, base: Sequence[LockedModel], revision: Revision | None) -> ModelFile:
    entries = base
    if revision is None:
        entries = [file.locked] if file.locked is not None else []
    unknown = "" if revision is None else f", and the lock at `{revision.name}` does not contain it"
    if file.pointer is not None:
        facts = [facts_from_entry("", entry) for entry in entries]
        if file.pointer_is_locked and file.locked is not None and facts_from_entry("", file.locked) in facts:
            return file
        reason = f"the file is a Git LFS pointer (content not fetched){unknown if file.pointer_is_locked else ''}"
        return _undecide(file, reason, file.git_path)
    digests = {data.sha256 for entry in entries for data in entry.external}
    for location, sha256 in _unfetched_data(file).items():
        if sha256 not in digests:
            reason = f"external data `{location}` is a Git LFS pointer (content not fetched){unknown}"
            return _undecide(file, reason, (PurePosixPath(file.git_path).parent / location).as_posix())
    return file


def _undecide(file: ModelFile, reason: str, path: str) -> ModelFile:
    hint = (
        f"run `git lfs pull --include {quote_value(path)}`; in GitHub Actions, set `lfs: true` for `actions/checkout`"
    )
    return replace(file, pointer_is_locked=False, undecided=(reason, hint))


def _unfetched_data(file: ModelFile) -> dict[str, str]:
    """Return the data files that are Git LFS pointers, with the SHA-256 of their content."""
    return {use.location: use.pointer_sha256 for use in file.external if use.problem == "lfs-pointer"}


def _list_entries_at(project: Project, revision: Revision) -> list[LockedModel]:
    """Return the models in the project's lock at a revision; if it is missing there, in all locks, as it was moved."""
    from onnxgate.project.git.revisions import MissingAtRevisionError, Tree

    tree, name = Tree(revision), project.lock_path.name
    own = (project.folder.relative_to(revision.root) / name).as_posix()
    entries: list[LockedModel] = []
    try:
        others = [path for path in tree.entries if PurePosixPath(path).name == name]
        for path in [own] if tree.file(own) else others:
            with contextlib.suppress(LockError):
                entries += parse_lock(tree.text(path) or "", path).models.values()
    except MissingAtRevisionError:
        return []
    return entries


def describe_revision(lock: Lock) -> Iterator[str]:
    """Yield a remark if a newer onnxgate wrote the lock."""
    if lock.revision > REVISION:
        yield f"the lock has format revision {lock.revision}; keys that this onnxgate does not know are ignored"


def collect_evidence(
    project: Project, lock: Lock, lock_text: str, files: Sequence[ModelFile], undone: list[IncompleteCheck]
) -> tuple[tuple[ModelLockComparison, ...], LockConfigComparison]:
    """
    Compare models and config with the lock.

    A Git LFS pointer counts as a model if `pointer_is_locked`. The complete lock is compared with the complete
    project, even if only some files are selected. A model that cannot be compared is added to `undone`.
    """
    lines = find_key_lines(lock_text)
    comparisons: list[ModelLockComparison | None] = []
    for file in files:
        with contain_errors(file.path, (Stage.LOCK,), undone):
            comparisons.append(_compare_model(project, lock.models.get(file.path), lines, file))
    present = {model.path for model in project.models()}
    lock_comparison = LockConfigComparison(
        place=Place(project.lock_path.name),
        differences=policy_differences(project.config, lock),
        vanished={path: _entry_place(project, lines, path) for path in sorted(lock.models.keys() - present)},
    )
    return tuple(comparison for comparison in comparisons if comparison is not None), lock_comparison


def _compare_model(
    project: Project, entry: LockedModel | None, lines: Mapping[Keys, int], file: ModelFile
) -> ModelLockComparison | None:
    facts, model = file.facts, project.selected(file.path)
    if facts is None and entry is not None and file.pointer_is_locked:
        external = tuple(_present_data_file(project, file, data) for data in entry.external)
        facts = replace(facts_from_entry(file.path, entry), external=external)
    if facts is None:
        return None  # reported by the file stage
    changes: tuple[str, ...] = ()
    misrecorded: tuple[str, ...] = ()
    if entry is not None:
        # Use the lock's entry for broken data files, which the file stage already reports.
        broken = {use.location for use in file.external if use.problem is not None}
        present_data = [data for data in facts.external if data.location not in broken]
        data_files = present_data + [data for data in entry.external if data.location in broken]
        present = replace(entry_from_facts(facts), external=tuple(sorted(data_files)))
        changes, misrecorded = describe_model_changes(entry, present), find_misrecorded_keys(entry, present)
    return ModelLockComparison(
        facts=facts,
        entry=entry,
        place=_entry_place(project, lines, file.path) if entry is not None else file.place,
        pinned_opsets=project.required_opset(model),
        pinned_ir=project.config.ir_version,
        opset_place=project.place_opset(model),
        ir_place=project.place("ir-version"),
        changes=changes,
        misrecorded=misrecorded,
    )


def _entry_place(project: Project, lines: Mapping[Keys, int], path: str) -> Place:
    return Place(project.lock_path.name, find_nearest_line(lines, ("models", path)))


def _present_data_file(project: Project, file: ModelFile, locked: ExternalFile) -> ExternalFile:
    """Describe the data file by its content or its Git LFS pointer; if the file is invalid, use the lock entry."""
    data = inspect_data_file(project.folder / file.path, locked.location)
    if data.pointer is not None:
        return ExternalFile(locked.location, data.pointer.size_bytes, data.pointer.sha256)
    if data.problem is not None:
        return locked
    return ExternalFile(locked.location, data.size_bytes, sha256_of(data.path))
