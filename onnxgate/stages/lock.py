"""The lock stage: models and config, each against the lock. Nothing is run and no index is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from onnxgate.config.lines import Keys, key_lines, nearest_line
from onnxgate.config.project import Project
from onnxgate.evidence.file import ModelFile
from onnxgate.evidence.lock import LockAgainstConfig, ModelAgainstLock
from onnxgate.findings import Place
from onnxgate.lock.changes import entry_of, facts_of, misrecorded, model_changes
from onnxgate.lock.policy import policy_differences
from onnxgate.lock.types import Lock, LockedModel
from onnxgate.model.external import data_file
from onnxgate.model.facts import ExternalFile, ModelFacts
from onnxgate.model.hashing import sha256_of


def gather(
    project: Project, lock: Lock, lock_text: str, files: Sequence[ModelFile]
) -> tuple[tuple[ModelAgainstLock, ...], LockAgainstConfig]:
    """
    Each of the files that is a model, or is proven to be one by its Git LFS pointer; and the lock as a whole.

    The whole lock is held against the whole project, whichever files are asked for.
    """
    lines = key_lines(lock_text)
    against = [_model(project, lock, lines, file) for file in files]
    present = {model.path for model in project.models()}
    whole = LockAgainstConfig(
        place=Place(project.lock_path.name),
        differences=policy_differences(project.config, lock),
        vanished={
            path: Place(project.lock_path.name, nearest_line(lines, ("models", path)))
            for path in sorted(lock.models.keys() - present)
        },
    )
    return tuple(each for each in against if each is not None), whole


def _model(project: Project, lock: Lock, lines: Mapping[Keys, int], file: ModelFile) -> ModelAgainstLock | None:
    entry = lock.models.get(file.path)
    facts = _facts(project, file, entry)
    if facts is None:
        return None  # the file stage says why
    return ModelAgainstLock(
        facts=facts,
        entry=entry,
        place=_place(project, lines, file, entry),
        pinned_opsets=project.config.opset,
        pinned_ir=project.config.ir_version,
        opset_place=project.place("opset"),
        ir_place=project.place("ir-version"),
        changes=_changes(file, facts, entry),
        misrecorded=_misrecorded(file, facts, entry),
    )


def _place(project: Project, lines: Mapping[Keys, int], file: ModelFile, entry: LockedModel | None) -> Place:
    if entry is None:
        return file.place
    return Place(project.lock_path.name, nearest_line(lines, ("models", file.path)))


def _facts(project: Project, file: ModelFile, entry: LockedModel | None) -> ModelFacts | None:
    if file.facts is not None or entry is None or not file.pointer_is_locked:
        return file.facts
    facts = facts_of(file.path, entry)
    return msgspec.structs.replace(facts, external=tuple(_data(project, file, each) for each in entry.external))


def _data(project: Project, file: ModelFile, locked: ExternalFile) -> ExternalFile:
    """A data file beside a pointer, as it is; of one that is not there, what the lock says."""
    found = data_file(project.folder / file.path, locked.location)
    if found.pointer is not None:
        return ExternalFile(locked.location, found.pointer.size_bytes, found.pointer.sha256)
    if found.problem is not None:
        return locked
    return ExternalFile(locked.location, found.size_bytes, sha256_of(found.path))


def _changes(file: ModelFile, facts: ModelFacts, entry: LockedModel | None) -> tuple[str, ...]:
    return () if entry is None else model_changes(entry, _present(file, facts, entry))


def _misrecorded(file: ModelFile, facts: ModelFacts, entry: LockedModel | None) -> tuple[str, ...]:
    return () if entry is None else misrecorded(entry, _present(file, facts, entry))


def _present(file: ModelFile, facts: ModelFacts, entry: LockedModel) -> LockedModel:
    return msgspec.structs.replace(entry_of(facts), external=_compared(file, facts, entry))


def _compared(file: ModelFile, facts: ModelFacts, entry: LockedModel) -> tuple[ExternalFile, ...]:
    """The data files, where one that the file stage finds broken stands as it was locked: one fault is one finding."""
    broken = {use.location for use in file.external if use.problem is not None}
    sound = [each for each in facts.external if each.location not in broken]
    return tuple(sorted([*sound, *(each for each in entry.external if each.location in broken)]))
