"""Comparison of ranked outputs, such as detections, whose items may depend on rounding errors.

A selection of items, for example by `TopK`, may change completely if rounding errors change the scores. Runs of the
candidate with noise show what rounding errors change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from onnxgate.numerics.items import ItemBound, ItemLayout, ItemMatching, agree_each, is_listed, match_items

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
    is_hollow: bool = False  # whether rounding errors decide about almost all items


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
    return _ItemComparison(layout, ours, theirs, layout.columns(reference), bounds).judge(rerun)


class _OpenItems(NamedTuple):
    """Items that differ: positions in the reference that have no counterpart, and positions in the candidate."""

    missing: Array
    added: Array


@dataclass(slots=True)
class _NoisyRuns:
    """Runs with noise as evidence about the items of the candidate; `tolerate` returns the tolerances of items."""

    candidate: Array
    runs: Sequence[Array]
    tolerate: Callable[[Array], Array]
    is_ordered: bool  # whether the order of the items matters
    matchings: list[ItemMatching] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Match the items of each run with those of the candidate."""
        for run in self.runs:
            self.matchings.append(match_items(run, self.candidate, self.tolerate(run), is_ordered=self.is_ordered))

    def explain(self, items: Array, matching: ItemMatching, without: int | None = None) -> _OpenItems:
        """Return the items that differ from the candidate and that the runs do not explain.

        A run explains a missing item by listing it, and an additional one by omitting it. If a similar item is listed
        instead, a run explains that by changing the item.
        """
        missing = matching.find_missing()
        others = [number for number in range(len(self.runs)) if number != without]
        for number in others:
            missing = missing[~is_listed(items[missing], self.runs[number], self.tolerate(items[missing]))]
        equal, near = (
            np.all([getattr(self.matchings[number], kind) for number in others], axis=0) for kind in ("equal", "near")
        )
        return _OpenItems(missing, np.flatnonzero(~matching.equal & np.where(matching.near, equal, near)))


