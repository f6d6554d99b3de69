"""Comparison of ranked outputs: items such as detections, which are matched by their values instead of their positions.

An item consists of the values of several outputs, such as a box, a score and a label. An item of the candidate matches
an item of the reference if all their values agree within the tolerances of the outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
    Outputs = Mapping[str, Array]


NOISES = (1e-6, 1e-5)
"""Levels of noise in runs that show the effect of rounding errors; larger if the smaller does not explain a difference.

The noise is relative: of inputs to their largest value, and of the scores and boxes that are selected. It exceeds the
rounding errors, because a selection that depends on these must change in many runs.

Source: in a RetinaNet with random weights (torchvision, ResNet-50), a box differs by 2.4 times its tolerance from the
source, and by up to 4.7 times in runs of the second level; scores differ by 1e-7 to 1e-6. Measured 2026-11-28.
"""
MAX_ITEM_VALUES = 1 << 24
"""Maximum number of values of the items of one result; larger results are compared by position.

Source: 128 MiB as float64; chosen, not measured.
"""
MAX_SEARCHED_ITEMS = 4096
"""Maximum number of items of one list that are searched for at other positions.

Source: chosen, not measured. RT-DETR and YOLO list 300 items, Faster R-CNN 100.
"""
MAX_PAIRS = 1 << 22
"""Maximum number of pairs of items that are compared at once, to limit memory."""
MAX_RATIO = 2.0
"""Maximum ratio of the number of unexplained items to the number in any run with rounding errors.

Source: chosen. Runs of a correct Faster R-CNN with random weights leave up to 10 of 100 items unexplained, the
difference between the model and its source none.
"""
MIN_LISTED_RATIO = 0.25
"""Minimum ratio of the number of explained reference items to the number of explained items of each run.

Source: SSDlite with random weights, where many scores are equal: 0.44; with all boxes moved by a pixel: 0.
"""
MIN_LISTED_ITEMS = 5
"""Number of items of each run that the others must list before the absence of reference items proves anything.

Source: with 5 expected items, a Poisson distribution gives none in 0.7 % of all cases.
"""
MIN_COMPARED_SHARE = 0.1
"""Minimum share of items that agree. If rounding errors explain why fewer agree, the comparison proves little.

Source: chosen. Of RT-DETR and SSDlite with random weights, no item agrees with the source; of Faster R-CNN, 85 % do.
"""
ABSENCE_FACTOR = 4.0
"""Ratio of the tolerance within which no item may lie for an item to be absent, to the tolerance of a match.

