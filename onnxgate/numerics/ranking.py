"""Comparison of ranked outputs: items such as detections, which are matched by their values instead of their positions.

An item consists of the values of several outputs, such as a box, a score and a label. An item of the candidate matches
an item of the reference if all their values agree within the tolerances of the outputs.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
    Outputs = Mapping[str, Array]


MAX_ITEM_VALUES = 1 << 24
"""Maximum number of values of the items of one result; larger results are compared by position.

Source: 128 MiB as float64; chosen, not measured.
"""
MAX_SEARCHED_ITEMS = 4096
"""Maximum number of items of one list that are searched for at other positions.

Source: chosen, not measured. RT-DETR and YOLO list 300 items, Faster R-CNN 100.
"""
MAX_TIE = 5e-7
"""Maximum relative difference of equal scores: four times the relative precision of float32.

Source: the equal scores of a Faster R-CNN with random weights (0.2066) differ by 7e-8 between torch and onnxruntime
(relative); the factor is chosen.
"""
MAX_SMALL_TIE = 1.2e-7
"""Maximum difference of equal scores near 0, which are often results of a sigmoid or softmax: one ULP of 1 in float32.

Source: arithmetic of a sigmoid, `1 / (1 + exp(-x))`; not measured.
"""
MAX_ATTEMPTS = 3
"""Maximum number of attempts to explain the differing items by runs on nearly equal inputs.

Source: in a Faster R-CNN with random weights, 4 of 45 runs with noise in 3 attempts listed one item of equal score.
"""
MAX_RARE_SHARE = 0.1
"""If an attempt explains no item, another attempt follows only if at most this share of the items differs.

Source: chosen to save time if a model is wrong; not measured.
"""
MIN_EXPECTED_ITEMS = 5.0
"""Number of items that must be expected in runs on nearly equal inputs before their absence proves anything.

Source: with 5 expected items, a Poisson distribution gives none in 0.7 % of all cases.
"""
MAX_COMMON_SHARE = 0.5
"""Maximum share of the additional items that a run lists if its selection differs from that of the candidate.

Source: chosen. Of a Faster R-CNN with random weights, runs with noise list 16 to 38 of 99 items of the candidate, and
runs without noise 95 to 99.
"""
MIN_LISTED_RATIO = 0.25
"""Minimum ratio of the number of reference items in these runs to the expected number.

Source: chosen, not measured.
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


@dataclass(frozen=True, slots=True)
class ItemMatching:
    """Matched items of one list.

    `missing` are the reference items without a counterpart, `extra` the candidate items without one. `moved` are the
    matched reference items that are out of order in the candidate.
    """

    pairs: dict[int, int]  # reference item -> candidate item
    missing: tuple[int, ...]
    extra: tuple[int, ...]
    moved: tuple[int, ...]


def match_items(candidate: Array, reference: Array, allowed: Array) -> ItemMatching | None:
    """Match the items of two lists with the shape (items, values); None if too many items differ.

    `allowed` contains the tolerance of each value of the reference. Items at the same position are matched first.
    """
    count = min(len(candidate), len(reference))
    agree = _agree(candidate[:count], reference[:count], allowed[:count])
    pairs = {int(index): int(index) for index in np.flatnonzero(agree)}
    left = [index for index in range(len(reference)) if index not in pairs]
    free = [index for index in range(len(candidate)) if index not in pairs]
    if max(len(left), len(free)) > MAX_SEARCHED_ITEMS:
        return None
    options = {
        index: [free[at] for at in _find_equal(candidate[free], reference[index], allowed[index])] for index in left
    }
    pairs |= _assign(options)
    taken = set(pairs.values())
    return ItemMatching(
        pairs=pairs,
        missing=tuple(index for index in left if index not in pairs),
        extra=tuple(index for index in free if index not in taken),
        moved=_find_moved(pairs),
    )


def _agree(candidate: Array, reference: Array, allowed: Array) -> Array:
    """Return which items agree in all values."""
    return np.asarray(_agree_each(candidate, reference, allowed).all(axis=-1))


def _find_equal(items: Array, item: Array, allowed: Array) -> Array:
    return np.flatnonzero(_agree(items, item, allowed))


