"""Metrics of two arrays of numbers, and when outputs of a quantized model agree: by these, never by element.

What is quantized rounds to steps: one step more or less is right, and grows on its way to the output. All metrics but
ULP are computed in float64. They leave out elements that are not finite on both sides: `agreement` decides on those.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from onnxgate.model.reading.tensor_data import count_ulps
from onnxgate.numerics.agreement import CHUNK_ELEMENTS, Agreement, compare_arrays
from onnxgate.project.lock.types import LockedModel, MeasuredQuantization

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

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
    p99_abs: float
    max_rel: float
    max_ulp: float | None
    p99_ulp: float | None
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
        p99_abs=_quantile(distance, TAIL_QUANTILE),
        max_rel=max_rel,
        max_ulp=None if ulp is None else float(ulp.max(initial=0.0)),
        p99_ulp=None if ulp is None else _quantile(ulp, TAIL_QUANTILE),
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
    steps = np.empty(a.size)
    bits_a, bits_b = (array.reshape(-1).view(f"i{array.dtype.itemsize}") for array in (a, b))
    for start in range(0, a.size, CHUNK_ELEMENTS):
        chunk = slice(start, start + CHUNK_ELEMENTS)
        steps[chunk] = count_ulps(bits_a[chunk], bits_b[chunk])
    return steps.reshape(a.shape)


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


RatioResult = tuple[str, float, float]  # metric, value, bound; the value must be at least the bound


@dataclass(frozen=True, slots=True)
class RatioBounds:
    """What a quantized output must keep of its reference; `step` is a difference that is right in any case."""

    sqnr_db: float
    cosine: float
    top1: float
    bound_from: Literal["config", "lock", "type"]
    step: float = 0.0


FLOAT_BOUNDS = RatioBounds(20.0, 0.99, 0.98, "type")
"""Against the float model, where the lock has no figures. Source: small int8 networks keep 27 to 41 dB; one whose
calibration failed kept 4.6 dB, half of its classes and cosine 0.8; measured 2026-11-20."""

SAME_FILE_BOUNDS = RatioBounds(20.0, 0.99, 0.98, "type")
"""The same file on two releases, or at two levels. Source: 61 models of onnxruntime.quantization (static QDQ and
QOperator, dynamic, 4 and 16 bits) on 1.18.1, 1.23.2 and 1.31.1: across releases equal or above 43 dB, across levels
equal except for attention in QDQ, whose 27 dB are as much noise as its distance from the float model; 2026-11-20."""

MARGIN_DB = 3.0
"""How far the ratio may fall below the recorded one: to twice the noise. Source: on one machine releases differ by less
than 0.1 dB and levels by less than 0.6 dB; kernels of other processors round otherwise."""
MARGIN_TOP1 = 0.02
MAX_REQUIRED_DB = 60.0
"""Upper limit of recorded requirements: a thousandth of the signal is not drift of a quantized model."""

MIN_COSINE_ELEMENTS = 10
"""Elements that make an angle: the cosine of one element is its sign."""
MIN_LABELS = 50
"""Below this, one wrong label is more than a share of 0.02."""
ZERO_ATOL = 5e-3
"""Bound for an output that is 0 throughout, which has no power to compare noise with."""


@dataclass(frozen=True, slots=True)
class OutputScale:
    """Usual scale of an output over all cases, so that values near zero are not compared with their own size."""

    power: float = 0.0  # mean square
    spread: float = 0.0  # mean square of the distance from the mean


@dataclass(frozen=True, slots=True)
class RatioAgreement:
    """How a quantized output stands to its reference."""

    agreement: Agreement
    metric: str
    value: float
    bound: float
    figures: tuple[RatioResult, ...] = ()
    metrics: Metrics | None = None
    too_few: bool = False  # labels differ, and are too few to say what that means


def choose_float_bounds(locked: LockedModel | None, output: str) -> RatioBounds:
    """Return the bounds of an output: the lock's recorded figures less a margin, or the defaults."""
    measured = locked.quantization.get(output) if locked is not None else None
    if measured is None:
        return FLOAT_BOUNDS
    return RatioBounds(
        sqnr_db=min(measured.sqnr_db - MARGIN_DB, MAX_REQUIRED_DB),
        cosine=min(1.0 - 2.0 * (1.0 - measured.cosine), 1.0 - 1e-6),
        top1=max(measured.top1 - MARGIN_TOP1, 0.0),
        bound_from="lock",
    )


def measure_scale(arrays: Iterable[Array]) -> OutputScale:
    """Return the scale of an output from its arrays, one for each case."""
    finite = [array[np.isfinite(array)].astype(np.float64) for array in arrays if array.dtype.kind == "f"]
    values = np.concatenate(finite) if finite else np.zeros(0)
    if not values.size:
        return OutputScale()
    with np.errstate(over="ignore"):
        return OutputScale(float(np.square(values).mean()), float(np.square(values - values.mean()).mean()))


