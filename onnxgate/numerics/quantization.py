"""Metrics of the difference between two arrays, and the comparison of quantized models by these metrics.

Outputs of quantized models are not compared element by element, because a difference of one quantization step is
acceptable and may grow towards the output. All metrics except ULP are computed in float64, and only over elements that
are finite in both arrays; the module `agreement` compares the other elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from onnxgate.model.reading.tensor_data import count_ulps
from onnxgate.numerics.agreement import Agreement, compare_arrays
from onnxgate.numerics.streams import CHUNK_ELEMENTS, iter_chunks, iter_parts
from onnxgate.project.lock.types import LockedModel, MeasuredQuantization

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
    both_finite = partial(_iter_finite, candidate, reference)
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


def _iter_finite(candidate: Array, reference: Array, dtype: type | None) -> Iterator[tuple[Array, Array]]:
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


RatioResult = tuple[str, float, float]  # metric, value, bound; the value must be at least the bound


@dataclass(frozen=True, slots=True)
class RatioBounds:
    """Bounds on the metrics of a quantized output. Differences of at most `step` are always accepted."""

    sqnr_db: float
    cosine: float
    top1: float
    bound_from: Literal["config", "lock", "type", "measured"]
    step: float = 0.0

    def top1_of(self, rows: int) -> float:
        """Return the minimum top-1 agreement in a sample of `rows` rows. Recorded values belong to the same inputs."""
        if self.bound_from == "lock" or not rows:
            return self.top1
        return max(self.top1 - TOP1_ERRORS * math.sqrt(self.top1 * (1.0 - self.top1) / rows), 0.0)


FLOAT_BOUNDS = RatioBounds(20.0, 0.99, 0.98, "type")
"""Default bounds for comparing a quantized model with its float model if the lock has no measured values.

Source: the SNR of small int8 networks is 27 to 41 dB. With failed calibration, it is 4.6 dB, with a top-1 agreement of
50 % and a cosine of 0.8. Measured 2026-11-20.
"""

LOW_BITS_FLOAT_BOUNDS = RatioBounds(8.0, 0.92, 0.85, "type")
"""Same as `FLOAT_BOUNDS` for weights with at most 4 bits.

Source: transformers with 2 to 12 layers and perceptrons with 1 to 8 layers, random weights rounded to 4 bits in blocks
of 32 or 128: SNR 8.4 to 19 dB, cosine 0.937 to 0.994, top-1 agreement 0.89 to 1. With 2 bits, the SNR is at most 5 dB.
Measured 2026-11-28.
"""

SAME_FILE_BOUNDS = RatioBounds(20.0, 0.99, 0.98, "type")
"""Bounds for comparing the outputs of one quantized model on two releases or at two optimization levels.

Source: 61 models from onnxruntime.quantization (static QDQ and QOperator, dynamic, 4 and 16 bits) on 1.18.1, 1.23.2 and
1.31.1. Across releases, outputs are equal or their SNR is above 43 dB. Across levels, they are equal except for
attention in QDQ (SNR 27 dB, as high as in a comparison with the float model); measured 2026-11-20.
"""

MARGIN_DB = 3.0
"""Maximum decrease in dB from the SNR that is recorded in the lock.

Source: on one machine, releases differ by less than 0.1 dB and levels by less than 0.6 dB. Kernels for other processors
round differently.
"""
MARGIN_TOP1 = 0.02
MAX_REQUIRED_DB = 60.0
"""Maximum SNR in dB that a quantized model is required to reach, because 0.1 % of noise is acceptable."""

MIN_COSINE_ELEMENTS = 10
"""Minimum number of elements for which a cosine similarity is checked. For one element, only the signs matter."""
MIN_LABELS = 50
"""Minimum number of labels or rows for which top-1 agreement is checked: one wrong label then changes it by at most
0.02. Source: an int8 EfficientNet (SNR 20 to 22 dB) classifies one of two images differently in 2 of 40 batches."""
TOP1_ERRORS = 3.0
"""Number of standard errors by which the top-1 agreement of a sample may be below a default or measured bound.