@dataclass(slots=True)
class _ItemComparison:
    """Comparison of items with the shape (lists, items, values); the first value is the number of the list."""

    layout: ItemLayout
    ours: Array
    theirs: Array
    columns: tuple[str, ...]  # output of each of the other values
    bounds: Mapping[str, ItemBound]
    candidate: Array = field(init=False)  # (items of all lists, values)
    reference: Array = field(init=False)
    score: int | None = field(init=False)  # column of the scores
    rtol: Array = field(init=False)  # by column
    least: Array = field(init=False)  # smallest tolerance by column
    allowed: Array = field(init=False)  # tolerance of each value of the reference
    matching: ItemMatching = field(init=False)

    def __post_init__(self) -> None:
        """Match the items of the reference with those of the candidate."""
        self.candidate, self.reference = (it.reshape(-1, it.shape[2]) for it in (self.ours, self.theirs))
        bounds = [ItemBound(0.0, 0.0), *(self.bounds[name] for name in self.columns)]
        self.rtol, atol, share = (np.array([bound[index] for bound in bounds]) for index in range(3))
        self.least = np.maximum(atol, share * _measure_size(self.reference).max(axis=0, initial=0.0))
        self.allowed = self._tolerate(self.reference)
        self.score = _find_scores((self.theirs, self.ours), ("", *self.columns), bounds)
        self.matching = match_items(self.reference, self.candidate, self.allowed, is_ordered=self._is_ordered)

    @property
    def _is_ordered(self) -> bool:
        return self.score is None and self.layout.is_ordered

    def _tolerate(self, items: Array) -> Array:
        return np.asarray(self.least + self.rtol * _measure_size(items))

    def judge(self, rerun: Rerun) -> ItemAgreement:
        """Decide which of the items that differ are stable."""
        left = self._list_differing()
        runs: list[Array] = []
        for level in range(len(NOISES)):
            if any(map(len, left)):
                arranged = [run for run in map(self.layout.arrange, rerun(level)) if run is not None]
                runs += [run.reshape(-1, run.shape[2]) for run in arranged if run.shape[::2] == self.theirs.shape[::2]]
                left = self._drop_unstable(runs) if runs else left
        return self._summarize(left)

    def _list_differing(self) -> _OpenItems:
        return _OpenItems(self.matching.find_missing(), np.flatnonzero(~self.matching.equal))

    def _drop_unstable(self, runs: Sequence[Array]) -> _OpenItems:
        """Return the items that differ for another reason than rounding errors."""
        noisy = _NoisyRuns(self.candidate, runs, self._tolerate, self._is_ordered)
        found = noisy.explain(self.reference, self.matching)
        samples = [noisy.explain(run, noisy.matchings[number], without=number) for number, run in enumerate(runs)]
        if self._is_unmatched():
            listed = min(len(run) - len(sample.missing) for run, sample in zip(runs, samples, strict=True))
            is_known, limit = listed >= MIN_LISTED_ITEMS, MIN_LISTED_RATIO * listed
            if (is_known and len(self.reference) - len(found.missing) < limit) or self._has_other_scores(runs):
                return self._list_differing()
            if is_known:  # of equal items, the reference may always list others than the runs
                found = _OpenItems(found.missing[:0], found.added)
        missing = [self._rank(run, sample.missing) for run, sample in zip(runs, samples, strict=True)]
        added = [self._rank(self.candidate, sample.added) for sample in samples]
        return _OpenItems(
            found.missing[self._exceeds(self._rank(self.reference, found.missing), missing)],
            found.added[self._exceeds(self._rank(self.candidate, found.added), added)],
        )

    def _is_unmatched(self) -> bool:
        return len(self.matching.find_missing()) > (1 - MIN_COMPARED_SHARE) * len(self.reference)

    def _has_other_scores(self, runs: Sequence[Array]) -> bool:
        """Return whether the first, second and further scores change by more than in the runs."""
        if self.score is None:
            return False
        lists = [it[:, self.score].reshape(len(self.ours), -1) for it in (self.candidate, self.reference, *runs)]
        count = min(scores.shape[1] for scores in lists)
        ours, *others = (scores[:, :count] for scores in lists)
        with np.errstate(invalid="ignore"):
            change, *usual = (float(_measure_size(scores - ours).max(initial=0.0)) for scores in others)
        return change > float(self.allowed[:, self.score].max()) + MAX_RATIO * max(usual)

    def _rank(self, items: Array, chosen: Array) -> Array:
        """Return the scores of the chosen items. Without scores, items that are listed first rank highest."""
        return -(chosen % (len(items) // len(self.ours))) if self.score is None else items[chosen, self.score]

    def _exceeds(self, ranks: Array, samples: Sequence[Array]) -> Array:
        """Return of which items there are more than in the samples, not counting those that rank lower."""
        near = 0.0 if self.score is None else float(self.allowed[:, self.score].max())

        def count(sample: Array) -> Array:
            return len(sample) - np.searchsorted(np.sort(sample), ranks - near)

        return np.asarray(count(ranks) > MAX_RATIO * np.max([count(sample) for sample in samples], axis=0))

    def _summarize(self, left: _OpenItems) -> ItemAgreement:
        details, differing = [*self._describe(left)], self._list_differing()
        unstable = [
            self.reference[np.setdiff1d(differing.missing, left.missing)],
            self.candidate[np.setdiff1d(differing.added, left.added)],
        ]
        scores = [] if self.score is None else [score for items in unstable for score in items[:, self.score].tolist()]
        return ItemAgreement(
            items=len(self.reference),
            matched=int(self.matching.equal.sum()),
            unstable=self._count(differing) - self._count(left),
            differing=frozenset(name for _, outputs in details for name in outputs),
            wrong=self._count(left),
            detail=details[0][0] if details else "",
            top_score=max(scores, default=None),
            worst=self._measure_matched(),
            is_hollow=self._is_unmatched() and not any(map(len, left)),
        )

    def _count(self, items: _OpenItems) -> int:
        """Count the items that are missing, replaced, added or changed."""
        extra = len(np.setdiff1d(items.added, self.matching.counterparts))
        return max(len(items.missing), extra) + len(items.added) - extra

    def _measure_matched(self) -> dict[str, tuple[float, float]]:
        """Return the worst difference of each output among the equal items, with its tolerance."""
        items = np.flatnonzero(np.append(self.matching.equal, False)[self.matching.counterparts])
        allowed = self.allowed[items]
        with np.errstate(invalid="ignore"):
            difference = _measure_size(self.candidate[self.matching.counterparts[items]] - self.reference[items])
        worst = {name: (0.0, self.bounds[name].atol) for name in self.layout.outputs}
        for column, name in enumerate(self.columns if len(items) else (), 1):
            row = int(np.argmax(difference[:, column] - allowed[:, column]))
            worst[name] = max(worst[name], (float(difference[row, column]), float(allowed[row, column])))
        return worst

    def _describe(self, items: _OpenItems) -> Iterator[tuple[str, set[str]]]:
        """Describe the items that differ, with the outputs in which they differ."""
        every, counterparts = {*self.layout.outputs}, self.matching.counterparts
        extra, changed = np.setdiff1d(items.added, counterparts), np.flatnonzero(np.isin(counterparts, items.added))
        pairs = [(item, counterparts[item]) for item in changed.tolist()]
        for item in items.missing.tolist():
            shared = self._compare(item, extra).sum(axis=1)
            if 3 * shared.max(initial=0) >= len(self.columns):
                pairs.append((item, extra[np.argmax(shared)]))
            else:
                yield f"{self._name(item, self.theirs)} is missing", every
        for item, added in pairs:
            equal = self._compare(item, added)
            column = int(np.argmin(equal))
            values = f"{self.candidate[added, column + 1]:.6g} instead of {self.reference[item, column + 1]:.6g}"
            values = f": {values} in `{self.columns[column]}`"
            where = {name for name, is_equal in zip(self.columns, equal, strict=True) if not is_equal}
            yield self._name(item, self.theirs) + (values if where else " is in another place"), where or every
        for item in extra.tolist() if not len(items.missing) else ():
            yield f"{self._name(item, self.ours)} is not in the reference", every

    def _compare(self, item: int, others: Array) -> Array:
        """Return which values of items of the candidate agree with those of an item of the reference."""
        agree = agree_each(self.candidate[others], self.reference[item], self.allowed[item])
        return np.asarray(agree[..., 1:] & (self.candidate[others, :1] == self.reference[item, 0]))

    def _name(self, item: int, lists: Array) -> str:
        index, position = divmod(item, lists.shape[1])
        score = "" if self.score is None else f" (score {lists[index, position, self.score]:.3g})"
        return f"item {position}{score}"


def _measure_size(items: Array) -> Array:
    return np.where(np.isfinite(items), np.abs(items), 0.0)


def _find_scores(lists: Sequence[Array], columns: Sequence[str], bounds: Sequence[ItemBound]) -> int | None:
    """Return the column of the scores, which never increase: one with the name of a score, or the first that varies.

    If all scores are equal, no column varies and the order of the items is arbitrary. The scores are then an output
    with one value per item.
    """
    if lists[0].shape[1] < 2:
        return None
    found = [
        column
        for column, bound in enumerate(bounds)
        if bound.rtol and all((items[:, 1:, column] <= items[:, :-1, column]).all() for items in lists)
    ]
    named = [column for column in found if any(word in columns[column].lower() for word in ("score", "conf", "prob"))]
    varied = [column for column in found if (lists[0][:, :1, column] > lists[0][:, -1:, column]).any()]
    single = [column for column in found if columns.count(columns[column]) == 1]
    return next(iter((*named, *varied, *single)), None)
