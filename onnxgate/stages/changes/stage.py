"""What became of each model since its baseline: another git revision, or what the lock has of it."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onnxgate.core.files import sha256_of, temporary_folder
from onnxgate.core.findings import IncompleteCheck, Place, Stage, name_runtimes
from onnxgate.core.report import Change
from onnxgate.evidence.lock import MinimumRelease, ModelChange, ModelLockComparison, WeightChanges
from onnxgate.model.facts import ModelFacts
from onnxgate.model.reading.fact_extraction import read_facts
from onnxgate.model.reading.file_format import UnreadableModel, detect_other_type, read_pointer
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
from onnxgate.stages.changes.revision_models import (
    InvalidAtRevisionError,
    RevisionModels,
    find_missing_files,
    find_removed_models,
    find_renamed_models,
)
from onnxgate.support.tables import limits, operators

NOT_IN_GIT = "git does not have it, and only the lock knew it"
FETCH_HINT = "fetch what is missing, or give another baseline with `--against`"


@dataclass(frozen=True, slots=True)
class PresentModels:
    """The present models, and the runtimes that they must support."""

    project: Project
    planned: Sequence[PlannedModel]
    facts: Mapping[str, ModelFacts]  # of readable models, and of those that the lock describes
    places: Mapping[str, Place]
    away: Mapping[str, tuple[str, str]]  # models that are not all here: why, what helps


@dataclass(slots=True)
class DetectedChanges:
    """Subjects of the rules, texts for a reviewer, and incomplete checks."""

    subjects: list[ModelChange] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    undone: list[IncompleteCheck] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def find_changes_since_lock(models: Sequence[ModelLockComparison]) -> Iterator[ModelChange]:
    """The models that are not what is locked: the lock knows neither weights nor what operators are fed."""
    for model in models:
        if model.entry is not None and model.changes:
            yield ModelChange(
                before=facts_from_entry(model.facts.path, model.entry),
                after=model.facts,
                place=model.place,
                baseline="in the lock",
                from_lock=True,
            )


def find_changes_since_revision(present: PresentModels, revision: Revision) -> DetectedChanges:
    """All models against what they were, whatever they were called."""
    folder = present.project.folder.relative_to(revision.root).as_posix()
    with temporary_folder() as scratch:
        past = RevisionModels.at(revision, "" if folder == "." else folder, Path(scratch) / "past")
        comparing = _RevisionComparison(present, past)
        try:
            comparing.compare()
        except MissingAtRevisionError as error:
            comparing.found.undone.append(IncompleteCheck(Stage.LOCK, "", "", error.reason, error.hint or FETCH_HINT))
    comparing.found.changes.sort(key=lambda change: change.model)
    return comparing.found


@dataclass(slots=True)
class _RevisionComparison:
    present: PresentModels
    past: RevisionModels
    found: DetectedChanges = field(default_factory=DetectedChanges)

    @property
    def _at(self) -> str:
        return f"at `{self.past.revision.name}`"

    def compare(self) -> None:
        """Compare all readable models, then those that were removed."""
        every = {self._path(model.path): model for model in self.present.project.models()}
        self._look_at_all()
        before, unclear = self._renamed([model for at, model in every.items() if not self._was_there(at)])
        for each in self.present.planned:
            if each.path in self.present.facts:
                at = self._path(each.path)
                self._decide(each, before.get(at, at))
        gone = () if unclear else find_removed_models(self.past, self.present.project, every)
        for path in gone:
            if path not in before.values():
                self.found.changes.append(Change(model=self.past.relative(path), kind="removed"))

    def _look_at_all(self) -> None:
        """Query git once for all models."""
        data = (
            f"{posixpath.dirname(path)}/{file.location}"
            for path, facts in self.present.facts.items()
            for file in facts.external
        )
        paths = map(self._path, (*self.present.facts, *data))
        self.past.tree.learn_pointers(path for path in paths if path in self.past.tree.entries)

    def _path(self, name: str) -> str:
        return posixpath.normpath(posixpath.join(self.past.folder, name))

    def _was_there(self, at: str) -> bool:
        tree = self.past.tree
        return at in tree.entries or (at := tree.followed(at)) in tree.entries or bool(tree.submodule(at))

    def _renamed(self, new: Sequence[SelectedModel]) -> tuple[dict[str, str], bool]:
        """Today's path -> the one that it had; and whether a new model cannot be read, which may have had any of them.

        The whole project takes part, whichever models are selected: the old name of one model depends on the others.
        """
        gone = find_missing_files(self.past) if new else []
        if not gone:
            return {}, False
        facts = {self._path(model.path): read for model in new if (read := self._facts(model)) is not None}
        newcomers = [NewFile(self._path(each.path), each.absolute, _content_sha256(each.absolute)) for each in new]
        renamed = find_renamed_models(self.past, gone, newcomers, facts, self.found.remarks)
        return renamed, any(newcomer.path not in facts and newcomer.path not in renamed for newcomer in newcomers)

    def _facts(self, model: SelectedModel) -> ModelFacts | None:
        if model.path in self.present.facts:
            return self.present.facts[model.path]
        try:
            return None if detect_other_type(model.absolute) else read_facts(model.absolute, model.path)
        except (OSError, UnreadableModel):
            return None

    def _decide(self, planned: PlannedModel, at: str) -> None:
        try:
            self._hold(planned, at)
        except MissingAtRevisionError as error:
            reason = f"what it was {self._at} cannot be told: {error.reason}"
            self.found.undone.append(IncompleteCheck(Stage.LOCK, planned.path, "", reason, error.hint or FETCH_HINT))
        except InvalidAtRevisionError as what:
            then = f"it was no model that can be read {self._at}: {what}"
            self.found.remarks.append(f"{planned.path}: held against nothing: {then}")
            self._say(planned, at, (then,))

    def _hold(self, planned: PlannedModel, at: str) -> None:
        """One model against what a path was."""
        if not self._was_there(at):
            self._hold_to_lock(planned, at)
            return
        past, path = self.past.located(at)
        if not path:
            raise MissingAtRevisionError(f"`{at}` was a link there to what git does not have")
        after, file = self.present.facts[planned.path], planned.model.absolute
        is_same = past.is_same(path, file, after)
        before = after if is_same else past.facts(path, self.past.relative(at))
        if is_same or _is_same_content(before, after):
            if self.past.relative(at) != planned.path:
                self._say(planned, at, ())
            return
        targets = tuple(self.present.project.config.targets[name] for name in planned.model.settings.targets)
        now = PresentModel(after, file, targets, self.present.away.get(planned.path))
        self._judge(planned, at, before, compare_contents(past, path, before, now))

    def _hold_to_lock(self, planned: PlannedModel, at: str) -> None:
        """A model that git does not have at all is known by its lock alone; any other is new."""
        lock = self.past.own_lock
        entry = lock.models.get(planned.path) if lock is not None else None
        if entry is None or is_tracked(self.past.revision.root, at):
            self.found.changes.append(Change(model=planned.path, kind="added"))
            return
        before = facts_from_entry(planned.path, entry)
        if not _is_same_content(before, self.present.facts[planned.path]):
            self._judge(planned, at, before, ContentChange(lacking=MissingAtRevisionError(NOT_IN_GIT), by_lock=True))

    def _judge(self, planned: PlannedModel, at: str, before: ModelFacts, compared: ContentChange) -> None:
        change = ModelChange(
            before=before,
            after=self.present.facts[planned.path],
            place=self.present.places[planned.path],
            baseline=self._at,
            weights=compared.weights,
            minimum=compared.minimum,
        )
        self.found.subjects.append(change)
        self._say(planned, at, describe_change(change))
        self._admit(planned.path, compared)

    def _admit(self, path: str, compared: ContentChange) -> None:
        """Say what was not compared; where that may be a promise that is broken, there is no verdict."""
        lacking, at = compared.lacking, self._at
        if compared.may_be_lost and lacking is not None:
            what = f"whether it loaded {at} on {name_releases(compared.may_be_lost)}, where it does not load now"
            reason = f"{what}, cannot be told: {lacking.reason}"
            self.found.undone.append(IncompleteCheck(Stage.LOCK, path, "", reason, lacking.hint or FETCH_HINT))
        elif compared.may_be_lost:
            lost = name_releases(compared.may_be_lost)
            self.found.remarks.append(f"{path}: does not load on {lost}; whether it did {at} cannot be predicted")
        if compared.may_be_refused:
            open_ones = name_releases(compared.may_be_refused)
            self.found.remarks.append(f"{path}: loaded {at} on {open_ones}; whether it does now cannot be predicted")
        if lacking is not None and path not in self.present.away:
            help_with = f" (`{lacking.hint}`)" if lacking.hint else ""
            inputs = "inputs that have a default, " if compared.by_lock else ""
            what = f"weights, {inputs}and the releases that load it, were not all held against those {at}"
            self.found.remarks.append(f"{path}: {what}: {lacking.reason}{help_with}")

    def _say(self, planned: PlannedModel, at: str, words: tuple[str, ...]) -> None:
        name = self.past.relative(at)
        if name == planned.path:
            self.found.changes.append(Change(model=planned.path, kind="changed", said=words))
        else:
            self.found.changes.append(Change(model=planned.path, kind="renamed", before=name, said=words))


def _is_same_content(before: ModelFacts, after: ModelFacts) -> bool:
    return before.sha256 == after.sha256 and sorted(before.external) == sorted(after.external)


def _content_sha256(file: Path) -> str:
    """That of a file's content; of a Git LFS pointer, of what it stands for; "" of what cannot be opened."""
    try:
        pointer = read_pointer(file)
        return pointer.sha256 if pointer is not None else sha256_of(file)
    except OSError:
        return ""


