"""Agreement between two arrays.

Two numbers agree if `|a - b| <= atol + rtol * |b|`, where b is the reference. NaN agrees with NaN at the same position,
and infinity agrees with infinity of the same sign. Arrays with different shapes or different kinds of types (floats,
integers, booleans, strings) never agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from onnxgate.numerics.streams import iter_chunks, iter_parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


Metric = Literal["worst_abs", "mismatched elements", "shape", "type", "not finite"]

KIND_NAMES = {"f": "number", "c": "complex", "i": "integer", "u": "integer", "b": "boolean", "U": "word", "S": "word"}
"""Group of types for each NumPy dtype kind. Only arrays of the same group are compared."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Result of comparing a candidate with its reference.

    `agrees` is `value <= bound`. For `worst_abs`, `value` is the absolute difference and `bound` is the tolerance of
    the element with the largest ratio of difference to tolerance. For "mismatched elements", `bound` is the allowed
    number of differing elements. For other metrics, `value` is the number of invalid elements or 1, and `bound` is 0.
    """

    agrees: bool
    metric: Metric
    value: float
    bound: float
    mismatched: int  # number of elements
    max_abs: float  # over elements that are finite in both arrays
    detail: str = ""  # position of the worst element, and its two values; "" if the arrays agree


def compare_arrays(candidate: Array, reference: Array, rtol: float, atol: float, share: float = 0.0) -> Agreement:
    """Compare two arrays in float64; compare integers exactly, and booleans as 0 and 1.

    For integers and booleans, `share` is the fraction of elements that may differ if `rtol` and `atol` are 0.
    """
    kind = KIND_NAMES.get(candidate.dtype.kind)
    if kind is None or kind != KIND_NAMES.get(reference.dtype.kind):
        types = f"type {candidate.dtype} instead of {reference.dtype}"
        return Agreement(False, "type", 1.0, 0.0, candidate.size, 0.0, types)
    if candidate.shape != reference.shape:
        shapes = " instead of ".join(f"({', '.join(map(str, array.shape))})" for array in (candidate, reference))
        return Agreement(False, "shape", 1.0, 0.0, candidate.size, 0.0, f"shape {shapes}")
    match kind:
        case "number":
            return _compare_within(candidate, reference, partial(_compare_numbers, rtol=rtol, atol=atol), atol)
        case "complex":
            a, b = _view_as_reals(candidate), _view_as_reals(reference)
            return _compare_within(a, b, partial(_compare_numbers, rtol=rtol, atol=atol), atol)
        case "integer" | "boolean" if rtol or atol:
            a, b = _view_as_integers(candidate), _view_as_integers(reference)
            return _compare_within(a, b, partial(_compare_integers, rtol=rtol, atol=atol), atol)
        case "integer":
            return _compare_exactly(candidate, reference, _integer_distance, share)
        case "boolean":
            return _compare_exactly(candidate, reference, np.not_equal, share)
        case _:
            return _compare_exactly(candidate, reference, lambda a, b: _as_strings(a) != _as_strings(b))


def find_not_finite(array: Array) -> Array:
    """Return a mask of the NaN and infinite elements of an array; all False for types without such values."""
    if array.dtype.kind not in "fc":
        return np.zeros(array.shape, dtype=bool)
    return np.asarray(~np.isfinite(array))


def _view_as_reals(array: Array) -> Array:
    """Convert an array of complex numbers to real numbers, with real and imaginary parts on an additional last axis."""
    return array.reshape(*array.shape, 1).view(array.real.dtype)


def _view_as_integers(array: Array) -> Array:
    return array.view(np.uint8) if array.dtype.kind == "b" else array


def _as_strings(array: Array) -> Array:
    """Convert the elements of an array to Python strings, so that bytes can be compared with text."""
    words = [word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word) for word in array.flat]
    return np.array(words, dtype=object).reshape(array.shape)


@dataclass(frozen=True, slots=True)
class _ChunkResult:
    """Result of comparing one chunk of two arrays. Positions are relative to the start of the arrays."""

    not_finite: int  # number of elements that differ and are not finite in at least one array
    not_finite_at: int
    mismatched: int
    peak: float
    used: float  # largest ratio of difference to tolerance
    worst_at: int
    value: float
    bound: float


def _compare_within(
    a: Array, b: Array, compare_chunk: Callable[[int, Array, Array], _ChunkResult], atol: float
) -> Agreement:
    """Compare two arrays in chunks, because float64 copies of large outputs would need too much memory."""
    if a.size == 0:
        return Agreement(True, "worst_abs", 0.0, atol, 0, 0.0)
    parts = [compare_chunk(*chunk) for chunk in iter_chunks(a, b)]
    peak, not_finite = max(part.peak for part in parts), sum(part.not_finite for part in parts)
    if not_finite:
        detail = _describe_position(next(part.not_finite_at for part in parts if part.not_finite), a, b)
        return Agreement(False, "not finite", float(not_finite), 0.0, not_finite, peak, detail)
    mismatched = sum(part.mismatched for part in parts)
    worst = max(parts, key=lambda part: part.used)
    detail = _describe_mismatch(worst.worst_at, mismatched, a, b)
    return Agreement(mismatched == 0, "worst_abs", worst.value, worst.bound, mismatched, peak, detail)


def _compare_numbers(start: int, a: Array, b: Array, rtol: float, atol: float) -> _ChunkResult:
    a, b = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    not_finite = ~finite & (a != b) & ~(np.isnan(a) & np.isnan(b))
    with np.errstate(over="ignore", invalid="ignore"):
        difference = np.where(finite, np.abs(a - b), 0.0)
        allowed = np.where(finite, atol + rtol * np.abs(b), atol)
    return _summarize_chunk(start, difference, allowed, not_finite)


def _compare_integers(start: int, a: Array, b: Array, rtol: float, atol: float) -> _ChunkResult:
    difference = _integer_distance(a, b)
    # The bound is rounded down to an integer, so that rounding above 2**53 never makes elements agree.
    allowed = np.minimum(np.floor(atol + rtol * np.abs(b.astype(np.float64))), 2.0**63).astype(np.uint64)
    return _summarize_chunk(start, difference, allowed, np.zeros(a.shape, bool))


def _summarize_chunk(start: int, difference: Array, allowed: Array, not_finite: Array) -> _ChunkResult:
    used = _used_share(difference, allowed)
    worst = int(np.argmax(used))
    return _ChunkResult(
        not_finite=int(not_finite.sum()),
        not_finite_at=start + int(np.argmax(not_finite)),
        mismatched=int((difference > allowed).sum()),
        peak=float(difference.max()),
        used=float(used[worst]),
        worst_at=start + worst,
        value=float(difference[worst]),
        bound=float(allowed[worst]),
    )


def _integer_distance(a: Array, b: Array) -> Array:
    """Return the exact absolute difference between integers as uint64, computed modulo 2**64."""
    if {a.dtype.kind, b.dtype.kind} == {"i", "u"}:
        exact = [abs(int(x) - int(y)) for x, y in zip(a.flat, b.flat, strict=True)]
        return np.array([min(value, 2**64 - 1) for value in exact], dtype=np.uint64).reshape(a.shape)
    wide = np.int64 if a.dtype.kind == "i" else np.uint64
    a, b = a.astype(wide), b.astype(wide)
    with np.errstate(over="ignore"):
        return np.asarray(np.maximum(a, b).astype(np.uint64) - np.minimum(a, b).astype(np.uint64))


def _used_share(difference: Array, allowed: Array) -> Array:
    """Return the ratio of difference to bound for each element; infinite if the bound is 0 and the difference is not.

    Even with rounding, an element beyond its bound always has a larger ratio than an element within its bound.
    """
    over = difference > allowed
    difference, allowed = difference.astype(np.float64), allowed.astype(np.float64)
    share = np.where(difference > 0, np.inf, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        np.divide(difference, allowed, out=share, where=(allowed > 0) & np.isfinite(difference))
    return np.where(over, np.maximum(share, np.nextafter(1.0, 2.0)), np.minimum(share, 1.0))


def _compare_exactly(
    a: Array, b: Array, measure_distance: Callable[[Array, Array], Array], share: float = 0.0
) -> Agreement:
    """Count the differing elements of two arrays.

    `measure_distance` returns a number or a boolean for each pair of elements.
    """
    count, first, peak = 0, 0, 0.0
    for start, part_a, part_b in iter_chunks(a, b):
        distance = measure_distance(part_a, part_b)
        unequal = distance != 0
        if not count:
            first = start + int(np.argmax(unequal))
        count += int(unequal.sum())
        if distance.dtype.kind == "u":
            peak = max(peak, float(distance.max()))
    allowed = float(int(share * a.size))
    agrees = count <= allowed
    detail = "" if agrees else _describe_mismatch(first, count, a, b)
    return Agreement(agrees, "mismatched elements", float(count), allowed, count, peak, detail)


def _describe_mismatch(worst: int, mismatched: int, a: Array, b: Array) -> str:
    position = _describe_position(worst, a, b) if mismatched else ""
    return f"{position}; {mismatched} of {a.size} elements differ" if mismatched else ""


def _describe_position(flat: int, a: Array, b: Array) -> str:
    index = ", ".join(str(int(i)) for i in np.unravel_index(flat, a.shape))
    return f"at [{index}]: {_format_value(a.flat[flat])} instead of {_format_value(b.flat[flat])}"


def _format_value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, np.floating) else repr(getattr(value, "item", lambda: value)())


def are_both_nan(candidate: Array, reference: Array) -> bool:
    """Return whether two arrays contain only NaN. A comparison of such arrays proves nothing."""
    return all(
        a.dtype.kind in "fc" and a.size > 0 and all(np.isnan(part).all() for part in iter_parts(a))
        for a in (candidate, reference)
    )


def is_negligible(candidate: Array, reference: Array, allowed: float, close: float) -> bool:
    """Return whether an array of zeros would also pass the comparison: no reference element exceeds `allowed`.

    Equal arrays, and arrays whose difference is at most `close` times the largest element, are never negligible.
    """
    if reference.dtype.kind not in "fc" or candidate.shape != reference.shape:
        return False
    largest, farthest, is_equal = 0.0, 0.0, True
    for _, a, b in iter_chunks(candidate, reference):
        is_equal = is_equal and np.array_equal(a, b)
        finite = np.isfinite(b) & np.isfinite(a)
        largest = max(largest, float(np.abs(b[finite]).max(initial=0.0)))
        farthest = max(farthest, float(np.abs(a[finite] - b[finite]).max(initial=0.0)))
    return not is_equal and largest <= allowed and farthest > close * largest
