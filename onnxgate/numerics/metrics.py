"""Metrics of the difference between two arrays.

All metrics except ULP are computed in float64, and only over elements that are finite in both arrays; the module
`agreement` compares the other elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxgate.model.reading.tensor_data import count_ulps
from onnxgate.numerics.streams import CHUNK_ELEMENTS, iter_chunks, iter_parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

MAX_DB = 200.0
"""Maximum SNR in dB in a report. Rounding in float64 would limit the SNR only at about 300 dB."""
TAIL_QUANTILE = 0.99
"""Quantile of the differences that is reported in addition to the median and the maximum."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """Metrics of the difference between an array and its reference.

    `elements` is the number of elements that are finite in both. `max_rel` ignores elements whose reference is 0. ULP
    metrics are None unless both arrays have the same floating-point type. `rows` is the number of rows along the last
    axis that have a largest element; in `top1` of these rows, the position of the largest element is the same in both
    arrays.
    """

    elements: int
    max_abs: float
    median_abs: float
    p99_abs: float
    max_rel: float
    max_ulp: float | None
    p99_ulp: float | None
    cosine: float
    sqnr_db: float
    rows: int
    top1: int
    top5: int  # number of rows in which the reference's largest element is among the candidate's five largest

    @property
    def top1_share(self) -> float:
        """Top-1 agreement: fraction of rows whose largest element is at the same position; 1 if there are no rows."""
        return self.top1 / self.rows if self.rows else 1.0


def compute_metrics(candidate: Array, reference: Array, tie: float = 0.0) -> Metrics:
    """Return all metrics of two numeric arrays with the same shape.

    Elements of the reference that differ by at most `tie` are treated as equal, so that either may be the largest.
    """
    both_finite = partial(iter_finite, candidate, reference)
    has_ulp = _has_ulp(candidate, reference)
    elements, max_abs, max_rel, max_ulp = 0, 0.0, 0.0, 0.0
    for a, b in both_finite(np.float64):
        distance = np.abs(a - b)
        with np.errstate(over="ignore"):
            relative = distance[b != 0] / np.abs(b[b != 0])
        elements, max_abs = elements + a.size, max(max_abs, _largest_value(distance))
        max_rel = max(max_rel, _largest_value(relative))

    def distances() -> Iterator[Array]:
        return (np.abs(a - b) for a, b in both_finite(np.float64))

    def ulp_distances() -> Iterator[Array]:
        return (_count_ulps(a, b) for a, b in both_finite(None))

    if has_ulp:
        max_ulp = max(map(_largest_value, ulp_distances()), default=0.0)
    rows, top1, top5 = _count_ranked(candidate, reference, tie)
    return Metrics(
        elements=elements,
        max_abs=max_abs,
        median_abs=_quantile(distances, elements, 0.5),
        p99_abs=_quantile(distances, elements, TAIL_QUANTILE),
        max_rel=max_rel,
        max_ulp=max_ulp if has_ulp else None,
        p99_ulp=_quantile(ulp_distances, elements, TAIL_QUANTILE) if has_ulp else None,
        cosine=_compute_cosine(partial(both_finite, np.float64)),
        sqnr_db=compute_chunked_sqnr_db(partial(both_finite, np.float64)),
        rows=rows,
        top1=top1,
        top5=top5,
    )


Pairs = Callable[[], Iterable[tuple["Array", "Array"]]]
"""Function that returns the elements of two arrays in chunks. It is called once for each pass over the data."""


def iter_finite(candidate: Array, reference: Array, dtype: type | None) -> Iterator[tuple[Array, Array]]:
    """Yield the elements that are finite in both arrays, in chunks, converted to `dtype` if it is set."""
    for _, a, b in iter_chunks(candidate, reference):
        finite = np.isfinite(a) & np.isfinite(b)
        a, b = a[finite], b[finite]
        yield (a, b) if dtype is None else (a.astype(dtype), b.astype(dtype))


def _has_ulp(a: Array, b: Array) -> bool:
    return bool(a.dtype == b.dtype and a.dtype in (np.float16, np.float32, np.float64))


def _count_ulps(a: Array, b: Array) -> Array:
    bits_a, bits_b = (array.view(f"i{array.dtype.itemsize}") for array in (a, b))
    return count_ulps(bits_a, bits_b).astype(np.float64)


def compute_ulp_distance(a: Array, b: Array) -> Array | None:
    """Return the distance between each pair of elements in ULP, as float64; None if their types differ.

    Positive and negative zero are equal. Subnormal numbers are treated like other numbers.
    """
    if not _has_ulp(a, b):
        return None
    steps = np.empty(a.size)
    for start, part_a, part_b in iter_chunks(a, b):
        steps[start : start + part_a.size] = _count_ulps(part_a, part_b)
    return steps.reshape(a.shape)


def compute_sqnr_db(candidate: Array, reference: Array) -> float:
    """Return the SNR in dB, limited to ±200.

    The SNR is the power of the reference divided by the power of the difference. For equal arrays, it is 200 dB.
    """
    return compute_chunked_sqnr_db(lambda: ((a, b) for _, a, b in iter_chunks(candidate, reference)))


def compute_chunked_sqnr_db(pairs: Pairs) -> float:
    """Return the SNR in dB of a candidate and a reference that are provided in chunks."""
    scale = _largest_of(largest for a, b in pairs() for largest in (_largest_value(a), _largest_value(b)))
    if scale == 0.0:
        return MAX_DB
    noise, signal = 0.0, 0.0
    for a, b in pairs():
        a, b = a / scale, b / scale
        noise, signal = noise + float(np.square(a - b).sum()), signal + float(np.square(b).sum())
    if noise == 0.0:
        return MAX_DB
    if signal == 0.0:
        return -MAX_DB
    return min(max(10.0 * math.log10(signal / noise), -MAX_DB), MAX_DB)


def compute_cosine(a: Array, b: Array) -> float:
    """Return the cosine similarity of two vectors: 1 for two zero vectors, 0 if only one is zero."""
    return _compute_cosine(lambda: ((part_a, part_b) for _, part_a, part_b in iter_chunks(a, b)))


def _compute_cosine(pairs: Pairs) -> float:
    x, y = (_largest_of(_largest_value(pair[side]) for pair in pairs()) for side in (0, 1))
    if x == 0.0 or y == 0.0:
        return 1.0 if x == y else 0.0
    product, power_a, power_b = 0.0, 0.0, 0.0
    for a, b in pairs():
        a, b = a / x, b / y
        product += float((a * b).sum())
        power_a, power_b = power_a + float(np.square(a).sum()), power_b + float(np.square(b).sum())
    return min(max(product / math.sqrt(power_a * power_b), -1.0), 1.0)


def _largest_of(values: Iterable[float]) -> float:
    """Return the largest value in a sequence of arrays; 0 if there are no values, and NaN if any value is NaN."""
    return float(np.max([*values], initial=0.0))


def _largest_value(array: Array) -> float:
    return float(np.abs(array).max(initial=0.0))


_DIGIT_BITS = 16
_DIGITS = 1 << _DIGIT_BITS


def _quantile(parts: Callable[[], Iterable[Array]], count: int, share: float) -> float:
    """Return a quantile of nonnegative values without interpolation.

    `parts` returns `count` nonnegative float64 values in chunks. Such numbers are in the same order as their bit
    patterns. The bits of the quantile are therefore determined from the highest to the lowest, until only a few values
    with these highest bits remain.
    """
    if not count:
        return 0.0
    place, prefix, shift = max(math.ceil(share * count) - 1, 0), 0, 64
    while count > CHUNK_ELEMENTS and shift:
        counts = np.zeros(_DIGITS, np.int64)
        for bits in _iter_bits(parts, prefix, shift):
            digits = bits >> np.uint64(shift - _DIGIT_BITS) & np.uint64(_DIGITS - 1)
            counts += np.bincount(digits.astype(np.int64), minlength=_DIGITS)
        sums = np.cumsum(counts)
        digit = int(np.searchsorted(sums, place, side="right"))
        place, count = place - int(sums[digit] - counts[digit]), int(counts[digit])
        prefix, shift = prefix << _DIGIT_BITS | digit, shift - _DIGIT_BITS
    if not shift:
        return float(np.array(prefix, np.uint64).view(np.float64))
    values = np.concatenate([*_iter_bits(parts, prefix, shift)]).view(np.float64)
    return float(np.partition(values, place)[place])


def _iter_bits(parts: Callable[[], Iterable[Array]], prefix: int, shift: int) -> Iterator[Array]:
    """Yield the bit patterns of the values whose bits above the lowest `shift` bits are equal to `prefix`."""
    for part in parts():
        bits = part.view(np.uint64)
        yield bits if shift == 64 else bits[bits >> np.uint64(shift) == np.uint64(prefix)]


def _count_ranked(candidate: Array, reference: Array, tie: float) -> tuple[int, int, int]:
    """Return the numbers of rows without NaN, of top-1 matches and of top-5 matches; see `Metrics`."""
    if reference.ndim == 0 or reference.shape[-1] < 2 or not reference.size:
        return 0, 0, 0
    width = reference.shape[-1]
    a, b = candidate.reshape(-1, width), reference.reshape(-1, width)
    size = max(CHUNK_ELEMENTS // width, 1)
    if width > CHUNK_ELEMENTS:
        parts = [_count_ranked_row(row_a, row_b, tie) for row_a, row_b in zip(a, b, strict=True)]
    else:
        parts = [_count_ranked_rows(a[at : at + size], b[at : at + size], tie) for at in range(0, len(a), size)]
    rows, first, five = (sum(counts) for counts in zip(*parts, strict=True))
    return rows, first, five


def _count_ranked_row(a: Array, b: Array, tie: float) -> tuple[int, int, int]:
    """Count the top-1 and top-5 matches in one row of any length by combining the largest elements of its chunks."""
    places = []
    for start, part_a, part_b in iter_chunks(a, b):
        if np.isnan(part_a).any() or np.isnan(part_b).any():
            return 0, 0, 0
        five = np.argpartition(part_a, -min(5, part_a.size))[-5:]
        places.append(np.unique([*five, part_a.argmax(), part_b.argmax()]) + start)
    chosen = np.concatenate(places)
    return _count_ranked_rows(a[chosen][None], b[chosen][None], tie)


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


@dataclass(frozen=True, slots=True)
class OutputScale:
    """Signal power of an output over all cases.

    Errors are relative to it if the values of a single case are smaller.
    """

    power: float = 0.0  # mean square
    spread: float = 0.0  # mean square of the distance from the mean


def measure_scale(arrays: Collection[Array]) -> OutputScale:
    """Return the signal power of an output over all cases, computed from one array per case."""
    count = sum(values.size for values in _iter_values(arrays))
    if not count:
        return OutputScale()
    with np.errstate(over="ignore"):
        mean = sum(float(values.sum()) for values in _iter_values(arrays)) / count
        power = sum(float(np.square(values).sum()) for values in _iter_values(arrays)) / count
        spread = sum(float(np.square(values - mean).sum()) for values in _iter_values(arrays)) / count
    return OutputScale(power, spread)


def _iter_values(arrays: Collection[Array]) -> Iterator[Array]:
    """Yield all finite values of several arrays in float64, in chunks."""
    pending: list[Array] = []
    for part in (part for array in arrays if array.dtype.kind == "f" for part in iter_parts(array)):
        if sum(values.size for values in pending) + part.size > CHUNK_ELEMENTS:
            yield np.concatenate(pending)
            pending = []
        pending.append(part[np.isfinite(part)].astype(np.float64))
    if pending:
        yield np.concatenate(pending)


def compute_snr_db(candidate: Array, reference: Array, scale: OutputScale) -> float:
    """Return the SNR in dB of the elements that are finite in both arrays; `MAX_DB` if the reference has no signal."""
    both_finite = partial(iter_finite, candidate, reference, np.float64)
    count = sum(b.size for _, b in both_finite())
    with np.errstate(over="ignore"):
        own = sum(float(np.square(b).sum()) for _, b in both_finite()) / max(count, 1)
    power = max(own, scale.power)
    return measure_snr_db(candidate, reference, power) if power else MAX_DB


def measure_snr_db(candidate: Array, reference: Array, power: float) -> float:
    """Return the SNR in dB of an output. `power` is the power of the signal."""
    root, noise, count = math.sqrt(power), 0.0, 0
    for a, b in iter_finite(candidate, reference, np.float64):
        noise, count = noise + float(np.square((a - b) / root).sum()), count + a.size
    if noise == 0.0:
        return MAX_DB
    return min(max(-10.0 * math.log10(noise / count), -MAX_DB), MAX_DB)
