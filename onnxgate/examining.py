"""The static stages of many models: each read in a child process, side by side; what did not change is not read again.

A model on which a child crashes, hangs or runs out of memory is one that could not be judged; the others are.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate import judge, rules
from onnxgate.children import Bounds, Call, Children, Lost
from onnxgate.config.project import Project, SelectedModel
from onnxgate.evidence.file import ModelFile
from onnxgate.findings import Judged, Place, Stage, Undone
from onnxgate.lock.types import Lock
from onnxgate.model.external import data_file, layout
from onnxgate.model.facts import ModelFacts
from onnxgate.model.hashing import REMEMBERED_BYTES, Identity, identity, known_digest, remember, sha256_of
from onnxgate.model.places import consulted
from onnxgate.plan import PlannedRuntime
from onnxgate.stages import file as file_stage
from onnxgate.support.operations import Prediction, Verdict
from onnxgate.unchanged import key_of

if TYPE_CHECKING:
    from onnxgate.digests import Digests
    from onnxgate.support.harvested import Kept
    from onnxgate.unchanged import Unchanged

TIME_S = 300
MEMORY_BYTES = 4 * 2**30
"""Beside four times the size of the model, as for a worker."""
WORTH_A_CHILD = 8
"""Small models that take as long as a child takes to start."""
WORTH_A_CHILD_BYTES = 32 * 2**20


@dataclass(frozen=True, slots=True)
class Looked:
    """What looking at one file told, and whether it follows from the file and its data alone."""

    file: ModelFile
    lasting: bool
    known: Mapping[Identity, str] = field(default_factory=dict)  # digests of large files that were made for it


@dataclass(frozen=True, slots=True)
class Said:
    """What the support stage says of one model, as it is kept."""

    judged: tuple[Judged, ...] = ()
    verdicts: dict[str, Verdict] = field(default_factory=dict)  # by runtime


@dataclass(frozen=True, slots=True)
class Supported:
    """The same, with the predictions in full where they were asked for."""

    said: Said = Said()
    predictions: Mapping[str, Prediction] = field(default_factory=dict)
    lasting: bool = False

    @property
    def judged(self) -> tuple[Judged, ...]:
        """What the rules say."""
        return self.said.judged

    @property
    def verdicts(self) -> Mapping[str, Verdict]:
        """What is predicted, by runtime."""
        return self.said.verdicts


@dataclass(frozen=True, slots=True)
class Match:
    """What the support stage is asked of one model."""

    model: SelectedModel
    facts: ModelFacts
    place: Place
    root: Path
    folder: Path
    runtimes: tuple[PlannedRuntime, ...]
    kept: Mapping[str, Kept]
    levels: Mapping[str, str]
    predictions: bool  # they are asked for, too
    whole: bool = True  # the facts are those of files that are here, and not what pointers and the lock say of them


def keeping_examiner(jobs: int, folder: Path, project: Path) -> Examiner:
    """One that keeps in `folder` what was said of the project's models, and takes it from there.

    Where others can write to the folder, nothing in it is believed.
    """
    from onnxgate.digests import Digests
    from onnxgate.runtimes.store import private_folder
    from onnxgate.unchanged import Unchanged

    if private_folder(folder) is None:
        return Examiner(jobs)

    return Examiner(jobs, Unchanged(folder, project), Digests(folder))


class Examiner:
    """Reads models for the static stages, in up to `jobs` children."""

    def __init__(self, jobs: int, unchanged: Unchanged | None = None, digests: Digests | None = None) -> None:
        self._children = Children(jobs)
        self._unchanged = unchanged
        self._digests = digests

    def __enter__(self) -> Examiner:
        return self

    def __exit__(self, *_: object) -> None:
        self._children.__exit__()
        if self._unchanged is not None:
            self._unchanged.save()

    # The file stage

    def files(self, project: Project, models: Sequence[SelectedModel], lock: Lock) -> tuple[ModelFile, ...]:
        """What reading each model's file told, in the order of `models`."""
        self._recall((path for model in models for path in _locked_files(model, lock)), project.root)
        keys = [self._file_key(model) for model in models]
        held = [self._unchanged.find(key, ModelFile) if self._unchanged and key else None for key in keys]
        kept = [(model, file) for model, file in zip(models, held, strict=True) if file is not None]
        self._recall((path for model, file in kept for path in _files(model, file)), project.root)
        known = [
            file if file is not None and _is_current(file, model) else None
            for model, file in zip(models, held, strict=True)
        ]
        calls = [Call(look, model, _bounds(model)) for model, found in zip(models, known, strict=True) if not found]
        answers = iter(self._children.run(calls, at_once=_worth(calls)))
        looked = [
            found or self._taken(next(answers), model, key)
            for model, key, found in zip(models, keys, known, strict=True)
        ]
        if self._digests is not None:
            self._digests.keep(path for model, file in zip(models, looked, strict=True) for path in _files(model, file))
        return tuple(
            file_stage.named(model, lock.models.get(model.path), file, _root(project, model))
            for model, file in zip(models, looked, strict=True)
        )

    def _recall(self, files: Iterable[Path], root: Path) -> None:
        if self._digests is not None:
            self._digests.recall(files, root)

    def _file_key(self, model: SelectedModel) -> str:
        """ "" where the digest of the file is not at hand, or nothing is kept."""
        digest = _digest(model.absolute) if self._unchanged is not None else ""
        return key_of("file", model.path, digest) if digest else ""

    def _taken(self, answer: Looked | Lost, model: SelectedModel, key: str) -> ModelFile:
        if isinstance(answer, Lost):
            return replace(file_stage.unseen(model), lost=_words(answer, "reading it"))
        file = answer.file
        remember(answer.known)
        if answer.lasting and self._unchanged is not None and file.facts is not None and _is_of(file.facts, model):
            read = key_of("file", model.path, file.facts.sha256)
            if key in ("", read) and _is_current(file, model):
                self._unchanged.keep(read, file)
        return file

    # The support stage

    def support(self, asked: Sequence[Match]) -> list[tuple[Supported, Undone | None]]:
        """What the rules say of each model; where a child was lost on it, nothing, and why."""
        keys = [self._support_key(each) for each in asked]
        known = [self._unchanged.find(key, Said) if self._unchanged and key else None for key in keys]
        calls = [
            Call(match, each, _bounds(each.model)) for each, found in zip(asked, known, strict=True) if found is None
        ]
        answers = iter(self._children.run(calls, at_once=_worth(calls)))
        return [
            (Supported(found), None) if found is not None else self._answered(next(answers), each, key)
            for each, key, found in zip(asked, keys, known, strict=True)
        ]

    def _answered(self, answer: Supported | Lost, asked: Match, key: str) -> tuple[Supported, Undone | None]:
        if isinstance(answer, Lost):
            return Supported(), Undone(Stage.SUPPORT, asked.facts.path, "", *_words(answer, "predicting it"))
        if answer.lasting and self._unchanged is not None and key and _is_of(asked.facts, asked.model):
            self._unchanged.keep(key, answer.said)
        return answer, None

    def _support_key(self, asked: Match) -> str:
        """ "" where it depends on more than can be named."""
        if self._unchanged is None or asked.predictions or asked.kept:
            return ""
        if asked.facts.unread or not asked.whole:
            return ""
        path, external = asked.model.absolute, asked.facts.external
        digests = [(each.location, each.sha256, layout(path, each.location)) for each in external]
        runtimes = [(each, each.runtime.name) for each in asked.runtimes]
        return key_of("support", asked.model.path, asked.facts.sha256, digests, asked.place, runtimes, asked.levels)