Source: chosen, not measured.
"""


class ItemBound(NamedTuple):
    """Tolerance of one output: `atol + rtol * |b|`, and at least `of_largest` times the largest value of its column."""

    rtol: float
    atol: float
    of_largest: float = 0.0


@dataclass(frozen=True, slots=True)
class ItemLayout:
    """The outputs that list the same items, and the axis of the items, counted from the start."""

    axis: int
    outputs: tuple[str, ...]

    def arrange(self, arrays: Outputs) -> Array | None:
        """Return the items with the shape (lists, items, values of an item); None if the outputs do not list items."""
        parts = [arrays[name] for name in self.outputs if name in arrays]
        lead = parts[0].shape[: self.axis + 1] if parts else ()
        if len(parts) < len(self.outputs) or any(part.shape[: self.axis + 1] != lead for part in parts):
            return None
        if len(lead) <= self.axis or sum(part.size for part in parts) > MAX_ITEM_VALUES:
            return None
        lists = math.prod(lead[:-1])
        columns = [part.reshape(lists, lead[-1], math.prod(part.shape[self.axis + 1 :])) for part in parts]
        return np.concatenate([column.astype(np.float64) for column in columns], axis=2)

    def columns(self, arrays: Outputs) -> tuple[str, ...]:
        """Return the output of each value of an item."""
        counts = {name: math.prod(arrays[name].shape[self.axis + 1 :]) for name in self.outputs}
        return tuple(name for name, count in counts.items() for _ in range(count))


def find_layout(reference: Outputs, axes: Mapping[str, int | None]) -> ItemLayout | None:
    """Find the axis of the items. `axes` maps each output to this axis, counted from the end, if it is known.

    Otherwise, it is the axis that most outputs share. The last axis of the outputs with the most axes contains the
    values of an item, such as the coordinates of a box.
    """
    arrays = {name: reference[name] for name in axes if name in reference and reference[name].dtype.kind in "fiub"}
    known = [(arrays[name].ndim + axis, name) for name, axis in axes.items() if name in arrays and axis is not None]
    if known:
        axis, name = min(known)
        return ItemLayout(axis, _list_sharing(arrays, name, axis)) if axis >= 0 else None
    found = []
    for name, array in arrays.items():
        for axis in range(array.ndim):
            names = _list_sharing(arrays, name, axis)
            if axis <= max(max(arrays[name].ndim for name in names) - 2, 0):
                found.append((array.shape[axis] != 1, len(names), axis, names))
    return ItemLayout(*max(found)[2:]) if found else None


def _list_sharing(arrays: Outputs, name: str, axis: int) -> tuple[str, ...]:
    """Return the outputs that have the same sizes as this output, up to the axis."""
    sizes = arrays[name].shape[: axis + 1]
    return tuple(other for other, array in arrays.items() if array.shape[: axis + 1] == sizes)


def match_items(items: Array, others: Array, allowed: Array) -> Array | None:
    """Return the position of the counterpart of each item, or -1; None if too many items differ by position.

    Items have the shape (items, values); `allowed` are the tolerances of each item, or the same for all. Items at the
    same position are matched first, then the nearest ones.
    """
    allowed = np.broadcast_to(allowed, items.shape)
    count = min(len(items), len(others))
    same = np.flatnonzero(_agree(items[:count], others[:count], allowed[:count]))
    found = np.full(len(items), -1)
    found[same] = same
    left, free = np.flatnonzero(found < 0), np.setdiff1d(np.arange(len(others)), same)
    if max(len(left), len(free)) > MAX_SEARCHED_ITEMS:
        return None
    first, second = _find_pairs(items[left], others[free], allowed[left])
    first, second = left[first], free[second]
    with np.errstate(invalid="ignore"):
        distances = np.abs(items[first] - others[second]).sum(axis=1)
    taken = np.zeros(len(others), bool)
    for pair in np.argsort(distances, kind="stable"):
        if found[first[pair]] < 0 and not taken[second[pair]]:
            found[first[pair]] = second[pair]
            taken[second[pair]] = True
    return found


def _find_pairs(items: Array, others: Array, allowed: Array) -> tuple[Array, Array]:
    """Return the positions of all pairs of items that agree."""
    step = max(MAX_PAIRS // max(len(others), 1), 1)
    pairs = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    for start in range(0, len(items), step):
        part, tolerance = items[start : start + step], allowed[start : start + step]
        first, second = np.nonzero(_agree_each(part[:, None, 0], others[None, :, 0], tolerance[:, None, 0]))
        for column in range(1, items.shape[1]):
            agree = _agree_each(part[first, column], others[second, column], tolerance[first, column])
            first, second = first[agree], second[agree]
        pairs.append((first + start, second))
    first, second = map(np.concatenate, zip(*pairs, strict=True))
    return first, second


def _agree(candidate: Array, reference: Array, allowed: Array) -> Array:
    """Return which items agree in all values."""
    return np.asarray(_agree_each(candidate, reference, allowed).all(axis=-1))


def find_moved(found: Array) -> Array:
    """Return the items whose counterparts have another order. `found` contains the positions of the counterparts."""
    items = np.flatnonzero(found >= 0)
    return np.asarray(items[np.argsort(found[items], kind="stable") != np.arange(len(items))])


@dataclass(frozen=True, slots=True)
class ItemAgreement:
    """Result of comparing ranked outputs.

    An item is unstable if rounding errors decide whether or where it is listed. `differing` are the outputs of the
    items that differ although they are stable; `detail` describes one of these items.
    """

    items: int  # in the reference
    matched: int
    unstable: int
    differing: frozenset[str]
    wrong: int = 0  # number of stable items that differ
    detail: str = ""
    top_score: float | None = None  # highest score of an unstable item
    worst: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # output -> difference and its tolerance

    @property
    def is_hollow(self) -> bool:
        """Return whether rounding errors decide about almost all items."""
        return not self.wrong and self.matched < MIN_COMPARED_SHARE * self.items


Rerun = Callable[[int], Sequence["Outputs"]]
"""Returns the candidate's outputs of several runs with rounding errors, which are larger at higher levels."""


