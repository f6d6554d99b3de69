"""Tolerances: bounds on the difference of an output from its reference, by default or from measured rounding errors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from onnxgate.numerics.streams import iter_chunks
from onnxgate.project.config.schema import Tolerance
from onnxgate.project.lock.types import LockedModel, MeasuredQuantization, MeasuredTolerance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
    Outputs = Mapping[str, Array]

DEFAULT_BOUNDS = {"half": (1e-2, 5e-3), "single": (1e-4, 1e-5), "exact": (0.0, 0.0)}
"""Default tolerances for each precision, as (rtol, atol).

Source: four networks on five releases of ONNX Runtime, measured 2026-11-20.

There is no tighter bound for float64, because float64 outputs are often results of float32 computations that were cast.
"""

LARGEST_VALUE_SHARE = {"half": 5e-3, "single": 1e-6, "exact": 0.0}
"""Minimum default `atol` for each precision, as a fraction of the largest reference value among differing elements.

If large numbers cancel out, the small result contains the rounding error of the large numbers. Source: in a correct
network of two layers with outputs of about 1e5, an output of 120 differs by 0.017 (SNR 126 dB, onnxruntime
1.18.1–1.31.1). This is 5 to 8 ULP of the largest output; measured 2026-11-20.
"""

MAX_HALF_SHARE = 0.01
"""Maximum fraction of differing elements in an integer or boolean output if the model computes in 16 bits.

Such outputs depend on numbers with a relative error of about 1 %, which can change the order of similar numbers.
Source: `argmax` over 21 classes in an untrained float16 network differs in 2 of 6144 elements between onnxruntime
1.18.1 and 1.31.1; measured 2026-11-20. Outputs with fewer than 100 elements must be equal.
"""

MIN_HALF_DB = 45.0
"""Required SNR in dB of a float16 output, in addition to its bound.

The bound alone does not detect weights that are wrong by 1 %.

Source: for four networks with two to six layers, the SNR of correct outputs is 54 to 69 dB; with a weight that is wrong
by 1 %, it is about 40 dB. Measured 2026-11-20.
"""
MIN_HALF_POWER = 0.1
"""Minimum mean square of an output for which `MIN_HALF_DB` is checked; smaller outputs may result from cancellation."""

NOISE_FACTOR = 8.0
"""Ratio of an output's bound to its noise, which is the difference between float32 and float64 runs of the source.

Source: five networks, in which runtimes differed by 0.9 to 1.5 times the noise."""

HALF_NOISE_FACTOR = 2.0
"""Same as `NOISE_FACTOR` in a model that computes in 16 bits, if that exceeds the default bound.

Source: 33 small architectures with random weights, exported in float16. With onnxruntime 1.31.1, outputs differ from
the source by 0.5 to 1.9 times the noise; the noise is at most 0.34 times the default bound. Measured 2026-11-28."""

MAX_BOUND_SPREAD = 0.25
"""Maximum measured bound, as a fraction of the standard deviation of the output.

It is chosen, not measured: two independent values differ by about 1.4 standard deviations, so that a wrong output can
meet a larger bound. Bounds of well-conditioned outputs are far smaller: in the float32 networks of the 33 architectures
above, they are at most 2e-5 standard deviations; measured 2026-11-28."""

FAINT_LARGEST = 1e-3
"""Largest value of a faint float32 output, of which the default `atol` is at least 1 %, so that faults may be hidden.

Source: a correct efficientnet_b0 with random weights returns at most 6e-5. Correct outputs up to 0.1 may have larger
errors than the noise of the source: those of a sigmoid are multiplied by 8 in `silu(x - 8)`; measured 2026-11-28."""
FAINT_SHARE = 1e-4
"""Largest difference in a faint output that certainly hides no fault, as a fraction of its largest value."""
MIN_TIGHT_BOUND = 2e-7
"""Minimum of a bound below the default, because a sigmoid or softmax has absolute rounding errors.

Source: the sigmoid of -20, 2e-9, is 0 or up to 8.9e-8 in ONNX Runtime 1.17.3 to 1.31.1; measured 2026-11-28."""
MIN_TIGHT_ELEMENTS = 16
"""Minimum number of elements, over all cases, for a bound below the default.

