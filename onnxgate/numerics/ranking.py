"""Comparison of ranked outputs, such as detections, whose items may depend on rounding errors.

A selection of items, for example by `TopK`, may change completely if rounding errors change the scores. Runs of the
candidate with noise show what rounding errors change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from onnxgate.numerics.items import ItemBound, ItemLayout, ListMatching, agree_each, is_listed, match_lists

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
    """Items of one list that differ: positions in the reference that have no counterpart, and in the candidate."""

    missing: Array
    added: Array


class _Unexplained(NamedTuple):
    """Items of a compared list that runs with noise do not explain, with their scores (0 if there are none)."""

    items: _OpenItems
    scores: tuple[Array, Array]
    listed: int  # number of items that are not missing


@dataclass(slots=True)
class _NoisyRuns:
    """Runs with noise as evidence about one list of the candidate; `tolerate` returns the tolerances of items."""

    candidate: Array
    runs: Sequence[Array]
    tolerate: Callable[[Array], Array]
    score: int | None
    matchings: list[ListMatching] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Match the list of each run with that of the candidate."""
        nothing = np.zeros(len(self.candidate), bool)
        for run in self.runs:
            matching = match_lists(run, self.candidate, self.tolerate(run), is_ordered=self.score is None)
            self.matchings.append(matching or ListMatching(np.full(len(run), -1), nothing, nothing))

    def explain(self, items: Array, matching: ListMatching, without: int | None = None) -> _Unexplained:
        """Find the items of a list that differ from the candidate and that the runs do not explain.

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
        added = np.flatnonzero(~matching.equal & np.where(matching.near, equal, near))
        scores = self._read_scores(items[missing]), self._read_scores(self.candidate[added])
        return _Unexplained(_OpenItems(missing, added), scores, len(items) - len(missing))

    def sample(self, number: int) -> _Unexplained:
        """Compare one run in the same way; the other runs explain its differences."""
        return self.explain(self.runs[number], self.matchings[number], without=number)

    def _read_scores(self, items: Array) -> Array:
        return np.zeros(len(items)) if self.score is None else items[:, self.score]


def _find_excess(scores: Sequence[Array], *samples: Sequence[Array], near: float) -> list[Array]:
    """Return of which items of each list there are more than in the samples, not counting those with lower scores."""
    every = np.concatenate(scores)

    def count(sample: Array) -> Array:
        return len(sample) - np.searchsorted(np.sort(sample), every - near)

    expected = np.max([count(np.concatenate(sample)) for sample in samples], axis=0)
    return np.split(count(every) > MAX_RATIO * expected, np.cumsum([len(part) for part in scores])[:-1])


@dataclass(slots=True)
class _ItemComparison:
    """Comparison of all lists of items. `lists` contains those that do not agree by position."""

    layout: ItemLayout
    columns: tuple[str, ...]
    candidate: Array
    reference: Array
    bounds: Mapping[str, ItemBound]
    rtol: Array = field(init=False)  # by column
    least: Array = field(init=False)  # smallest tolerance by column
    allowed: Array = field(init=False)  # tolerance of each value of the reference
    score: int | None = field(init=False)  # column of the scores
    lists: dict[int, ListMatching] = field(default_factory=dict)

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
        agree = np.zeros(len(self.reference), bool)
        if self.candidate.shape == self.reference.shape:
            agree[:] = agree_each(self.candidate, self.reference, self.allowed).all(axis=(1, 2))
        for index in map(int, np.flatnonzero(~agree)):
            lists = self.reference[index], self.candidate[index], self.allowed[index]
            matching = match_lists(*lists, is_ordered=self.score is None)
            if matching is None:
                return False
            self.lists[index] = matching
        return True

    def judge(self, rerun: Rerun) -> ItemAgreement:
        """Decide which of the items that differ are stable."""
        left = self._list_differing()
        runs: list[Array] = []
        for level in range(len(NOISES)):
            if any(len(items.missing) + len(items.added) for items in left):
                arranged = [run for run in map(self.layout.arrange, rerun(level)) if run is not None]
                runs += [run for run in arranged if run.shape[::2] == self.reference.shape[::2]]
                left = self._drop_unstable(runs) if runs else left
        return self._summarize(left)

    def _list_differing(self) -> list[_OpenItems]:
        return [_OpenItems(it.find_missing(), np.flatnonzero(~it.equal)) for it in self.lists.values()]

    def _drop_unstable(self, runs: Sequence[Array]) -> list[_OpenItems]:
        """Return the items that differ for another reason than rounding errors."""
        noisy = [
            _NoisyRuns(self.candidate[index], [run[index] for run in runs], self._tolerate, self.score)
            for index in self.lists
        ]
        lists = zip(self.lists.items(), noisy, strict=True)
        found = [it.explain(self.reference[index], matching) for (index, matching), it in lists]
        samples = [[it.sample(number) for it in noisy] for number in range(len(runs))]
        listed = min(sum(it.listed for it in sample) for sample in samples)
        if listed >= MIN_LISTED_ITEMS and sum(it.listed for it in found) < MIN_LISTED_RATIO * listed:
            return self._list_differing()
        near = 0.0 if self.score is None else float(self.allowed[..., self.score].max())
        missing, added = (
            _find_excess(*([it.scores[kind] for it in part] for part in (found, *samples)), near=near)
            for kind in (0, 1)
        )
        return [
            _OpenItems(it.items.missing[is_missing], it.items.added[is_added])
            for it, is_missing, is_added in zip(found, missing, added, strict=True)
        ]

    def _summarize(self, open_items: Sequence[_OpenItems]) -> ItemAgreement:
        details = [detail for it in zip(self.lists, open_items, strict=True) for detail in self._describe(*it)]
        wrong, differing = (sum(map(_count, self.lists.values(), it)) for it in (open_items, self._list_differing()))
        total = self.reference.shape[0] * self.reference.shape[1]
        return ItemAgreement(
            items=total,
            matched=total - sum(len(it.counterparts) - int(it.equal.sum()) for it in self.lists.values()),
            unstable=differing - wrong,
            differing=frozenset(name for _, outputs in details for name in outputs),
            wrong=wrong,
            detail=details[0][0] if details else "",
            top_score=self._find_top_score(open_items),
            worst=self._measure_matched(),
        )

    def _find_top_score(self, open_items: Sequence[_OpenItems]) -> float | None:
        """Return the highest score of an unstable item."""
        scores: list[float] = []
        for index, differing, left in zip(self.lists, self._list_differing(), open_items, strict=True):
            if self.score is not None:
                scores += self.reference[index][np.setdiff1d(differing.missing, left.missing), self.score].tolist()
                scores += self.candidate[index][np.setdiff1d(differing.added, left.added), self.score].tolist()
        return max(scores, default=None)

    def _measure_matched(self) -> dict[str, tuple[float, float]]:
        """Return the worst difference of each output among the equal items, with its tolerance."""
        counterparts = np.tile(np.arange(self.reference.shape[1]), (len(self.reference), 1))
        for index, matching in self.lists.items():
            is_equal = np.append(matching.equal, False)[matching.counterparts]
            counterparts[index] = np.where(is_equal, matching.counterparts, -1)
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
        ours, theirs, matching = self.candidate[index], self.reference[index], self.lists[index]
        every = {*self.layout.outputs}
        extra = np.setdiff1d(items.added, matching.counterparts)
        pairs = [(item, added) for item, added in enumerate(matching.counterparts) if added in items.added]
        for item in items.missing:
            shared = agree_each(ours[extra], theirs[item], self.allowed[index][item]).sum(axis=1)
            if 3 * shared.max(initial=0) >= len(self.columns):
                pairs.append((int(item), extra[np.argmax(shared)]))
            else:
                yield f"{self._name(item, theirs)} is missing", every
        for item, added in pairs:
            equal = agree_each(ours[added], theirs[item], self.allowed[index][item])
            column = int(np.argmin(equal))
            values = f": {ours[added, column]:.6g} instead of {theirs[item, column]:.6g} in `{self.columns[column]}`"
            where = {name for name, is_equal in zip(self.columns, equal, strict=True) if not is_equal}
            yield self._name(item, theirs) + (values if where else " is in another place"), where or every
        for item in extra if not len(items.missing) else ():
            yield f"{self._name(item, ours)} is not in the reference", every

    def _name(self, item: int, items: Array) -> str:
        return f"item {item}" + ("" if self.score is None else f" (score {items[item, self.score]:.3g})")


def _count(matching: ListMatching, items: _OpenItems) -> int:
    """Count the items that are missing, replaced, added or changed."""
    extra = len(np.setdiff1d(items.added, matching.counterparts))
    return max(len(items.missing), extra) + len(items.added) - extra


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
