"""Lock stage: compare models and config with the lock, without running models or accessing the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from onnxgate.core.files import sha256_of
from onnxgate.core.findings import Place
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
from onnxgate.project.lock.types import Lock, LockedModel
from onnxgate.project.toml import Keys, find_key_lines, find_nearest_line


def collect_evidence(
    project: Project, lock: Lock, lock_text: str, files: Sequence[ModelFile]
) -> tuple[tuple[ModelLockComparison, ...], LockConfigComparison]:
    """
    Compare models and config with the lock.

    A Git LFS pointer counts as a model if the lock has its digest. The complete lock is compared with the complete
    project, even if only some files are selected.
    """
    lines = find_key_lines(lock_text)
    comparisons = [_compare_model(project, lock.models.get(file.path), lines, file) for file in files]
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
    facts = file.facts
    if facts is None and entry is not None and file.pointer_is_locked:
        external = tuple(_present_data_file(project, file, data) for data in entry.external)
        facts = msgspec.structs.replace(facts_from_entry(file.path, entry), external=external)
    if facts is None:
        return None  # reported by the file stage
    changes: tuple[str, ...] = ()
    misrecorded: tuple[str, ...] = ()
    if entry is not None:
        # Use the lock's entry for broken data files, which the file stage already reports.
        broken = {use.location for use in file.external if use.problem is not None}
        present_data = [data for data in facts.external if data.location not in broken]
        data_files = present_data + [data for data in entry.external if data.location in broken]
        present = msgspec.structs.replace(entry_from_facts(facts), external=tuple(sorted(data_files)))
        changes, misrecorded = describe_model_changes(entry, present), find_misrecorded_keys(entry, present)
    return ModelLockComparison(
        facts=facts,
        entry=entry,
        place=_entry_place(project, lines, file.path) if entry is not None else file.place,
        pinned_opsets=project.config.opset,
        pinned_ir=project.config.ir_version,
        opset_place=project.place("opset"),
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
