"""Items of ranked outputs, such as detections, which are matched by their values instead of their positions.

An item consists of the values of several outputs, such as a box, a score and a label. Two items are equal if all their
values agree within the tolerances of the outputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
MAX_PAIRS = 1 << 20
"""Maximum number of pairs of items that agree in one value and are compared in the others.

Source: 2 s; chosen. Lists of 4,000 boxes have some thousand pairs.
"""
KEY_COLUMNS = 8
"""Number of values of an item of which the most varied one is used to find pairs."""
ABSENCE_FACTOR = 4.0
"""Ratio of the tolerance within which items are similar to the tolerance within which they are equal.

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
    is_ordered: bool = True  # whether the order of the items may matter

    def arrange(self, arrays: Outputs) -> Array | None:
        """Return the items with the shape (lists, items, 1 + values); None if the outputs do not list items.

        The first value is the number of the list, so that items of different lists are never equal.
        """
        parts = [arrays[name] for name in self.outputs if name in arrays]
        lead = parts[0].shape[: self.axis + 1] if parts else ()
        if len(parts) < len(self.outputs) or any(part.shape[: self.axis + 1] != lead for part in parts):
            return None
        if len(lead) <= self.axis or sum(part.size for part in parts) > MAX_ITEM_VALUES:
            return None
        lists, count = math.prod(lead[:-1]), lead[-1]
        columns = [part.reshape(lists, count, math.prod(part.shape[self.axis + 1 :])) for part in parts]
        numbers = np.broadcast_to(np.arange(lists)[:, None, None], (lists, count, 1))
        return np.concatenate([column.astype(np.float64) for column in (numbers, *columns)], axis=2)

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
    """Matching of items with those of the candidate.

    `counterparts` contains the position of an equal or similar candidate item for each item, or -1. `equal` and `near`
    show which candidate items have an equal counterpart, or an equal or similar one, in the same order.
    """

    counterparts: Array
    equal: Array
    near: Array

    def find_missing(self) -> Array:
        """Return the positions of the items without a counterpart."""
        return np.flatnonzero(self.counterparts < 0)


def match_items(items: Array, candidate: Array, allowed: Array, *, is_ordered: bool) -> ItemMatching:
    """Match items with the shape (items, values). The order of the items matters if `is_ordered`.

    `allowed` contains the tolerances of `items`.
    """
    found = find_counterparts(items, candidate, allowed)
    equal = np.isin(np.arange(len(candidate)), found)
    left, free = np.flatnonzero(found < 0), np.flatnonzero(~equal)
    similar = find_counterparts(items[left], candidate[free], ABSENCE_FACTOR * allowed[left])
    found[left] = np.append(free, -1)[similar]
    near = np.isin(np.arange(len(candidate)), found)
    if is_ordered:
        moved = found[_find_moved(found)]
        equal[moved] = near[moved] = False
    return ItemMatching(found, equal, near)


def find_counterparts(items: Array, others: Array, allowed: Array) -> Array:
    """Return the position of the equal item for each item, or -1.

    Items at the same position are matched first, then the nearest ones.
    """
    count = min(len(items), len(others))
    same = np.flatnonzero(_agree(items[:count], others[:count], allowed[:count]))
    found = np.full(len(items), -1)
    found[same] = same
    left, free = np.flatnonzero(found < 0), np.setdiff1d(np.arange(len(others)), same)
    pairs = _find_pairs(items[left], others[free], allowed[left])
    if pairs is None:
        return found
    first, second = left[pairs[0]], free[pairs[1]]
    with np.errstate(invalid="ignore"):
        distances = np.abs(items[first] - others[second]).sum(axis=1)
    taken = np.zeros(len(others), bool)
    for pair in np.argsort(distances, kind="stable"):
        if found[first[pair]] < 0 and not taken[second[pair]]:
            found[first[pair]] = second[pair]
            taken[second[pair]] = True
    return found


def _find_pairs(items: Array, others: Array, allowed: Array) -> tuple[Array, Array] | None:
    """Return the positions of all pairs of items that agree; None if too many pairs would have to be compared."""
    if not len(items):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    key = max(range(min(items.shape[1], KEY_COLUMNS)), key=lambda column: len(np.unique(others[:, column])))
    order = np.argsort(others[:, key], kind="stable")
    keys, margin = others[order, key], allowed[:, key]
    start, stop = np.searchsorted(keys, items[:, key] - margin), np.searchsorted(keys, items[:, key] + margin, "right")
    counts = stop - start
    if counts.sum() > MAX_PAIRS:
        return None
    first = np.repeat(np.arange(len(items)), counts)
    second = order[np.arange(len(first)) + np.repeat(start - np.cumsum(counts) + counts, counts)]
    for column in range(items.shape[1]):
        agree = agree_each(items[first, column], others[second, column], allowed[first, column])
        first, second = first[agree], second[agree]
    return first, second


def _agree(candidate: Array, reference: Array, allowed: Array) -> Array:
    """Return which items agree in all values."""
    return np.asarray(agree_each(candidate, reference, allowed).all(axis=-1))


def _find_moved(found: Array) -> Array:
    """Return the items whose counterparts have another order. `found` contains the positions of the counterparts."""
    items = np.flatnonzero(found >= 0)
    return np.asarray(items[np.argsort(found[items], kind="stable") != np.arange(len(items))])


def is_listed(items: Array, others: Array, allowed: Array) -> Array:
    """Return which items may be equal or similar to one of the others; `allowed` are the tolerances of `items`."""
    pairs = _find_pairs(items, others, ABSENCE_FACTOR * allowed)
    return np.ones(len(items), bool) if pairs is None else np.isin(np.arange(len(items)), pairs[0])


def count_unexplained(candidate: Array, reference: Array, bound: ItemBound, runs: Sequence[Array]) -> tuple[int, int]:
    """Count the elements that differ from the reference in all runs with nearly equal inputs.

    Also return the number of elements that differ in the candidate. All arrays have the same shape.
    """
    expected = reference.astype(np.float64)
    size = np.where(np.isfinite(expected), np.abs(expected), 0.0)
    allowed = np.maximum(bound.atol, bound.of_largest * size.max(initial=0.0)) + bound.rtol * size
    differs = ~agree_each(candidate.astype(np.float64), expected, allowed)
    left = differs.copy()
    for run in runs:
        if run.shape == reference.shape:
            left &= ~agree_each(run.astype(np.float64), expected, allowed)
    return int(left.sum()), int(differs.sum())


def agree_each(candidate: Array, reference: Array, allowed: Array) -> Array:
    """Return which elements agree; NaN agrees with NaN and infinity with infinity of the same sign."""
    with np.errstate(invalid="ignore"):
        near = (np.abs(candidate - reference) <= allowed) | (candidate == reference)
    return np.asarray(near | (np.isnan(candidate) & np.isnan(reference)))