A rounding error is more than eight times another one in 8 % of all cases. For the largest of 16 independent errors
each, the probability is 2e-9; computed for normal distributions, not measured."""

MIN_BOUND_SHARE = 1e-6
"""Minimum bound on the difference, as a fraction of the largest reference value or of 1, whichever is larger."""


@dataclass(frozen=True, slots=True)
class ElementBound:
    """Bound on the difference of two elements: `|a - b| <= atol + rtol * |b|`, where b is the reference.

    If `atol` and `rtol` are 0, `share` is the fraction of elements that may differ.
    """

    rtol: float
    atol: float
    bound_from: Literal["config", "lock", "type", "measured"]
    share: float = 0.0
    of_largest: float = 0.0  # `atol` is at least this fraction of the largest reference value

    def at(self, candidate: Array, reference: Array) -> ElementBound:
        """Return the bound on the difference between two arrays.

        Equal elements, such as fill values of masks, are ignored.
        """
        if not self.of_largest or candidate.shape != reference.shape or reference.dtype.kind not in "fc":
            return self
        largest = 0.0
        for _, a, b in iter_chunks(candidate, reference):
            unlike = np.abs(b[(a != b) & np.isfinite(b) & np.isfinite(a)])
            largest = max(largest, float(unlike.max(initial=0.0)))
        return replace(self, atol=max(self.atol, self.of_largest * largest))


def choose_bound(
    settings: Mapping[str, float | Tolerance] | None,
    locked: LockedModel | None,
    output: str,
    dtype: np.dtype[Any],
    *,
    half: bool,
    noise: NoiseMeasurement | None = None,
) -> ElementBound:
    """Return the bound on the difference of an output from its reference.

    It is the first of these that exists: the tolerance in the config, the measured tolerance in the lock, the bound
    below the default in `noise`, which was measured in this check, and the default, but at least the tolerance in
    `noise`. For integers, a tolerance is used only if it is set for this output. `half` means that some nodes of the
    model compute in 16 bits, even if the outputs have a different type.
    """
    settings = settings or {}
    named = settings.get(output)
    if isinstance(named, Tolerance):
        return ElementBound(named.rtol, named.atol, "config")
    if dtype.kind not in "fc":
        return ElementBound(*DEFAULT_BOUNDS["exact"], "type", MAX_HALF_SHARE if half and dtype.kind in "iub" else 0.0)
    rtol, atol = settings.get("rtol"), settings.get("atol")
    if isinstance(rtol, float | int) or isinstance(atol, float | int):
        return ElementBound(_as_number(rtol), _as_number(atol), "config")
    if locked is not None and output in locked.tolerance:
        return ElementBound(0.0, locked.tolerance[output].bound, "lock")
    precision = "half" if half or dtype.itemsize == 2 else "single"
    default = ElementBound(*DEFAULT_BOUNDS[precision], "type", of_largest=LARGEST_VALUE_SHARE[precision])
    if noise is not None and output in noise.tight:
        return ElementBound(0.0, noise.tight[output], "measured")
    if noise is None or output not in noise.tolerances:
        return default
    return replace(default, atol=max(default.atol, noise.tolerances[output].bound), bound_from="measured")


def _as_number(value: float | Tolerance | None) -> float:
    return float(value) if isinstance(value, float | int) else 0.0


@dataclass(frozen=True, slots=True)
class NoiseMeasurement:
    """Measured tolerances by output, and those of ill-conditioned outputs, which almost any wrong result would meet."""

    tolerances: dict[str, MeasuredTolerance] = field(default_factory=dict)
    ill_conditioned: dict[str, MeasuredTolerance] = field(default_factory=dict)
    loosened: dict[str, float] = field(default_factory=dict)  # float16 outputs above the default -> default
    tight: dict[str, float] = field(default_factory=dict)  # bounds below the default
    accuracy: dict[str, MeasuredQuantization] = field(default_factory=dict)  # outputs of a quantized model

    def relax(self, outputs: Collection[str] | None = None) -> NoiseMeasurement:
        """Return the measurement without bounds below the default, of these outputs or of all."""
        return replace(self, tight={} if outputs is None else {k: v for k, v in self.tight.items() if k not in outputs})


def measure_noise(
    cases: Iterable[tuple[Outputs, Outputs]], *, half: bool = False, is_exact: bool = False
) -> NoiseMeasurement:
    """Measure the noise of each output, and return the resulting bounds on differences.

    The noise is the largest difference between the float32 and float64 outputs in each pair of `cases`. In models that
    compute in 16 bits (`half`), the bound exceeds the default only if the noise alone nearly does. It is below the
    default only if the float64 outputs were computed in float64 (`is_exact`), or if the output is faint.

    Outputs of other types and outputs that cannot be subtracted are omitted.
    """
    noises: dict[str, list[_OutputNoise | None]] = {}
    inexact = set[str]()
    for narrow, wide in cases:
        for name in narrow.keys() & wide.keys():
            noise = _measure_output_noise(narrow[name], wide[name], half=half)
            noises.setdefault(name, []).append(noise)
            if wide[name].dtype.itemsize < 8:  # the source computes in float32 in any case
                inexact.add(name)
    measurement = NoiseMeasurement()
    for name, cases_noise in sorted(noises.items()):
        figures = [figure for figure in cases_noise if figure is not None]
        if len(figures) == len(cases_noise):
            _add_tolerance(measurement, name, figures, is_exact and name not in inexact)
    return measurement


def _add_tolerance(measurement: NoiseMeasurement, name: str, figures: Sequence[_OutputNoise], is_exact: bool) -> None:
    noise, default = (max(getattr(figure, key) for figure in figures) for key in ("noise", "default"))
    largest, is_half = max(figure.largest for figure in figures), any(figure.is_half for figure in figures)
    bound = NOISE_FACTOR * noise
    if is_half:
        bound = min(bound, max(default, HALF_NOISE_FACTOR * noise))
    bound = max(bound, MIN_BOUND_SHARE * max(1.0, largest))
    tolerance = MeasuredTolerance(noise=noise, bound=bound)
    tight = max(min(bound, NOISE_FACTOR * noise), MIN_BOUND_SHARE * largest, MIN_TIGHT_BOUND)
    is_faint = 0 < largest <= FAINT_LARGEST and not is_half
    is_known = is_exact and sum(figure.count for figure in figures) >= MIN_TIGHT_ELEMENTS
    if (is_faint or is_known) and tight <= min(default, MAX_BOUND_SPREAD * _join_spreads(figures)):
        measurement.tight[name] = tight
    if bound > max(default, MAX_BOUND_SPREAD * _join_spreads(figures)):
        measurement.ill_conditioned[name] = tolerance
        return
    measurement.tolerances[name] = tolerance
    if bound > default and is_half:
        measurement.loosened[name] = default


@dataclass(frozen=True, slots=True)
class _OutputNoise:
    """Noise of one output in one case, and statistics of its values."""

    noise: float
    largest: float
    default: float  # default bound of the largest value
    is_half: bool
    count: int
    mean: float
    variance: float


def _join_spreads(figures: Sequence[_OutputNoise]) -> float:
    """Return the standard deviation of the values over all cases; the largest value if all values are equal."""
    count = sum(figure.count for figure in figures)
    mean = sum(figure.count * figure.mean for figure in figures) / count
    variance = sum(figure.count * (figure.variance + (figure.mean - mean) ** 2) for figure in figures) / count
    return float(np.sqrt(variance)) or max(figure.largest for figure in figures)


def _measure_output_noise(narrow: Array, wide: Array, *, half: bool) -> _OutputNoise | None:
    """Compare the elements that are finite in both arrays.

    Fill values, such as the smallest number of a type for masked positions, are ignored.
    """
    if narrow.shape != wide.shape or narrow.dtype.kind != "f" or wide.dtype.kind != "f":
        return None
    fill = float(np.finfo(narrow.dtype).max) / 2
    noise, largest, count, total, squares = 0.0, 0.0, 0, 0.0, 0.0
    for _, narrow_part, wide_part in iter_chunks(narrow, wide):
        a, b = narrow_part.astype(np.float64), wide_part.astype(np.float64)
        if not np.array_equal(np.isfinite(b), np.isfinite(a)):
            return None
        used = np.abs(a) < fill
        a, b = a[used], b[used]
        noise, largest = max(noise, _largest(a - b)), max(largest, _largest(a))
        count, total, squares = count + a.size, total + float(a.sum()), squares + float(np.square(a).sum())
    if not count:
        return None
    mean, is_half = total / count, half or narrow.dtype.itemsize == 2
    least = choose_bound(None, None, "", narrow.dtype, half=is_half)
    default = max(least.atol, least.of_largest * largest) + least.rtol * largest
    return _OutputNoise(noise, largest, default, is_half, count, mean, max(squares / count - mean**2, 0.0))


def _largest(values: Array) -> float:
    return float(np.abs(values).max(initial=0.0))
