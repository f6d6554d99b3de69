"""What became of each model since its baseline: another git revision, or what the lock has of it."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onnxgate.baseline.git import is_tracked
from onnxgate.baseline.renames import Newcomer
from onnxgate.baseline.revisions import AbsentError, Revision
from onnxgate.config.project import Project, SelectedModel
from onnxgate.evidence.changes import ModelChange
from onnxgate.evidence.lock import ModelAgainstLock
from onnxgate.findings import Place, Stage, Undone
from onnxgate.lock.changes import facts_of
from onnxgate.model.facts import ModelFacts
from onnxgate.model.hashing import sha256_of
from onnxgate.model.identify import really
from onnxgate.model.pointer import read_pointer
from onnxgate.model.reading import read_facts
from onnxgate.model.structure import UnreadableModel
from onnxgate.plan import PlannedModel
from onnxgate.report import Change
from onnxgate.scratch import scratch_folder
from onnxgate.stages.change_words import releases_in_words, said
from onnxgate.stages.contents import Compared, Now, compare
from onnxgate.stages.past import BrokenError, Past
from onnxgate.stages.renamed import gone_files, renamed, vanished

NOT_IN_GIT = "git does not have it, and only the lock knew it"
FETCH = "fetch what is missing, or give another baseline with `--against`"


@dataclass(frozen=True, slots=True)
class Present:
    """The models as they are, and what they are promised on."""

    project: Project
    planned: Sequence[PlannedModel]
    facts: Mapping[str, ModelFacts]  # of those that can be read, or that the lock tells of
    places: Mapping[str, Place]
    away: Mapping[str, tuple[str, str]]  # models that are not all here: why, what helps


@dataclass(slots=True)
class Found:
    """What the rules judge, what a reviewer reads, and what could not be told."""

    subjects: list[ModelChange] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    undone: list[Undone] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def since_lock(models: Sequence[ModelAgainstLock]) -> Iterator[ModelChange]:
    """The models that are not what is locked: the lock knows neither weights nor what operators are fed."""
    for each in models:
        if each.entry is not None and each.changes:
            yield ModelChange(
                before=facts_of(each.facts.path, each.entry),
                after=each.facts,
                place=each.place,
                baseline="in the lock",
                from_lock=True,
            )


def since_revision(present: Present, revision: Revision) -> Found:
    """All models against what they were, whatever they were called."""
    folder = present.project.folder.relative_to(revision.root).as_posix()
    with scratch_folder() as scratch:
        past = Past.at(revision, "" if folder == "." else folder, Path(scratch) / "past")
        comparing = _Comparing(present, past)
        try:
            comparing.compare()
        except AbsentError as error:
            comparing.found.undone.append(Undone(Stage.LOCK, "", "", error.reason, error.hint or FETCH))
    comparing.found.changes.sort(key=lambda change: change.model)
    return comparing.found


@dataclass(slots=True)
class _Comparing:
    present: Present
    past: Past
    found: Found = field(default_factory=Found)

    @property
    def _at(self) -> str:
        return f"at `{self.past.revision.name}`"

    def compare(self) -> None:
        """All models that can be read, then those that are no more."""
        every = {self._path(model.path): model for model in self.present.project.models()}
        self._look_at_all()
        before, unclear = self._renamed([each for at, each in every.items() if not self._was_there(at)])
        for each in self.present.planned:
            if each.path in self.present.facts:
                at = self._path(each.path)
                self._decide(each, before.get(at, at))
        gone = () if unclear else vanished(self.past, self.present.project, every)
        for path in gone:
            if path not in before.values():
                self.found.changes.append(Change(model=self.past.relative(path), kind="removed"))

    def _look_at_all(self) -> None:
        """Ask git once for what is asked of each model."""
        data = (
            f"{posixpath.dirname(path)}/{each.location}"
            for path, facts in self.present.facts.items()
            for each in facts.external
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

        The whole project takes part, whatever is asked for: what one model was called depends on the others.
        """
        gone = gone_files(self.past) if new else []
        if not gone:
            return {}, False
        facts = {self._path(each.path): read for each in new if (read := self._facts(each)) is not None}
        newcomers = [Newcomer(self._path(each.path), each.absolute, _sha256(each.absolute)) for each in new]
        found = renamed(self.past, gone, newcomers, facts, self.found.remarks)
        return found, any(each.path not in facts and each.path not in found for each in newcomers)

    def _facts(self, model: SelectedModel) -> ModelFacts | None:
        if model.path in self.present.facts:
            return self.present.facts[model.path]
        try:
            return None if really(model.absolute) else read_facts(model.absolute, model.path)
        except (OSError, UnreadableModel):
            return None

    def _decide(self, planned: PlannedModel, at: str) -> None:
        try:
            self._hold(planned, at)
        except AbsentError as error:
            reason = f"what it was {self._at} cannot be told: {error.reason}"
            self.found.undone.append(Undone(Stage.LOCK, planned.path, "", reason, error.hint or FETCH))
        except BrokenError as what:
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
            raise AbsentError(f"`{at}` was a link there to what git does not have")
        after, file = self.present.facts[planned.path], planned.model.absolute
        is_same = past.is_same(path, file, after)
        before = after if is_same else past.facts(path, self.past.relative(at))
        if is_same or _is_same_content(before, after):
            if self.past.relative(at) != planned.path:
                self._say(planned, at, ())
            return
        targets = tuple(self.present.project.config.targets[name] for name in planned.model.settings.targets)
        now = Now(after, file, targets, self.present.away.get(planned.path))
        self._judge(planned, at, before, compare(past, path, before, now))

    def _hold_to_lock(self, planned: PlannedModel, at: str) -> None:
        """A model that git does not have at all is known by its lock alone; any other is new."""
        lock = self.past.own_lock
        entry = lock.models.get(planned.path) if lock is not None else None
        if entry is None or is_tracked(self.past.revision.root, at):
            self.found.changes.append(Change(model=planned.path, kind="added"))
            return
        before = facts_of(planned.path, entry)
        if not _is_same_content(before, self.present.facts[planned.path]):
            self._judge(planned, at, before, Compared(lacking=AbsentError(NOT_IN_GIT), by_lock=True))

    def _judge(self, planned: PlannedModel, at: str, before: ModelFacts, compared: Compared) -> None:
        change = ModelChange(
            before=before,
            after=self.present.facts[planned.path],
            place=self.present.places[planned.path],
            baseline=self._at,
            weights=compared.weights,
            minimum=compared.minimum,
        )
        self.found.subjects.append(change)
        self._say(planned, at, said(change))
        self._admit(planned.path, compared)

    def _admit(self, path: str, compared: Compared) -> None:
        """Say what was not compared; where that may be a promise that is broken, there is no verdict."""
        lacking, at = compared.lacking, self._at
        if compared.may_be_lost and lacking is not None:
            what = f"whether it loaded {at} on {releases_in_words(compared.may_be_lost)}, where it does not load now"
            reason = f"{what}, cannot be told: {lacking.reason}"
            self.found.undone.append(Undone(Stage.LOCK, path, "", reason, lacking.hint or FETCH))
        elif compared.may_be_lost:
            lost = releases_in_words(compared.may_be_lost)
            self.found.remarks.append(f"{path}: does not load on {lost}; whether it did {at} cannot be predicted")
        if compared.may_be_refused:
            open_ones = releases_in_words(compared.may_be_refused)
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


def _sha256(file: Path) -> str:
    """That of a file's content; of a Git LFS pointer, of what it stands for; "" of what cannot be opened."""
    try:
        pointer = read_pointer(file)
        return pointer.sha256 if pointer is not None else sha256_of(file)
    except OSError:
        return ""
