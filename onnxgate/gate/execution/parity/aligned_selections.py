"""Selections of a source that correspond to those of a model, and their verification."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxgate.core.jobs import InputCase, SourceSelection
from onnxgate.model.reading.tensor_data import read_array
from onnxgate.model.subgraphs.replayed_selections import ReplayedSelection
from onnxgate.numerics.streams import load_array
from onnxgate.numerics.suppression import SuppressionLimits, WrongChoices, find_wrong_choices
from onnxgate.stages.parity.run_outputs import RunOutputs

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto

MAX_SCORE_ERROR = 0.25
"""Maximum ratio of the difference between the scores of model and source to that between the items that they select.

Source: chosen. Rounding errors are far smaller, unless they decide which items are selected.
"""


@dataclass(frozen=True, slots=True)
class WrongSelection:
    """A node that selects other items than the source, although its scores are the same, and their number."""

    selection: ReplayedSelection
    choices: WrongChoices
    items: int


@dataclass(frozen=True, slots=True)
class ModelValues:
    """Values of the unmodified model by case: constants, inputs, and exposed values."""

    proto: ModelProto
    cases: Mapping[str, InputCase]
    exposed: RunOutputs

    def read(self, case: str, name: str) -> NDArray[Any] | None:
        """Return a value; None if it is unknown."""
        path = self.exposed.paths.get((case, name)) or self.cases[case].inputs.get(name)
        if path is not None:
            return load_array(path)
        tensor = next((tensor for tensor in self.proto.graph.initializer if tensor.name == name), None)
        return None if tensor is None else read_array(tensor)

    def agree(self, name: str, value: bool) -> bool:
        """Return whether a condition has this value in all cases."""
        found = [self.read(case, name) for case in self.cases]
        return all(it is not None and bool(it.all()) == value for it in found)


def align_selections(
    case: str, values: ModelValues, selections: Sequence[ReplayedSelection], selected: Sequence[SourceSelection]
) -> list[SourceSelection] | None:
    """Find the selection of the source for each of the model; None if it is not unambiguous.

    It has the same shape. Several of the same shape are in the same order, unless the scores show another order.
    Suppressions may depend on earlier selections, so the number of boxes may differ. A node may wrongly select the
    lowest instead of the highest scores.
    """
    aligned = _align_kinds(case, values, selections, selected, lambda it: (it.operator, it.largest))
    if aligned is not None:
        return aligned
    aligned = _align_kinds(case, values, selections, selected, lambda it: (it.operator,))
    if aligned is None:
        return None
    opposite = [(one, it) for one, it in zip(selections, aligned, strict=True) if one.largest != it.largest]
    are_clear = all(_has_same_scores(case, values, one, it) for one, it in opposite)
    return aligned if are_clear else None


def _align_kinds(
    case: str,
    values: ModelValues,
    selections: Sequence[ReplayedSelection],
    selected: Sequence[SourceSelection],
    get_kind: Callable[[ReplayedSelection | SourceSelection], tuple[object, ...]],
) -> list[SourceSelection] | None:
    """Find the selection of the source for each of the model, of the same kind; None if it is not unambiguous."""
    chosen: dict[int, SourceSelection] = {}
    scores = [values.read(case, selection.scores) for selection in selections]
    for kind in dict.fromkeys(map(get_kind, selections)):
        places = [place for place, selection in enumerate(selections) if get_kind(selection) == kind]
        shapes = [_read_shape(case, values, selections[place]) for place in places]
        recorded = [it for it in selected if get_kind(it) == kind]
        if "NonMaxSuppression" in kind:
            fitting = recorded if all(map(_is_in_float32, recorded)) else []
        else:
            shaped = [(it, load_array(it.indices).shape) for it in recorded]
            fitting = [it for it, shape in shaped if shape in shapes]
            if [shape for _, shape in shaped if shape in shapes] != shapes:
                return None
        if None in shapes or len(fitting) != len(places):
            return None
        chosen |= dict(zip(places, fitting, strict=True))
        for shape in dict.fromkeys(shapes):
            same = [place for place, other in zip(places, shapes, strict=True) if other == shape]
            order = _order_by_scores([(selections[it], scores[it]) for it in same], [chosen[it] for it in same])
            chosen |= {place: chosen[same[number]] for place, number in zip(same, order, strict=True)}
    return [chosen[place] for place in range(len(selections))]


def _read_shape(case: str, values: ModelValues, selection: ReplayedSelection) -> tuple[int, ...] | None:
    """Return the shape of the indices as the source records them, or of the scores of a suppression; None if unknown.

    Suppressions of several images or classes are unknown.
    """
    if selection.boxes:
        scores = values.read(case, selection.scores)
        return None if scores is None or scores.shape[:-1] != (1, 1) else scores.shape
    indices = values.read(case, selection.indices)
    if indices is None or selection.keepdims:
        return None if indices is None else indices.shape
    return np.expand_dims(indices, selection.axis).shape


def _is_in_float32(suppression: SourceSelection) -> bool:
    return all(load_array(path).dtype == np.float32 for path in (suppression.scores, suppression.boxes))


def _order_by_scores(
    selections: Sequence[tuple[ReplayedSelection, NDArray[Any] | None]], selected: Sequence[SourceSelection]
) -> Sequence[int]:
    """Return which of the source's selections of one shape has the scores of each of the model's selections.

    A tool may have moved the nodes of a model. The order of the source is returned if the scores do not show another.
    """
    numbers = range(len(selected))
    if len(selected) < 2 or any(scores is None for _, scores in selections):
        return numbers
    errors = np.array(
        [[_compare_scores(scores, one, it) for it in selected] for one, scores in selections if scores is not None]
    )
    best = [row if errors[row, row] <= errors[row].min() else int(errors[row].argmin()) for row in numbers]
    return best if sorted(best) == [*numbers] else numbers


def _compare_scores(scores: NDArray[Any], selection: ReplayedSelection, selected: SourceSelection) -> float:
    """Return the largest difference between the selected scores of the model and of the source."""
    theirs = load_array(selected.scores).astype(np.float64)
    try:
        if selection.boxes:
            ours = scores.reshape(theirs.shape).astype(np.float64)
        else:
            ours = np.take_along_axis(scores, load_array(selected.indices), selection.axis).astype(np.float64)
    except (IndexError, ValueError):
        return math.inf
    with np.errstate(invalid="ignore"):
        difference = np.where(ours == theirs, 0.0, np.abs(ours - theirs))
    return float(np.where(np.isnan(difference), math.inf, difference).max(initial=0.0))


def _has_same_scores(case: str, values: ModelValues, selection: ReplayedSelection, selected: SourceSelection) -> bool:
    """Return whether the model selects by the scores of the source, not by a decreasing function such as `1 - scores`.

    The lowest scores of such a function are those of the same items. The scores of these items must therefore differ
    much less from the source than from those of the items that the model selects. Scores that are 0 have no sign.
    """
    scores = values.read(case, selection.scores)
    if scores is None or scores.dtype.kind not in "fi":
        return False
    error = _compare_scores(scores, selection, selected)
    if error >= _compare_scores(-scores, selection, selected):
        return False
    taken = _take_scores(case, values, selection, selected)
    if taken is None:
        return False
    ours, theirs = (part.astype(np.float64) for part in taken)
    with np.errstate(invalid="ignore"):
        gaps = np.abs(ours - theirs)[ours != theirs]
    return not gaps.size or error <= MAX_SCORE_ERROR * float(gaps[np.isfinite(gaps)].max(initial=0.0) or math.inf)


def _take_scores(
    case: str, values: ModelValues, selection: ReplayedSelection, selected: SourceSelection
) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Return the model's scores of the items that it selects, and of those that the source selects."""
    scores, own = values.read(case, selection.scores), values.read(case, selection.indices)
    if scores is None or own is None:
        return None
    own = own if selection.keepdims else np.expand_dims(own, selection.axis)
    ours, theirs = (np.take_along_axis(scores, it, selection.axis) for it in (own, load_array(selected.indices)))
    return ours, theirs


