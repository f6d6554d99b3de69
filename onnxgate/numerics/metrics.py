"""Metrics of the difference of two arrays of numbers.

All but ULP are computed in float64. Elements that are not finite on both sides are left out: `agreement` decides
whether they agree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

CHUNK_ELEMENTS = 1 << 20
"""Elements of which the dearer figures are made at a time."""

MAX_DB = 200.0
"""Larger ratios are reported as this: the rounding of float64 alone is about 300 dB below a signal."""
TAIL_QUANTILE = 0.99
"""The high quantile that is reported with the median and the maximum."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """The figures of one array against its reference, over `elements` that are finite on both sides.

    `max_rel` leaves out references of 0. ULP are None where both arrays are not of one floating-point type. `rows` are
    those of the last axis that have a largest element; in `top1` of them both agree on which one it is.
    """

    elements: int
    max_abs: float
    median_abs: float
    tail_abs: float
    max_rel: float
    max_ulp: float | None
    tail_ulp: float | None
    cosine: float
    sqnr_db: float
    rows: int
    top1: int
    top5: int  # rows in which the reference's largest element is among the candidate's five largest

    @property
    def top1_share(self) -> float:
        """The share of rows that agree; 1 without rows."""
        return self.top1 / self.rows if self.rows else 1.0


def compute_metrics(candidate: Array, reference: Array, tie: float = 0.0) -> Metrics:
    """Return all figures of two arrays of numbers that have one shape.

    Two of the reference's elements within `tie` of each other are equally large: either may be the largest.
    """
    finite = np.isfinite(candidate) & np.isfinite(reference)
    a, b = candidate[finite].astype(np.float64), reference[finite].astype(np.float64)
    distance = np.abs(a - b)
    with np.errstate(over="ignore"):
        max_rel = float((distance[b != 0] / np.abs(b[b != 0])).max(initial=0.0))
    ulp = compute_ulp_distance(candidate[finite], reference[finite])
    rows, top1, top5 = _count_ranked(candidate, reference, tie)
    return Metrics(
        elements=a.size,
        max_abs=float(distance.max(initial=0.0)),
        median_abs=_quantile(distance, 0.5),
        tail_abs=_quantile(distance, TAIL_QUANTILE),
        max_rel=max_rel,
        max_ulp=None if ulp is None else float(ulp.max(initial=0.0)),
        tail_ulp=None if ulp is None else _quantile(ulp, TAIL_QUANTILE),
        cosine=compute_cosine(a, b),
        sqnr_db=compute_sqnr_db(a, b),
        rows=rows,
        top1=top1,
        top5=top5,
    )


def compute_ulp_distance(a: Array, b: Array) -> Array | None:
    """Return how many representable numbers lie between two elements, as float64; None if their types differ.

    Both zeros are one number, and subnormal numbers count like any others.
    """
    if a.dtype != b.dtype or a.dtype not in (np.float16, np.float32, np.float64):
        return None
    steps, flat_a, flat_b = np.empty(a.size), a.reshape(-1), b.reshape(-1)
    for start in range(0, a.size, CHUNK_ELEMENTS):
        chunk = slice(start, start + CHUNK_ELEMENTS)
        x, y = _as_ordered_integers(flat_a[chunk]), _as_ordered_integers(flat_b[chunk])
        with np.errstate(over="ignore"):
            steps[chunk] = np.maximum(x, y).astype(np.uint64) - np.minimum(x, y).astype(np.uint64)
    return steps.reshape(a.shape)


def _as_ordered_integers(array: Array) -> Array:
    """Return integers in the order of the floats: negative ones are reversed below zero."""
    width = array.dtype.itemsize
    bits = np.ascontiguousarray(array).view(f"i{width}").astype(np.int64)
    least = np.int64(-(2 ** (8 * width - 1)))
    with np.errstate(over="ignore"):
        return np.asarray(np.where(bits < 0, least - bits, bits))


def compute_sqnr_db(candidate: Array, reference: Array) -> float:
    """Return power of the reference over power of the difference, in dB, within +-200; 200 if they are equal."""
    scale = max(_largest_value(candidate), _largest_value(reference))
    if scale == 0.0:
        return MAX_DB
    a, b = candidate / scale, reference / scale
    noise, signal = float(np.square(a - b).sum()), float(np.square(b).sum())
    if noise == 0.0:
        return MAX_DB
    if signal == 0.0:
        return -MAX_DB
    return min(max(10.0 * math.log10(signal / noise), -MAX_DB), MAX_DB)


def compute_cosine(a: Array, b: Array) -> float:
    """Return the cosine of the angle between two vectors: 1 for two zero vectors, 0 if one of them is zero."""
    x, y = _largest_value(a), _largest_value(b)
    if x == 0.0 or y == 0.0:
        return 1.0 if x == y else 0.0
    a, b = a / x, b / y
    similarity = float((a * b).sum()) / math.sqrt(float(np.square(a).sum()) * float(np.square(b).sum()))
    return min(max(similarity, -1.0), 1.0)


def _largest_value(array: Array) -> float:
    return float(np.abs(array).max(initial=0.0))


def _quantile(values: Array, share: float) -> float:
    """Return the smallest value that this share does not exceed: a measured one, not one between two."""
    if not values.size:
        return 0.0
    place = max(math.ceil(share * values.size) - 1, 0)
    return float(np.partition(values, place, axis=None)[place])


def _count_ranked(candidate: Array, reference: Array, tie: float) -> tuple[int, int, int]:
    """Count rows of the last axis without NaN: all, those with the same largest element, those with it in the top 5."""
    if reference.ndim == 0 or reference.shape[-1] < 2 or not reference.size:
        return 0, 0, 0
    width = reference.shape[-1]
    a, b = candidate.reshape(-1, width), reference.reshape(-1, width)
    size = max(CHUNK_ELEMENTS // width, 1)
    parts = [_count_ranked_rows(a[at : at + size], b[at : at + size], tie) for at in range(0, len(a), size)]
    rows, first, five = (sum(counts) for counts in zip(*parts, strict=True))
    return rows, first, five


def _count_ranked_rows(a: Array, b: Array, tie: float) -> tuple[int, int, int]:
    a, b = a.astype(np.float64), b.astype(np.float64)
    complete = ~(np.isnan(a).any(axis=1) | np.isnan(b).any(axis=1))
    a, b = a[complete], b[complete]
    if not a.size:
        return 0, 0, 0
    largest = b.max(axis=1)
    picked = np.take_along_axis(b, a.argmax(axis=1)[:, None], axis=1)[:, 0]
    with np.errstate(invalid="ignore"):
        first = (picked == largest) | (largest - picked <= tie)
    least = -min(5, a.shape[1])
    five = np.partition(a, least, axis=1)[:, least]
    in_top_five = np.take_along_axis(a, b.argmax(axis=1)[:, None], axis=1)[:, 0] >= five
    return len(a), int(first.sum()), int((in_top_five | first).sum())
