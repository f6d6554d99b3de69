"""What only the contents of two models tell: how far weights moved, and from which release on each loads."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxgate.baseline.revisions import AbsentError
from onnxgate.config.types import Target
from onnxgate.evidence.changes import Minimum, MovedWeights
from onnxgate.model.facts import ModelFacts
from onnxgate.model.structure import UnreadableModel, read_structure
from onnxgate.stages.minimum import (
    Verdicts,
    View,
    alike,
    by_operators,
    by_stamps,
    concerned,
    may_be_lost,
    may_be_refused,
)
from onnxgate.stages.minimum import minimum as minimum_of
from onnxgate.stages.past import Past

Groups = Sequence[Sequence[Target]]
"""Targets that bring the same with them."""


@dataclass(frozen=True, slots=True)
class Compared:
    """`lacking`: why not all of it could be compared. `may_be_lost`: promised releases that may have loaded the model.

    They refuse it now; where nothing lacks, it cannot be predicted whether they did before. `may_be_refused` are those
    that loaded it, where it cannot be predicted whether they do now. `by_lock`: a lock told what it was, and locks do
    not know which inputs have a default.
    """

    weights: MovedWeights | None = None
    minimum: Minimum | None = None
    may_be_lost: tuple[str, ...] = ()
    may_be_refused: tuple[str, ...] = ()
    lacking: AbsentError | None = None
    by_lock: bool = False


@dataclass(frozen=True, slots=True)
class Now:
    """A model as it is. `away`: why its content is not all here, and what helps."""

    facts: ModelFacts
    file: Path
    targets: tuple[Target, ...]
    away: tuple[str, str] | None = None


def compare(past: Past, path: str, before: ModelFacts, now: Now) -> Compared:
    """What a path was beside what it is now. The old one is fetched only where operators or stamps are others."""
    lacking = AbsentError(now.away[0], hint=now.away[1]) if now.away else None
    views: tuple[View, ...] = ()
    if groups := alike(concerned(now.targets)):
        then, lacking = _verdicts_then(past, path, before, now, groups, lacking)
        views = tuple(map(View, groups, then, _verdicts_now(now, groups)))
    weights, lacking = (None, lacking) if lacking else _moved_since(past, path, now.file)
    return Compared(
        weights, minimum_of(views), may_be_lost(views), may_be_refused(views), lacking, past.is_told_by_lock(path)
    )


def _verdicts_now(now: Now, groups: Groups) -> Sequence[Verdicts]:
    return [by_stamps(now.facts)] * len(groups) if now.away else by_operators(read_structure(now.file), groups)


def _verdicts_then(
    past: Past, path: str, before: ModelFacts, now: Now, groups: Groups, lacking: AbsentError | None
) -> tuple[Sequence[Verdicts], AbsentError | None]:
    stamps = [by_stamps(before)] * len(groups)
    if lacking is not None:
        return stamps, lacking
    try:
        structure = past.structure(path, fetch=_asks(before) != _asks(now.facts))
        return by_operators(structure, groups), None
    except AbsentError as error:
        return stamps, error
    except UnreadableModel as reason:
        return stamps, AbsentError(str(reason))
    finally:
        past.forget(path)


def _moved_since(past: Past, path: str, file: Path) -> tuple[MovedWeights | None, AbsentError | None]:
    try:
        with tempfile.TemporaryDirectory(dir=past.scratch) as folder:
            return _moved(past.content(path, Path(folder) / "past"), file), None
    except AbsentError as error:
        return None, error


def _asks(facts: ModelFacts) -> tuple[object, ...]:
    """What a release looks at, as far as facts know it."""
    types = tuple((value.name, value.type) for value in (*facts.inputs, *facts.outputs))
    return facts.ir_version, facts.opsets, facts.function_opsets, facts.operators, types


def _moved(old: Path, new: Path) -> MovedWeights | None:
    from onnxgate.model.movement import weights_moved
    from onnxgate.model.weights import UnreadableWeightError

    try:
        moved = weights_moved(old, new)
    except (UnreadableModel, UnreadableWeightError) as reason:
        raise AbsentError(str(reason)) from reason
    if moved is None:
        return None
    return MovedWeights(
        changed=moved.changed,
        of=moved.of,
        added=moved.added,
        removed=moved.removed,
        largest=moved.largest,
        name=moved.name,
    )