def check_selections(
    case: str, values: ModelValues, selections: Sequence[ReplayedSelection], selected: Sequence[SourceSelection]
) -> Iterator[WrongSelection]:
    """Yield the selections of the source that nodes of the model cannot make from the same scores.

    These are suppressions whose result is wrong with the limits of the model, and rankings in the opposite direction.
    """
    for selection, it in zip(selections, selected, strict=True):
        if selection.largest != it.largest:
            yield from _compare_directions(case, values, selection, it)
        if not selection.boxes:
            continue
        limits = [values.read(case, name) if name else None for name in selection.limits]
        if any(name and limit is None for name, limit in zip(selection.limits, limits, strict=True)):
            continue
        most, overlap, score = (None if limit is None else float(limit.flat[0]) for limit in limits)
        parameters = SuppressionLimits(most or 0.0, overlap or 0.0, -math.inf if score is None else score)
        kept = load_array(it.indices)
        wrong = find_wrong_choices(load_array(it.boxes), load_array(it.scores), kept, parameters)
        if wrong is not None:
            yield WrongSelection(selection, wrong, len(kept))


def _compare_directions(
    case: str, values: ModelValues, selection: ReplayedSelection, selected: SourceSelection
) -> Iterator[WrongSelection]:
    """Yield the selection if the model's scores of the items differ, so that one of them is not selected by chance."""
    taken = _take_scores(case, values, selection, selected)
    if taken is None:
        return
    ours, theirs = taken
    count = int((ours != theirs).sum())
    if count:
        ours_are, theirs_are = ("highest", "lowest") if selection.largest else ("lowest", "highest")
        detail = f"an item with the {ours_are} score instead of the {theirs_are}"
        yield WrongSelection(selection, WrongChoices(count, detail), ours.size)