def look(model: SelectedModel) -> Looked:
    """What reading a model's file tells. Runs in a child."""
    with consulted() as was_consulted:
        before = _status(model.absolute)
        file = file_stage.look(model)
        after = _status(model.absolute)
        is_same = before is not None and after is not None and identity(before) == identity(after)
        return Looked(file, is_same and not was_consulted(), _known_of(model, file))


def match(asked: Match) -> Supported:
    """What the support stage says of a model. Runs in a child."""
    from onnxgate.stages.support import gather_model

    with consulted() as was_consulted:
        found = gather_model(
            asked.model, asked.facts, asked.place, asked.root, asked.folder, asked.runtimes, asked.kept
        )
        judged = tuple(judge.judge(found.subjects, rules.ALL, asked.levels))
        said = Said(judged, {name: each.verdict for name, each in found.predictions.items()})
        return Supported(said, found.predictions if asked.predictions else {}, lasting=not was_consulted())


def _bounds(model: SelectedModel) -> Bounds:
    return Bounds(TIME_S, MEMORY_BYTES + 4 * _size(model.absolute))


def _worth(calls: Sequence[Call[SelectedModel, Looked]] | Sequence[Call[Match, Supported]]) -> int:
    """How many children are worth their start; 0 where there is no work."""
    total = sum((call.bounds.memory_bytes - MEMORY_BYTES) // 4 for call in calls)
    return max(1 if calls else 0, 1 + len(calls) // WORTH_A_CHILD, min(len(calls), 1 + total // WORTH_A_CHILD_BYTES))


def _root(project: Project, model: SelectedModel) -> Path:
    """Git's root; a file that no config knows may lie in another repository."""
    return file_stage.root_of(model) if Path(model.path).is_absolute() else project.root


def _size(path: Path) -> int:
    status = _status(path)
    return status.st_size if status is not None else 0


def _digest(path: Path) -> str:
    """The digest of a file, where it is small or known; "" otherwise."""
    try:
        if not path.is_file():
            return ""
        status = path.stat()
        return sha256_of(path) if status.st_size < REMEMBERED_BYTES else known_digest(status) or ""
    except (OSError, ValueError):
        return ""


def _locked_files(model: SelectedModel, lock: Lock) -> Iterator[Path]:
    """A model and the data that it had when it was locked."""
    yield model.absolute
    entry = lock.models.get(model.path)
    yield from (model.absolute.parent / each.location for each in (entry.external if entry is not None else ()))


def _known_of(model: SelectedModel, file: ModelFile) -> dict[Identity, str]:
    """What this process knows of the large files that a model consists of."""
    statuses = filter(None, map(_status, _files(model, file)))
    return {identity(each): digest for each in statuses if (digest := known_digest(each)) is not None}


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (OSError, ValueError):
        return None


def _is_of(facts: ModelFacts, model: SelectedModel) -> bool:
    """Whether the file is now what its facts say: what was found meanwhile is of this content."""
    return _digest(model.absolute) == facts.sha256


def _is_sound(file: ModelFile, model: SelectedModel) -> bool:
    """Whether all that was looked at is named in the entry, so that it can be seen to be the same."""
    if file.facts is None or file.facts.unread or not file.is_whole:
        return False
    return all(layout(model.absolute, each.location) == "inside" for each in file.facts.external)


def _is_current(file: ModelFile, model: SelectedModel) -> bool:
    """Whether the data files are still those that the entry was made of."""
    for each in file.facts.external if file.facts is not None else ():
        found = data_file(model.absolute, each.location)
        if found.problem is not None or found.size_bytes != each.size_bytes or _digest(found.path) != each.sha256:
            return False
    return file.facts is not None and _is_sound(file, model)


def _files(model: SelectedModel, file: ModelFile) -> Iterator[Path]:
    """The files that a model consists of."""
    if file.facts is not None:
        yield model.absolute
        yield from (model.absolute.parent / each.location for each in file.facts.external)


def _words(lost: Lost, doing: str) -> tuple[str, str]:
    """What happened to a child, and what helps."""
    report = "report it to onnxgate, with the model where that is possible"
    match lost.how:
        case "crashed":
            return f"{doing} crashed the process that did it ({lost.words})", report
        case "timed-out":
            return f"{doing} took more than {lost.words}", report
        case "memory":
            return f"{doing} took more than {lost.words} of memory", report
        case "raised":
            return f"{doing} met a fault of onnxgate's own: {lost.words}", report