Source: between two levels, an int8 ViT (SNR 20 to 23 dB) has 1 to 3 other largest elements in 51 rows; measured
2026-11-28."""
ZERO_ATOL = 5e-3
"""Absolute bound for an output that is all zeros and therefore has no signal power."""


@dataclass(frozen=True, slots=True)
class OutputScale:
    """Signal power of an output over all cases.

    Errors are relative to it if the values of a single case are smaller.
    """

    power: float = 0.0  # mean square
    spread: float = 0.0  # mean square of the distance from the mean


@dataclass(frozen=True, slots=True)
class RatioAgreement:
    """Result of comparing a quantized output with its reference."""

    agreement: Agreement
    metric: str
    value: float
    bound: float
    figures: tuple[RatioResult, ...] = ()
    metrics: Metrics | None = None
    too_few: bool = False  # labels differ, but there are too few labels for a verdict


def choose_float_bounds(locked: LockedModel | None, output: str) -> RatioBounds:
    """Return the bounds on the metrics of a quantized output: the locked values minus a margin, or the defaults."""
    measured = locked.quantization.get(output) if locked is not None else None
    return FLOAT_BOUNDS if measured is None else _with_margin(measured, "lock")


def _with_margin(measured: MeasuredQuantization, bound_from: Literal["lock", "measured"]) -> RatioBounds:
    return RatioBounds(
        sqnr_db=min(measured.sqnr_db - MARGIN_DB, MAX_REQUIRED_DB),
        cosine=min(1.0 - 2.0 * (1.0 - measured.cosine), 1.0 - 1e-6),
        top1=max(measured.top1 - MARGIN_TOP1, 0.0),
        bound_from=bound_from,
    )


def limit_bounds(bounds: RatioBounds, noise: MeasuredQuantization) -> RatioBounds:
    """Return bounds that runs with different rounding, whose accuracy is `noise`, also meet."""
    measured = _with_margin(noise, "measured")
    lower = {name: min(getattr(bounds, name), getattr(measured, name)) for name in ("sqnr_db", "cosine", "top1")}
    return replace(measured, **lower, step=bounds.step)


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


def compare_quantized(candidate: Array, reference: Array, bounds: RatioBounds, scale: OutputScale) -> RatioAgreement:
    """Compare one output of a quantized model with its reference.

    Elements that are not finite in the reference are ignored. All other elements must be finite in the candidate.
    """
    exact = compare_arrays(candidate, reference, 0.0, 0.0)
    if exact.metric in ("shape", "type"):
        return RatioAgreement(exact, exact.metric, exact.value, exact.bound)
    if reference.dtype.kind != "f":
        return _compare_labels(candidate, reference, exact, bounds)
    chunks = iter_chunks(candidate, reference)
    not_finite = sum(int((np.isfinite(b) & ~np.isfinite(a)).sum()) for _, a, b in chunks)
    if not_finite:
        return RatioAgreement(replace(exact, agrees=False), "not finite", float(not_finite), 0.0)
    return _compare_numbers(candidate, reference, exact, bounds, scale)


def _compare_numbers(
    candidate: Array, reference: Array, exact: Agreement, bounds: RatioBounds, scale: OutputScale
) -> RatioAgreement:
    own = measure_scale([reference])
    spread = max(own.spread, scale.spread)
    metrics = compute_metrics(candidate, reference, tie=2.0 * 10.0 ** (-bounds.sqnr_db / 20.0) * math.sqrt(spread))
    power = max(own.power, scale.power)
    if power == 0.0:  # an output of zeros has no signal power, so a small absolute bound applies
        agreement = replace(exact, agrees=metrics.max_abs <= ZERO_ATOL)
        return RatioAgreement(agreement, "worst_abs", metrics.max_abs, ZERO_ATOL, (), metrics)
    figures = [("sqnr_db", _signal_ratio_db(candidate, reference, power), bounds.sqnr_db)]
    if metrics.elements >= MIN_COSINE_ELEMENTS and own.power >= 0.5 * scale.power:
        figures.append(("cosine", metrics.cosine, bounds.cosine))
    if metrics.rows >= MIN_LABELS:
        figures.append(("top1", metrics.top1_share, bounds.top1_of(metrics.rows)))
    failing = [] if metrics.max_abs <= bounds.step else [figure for figure in figures if not figure[1] >= figure[2]]
    metric, value, bound = (failing or figures)[0]
    agreement = replace(exact, agrees=not failing, max_abs=metrics.max_abs, detail="")
    return RatioAgreement(agreement, metric, value, bound, tuple(figures), metrics)


def compute_snr_db(candidate: Array, reference: Array, scale: OutputScale) -> float:
    """Return the SNR in dB of the elements that are finite in both arrays; `MAX_DB` if the reference has no signal."""
    both_finite = partial(_iter_finite, candidate, reference, np.float64)
    count = sum(b.size for _, b in both_finite())
    with np.errstate(over="ignore"):
        own = sum(float(np.square(b).sum()) for _, b in both_finite()) / max(count, 1)
    power = max(own, scale.power)
    return _signal_ratio_db(candidate, reference, power) if power else MAX_DB


def _signal_ratio_db(candidate: Array, reference: Array, power: float) -> float:
    """Return the SNR in dB of an output. `power` is the power of the signal."""
    root, noise, count = math.sqrt(power), 0.0, 0
    for a, b in _iter_finite(candidate, reference, np.float64):
        noise, count = noise + float(np.square((a - b) / root).sum()), count + a.size
    if noise == 0.0:
        return MAX_DB
    return min(max(-10.0 * math.log10(noise / count), -MAX_DB), MAX_DB)


def _compare_labels(candidate: Array, reference: Array, exact: Agreement, bounds: RatioBounds) -> RatioAgreement:
    """Compare an integer or boolean output with its reference.

    `bounds.top1_of` is the required fraction of equal elements. All 8-bit integers may differ by 1.
    """
    least = bounds.top1_of(reference.size)
    agrees = exact.agrees or (reference.dtype.itemsize == 1 and reference.dtype.kind in "iu" and exact.max_abs <= 1)
    share = 1.0 - exact.mismatched / max(reference.size, 1)
    if agrees or share >= least:
        return RatioAgreement(replace(exact, agrees=True, detail=""), "top1", 1.0 if agrees else share, least)
    return RatioAgreement(exact, "top1", share, least, too_few=reference.size < MIN_LABELS)


def measure_quantization(
    cases: Iterable[tuple[dict[str, Array], dict[str, Array]]], source: str, runtime: str, *, allow_spread: bool = True
) -> dict[str, MeasuredQuantization]:
    """Return the metrics of each output to record, from cases that have quantized and float outputs.

    They are the worst metrics over all cases, rounded down. With `allow_spread`, if the SNR of the cases differs by
    more than `MARGIN_DB`, the SNR and the cosine are lower by the excess, because other inputs may be as much worse.
    Outputs that are not floating-point or have different shapes are omitted.
    """
    pairs = list(cases)
    measured = {}
    for name in sorted({name for both in pairs for name in both[0].keys() & both[1].keys()}):
        arrays = [(quantized[name], real[name]) for quantized, real in pairs if name in quantized and name in real]
        scale = measure_scale([real for _, real in arrays])
        agreements = [compare_quantized(quantized, real, FLOAT_BOUNDS, scale) for quantized, real in arrays]
        if agreements and all(agreement.figures for agreement in agreements):
            worst = {"sqnr_db": 0.0, "cosine": FLOAT_BOUNDS.cosine, "top1": FLOAT_BOUNDS.top1}
            figures = [figure for agreement in agreements for figure in agreement.figures]
            for metric in {metric for metric, _, _ in figures}:
                worst[metric] = min(value for name, value, _ in figures if name == metric)
            best_db = max(value for name, value, _ in figures if name == "sqnr_db")
            excess_db = max(min(best_db, MAX_REQUIRED_DB) - worst["sqnr_db"] - MARGIN_DB, 0.0) if allow_spread else 0.0
            measured[name] = MeasuredQuantization(
                sqnr_db=_round_down(worst["sqnr_db"] - excess_db, 1),
                cosine=_round_down(1.0 - (1.0 - worst["cosine"]) * 10.0 ** (excess_db / 10.0), 5),
                top1=_round_down(worst["top1"], 3),
                source=source,
                runtime=runtime,
            )
    return measured


def _round_down(value: float, digits: int) -> float:
    """Round a metric down, so that the measured value satisfies the recorded requirement."""
    steps = 10.0**digits
    return round(math.floor(value * steps + 1e-9) / steps, digits)
