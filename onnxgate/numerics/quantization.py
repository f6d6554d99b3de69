"""Comparison of quantized models by metrics of the difference, such as the signal-to-noise ratio.

Their outputs are not compared element by element, because a difference of one quantization step is acceptable and may
grow towards the output.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from onnxgate.numerics.agreement import Agreement, compare_arrays
from onnxgate.numerics.metrics import (
    Metrics,
    OutputScale,
    compute_metrics,
    measure_scale,
    measure_snr_db,
)
from onnxgate.numerics.streams import iter_chunks
from onnxgate.project.lock.types import LockedModel, MeasuredQuantization

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

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
    figures = [("sqnr_db", measure_snr_db(candidate, reference, power), bounds.sqnr_db)]
    if metrics.elements >= MIN_COSINE_ELEMENTS and own.power >= 0.5 * scale.power:
        figures.append(("cosine", metrics.cosine, bounds.cosine))
    if metrics.rows >= MIN_LABELS:
        figures.append(("top1", metrics.top1_share, bounds.top1_of(metrics.rows)))
    failing = [] if metrics.max_abs <= bounds.step else [figure for figure in figures if not figure[1] >= figure[2]]
    metric, value, bound = (failing or figures)[0]
    agreement = replace(exact, agrees=not failing, max_abs=metrics.max_abs, detail="")
    return RatioAgreement(agreement, metric, value, bound, tuple(figures), metrics)


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