MIB = 1024 * 1024
KIB = 1024
MIN_SIZE_CHANGE = 0.01
"""A size that is another by less than this part is not worth a word."""


def describe_change(change: ModelChange) -> tuple[str, ...]:
    """One difference each."""
    differences = describe_model_changes(entry_from_facts(change.before), entry_from_facts(change.after))
    if change.weights is not None:
        differences = tuple(difference for difference in differences if difference != BYTES_ONLY_CHANGE)
    return (
        *_describe_releases(change.minimum),
        *differences,
        *_describe_weights(change.weights),
        *_describe_size(change.before, change.after),
    )


def _describe_releases(minimum: MinimumRelease | None) -> Iterator[str]:
    if minimum is None:
        return
    engine = limits.load_limit_table().engine
    if minimum.before != minimum.after:
        now = f"from {engine} {minimum.after} on" if minimum.after else f"on no known release of {engine}"
        yield f"loads {now} instead of from {minimum.before} on" if minimum.before else f"loads {now}, and did on none"
    if minimum.lost:
        yield f"no longer loads on {name_releases(minimum.lost)}, which a target promises"


def name_releases(releases: Sequence[str]) -> str:
    """Releases of ONNX Runtime: `onnxruntime 1.17.0 to 1.17.3`."""
    engine = limits.load_limit_table().engine
    return name_runtimes(
        (f"{engine} {release}" for release in releases),
        [f"{engine} {known_release}" for known_release in operators.list_known_releases()],
    )


def _describe_weights(moved: WeightChanges | None) -> Iterator[str]:
    if moved is None:
        return
    if moved.changed:
        most = f", at most by {moved.largest:.3g} (`{moved.name}`)" if moved.largest is not None else ""
        yield f"{moved.changed} of {moved.of} weights changed{most}"
    if moved.added:
        yield f"{moved.added} weight{'s are' if moved.added > 1 else ' is'} new"
    if moved.removed:
        yield f"{moved.removed} weight{'s are' if moved.removed > 1 else ' is'} gone"


def _describe_size(before: ModelFacts, after: ModelFacts) -> Iterator[str]:
    then, now = total_size_bytes(before), total_size_bytes(after)
    if abs(now - then) > MIN_SIZE_CHANGE * then and _format_size(now) != _format_size(then):
        yield f"takes {_format_size(now)} instead of {_format_size(then)}"


def total_size_bytes(facts: ModelFacts) -> int:
    """The file and its data."""
    return facts.size_bytes + sum(file.size_bytes for file in facts.external)


def _format_size(count: int) -> str:
    return f"{count / MIB:.1f} MiB" if count >= MIB else f"{count / KIB:.1f} KiB"
