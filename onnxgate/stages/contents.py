"""What only the contents of two models tell: how far weights moved, and from which release on each loads."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from onnxgate.baseline.revisions import AbsentError
from onnxgate.config.types import Target
from onnxgate.evidence.changes import Minimum, MovedWeights
from onnxgate.model.facts import ModelFacts
from onnxgate.model.structure import UnreadableModel, read_structure
from onnxgate.stages.past import Past


@dataclass(frozen=True, slots=True)
class Compared:
    """`lacking`: why not all of it could be compared, with the command that helps."""

    weights: MovedWeights | None = None
    minimum: Minimum | None = None
    lacking: str = ""


def compare(
    past: Past, path: str, before: ModelFacts, file: Path, after: ModelFacts, targets: tuple[Target, ...]
) -> Compared:
    """Of a model that is all here. The old one is fetched only where operators or stamps are others."""
    lacking = ""
    minimum: Minimum | None = None
    try:
        minimum = _minimum(past, path, file, targets, fetch=_asks(before) != _asks(after))
    except AbsentError as error:
        lacking = _said(error)
    finally:
        past.forget(path)
    try:
        with tempfile.TemporaryDirectory(dir=past.scratch) as folder:
            return Compared(_moved(past.content(path, Path(folder) / "past"), file), minimum, lacking)
    except AbsentError as error:
        return Compared(None, minimum, lacking or _said(error))


def _asks(facts: ModelFacts) -> tuple[object, ...]:
    """What a release looks at, as far as facts know it."""
    types = tuple((value.name, value.type) for value in (*facts.inputs, *facts.outputs))
    return facts.ir_version, facts.opsets, facts.function_opsets, facts.operators, types


def _minimum(past: Past, path: str, file: Path, targets: tuple[Target, ...], *, fetch: bool) -> Minimum | None:
    from onnxgate.stages.minimum import concerned, minimum

    promised = concerned(targets)
    if not promised:
        return None
    try:
        return minimum(past.structure(path, fetch=fetch), read_structure(file), promised)
    except UnreadableModel as reason:
        raise AbsentError(str(reason)) from reason


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


def _said(error: AbsentError) -> str:
    return f"{error.reason} (`{error.hint}`)" if error.hint else error.reason
