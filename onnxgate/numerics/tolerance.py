"""Bounds on the difference of an output from its reference, and their origin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from onnxgate.project.config.schema import Tolerance
from onnxgate.project.lock.types import LockedModel, MeasuredTolerance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Outputs = Mapping[str, NDArray[Any]]

DEFAULT_BOUNDS = {"half": (1e-2, 5e-3), "single": (1e-4, 1e-5), "exact": (0.0, 0.0)}
"""Precision -> (rtol, atol). Source: facts of four networks on five releases of ONNX Runtime, measured 2026-11-20.

There is no tighter bound for float64: a double output is often the cast result of a network that computes in float32.
"""

LARGEST_VALUE_SHARE = {"half": 5e-3, "single": 1e-6, "exact": 0.0}
"""Precision -> the least absolute part of a default, as a share of the largest reference value that is not met exactly.

Where large numbers cancel, what is left of them carries their rounding. Source: a healthy network of two layers with
outputs about 1e5 is off by 0.017 where its own output is 120 (126 dB, onnxruntime 1.18.1 to 1.31.1), measured
2026-11-20: 5 to 8 units in the last place of the largest.
"""

MAX_HALF_SHARE = 0.01
"""The share of elements of an integer or boolean output that may differ if a model computes in 16 bits.

Such an output is decided from numbers that are right to about one part in a hundred (`BY_TYPE`): where two lie nearer
than that, either is right. Source: `argmax` over 21 classes of an untrained float16 network on onnxruntime 1.18.1 and
1.31.1, 2 of 6144 elements, measured 2026-11-20. Outputs of fewer than 100 elements are held exactly.
"""

MIN_HALF_DB = 45.0
"""Signal to noise that a float16 output needs in addition to its bound, which misses a weight wrong by one per cent.

Source: two to six layers of four networks keep 54 to 69 dB, a weight that is wrong by 1 % leaves about 40 dB; measured
2026-11-20.
"""
MIN_HALF_POWER = 0.1
"""The least mean square that `HALF_DB` is counted from: a small output may be what is left where large ones cancel."""

NOISE_FACTOR = 8.0
"""A runtime's distance from the source's float32 was 0.9 to 1.5 times the source's own from float64 (five networks)."""

MIN_BOUND_SHARE = 1e-6
"""The least bound, as a share of the largest reference value (of 1 if that is smaller)."""


@dataclass(frozen=True, slots=True)
class ElementBound:
    """`|a - b| <= atol + rtol * |b|` with b the reference; `share` of the elements need not, if no figure is given."""

    rtol: float
    atol: float
    bound_from: Literal["config", "lock", "type"]
    share: float = 0.0
    of_largest: float = 0.0  # `atol` is at least this share of the largest reference value

    def at(self, candidate: NDArray[Any], reference: NDArray[Any]) -> ElementBound:
        """The bound for these two: values that both have exactly, such as what a mask is filled with, do not count."""
        if not self.of_largest or candidate.shape != reference.shape or reference.dtype.kind not in "fc":
            return self
        unlike = np.abs(reference[(candidate != reference) & np.isfinite(reference) & np.isfinite(candidate)])
        return replace(self, atol=max(self.atol, self.of_largest * float(unlike.max(initial=0.0))))


def choose_bound(
    settings: Mapping[str, float | Tolerance] | None,
    locked: LockedModel | None,
    output: str,
    dtype: np.dtype[Any],
    *,
    half: bool,
) -> ElementBound:
    """Return the config's tolerance for this output or for all, or the lock's measured one, or the type's default.

    Only a tolerance that names the output is applied to integers: class labels are never nearly right, though some may
    be wrong in 16 bits. `half` says that the model computes in 16 bits somewhere, whatever its outputs are cast to.
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
    return ElementBound(*DEFAULT_BOUNDS[precision], "type", of_largest=LARGEST_VALUE_SHARE[precision])


def _as_number(value: float | Tolerance | None) -> float:
    return float(value) if isinstance(value, float | int) else 0.0


def measure_tolerance(cases: Iterable[tuple[Outputs, Outputs]]) -> dict[str, MeasuredTolerance]:
    """Per output, the noise of the source (float32, float64 outputs per case) and the bound that follows from it.

    An output that is no floating-point number, or whose two versions cannot be subtracted, has no measured tolerance;
    nor has one whose bound would let zeros pass for it: there, float64 computes something else (a mask filled with the
    type's smallest number).
    """
    noises: dict[str, list[tuple[float, float] | None]] = {}
    for narrow, wide in cases:
        for name in narrow.keys() & wide.keys():
            noises.setdefault(name, []).append(_measure_noise(narrow[name], wide[name]))
    measured = {}
    for name, found in sorted(noises.items()):
        figures = [figure for figure in found if figure is not None]
        if len(figures) < len(found):
            continue
        noise, largest = max(f[0] for f in figures), max(f[1] for f in figures)
        if noise == 0 or NOISE_FACTOR * noise < largest:
            measured[name] = _create_tolerance(noise, largest)
    return measured


def _create_tolerance(noise: float, largest: float) -> MeasuredTolerance:
    return MeasuredTolerance(noise=noise, bound=max(NOISE_FACTOR * noise, MIN_BOUND_SHARE * max(1.0, largest)))


def _measure_noise(narrow: NDArray[Any], wide: NDArray[Any]) -> tuple[float, float] | None:
    """The largest distance and the largest magnitude over elements that are finite on both sides."""
    if narrow.shape != wide.shape or narrow.dtype.kind != "f" or wide.dtype.kind != "f":
        return None
    a, b = narrow.astype(np.float64), wide.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(finite, np.isfinite(a)):
        return None
    distance, magnitude = np.abs(a[finite] - b[finite]), np.abs(a[finite])
    return float(distance.max(initial=0.0)), float(magnitude.max(initial=0.0))