def compare_quantized(candidate: Array, reference: Array, bounds: RatioBounds, scale: OutputScale) -> RatioAgreement:
    """Compare one quantized output with its reference.

    Elements of which the reference is not finite say nothing; one that is finite there must be finite here.
    """
    exact = compare_arrays(candidate, reference, 0.0, 0.0)
    if exact.metric in ("shape", "type"):
        return RatioAgreement(exact, exact.metric, exact.value, exact.bound)
    if reference.dtype.kind != "f":
        return _compare_labels(candidate, reference, exact, bounds)
    not_finite = int((np.isfinite(reference) & ~np.isfinite(candidate)).sum())
    if not_finite:
        return RatioAgreement(replace(exact, agrees=False), "not finite", float(not_finite), 0.0)
    return _compare_numbers(candidate, reference, exact, bounds, scale)


def _compare_numbers(
    candidate: Array, reference: Array, exact: Agreement, bounds: RatioBounds, scale: OutputScale
) -> RatioAgreement:
    finite = np.isfinite(reference)
    a, b = candidate[finite].astype(np.float64), reference[finite].astype(np.float64)
    own = measure_scale([b])
    spread = max(own.spread, scale.spread)
    metrics = compute_metrics(candidate, reference, tie=2.0 * 10.0 ** (-bounds.sqnr_db / 20.0) * math.sqrt(spread))
    power = max(own.power, scale.power)
    if power == 0.0:  # an output of zeros has no signal: it gets a small absolute bound
        agreement = replace(exact, agrees=metrics.max_abs <= ZERO_ATOL)
        return RatioAgreement(agreement, "worst_abs", metrics.max_abs, ZERO_ATOL, (), metrics)
    figures = [("sqnr_db", _signal_ratio_db(a, b, power), bounds.sqnr_db)]
    if b.size >= MIN_COSINE_ELEMENTS and own.power >= 0.5 * scale.power:
        figures.append(("cosine", metrics.cosine, bounds.cosine))
    if metrics.rows:
        figures.append(("top1", metrics.top1_share, bounds.top1))
    failing = [] if metrics.max_abs <= bounds.step else [figure for figure in figures if not figure[1] >= figure[2]]
    metric, value, bound = (failing or figures)[0]
    agreement = replace(exact, agrees=not failing, max_abs=metrics.max_abs, detail="")
    return RatioAgreement(agreement, metric, value, bound, tuple(figures), metrics)


def compute_snr_db(candidate: Array, reference: Array, scale: OutputScale) -> float:
    """Return signal to noise in decibels over elements finite on both sides; the maximum without a signal."""
    finite = np.isfinite(reference) & np.isfinite(candidate)
    a, b = candidate[finite].astype(np.float64), reference[finite].astype(np.float64)
    power = max(measure_scale([b]).power, scale.power)
    return _signal_ratio_db(a, b, power) if power else MAX_DB


def _signal_ratio_db(a: Array, b: Array, power: float) -> float:
    """Return `sqnr_db` with the usual power of the output as the signal if that is more."""
    root = math.sqrt(power)
    noise = float(np.square((a - b) / root).mean()) if a.size else 0.0
    if noise == 0.0:
        return MAX_DB
    return min(max(-10.0 * math.log10(noise), -MAX_DB), MAX_DB)


def _compare_labels(candidate: Array, reference: Array, exact: Agreement, bounds: RatioBounds) -> RatioAgreement:
    """Integers of 8 bits may be steps: one is right. All else are decisions, of which a share must be the same."""
    agrees = exact.agrees or (reference.dtype.itemsize == 1 and reference.dtype.kind in "iu" and exact.max_abs <= 1)
    share = 1.0 - exact.mismatched / max(reference.size, 1)
    if agrees or share >= bounds.top1:
        return RatioAgreement(replace(exact, agrees=True, detail=""), "top1", 1.0 if agrees else share, bounds.top1)
    return RatioAgreement(exact, "top1", share, bounds.top1, too_few=reference.size < MIN_LABELS)


def measure_quantization(
    cases: Iterable[tuple[dict[str, Array], dict[str, Array]]], source: str, runtime: str
) -> dict[str, MeasuredQuantization]:
    """Return per output the worst figures over all cases of (quantized, float) outputs, rounded to be stable.

    Outputs of other types than floating point, or of unlike shapes, have none.
    """
    pairs = list(cases)
    measured = {}
    for name in sorted({name for both in pairs for name in both[0].keys() & both[1].keys()}):
        arrays = [(quantized[name], real[name]) for quantized, real in pairs if name in quantized and name in real]
        scale = measure_scale(real for _, real in arrays)
        agreements = [compare_quantized(quantized, real, FLOAT_BOUNDS, scale) for quantized, real in arrays]
        if agreements and all(agreement.figures for agreement in agreements):
            worst = {"sqnr_db": 0.0, "cosine": FLOAT_BOUNDS.cosine, "top1": FLOAT_BOUNDS.top1}
            figures = [figure for agreement in agreements for figure in agreement.figures]
            for metric in {metric for metric, _, _ in figures}:
                worst[metric] = min(value for name, value, _ in figures if name == metric)
            measured[name] = MeasuredQuantization(
                sqnr_db=_round_down(worst["sqnr_db"], 1),
                cosine=_round_down(worst["cosine"], 5),
                top1=_round_down(worst["top1"], 3),
                source=source,
                runtime=runtime,
            )
    return measured


def _round_down(value: float, digits: int) -> float:
    """Round down, never up: the measured value must satisfy its own record."""
    steps = 10.0**digits
    return round(math.floor(value * steps + 1e-9) / steps, digits)
