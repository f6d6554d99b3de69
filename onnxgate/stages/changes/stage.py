"""Compare each model with its baseline: another git revision, or its entry in the lock."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onnxgate.core.bug_reports import contain_errors
from onnxgate.core.files import sha256_of, temporary_folder
from onnxgate.core.findings import IncompleteCheck, Place, Stage, name_runtimes
from onnxgate.core.process_pool import CallFailure
from onnxgate.core.report import Change
from onnxgate.evidence.lock import MinimumRelease, ModelChange, ModelLockComparison
from onnxgate.model.diff.result import WeightChanges
from onnxgate.model.facts import ModelFacts
from onnxgate.model.reading.file_format import read_pointer
from onnxgate.project.config.project import Project, SelectedModel
from onnxgate.project.git.repository import is_tracked
from onnxgate.project.git.revisions import MissingAtRevisionError, NewFile, Revision
from onnxgate.project.lock.comparison import (
    BYTES_ONLY_CHANGE,
    describe_model_changes,
    entry_from_facts,
    facts_from_entry,
)
from onnxgate.project.plan import PlannedModel
from onnxgate.stages.changes.content_changes import ContentChange, PresentModel, compare_contents
from onnxgate.stages.changes.file_comparison import FactsReading, FileCalls, NamedFile, read_present
from onnxgate.stages.changes.revision_models import (
    InvalidAtRevisionError,
    RevisionModels,
    find_missing_files,
    find_removed_models,
    find_renamed_models,
)
from onnxgate.support import operators

NOT_IN_GIT = "the file is not tracked by git; only its lock entry is available"
FETCH_HINT = "fetch the missing files (`git fetch`, `git lfs fetch`), or select another baseline with `--against`"


MERGE_PARENT = "HEAD^1"
"""Name of the baseline if CI has checked out a merge of the pull request."""
MIN_SIZE_CHANGE = 0.01
"""Smallest relative size change that is reported."""


@dataclass(frozen=True, slots=True)
class PresentModels:
    """The current models and the runtimes that they must support."""

    project: Project
    planned: Sequence[PlannedModel]
    facts: Mapping[str, ModelFacts]  # facts of models that are readable or in the lock
    places: Mapping[str, Place]
    incomplete: Mapping[str, tuple[str, str]]  # models with incomplete content -> reason and hint


@dataclass(slots=True)
class DetectedChanges:
    """Result of the change detection: evidence for the rules, changes for reviewers, and incomplete checks."""

    subjects: list[ModelChange] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    undone: list[IncompleteCheck] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def find_changes_since_lock(models: Sequence[ModelLockComparison]) -> Iterator[ModelChange]:
    """Yield the models that differ from the lock. The lock contains neither weights nor connections between nodes."""
    for model in models:
        if model.entry is not None and model.changes:
            yield ModelChange(
                before=facts_from_entry(model.facts.path, model.entry),
                after=model.facts,
                place=model.place,
                baseline="in the lock",
                from_lock=True,
            )


def find_changes_since_revision(present: PresentModels, revision: Revision, calls: FileCalls) -> DetectedChanges:
    """Compare all models with the revision, where they may have different names. `calls` reads the files."""
    folder = present.project.folder.relative_to(revision.root).as_posix()
    with temporary_folder() as scratch:
        baseline = RevisionModels.at(revision, "" if folder == "." else folder, Path(scratch) / "past", calls)
        comparison = _RevisionComparison(present, baseline)
        try:
            comparison.compare()
        except MissingAtRevisionError as error:
            comparison.add_incomplete("", error.reason, error.hint)
        comparison.add_failures()
    comparison.detected.changes.sort(key=lambda change: change.model)
    return comparison.detected


@dataclass(slots=True)
class _RevisionComparison:
    present: PresentModels
    baseline: RevisionModels
    detected: DetectedChanges = field(default_factory=DetectedChanges)

    @property
    def _at(self) -> str:
        return f"at `{self.baseline.revision.name}`"

    def compare(self) -> None:
        """Compare all readable models, then find removed models."""
        models = {self._path(model.path): model for model in self.present.project.models()}
        self._fetch_pointers()
        renamed, unclear = self._find_renamed([model for at, model in models.items() if not self._existed(at)])
        for planned in self.present.planned:
            if planned.path in self.present.facts:
                at = self._path(planned.path)
                with contain_errors(planned.path, (Stage.LOCK,), self.detected.undone):
                    self._compare_model(planned, renamed.get(at, at))
        removed = () if unclear else find_removed_models(self.baseline, self.present.project, models)
        self.detected.changes += [
            Change(model=self.baseline.relative(path), kind="removed")
            for path in removed
            if path not in renamed.values()
            and not os.path.lexists(self.baseline.revision.root / path)  # if it exists, the policy no longer selects it
        ]

    def add_incomplete(self, path: str, reason: str, hint: str) -> None:
        """Record that a comparison could not be completed."""
        self.detected.undone.append(IncompleteCheck(Stage.LOCK, path, "", reason, hint or FETCH_HINT))

    def add_failures(self) -> None:
        """Record the files at the revision that could not be read, unless they are already recorded for their model."""
        for at, error in self.baseline.failures.items():
            path = self.baseline.relative(at)
            if not any(it.model == path and error.reason in it.reason for it in self.detected.undone):
                self.add_incomplete("", f"`{path}` {self._at} could not be compared: {error.reason}", error.hint)

    def _fetch_pointers(self) -> None:
        """Look up the Git LFS pointers of all models in one git call."""
        data = (
            f"{posixpath.dirname(path)}/{file.location}"
            for path, facts in self.present.facts.items()
            for file in facts.external
        )
        paths = map(self._path, (*self.present.facts, *data))
        self.baseline.tree.learn_pointers(path for path in paths if path in self.baseline.tree.entries)

    def _path(self, name: str) -> str:
        return posixpath.normpath(posixpath.join(self.baseline.folder, name))

    def _existed(self, at: str) -> bool:
        tree = self.baseline.tree
        return at in tree.entries or (at := tree.followed(at)) in tree.entries or bool(tree.submodule(at))

    def _find_renamed(self, new: Sequence[SelectedModel]) -> tuple[dict[str, str], bool]:
        """Map current paths to earlier paths; also return whether an unreadable new model may be a renamed model.

        All models in the project are considered, selected or not, because renames are matched among all of them.
        """
        missing = find_missing_files(self.baseline) if new else []
        if not missing:
            return {}, False
        facts = {self._path(model.path): read for model in new if (read := self._read_facts(model)) is not None}
        newcomers = [NewFile(self._path(model.path), model.absolute, _content_sha256(model.absolute)) for model in new]
        renamed = find_renamed_models(self.baseline, missing, newcomers, facts, self.detected.remarks)
        return renamed, any(newcomer.path not in facts and newcomer.path not in renamed for newcomer in newcomers)

    def _read_facts(self, model: SelectedModel) -> ModelFacts | None:
        if model.path in self.present.facts:
            return self.present.facts[model.path]
        named = NamedFile(model.absolute, model.path)
        answer = self.baseline.calls.call(read_present, named, FactsReading, [model.absolute])
        return None if isinstance(answer, CallFailure) else answer.facts

    def _compare_model(self, planned: PlannedModel, at: str) -> None:
        """Compare a model with the file at its earlier path or, if git does not track it, with its lock entry."""
        try:
            if self._existed(at):
                self._compare_with_file(planned, at)
                return
            lock = self.baseline.own_lock
            entry = lock.models.get(planned.path) if lock is not None else None
            if entry is None or is_tracked(self.baseline.revision.root, at):
                self.detected.changes.append(Change(model=planned.path, kind="added"))
                return
            before = facts_from_entry(planned.path, entry)
            if not _is_same_content(before, self.present.facts[planned.path]):
                change = ContentChange(incomplete=MissingAtRevisionError(NOT_IN_GIT), by_lock=True)
                self._add_subject(planned, at, before, change)
        except MissingAtRevisionError as error:
            self.add_incomplete(
                planned.path, f"the model could not be compared with its version {self._at}: {error.reason}", error.hint
            )
        except InvalidAtRevisionError as fault:
            reason = f"the file {self._at} is not a readable model: {fault}"
            self.detected.remarks.append(f"{planned.path}: not compared with the baseline: {reason}")
            self._add_change(planned, at, (reason,))

    def _compare_with_file(self, planned: PlannedModel, at: str) -> None:
        baseline, path = self.baseline.located(at)
        if not path:
            raise MissingAtRevisionError(f"`{at}` is a symbolic link to a file that git does not track")
        after, file = self.present.facts[planned.path], planned.model.absolute
        is_same = baseline.is_same(path, file, after)
        before = after if is_same else baseline.facts(path, self.baseline.relative(at))
        if is_same or _is_same_content(before, after):
            if self.baseline.relative(at) != planned.path:
                self._add_change(planned, at, ())
            return
        targets = tuple(self.present.project.config.targets[name] for name in planned.model.settings.targets)
        now = PresentModel(after, file, targets, self.present.incomplete.get(planned.path))
        self._add_subject(planned, at, before, compare_contents(baseline, path, before, now))

    def _add_subject(self, planned: PlannedModel, at: str, before: ModelFacts, content: ContentChange) -> None:
        change = ModelChange(
            before=before,
            after=self.present.facts[planned.path],
            place=self.present.places[planned.path],
            baseline=self._at,
            against=_select_again(self.baseline.revision),
            weights=content.weights,
            minimums=content.minimums,
        )
        self.detected.subjects.append(change)
        self._add_change(planned, at, describe_change(change))
        self._report_incomplete(planned.path, content)

    def _report_incomplete(self, path: str, content: ContentChange) -> None:
        """Report an incomplete comparison. The check is undecided if a required release may now refuse the model."""
        incomplete, at, remarks = content.incomplete, self._at, self.detected.remarks
        if content.failure is not None:
            reason, hint = content.failure
            parts = f"weights and supported releases could not be compared with the version {at}"
            self.add_incomplete(path, f"{parts}: {reason}", hint)
        if content.may_be_lost:
            lost = _name_known(content.may_be_lost)
            if incomplete is not None:
                reason = f"does not load on {lost}; it is unknown whether the version {at} loads: {incomplete.reason}"
                self.add_incomplete(path, reason, incomplete.hint)
            else:
                remarks.append(f"{path}: does not load on {lost}; there is no prediction for the version {at}")
        if content.may_be_refused:
            refused = _name_known(content.may_be_refused)
            remarks.append(
                f"{path}: the version {at} loads on {refused}; there is no prediction for the current version"
            )
        if incomplete is not None and path not in self.present.incomplete:
            hint = f" ({incomplete.hint})" if incomplete.hint else ""
            inputs = ", inputs with a default value" if content.by_lock else ""
            parts = f"weights{inputs} and supported releases were not fully compared with the version {at}"
            remarks.append(f"{path}: {parts}: {incomplete.reason}{hint}")

    def _add_change(self, planned: PlannedModel, at: str, differences: tuple[str, ...]) -> None:
        name = self.baseline.relative(at)
        if name == planned.path:
            change = Change(model=planned.path, kind="changed", differences=differences)
        else:
            change = Change(model=planned.path, kind="renamed", before=name, differences=differences)
        self.detected.changes.append(change)


def _select_again(revision: Revision) -> str:
    """Return the value of `--against` that selects the revision in another checkout, where `HEAD^1` may differ.

    In CI, `HEAD` can be a merge commit that only exists there.
    """
    return revision.commit[:12] if revision.name == MERGE_PARENT else revision.name


def _is_same_content(before: ModelFacts, after: ModelFacts) -> bool:
    return before.sha256 == after.sha256 and sorted(before.external) == sorted(after.external)


def _content_sha256(file: Path) -> str:
    """Return the SHA-256 of a file or of the content of a Git LFS pointer; "" if the file cannot be opened."""
    try:
        pointer = read_pointer(file)
        return pointer.sha256 if pointer is not None else sha256_of(file)
    except OSError:
        return ""


def describe_change(change: ModelChange) -> tuple[str, ...]:
    """Describe each difference in one phrase."""
    differences = describe_model_changes(entry_from_facts(change.before), entry_from_facts(change.after))
    if change.weights is not None:
        differences = tuple(difference for difference in differences if difference != BYTES_ONLY_CHANGE)
    weights = _describe_weights(change.weights) if change.weights is not None else ()
    before, now = total_size_bytes(change.before), total_size_bytes(change.after)
    size: tuple[str, ...] = ()
    if abs(now - before) > MIN_SIZE_CHANGE * before and _format_size(now) != _format_size(before):
        size = (f"size changed from {_format_size(before)} to {_format_size(now)}",)
    releases = [phrase for minimum in change.minimums for phrase in _describe_minimum(minimum)]
    return (*releases, *differences, *weights, *size)


def _describe_minimum(minimum: MinimumRelease) -> Iterator[str]:
    engine = minimum.engine
    if minimum.before != minimum.after:
        now_on = (
            f"now loads on {engine} {minimum.after} and newer"
            if minimum.after
            else f"no longer loads on any known {engine} release"
        )
        earlier = f"{minimum.before} and newer" if minimum.before else "on no known release"
        yield f"{now_on} (previously {earlier})"
    if minimum.lost:
        lost = _name_known([f"{engine} {release}" for release in minimum.lost])
        yield f"no longer loads on {lost}, which a target requires"


def _name_known(runtimes: Sequence[str]) -> str:
    """Name runtimes that have support data, such as `onnxruntime 1.17.0–1.17.3`."""
    engines = {runtime.partition(" ")[0] for runtime in runtimes}
    known = [f"{engine} {release}" for engine in engines for release in operators.list_known_releases(engine)]
    return name_runtimes(runtimes, known)


def _describe_weights(weights: WeightChanges) -> Iterator[str]:
    if weights.changed:
        most = f", largest change {weights.largest:.3g} (`{weights.name}`)" if weights.largest is not None else ""
        yield f"{weights.changed} of {weights.of} weights changed{most}"
    if weights.added:
        yield f"{weights.added} weight{'s' if weights.added > 1 else ''} added"
    if weights.removed:
        yield f"{weights.removed} weight{'s' if weights.removed > 1 else ''} removed"


def total_size_bytes(facts: ModelFacts) -> int:
    """Return the size of the model file and its data in bytes."""
    return facts.size_bytes + sum(file.size_bytes for file in facts.external)


def _format_size(count: int) -> str:
    return f"{count / 1024**2:.1f} MiB" if count >= 1024**2 else f"{count / 1024:.1f} KiB"