def _assign(options: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """Assign as many items as possible to one of their options each, by augmenting paths."""
    owners: dict[int, int] = {}
    for start in options:
        came_from: dict[int, int] = {}  # option -> item that reached it
        ahead = [start]
        end = None
        while ahead and end is None:
            item = ahead.pop()
            for option in options[item]:
                if option not in came_from:
                    came_from[option] = item
                    if option not in owners:
                        end = option
                        break
                    ahead.append(owners[option])
        while end is not None:
            item = came_from[end]
            previous = next((option for option, owner in owners.items() if owner == item), None)
            owners[end] = item
            end = previous
    return {item: option for option, item in owners.items()}


def _find_moved(pairs: Mapping[int, int]) -> tuple[int, ...]:
    """Return the items outside of a longest sequence of items that has the same order on both sides."""
    items = sorted(pairs)
    ends: list[int] = []  # last candidate position of the best sequence of each length
    lengths = []
    for item in items:
        length = bisect.bisect_left(ends, pairs[item])
        ends[length : length + 1] = [pairs[item]]
        lengths.append(length)
    kept, wanted, before = set(), len(ends) - 1, math.inf
    for item, length in zip(reversed(items), reversed(lengths), strict=True):
        if length == wanted and pairs[item] < before:
            kept.add(item)
            wanted, before = wanted - 1, pairs[item]
    return tuple(item for item in items if item not in kept)


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


Rerun = Callable[[int], Sequence[Sequence["Outputs"]]]
"""Returns the candidate's outputs for inputs that differ by rounding errors; each attempt uses other inputs.

The runs of one group have equally large changes of their inputs.
"""


def compare_items(
    layout: ItemLayout, candidate: Outputs, reference: Outputs, bounds: Mapping[str, ItemBound], rerun: Rerun
) -> ItemAgreement | None:
    """Compare the items of ranked outputs; None if they cannot be compared as items.

    Items without a counterpart are accepted if the candidate shows that they are unstable: with nearly equal inputs, it
    lists the missing items and omits the additional ones. Items with equal scores may also replace each other if, with
    nearly equal inputs, the candidate lists a fair share of the missing items.
    """
    ours, theirs = layout.arrange(candidate), layout.arrange(reference)
    if ours is None or theirs is None or len(ours) != len(theirs) or ours.shape[2] != theirs.shape[2]:
        return None
    comparison = _ItemComparison(layout, layout.columns(reference), ours, theirs, bounds)
    return comparison.judge(rerun) if comparison.match() else None


@dataclass(slots=True)
class _ItemComparison:
    """Comparison of all lists of items; `allowed` contains the tolerance of each value."""

    layout: ItemLayout
    columns: tuple[str, ...]
    candidate: Array
    reference: Array
    bounds: Mapping[str, ItemBound]
    allowed: Array = field(init=False)
    score: int | None = field(init=False)  # column of the scores
    matchings: list[ItemMatching] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Compute the tolerance of each value, and find the scores."""
        size = np.where(np.isfinite(self.reference), np.abs(self.reference), 0.0)
        largest = size.max(axis=(0, 1), initial=0.0)
        bounds = [self.bounds[name] for name in self.columns]
        rtol, atol, share = (np.array([bound[index] for bound in bounds]) for index in range(3))
        self.allowed = np.maximum(atol, share * largest) + rtol * size
        self.score = _find_scores(self.reference, self.columns, bounds)

    def match(self) -> bool:
        """Match the items of each list; return whether this was possible."""
        for ours, theirs, allowed in zip(self.candidate, self.reference, self.allowed, strict=True):
            matching = match_items(ours, theirs, allowed)
            if matching is None:
                return False
            self.matchings.append(matching)
        return True

    def judge(self, rerun: Rerun) -> ItemAgreement:
        """Decide which of the items that differ are unstable."""
        differing = [self._list_differing(index) for index in range(len(self.matchings))]
        left = differing
        runs: list[Array] = []
        for attempt in range(MAX_ATTEMPTS):
            before = _count(left)
            if not before or len(runs) < attempt:
                break
            added = [run for group in rerun(attempt) for run in self._list_nearby(group)]
            left = [self._drop_unstable(index, items, added) for index, items in enumerate(left)]
            runs += added
            if _count(left) == before > MAX_RARE_SHARE * self.reference.shape[0] * self.reference.shape[1]:
                break
        if any(map(any, left)) and self._is_same_population(differing, left, runs):
            left = [self._drop_tied(index, items) for index, items in enumerate(left)]
        return self._summarize(left)

    def _list_nearby(self, group: Sequence[Outputs]) -> list[Array]:
        """Return the runs of a group if the changes of its inputs are small enough.

        One run has to show this. If many scores are equal, the other runs may list entirely different items.
        """
        arranged = [run for run in map(self.layout.arrange, group) if run is not None]
        runs = [run for run in arranged if run.shape[::2] == self.reference.shape[::2]]
        return runs if any(map(self._is_nearby, runs)) else []

    def _is_nearby(self, run: Array) -> bool:
        """Return whether a run lists most of the matched items again, with values within the tolerances."""
        matched = listed = 0
        for index, matching in enumerate(self.matchings):
            theirs, allowed = self.reference[index], self.allowed[index]
            matched += len(matching.pairs)
            listed += sum(len(_find_equal(run[index], theirs[item], allowed[item])) > 0 for item in matching.pairs)
        return 2 * listed >= matched

    def _list_differing(self, index: int) -> _OpenItems:
        """Return the items of one list that differ; the order of items with nearly equal scores is ignored."""
        matching = self.matchings[index]
        is_ordered = self.score is not None and _is_sorted(self.candidate[index][:, self.score])
        return _OpenItems(matching.missing, matching.extra, () if is_ordered else matching.moved)

    def _drop_tied(self, index: int, items: _OpenItems) -> _OpenItems:
        """Remove the items whose score is equal to the score of another item, or of the item that replaces them."""
        if self.score is None:
            return items
        ours, theirs = self.candidate[index][:, self.score], self.reference[index][:, self.score]
        return _OpenItems(
            missing=tuple(item for item in items.missing if not _is_tied(theirs, item, ours[list(items.extra)])),
            extra=tuple(item for item in items.extra if not _is_tied(ours, item, theirs[list(items.missing)])),
            moved=items.moved,
        )

    def _is_same_population(
        self, differing: Sequence[_OpenItems], left: Sequence[_OpenItems], runs: Sequence[Array]
    ) -> bool:
        """Return whether the runs list reference items about as often as candidate items, for each label.

        Otherwise, all items differ for another reason than their equal scores.
        """
        exact = [column for column, name in enumerate(self.columns) if not any(self.bounds[name])]
        counts: dict[tuple[float, ...], list[int]] = {}  # label -> number of missing items, number of listed ones
        for index, items in enumerate(differing):
            for item in items.missing:
                count = counts.setdefault(tuple(self.reference[index][item, exact]), [0, 0])
                count[0] += 1
                count[1] += item not in left[index].missing
        expected = self._estimate_coverage(differing, runs)
        if expected is None:  # equal scores do not make the selection unstable
            return False
        missing, found = (sum(parts) for parts in zip(*counts.values(), strict=True)) if counts else (0, 0)
        if missing * expected >= MIN_EXPECTED_ITEMS and found < MIN_LISTED_RATIO * missing * expected:
            return False
        return all(found or missing * expected < 2 * MIN_EXPECTED_ITEMS for missing, found in counts.values())

    def _estimate_coverage(self, differing: Sequence[_OpenItems], runs: Sequence[Array]) -> float | None:
        """Return the usual share of the items of one run that other runs list; None if no run has another selection."""
        extra = [(index, self.candidate[index][item]) for index, items in enumerate(differing) for item in items.extra]
        loose = [allowed.max(axis=0, initial=0.0) for allowed in self.allowed]

        def count_listed(items: Sequence[tuple[int, Array]], by: Sequence[Array]) -> float:
            listed = sum(any(len(_find_equal(run[index], item, loose[index])) for run in by) for index, item in items)
            return listed / len(items) if items else 1.0

        unlike = [run for run in runs if count_listed(extra, [run]) < MAX_COMMON_SHARE][:MAX_ATTEMPTS]
        shares = [
            count_listed(
                [(index, item) for index in range(len(run)) for item in run[index]],
                [other for other in runs if other is not run],
            )
            for run in unlike
        ]
        return float(np.median(shares)) if shares else None

    def _drop_unstable(self, index: int, items: _OpenItems, runs: Sequence[Array]) -> _OpenItems:
        """Remove the items that are listed, missing or in another place if the inputs differ by rounding errors."""
        ours, theirs, allowed = self.candidate[index], self.reference[index], self.allowed[index]
        loose = ABSENCE_FACTOR * allowed.max(axis=0, initial=0.0)
        missing, extra, moved = set(items.missing), set(items.extra), set(items.moved)
        for run in (run[index] for run in runs):
            missing -= {item for item in missing if len(_find_equal(run, theirs[item], allowed[item]))}
            extra -= {item for item in extra if not len(_find_equal(run, ours[item], loose))}
            if moved and (matching := match_items(run, theirs, allowed)) is not None:
                moved &= {*matching.moved, *matching.missing}
        return _OpenItems(*(tuple(sorted(part)) for part in (missing, extra, moved)))

    def _summarize(self, open_items: Sequence[_OpenItems]) -> ItemAgreement:
        differing: set[str] = set()
        details = []
        for index, items in enumerate(open_items):
            for detail, outputs in self._describe(index, items):
                details.append(detail)
                differing |= outputs
        unmatched = [len(it.missing) + len(it.extra) + len(it.moved) for it in self.matchings]
        wrong = sum(max(len(items.missing), len(items.extra)) + len(items.moved) for items in open_items)
        return ItemAgreement(
            items=self.reference.shape[0] * self.reference.shape[1],
            matched=sum(len(matching.pairs) for matching in self.matchings),
            unstable=sum(unmatched) - sum(map(len, (part for items in open_items for part in items))),
            differing=frozenset(differing),
            wrong=wrong,
            detail=details[0] if details else "",
            top_score=self._find_top_score(open_items),
            worst=self._measure_matched(),
        )

    def _find_top_score(self, open_items: Sequence[_OpenItems]) -> float | None:
        """Return the highest score of an unstable item."""
        if self.score is None:
            return None
        scores = [
            float(items[item, self.score])
            for index, (matching, left) in enumerate(zip(self.matchings, open_items, strict=True))
            for items, unmatched, unexplained in (
                (self.reference[index], (*matching.missing, *matching.moved), (*left.missing, *left.moved)),
                (self.candidate[index], matching.extra, left.extra),
            )
            for item in {*unmatched} - {*unexplained}
        ]
        return max(scores, default=None)

    def _measure_matched(self) -> dict[str, tuple[float, float]]:
        """Return the worst difference of each output among the matched items, with its tolerance."""
        worst = {name: (0.0, self.bounds[name].atol) for name in self.layout.outputs}
        for index, matching in enumerate(self.matchings):
            items, at = list(matching.pairs), list(matching.pairs.values())
            with np.errstate(invalid="ignore"):
                difference = np.abs(self.candidate[index][at] - self.reference[index][items])
            difference, allowed = np.where(np.isfinite(difference), difference, 0.0), self.allowed[index][items]
            for column, name in enumerate(self.columns):
                if len(items):
                    row = int(np.argmax(difference[:, column] - allowed[:, column]))
                    worst[name] = max(worst[name], (float(difference[row, column]), float(allowed[row, column])))
        return worst

    def _describe(self, index: int, items: _OpenItems) -> Iterator[tuple[str, set[str]]]:
        """Describe the items of one list that differ, with the outputs in which they differ."""
        ours, theirs, every = self.candidate[index], self.reference[index], {*self.layout.outputs}
        for item in items.missing:
            equal = np.abs(ours[list(items.extra)] - theirs[item]) <= self.allowed[index][item]
            shared = equal.sum(axis=1)
            if len(shared) and 3 * shared.max() >= len(self.columns):
                nearest = int(np.argmax(shared))
                column = int(np.argmin(equal[nearest]))
                values = f"{ours[items.extra[nearest], column]:.6g} instead of {theirs[item, column]:.6g}"
                where = {name for name, is_equal in zip(self.columns, equal[nearest], strict=True) if not is_equal}
                yield f"item {item}{self._format_score(theirs[item])}: {values} in `{self.columns[column]}`", where
            else:
                yield f"item {item}{self._format_score(theirs[item])} is missing", every
        if not items.missing:
            for item in items.extra:
                yield f"item {item}{self._format_score(ours[item])} is not in the reference", every
        for item in items.moved:
            yield f"item {item}{self._format_score(theirs[item])} is in another place", every

    def _format_score(self, item: Array) -> str:
        return "" if self.score is None else f" (score {item[self.score]:.3g})"


class _OpenItems(NamedTuple):
    """Items of one list that differ for an unknown reason."""

    missing: tuple[int, ...]
    extra: tuple[int, ...]
    moved: tuple[int, ...]


def _count(lists: Sequence[_OpenItems]) -> int:
    return sum(len(items.missing) + len(items.extra) + len(items.moved) for items in lists)


def _find_scores(reference: Array, columns: Sequence[str], bounds: Sequence[ItemBound]) -> int | None:
    """Return the column of the scores: the only one that never increases, or the one with the name of a score."""
    if reference.shape[1] < 2:
        return None
    found = [
        index
        for index in range(len(columns))
        if bounds[index].rtol and all(_is_sorted(items[:, index]) for items in reference)
    ]
    named = [index for index in found if any(word in columns[index].lower() for word in ("score", "conf", "prob"))]
    varied = [index for index in found if (reference[:, :1, index] > reference[:, -1:, index]).any()]
    return next(iter((*named, *varied)), None)


def _is_tied(scores: Array, item: int, replacing: Array) -> bool:
    """Return whether another item has the same score, or the last item is replaced by one with the same score."""
    near = max(MAX_TIE * abs(scores[item]), MAX_SMALL_TIE)
    is_last = scores[item] <= scores[-1] + near
    tied = int((np.abs(scores - scores[item]) <= near).sum())
    return tied > 1 or (is_last and bool((np.abs(replacing - scores[item]) <= near).any()))


def _is_sorted(values: Array) -> bool:
    return bool((values[1:] <= values[:-1]).all())


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