def compare_items(
    layout: ItemLayout, candidate: Outputs, reference: Outputs, bounds: Mapping[str, ItemBound], rerun: Rerun
) -> ItemAgreement | None:
    """Compare the items of ranked outputs; None if they cannot be compared as items.

    Rounding errors explain a missing item if a run with such errors lists it, and an additional item if a run omits it.
    Unexplained items differ if there are more of them than between any of the runs and the other runs.
    """
    ours, theirs = layout.arrange(candidate), layout.arrange(reference)
    if ours is None or theirs is None or len(ours) != len(theirs) or ours.shape[2] != theirs.shape[2]:
        return None
    comparison = _ItemComparison(layout, layout.columns(reference), ours, theirs, bounds)
    return comparison.judge(rerun) if comparison.match() else None


class _OpenItems(NamedTuple):
    """Items of one list that differ: positions in the candidate (`extra`) or in the reference."""

    missing: Array
    extra: Array
    moved: Array

    def total(self) -> int:
        return max(len(self.missing), len(self.extra)) + len(self.moved)


@dataclass(frozen=True, slots=True)
class _List:
    """A list that does not agree by position.

    `counterparts` contains the position of the equal candidate item of each reference item, and `near` that of a
    similar item if none is equal. Both are -1 if there is no such item.
    """

    index: int
    counterparts: Array
    near: Array
    differing: _OpenItems


class _Unexplained(NamedTuple):
    """Items of a compared list that runs with rounding errors do not explain."""

    missing: Array  # positions of items that the candidate does not list
    added: Array  # positions of items that only the candidate lists, or in another order
    scores: tuple[Array, Array]  # of both; 0 if there are none
    listed: int  # number of items except `missing`


@dataclass(slots=True)
class _NoisyRuns:
    """Runs with noise, as evidence about one list of the candidate; `tolerate` returns the tolerances of items."""

    candidate: Array
    runs: Sequence[Array]
    tolerate: Callable[[Array], Array]
    score: int | None  # without scores, the order of the items matters
    missing: list[Array] = field(default_factory=list)  # positions of items of each run that the candidate omits
    equal: Array = field(init=False)  # (runs, items): whether a run lists an item of the candidate
    near: Array = field(init=False)  # the same for similar items

    def __post_init__(self) -> None:
        """Match the items of each run with the candidate."""
        ours, allowed = self.candidate, self.tolerate(self.candidate)
        self.equal, self.near = (np.zeros((len(self.runs), len(ours)), bool) for _ in range(2))
        for equal, near, run in zip(self.equal, self.near, self.runs, strict=True):
            found = match_items(ours, run, ABSENCE_FACTOR * allowed)
            found = np.full(len(ours), -1) if found is None else found
            self.missing.append(np.setdiff1d(np.arange(len(run)), found))
            if self.score is None:
                found[find_moved(found)] = -1
            near[:] = found >= 0
            equal[near] = _agree(ours[near], run[found[near]], allowed[near])

    def explain(
        self, items: Array, missing: Array, equal: Array, near: Array, without: int | None = None
    ) -> _Unexplained:
        """Find the unexplained items of a list that is compared with the candidate.

        `missing` are the items that the candidate does not list. `equal` and `near` tell whether the compared list
        contains the items of the candidate. If it contains a similar item, runs in which the item changes explain that.
        """
        others = [number for number in range(len(self.runs)) if number != without]
        for number in others:
            missing = missing[~self._is_listed(items[missing], self.runs[number])]
        is_stable = np.where(near, self.equal[others].all(axis=0), self.near[others].all(axis=0))
        added = np.flatnonzero(~equal & is_stable)
        scores = self._read_scores(items[missing]), self._read_scores(self.candidate[added])
        return _Unexplained(missing, added, scores, len(items) - len(missing))

    def sample(self, number: int) -> _Unexplained:
        """Compare one run in the same way, explained by the other runs."""
        items = self.missing[number], self.equal[number], self.near[number]
        return self.explain(self.runs[number], *items, without=number)

    def _is_listed(self, items: Array, others: Array) -> Array:
        found = np.zeros(len(items), bool)
        found[_find_pairs(items, others, ABSENCE_FACTOR * self.tolerate(items))[0]] = True
        return found

    def _read_scores(self, items: Array) -> Array:
        return np.zeros(len(items)) if self.score is None else items[:, self.score]


