"""What became of each model since its baseline: another git revision, or what the lock has of it."""

from __future__ import annotations

import posixpath
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onnxgate.baseline.git import is_tracked
from onnxgate.baseline.renames import Newcomer
from onnxgate.baseline.revisions import AbsentError, Revision
from onnxgate.config.project import Project
from onnxgate.evidence.changes import ModelChange
from onnxgate.evidence.lock import ModelAgainstLock
from onnxgate.findings import Place, Stage, Undone
from onnxgate.lock.changes import facts_of
from onnxgate.model.facts import ModelFacts
from onnxgate.plan import PlannedModel
from onnxgate.report import Change
from onnxgate.stages.change_words import said
from onnxgate.stages.contents import Compared, compare
from onnxgate.stages.past import BrokenError, Past
from onnxgate.stages.renamed import renamed, vanished

FETCH = "fetch what is missing, or give another baseline with `--against`"


@dataclass(frozen=True, slots=True)
class Present:
    """The models as they are, and what they are promised on."""

    project: Project
    planned: Sequence[PlannedModel]
    facts: Mapping[str, ModelFacts]  # of those that can be read, or that the lock tells of
    places: Mapping[str, Place]
    away: Collection[str]  # models that are not all here


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
    with tempfile.TemporaryDirectory(prefix="onnxgate-") as scratch:
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
        here = {each.path: self._path(each.path) for each in self.present.planned}
        before = self._renamed(here)
        for each in self.present.planned:
            if each.path in self.present.facts:
                self._decide(each, before.get(each.path, here[each.path]))
        every = {self._path(model.path) for model in self.present.project.models()}
        taken = {*before.values(), *self._maybe_renamed(every, here)}
        for path in vanished(self.past, self.present.project, every):
            if path not in taken:
                self.found.changes.append(Change(model=self.past.relative(path), kind="removed"))

    def _path(self, name: str) -> str:
        return posixpath.normpath(posixpath.join(self.past.folder, name))

    def _was_there(self, at: str) -> bool:
        return at in self.past.tree.entries or bool(self.past.tree.submodule(at))

    def _renamed(self, here: Mapping[str, str]) -> dict[str, str]:
        """Today's name -> the path that it had."""
        facts = {here[path]: each for path, each in self.present.facts.items() if not self._was_there(here[path])}
        files = {here[each.path]: each.model.absolute for each in self.present.planned}
        newcomers = [Newcomer(at, files[at], facts[at].sha256) for at in sorted(facts)]
        found = renamed(self.past, newcomers, facts, self.found.remarks) if newcomers else {}
        return {facts[at].path: before for at, before in found.items()}

    def _maybe_renamed(self, every: Collection[str], here: Mapping[str, str]) -> Iterator[str]:
        """Paths that a new model, which was not asked for or cannot be read, may have had: they are not called gone."""
        read = {here[path] for path in self.present.facts}
        if any(not self._was_there(at) for at in every if at not in read):
            yield from self.past.tree.entries

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
        compared = Compared()
        if planned.path not in self.present.away:
            targets = tuple(self.present.project.config.targets[name] for name in planned.model.settings.targets)
            compared = compare(past, path, before, file, after, targets)
        self._judge(planned, at, before, compared)

    def _hold_to_lock(self, planned: PlannedModel, at: str) -> None:
        """A model that git does not have at all is known by its lock alone; any other is new."""
        lock = self.past.own_lock
        entry = lock.models.get(planned.path) if lock is not None else None
        if entry is None or is_tracked(self.past.revision.root, at):
            self.found.changes.append(Change(model=planned.path, kind="added"))
            return
        before = facts_of(planned.path, entry)
        if not _is_same_content(before, self.present.facts[planned.path]):
            self._judge(planned, at, before, Compared(lacking="git does not have its content, only the lock knew it"))

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
        if compared.lacking:
            what = f"neither its weights nor the releases that load it were all held against those {self._at}"
            self.found.remarks.append(f"{planned.path}: {what}: {compared.lacking}")

    def _say(self, planned: PlannedModel, at: str, words: tuple[str, ...]) -> None:
        name = self.past.relative(at)
        if name == planned.path:
            self.found.changes.append(Change(model=planned.path, kind="changed", said=words))
        else:
            self.found.changes.append(Change(model=planned.path, kind="renamed", before=name, said=words))


def _is_same_content(before: ModelFacts, after: ModelFacts) -> bool:
    return before.sha256 == after.sha256 and sorted(before.external) == sorted(after.external)
