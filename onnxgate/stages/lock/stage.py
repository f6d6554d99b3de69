"""Lock stage: compare models and config with the lock, without running models and without network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from onnxgate.core.files import sha256_of
from onnxgate.core.findings import Place
from onnxgate.evidence.file import ModelFile
from onnxgate.evidence.lock import LockConfigComparison, ModelLockComparison
from onnxgate.model.facts import ExternalFile, ModelFacts
from onnxgate.model.reading.external_data import inspect_data_file
from onnxgate.project.config.project import Project
from onnxgate.project.lock.comparison import (
    describe_model_changes,
    entry_from_facts,
    facts_from_entry,
    find_misrecorded_keys,
    policy_differences,
)
from onnxgate.project.lock.types import Lock, LockedModel
from onnxgate.project.toml import Keys, find_key_lines, find_nearest_line


def collect_evidence(
    project: Project, lock: Lock, lock_text: str, files: Sequence[ModelFile]
) -> tuple[tuple[ModelLockComparison, ...], LockConfigComparison]:
    """
    Each of the files that is a model, or is proven to be one by its Git LFS pointer; and the lock as a whole.

    The whole lock is compared with the whole project, whichever files are selected.
    """
    lines = find_key_lines(lock_text)
    against = [_compare_model(project, lock, lines, file) for file in files]
    present = {model.path for model in project.models()}
    lock_comparison = LockConfigComparison(
        place=Place(project.lock_path.name),
        differences=policy_differences(project.config, lock),
        vanished={
            path: Place(project.lock_path.name, find_nearest_line(lines, ("models", path)))
            for path in sorted(lock.models.keys() - present)
        },
    )
    return tuple(comparison for comparison in against if comparison is not None), lock_comparison


def _compare_model(
    project: Project, lock: Lock, lines: Mapping[Keys, int], file: ModelFile
) -> ModelLockComparison | None:
    entry = lock.models.get(file.path)
    facts = _known_facts(project, file, entry)
    if facts is None:
        return None  # the file stage says why
    return ModelLockComparison(
        facts=facts,
        entry=entry,
        place=_entry_place(project, lines, file, entry),
        pinned_opsets=project.config.opset,
        pinned_ir=project.config.ir_version,
        opset_place=project.place("opset"),
        ir_place=project.place("ir-version"),
        changes=_list_changes(file, facts, entry),
        misrecorded=_list_misrecorded(file, facts, entry),
    )


def _entry_place(project: Project, lines: Mapping[Keys, int], file: ModelFile, entry: LockedModel | None) -> Place:
    if entry is None:
        return file.place
    return Place(project.lock_path.name, find_nearest_line(lines, ("models", file.path)))


def _known_facts(project: Project, file: ModelFile, entry: LockedModel | None) -> ModelFacts | None:
    if file.facts is not None or entry is None or not file.pointer_is_locked:
        return file.facts
    facts = facts_from_entry(file.path, entry)
    return msgspec.structs.replace(
        facts, external=tuple(_present_data_file(project, file, each) for each in entry.external)
    )


def _present_data_file(project: Project, file: ModelFile, locked: ExternalFile) -> ExternalFile:
    """Return the present data file of a pointer, or the locked one if it is missing."""
    file_state = inspect_data_file(project.folder / file.path, locked.location)
    if file_state.pointer is not None:
        return ExternalFile(locked.location, file_state.pointer.size_bytes, file_state.pointer.sha256)
    if file_state.problem is not None:
        return locked
    return ExternalFile(locked.location, file_state.size_bytes, sha256_of(file_state.path))


def _list_changes(file: ModelFile, facts: ModelFacts, entry: LockedModel | None) -> tuple[str, ...]:
    return () if entry is None else describe_model_changes(entry, _present_entry(file, facts, entry))


def _list_misrecorded(file: ModelFile, facts: ModelFacts, entry: LockedModel | None) -> tuple[str, ...]:
    return () if entry is None else find_misrecorded_keys(entry, _present_entry(file, facts, entry))


def _present_entry(file: ModelFile, facts: ModelFacts, entry: LockedModel) -> LockedModel:
    return msgspec.structs.replace(entry_from_facts(facts), external=_comparable_data_files(file, facts, entry))


def _comparable_data_files(file: ModelFile, facts: ModelFacts, entry: LockedModel) -> tuple[ExternalFile, ...]:
    """The data files, where one that the file stage finds broken stands as it was locked: one fault is one finding."""
    broken = {use.location for use in file.external if use.problem is not None}
    valid = [file for file in facts.external if file.location not in broken]
    return tuple(sorted([*valid, *(each for each in entry.external if each.location in broken)]))