def _find_excess(scores: Sequence[Array], samples: Sequence[Sequence[Array]], allowed: float) -> list[Array]:
    """Return of which items there are more than in the samples, without those with lower scores, for each list."""
    every = np.concatenate(scores)

    def count(sample: Array) -> Array:
        return len(sample) - np.searchsorted(np.sort(sample), every - allowed)

    expected = np.max([count(np.concatenate(sample)) for sample in samples], axis=0)
    return np.split(count(every) > MAX_RATIO * expected, np.cumsum([len(part) for part in scores])[:-1])


@dataclass(slots=True)
class _ItemComparison:
    """Comparison of all lists of items."""

    layout: ItemLayout
    columns: tuple[str, ...]
    candidate: Array
    reference: Array
    bounds: Mapping[str, ItemBound]
    rtol: Array = field(init=False)  # by column
    least: Array = field(init=False)  # smallest tolerance by column
    allowed: Array = field(init=False)  # tolerance of each value of the reference
    score: int | None = field(init=False)  # column of the scores
    lists: list[_List] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Compute the tolerance of each value, and find the scores."""
        bounds = [self.bounds[name] for name in self.columns]
        self.rtol, atol, share = (np.array([bound[index] for bound in bounds]) for index in range(3))
        self.least = np.maximum(atol, share * _measure_size(self.reference).max(axis=(0, 1), initial=0.0))
        self.allowed = self._tolerate(self.reference)
        self.score = _find_scores((self.reference, self.candidate), self.columns, bounds)

    def _tolerate(self, items: Array) -> Array:
        return np.asarray(self.least + self.rtol * _measure_size(items))

    def match(self) -> bool:
        """Match the items of the lists that do not agree by position; return whether this was possible."""
        is_same = self.candidate.shape == self.reference.shape
        agree = _agree(self.candidate, self.reference, self.allowed).all(axis=1) if is_same else None
        for index in range(len(self.reference)) if agree is None else map(int, np.flatnonzero(~agree)):
            ours, theirs, allowed = self.candidate[index], self.reference[index], self.allowed[index]
            found = match_items(theirs, ours, allowed)
            if found is None:
                return False
            missing, extra = np.flatnonzero(found < 0), np.setdiff1d(np.arange(len(ours)), found)
            moved = find_moved(found) if self.score is None else np.empty(0, np.int64)
            similar = match_items(theirs[missing], ours[extra], ABSENCE_FACTOR * allowed[missing])
            near = np.full(len(theirs), -1)
            near[missing] = np.append(extra, -1)[similar]
            self.lists.append(_List(index, found, near, _OpenItems(missing, extra, moved)))
        return True

    def judge(self, rerun: Rerun) -> ItemAgreement:
        """Decide which of the items that differ are stable."""
        left = [it.differing for it in self.lists]
        runs: list[Array] = []
        for level in range(len(NOISES)):
            if any(items.total() for items in left):
                arranged = [run for run in map(self.layout.arrange, rerun(level)) if run is not None]
                runs += [run for run in arranged if run.shape[::2] == self.reference.shape[::2]]
                left = self._drop_unstable(runs) if runs else left
        return self._summarize(left)

    def _drop_unstable(self, runs: Sequence[Array]) -> list[_OpenItems]:
        """Return the items that differ for another reason than rounding errors."""
        noisy = [
            _NoisyRuns(self.candidate[it.index], [run[it.index] for run in runs], self._tolerate, self.score)
            for it in self.lists
        ]
        found = [self._explain(it, evidence) for it, evidence in zip(self.lists, noisy, strict=True)]
        samples = [[evidence.sample(number) for evidence in noisy] for number in range(len(runs))]
        listed = min(sum(it.listed for it in sample) for sample in samples)
        if listed >= MIN_LISTED_ITEMS and sum(it.listed for it in found) < MIN_LISTED_RATIO * listed:
            return [it.differing for it in self.lists]
        near = 0.0 if self.score is None else float(self.allowed[..., self.score].max())
        missing, added = (
            _find_excess(
                [part.scores[kind] for part in found], [[part.scores[kind] for part in it] for it in samples], near
            )
            for kind in (0, 1)
        )
        return [
            _select_open(it, part.missing[is_missing], part.added[is_added])
            for it, part, is_missing, is_added in zip(self.lists, found, missing, added, strict=True)
        ]

    def _explain(self, matching: _List, noisy: _NoisyRuns) -> _Unexplained:
        """Return the items that differ from the reference and that the runs do not explain."""
        positions, items = np.arange(self.candidate.shape[1]), matching.differing
        equal, near = np.isin(positions, matching.counterparts), np.isin(positions, matching.near)
        equal[matching.counterparts[items.moved]] = False
        missing = items.missing[matching.near[items.missing] < 0]
        return noisy.explain(self.reference[matching.index], missing, equal, near)

    def _summarize(self, open_items: Sequence[_OpenItems]) -> ItemAgreement:
        details = [
            detail
            for it, items in zip(self.lists, open_items, strict=True)
            for detail in self._describe(it.index, items)
        ]
        wrong = sum(items.total() for items in open_items)
        total = self.reference.shape[0] * self.reference.shape[1]
        return ItemAgreement(
            items=total,
            matched=total - sum(len(it.differing.missing) for it in self.lists),
            unstable=sum(it.differing.total() for it in self.lists) - wrong,
            differing=frozenset(name for _, outputs in details for name in outputs),
            wrong=wrong,
            detail=details[0][0] if details else "",
            top_score=self._find_top_score(open_items),
            worst=self._measure_matched(),
        )

    def _find_top_score(self, open_items: Sequence[_OpenItems]) -> float | None:
        """Return the highest score of an unstable item."""
        if self.score is None:
            return None
        scores = [
            float(items[item, self.score])
            for it, left in zip(self.lists, open_items, strict=True)
            for items, differing, unexplained in (
                (self.reference[it.index], it.differing.missing, left.missing),
                (self.candidate[it.index], it.differing.extra, left.extra),
            )
            for item in np.setdiff1d(differing, unexplained)
        ]
        return max(scores, default=None)

    def _measure_matched(self) -> dict[str, tuple[float, float]]:
        """Return the worst difference of each output among the matched items, with its tolerance."""
        counterparts = np.tile(np.arange(self.reference.shape[1]), (len(self.reference), 1))
        for it in self.lists:
            counterparts[it.index] = it.counterparts
        lists, items = np.nonzero(counterparts >= 0)
        allowed = self.allowed[lists, items]
        with np.errstate(invalid="ignore"):
            difference = np.abs(self.candidate[lists, counterparts[lists, items]] - self.reference[lists, items])
        difference = np.where(np.isfinite(difference), difference, 0.0)
        worst = {name: (0.0, self.bounds[name].atol) for name in self.layout.outputs}
        for column, name in enumerate(self.columns if len(lists) else ()):
            row = int(np.argmax(difference[:, column] - allowed[:, column]))
            worst[name] = max(worst[name], (float(difference[row, column]), float(allowed[row, column])))
        return worst

    def _describe(self, index: int, items: _OpenItems) -> Iterator[tuple[str, set[str]]]:
        """Describe the items of one list that differ, with the outputs in which they differ."""
        ours, theirs, every = self.candidate[index], self.reference[index], {*self.layout.outputs}
        for item in items.missing:
            equal = _agree_each(ours[items.extra], theirs[item], self.allowed[index][item])
            shared = equal.sum(axis=1)
            if len(shared) and 3 * shared.max() >= len(self.columns):
                nearest = int(np.argmax(shared))
                column = int(np.argmin(equal[nearest]))
                values = f"{ours[items.extra[nearest], column]:.6g} instead of {theirs[item, column]:.6g}"
                where = {name for name, is_equal in zip(self.columns, equal[nearest], strict=True) if not is_equal}
                yield f"item {item}{self._format_score(theirs[item])}: {values} in `{self.columns[column]}`", where
            else:
                yield f"item {item}{self._format_score(theirs[item])} is missing", every
        if not len(items.missing):
            for item in items.extra:
                yield f"item {item}{self._format_score(ours[item])} is not in the reference", every
        for item in items.moved:
            yield f"item {item}{self._format_score(theirs[item])} is in another place", every

    def _format_score(self, item: Array) -> str:
        return "" if self.score is None else f" (score {item[self.score]:.3g})"


def _select_open(matching: _List, missing: Array, added: Array) -> _OpenItems:
    """Return the items of a list that remain open. `added` are positions in the candidate."""
    items = matching.differing
    similar = items.missing[np.isin(matching.near[items.missing], added)]
    moved = items.moved[np.isin(matching.counterparts[items.moved], added)]
    return _OpenItems(np.union1d(missing, similar), np.intersect1d(items.extra, added), moved)


def _measure_size(items: Array) -> Array:
    return np.where(np.isfinite(items), np.abs(items), 0.0)


def _find_scores(lists: Sequence[Array], columns: Sequence[str], bounds: Sequence[ItemBound]) -> int | None:
    """Return the column of the scores: the only one that never increases, or the one with the name of a score."""
    if lists[0].shape[1] < 2:
        return None
    found = [
        column
        for column, bound in enumerate(bounds)
        if bound.rtol and all((items[:, 1:, column] <= items[:, :-1, column]).all() for items in lists)
    ]
    named = [column for column in found if any(word in columns[column].lower() for word in ("score", "conf", "prob"))]
    varied = [column for column in found if (lists[0][:, :1, column] > lists[0][:, -1:, column]).any()]
    return next(iter((*named, *varied)), None)


def count_unexplained(candidate: Array, reference: Array, bound: ItemBound, runs: Sequence[Array]) -> tuple[int, int]:
    """Count the elements that differ from the reference in all runs with nearly equal inputs.

    Also return the number of elements that differ in the candidate. All arrays have the same shape.
    """
    expected = reference.astype(np.float64)
    size = np.where(np.isfinite(expected), np.abs(expected), 0.0)
    allowed = np.maximum(bound.atol, bound.of_largest * size.max(initial=0.0)) + bound.rtol * size
    differs = ~_agree_each(candidate.astype(np.float64), expected, allowed)
    left = differs.copy()
    for run in runs:
        if run.shape == reference.shape:
            left &= ~_agree_each(run.astype(np.float64), expected, allowed)
    return int(left.sum()), int(differs.sum())


def _agree_each(candidate: Array, reference: Array, allowed: Array) -> Array:
    """Return which elements agree; NaN agrees with NaN and infinity with infinity of the same sign."""
    with np.errstate(invalid="ignore"):
        near = (np.abs(candidate - reference) <= allowed) | (candidate == reference)
    return np.asarray(near | (np.isnan(candidate) & np.isnan(reference)))
