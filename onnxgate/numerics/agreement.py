"""Whether two arrays agree: the meaning of `|a - b| <= atol + rtol * |b|`, NaN and infinity is written only here.

b is the reference. NaN agrees with NaN at the same place, an infinity with the same infinity. Arrays of different
shapes, or of different kinds of type (numbers, integers, booleans, words), never agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


Metric = Literal["worst_abs", "mismatched elements", "shape", "type", "not finite"]

KIND_NAMES = {"f": "number", "c": "complex", "i": "integer", "u": "integer", "b": "boolean", "U": "word", "S": "word"}
"""numpy's kind of a dtype -> what may be compared with each other."""

CHUNK_ELEMENTS = 1 << 20
"""Elements that are compared at a time."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How a candidate stands to its reference.

    `worst_abs` is the absolute difference at the element that uses up most of what it is allowed; `bound` is what that
    element is allowed, so that `agrees` is `value <= bound`. The other metrics count elements (or are 1) against 0,
    "mismatched elements" against how many may differ.
    """

    agrees: bool
    metric: Metric
    value: float
    bound: float
    mismatched: int  # elements
    max_abs: float  # over the elements that are finite on both sides
    detail: str = ""  # position of the worst element and both values; "" if the arrays agree


def compare_arrays(candidate: Array, reference: Array, rtol: float, atol: float, share: float = 0.0) -> Agreement:
    """Hold `candidate` against `reference`, in float64 (integers without rounding; true is one more than false).

    Of integers and booleans without `rtol` and `atol`, a `share` of the elements may differ by whatever it be.
    """
    kind = _kind_name(candidate)
    if kind != _kind_name(reference) or kind == "other":
        return _incomparable("type", f"type {candidate.dtype} against {reference.dtype}", candidate.size)
    if candidate.shape != reference.shape:
        return _incomparable(
            "shape", f"shape {_format_shape(candidate)} against {_format_shape(reference)}", candidate.size
        )
    match kind:
        case "number" | "complex":
            return _compare_numbers(_split_complex(candidate), _split_complex(reference), rtol, atol)
        case "integer":
            return _compare_integers(candidate, reference, rtol, atol, share)
        case "boolean" if rtol == 0 and atol == 0:
            return _compare_exactly(candidate, reference, candidate != reference, share=share)
        case "boolean":
            return _compare_integers(candidate.astype(np.uint8), reference.astype(np.uint8), rtol, atol, share)
        case _:
            return _compare_exactly(candidate, reference, _as_strings(candidate) != _as_strings(reference))


def find_not_finite(array: Array) -> Array:
    """Return a boolean array that marks NaN and infinities; all False for types without them."""
    if array.dtype.kind not in "fc":
        return np.zeros(array.shape, dtype=bool)
    return np.asarray(~np.isfinite(array))


def _kind_name(array: Array) -> str:
    return KIND_NAMES.get(array.dtype.kind, "other")


def _split_complex(array: Array) -> Array:
    """Numbers as they are; a complex array gets a last axis of real and imaginary part."""
    if array.dtype.kind == "c":
        wide = array.astype(np.complex128)
        return np.stack([wide.real, wide.imag], axis=-1)
    return array


def _as_strings(array: Array) -> Array:
    """Words as Python's own, so that bytes and text can be compared."""
    words = [word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word) for word in array.flat]
    return np.array(words, dtype=object).reshape(array.shape)


@dataclass(frozen=True, slots=True)
class _ChunkResult:
    """The comparison of one stretch of two arrays; positions count from the beginning of the arrays."""

    strange: int  # elements of which one side is not finite, and the other not the same
    strange_at: int
    mismatched: int
    peak: float
    used: float  # the largest share of what is allowed
    worst_at: int
    value: float
    bound: float


def _compare_numbers(a: Array, b: Array, rtol: float, atol: float) -> Agreement:
    """Stretch by stretch: in float64, outputs of a language model would take many times their own memory."""
    if a.size == 0:
        return Agreement(True, "worst_abs", 0.0, atol, 0, 0.0)
    flat, other = a.reshape(-1), b.reshape(-1)
    starts = range(0, a.size, CHUNK_ELEMENTS)
    parts = [
        _compare_chunk(at, flat[at : at + CHUNK_ELEMENTS], other[at : at + CHUNK_ELEMENTS], rtol, atol) for at in starts
    ]
    peak, strange, mismatched = (
        max(p.peak for p in parts),
        sum(p.strange for p in parts),
        sum(p.mismatched for p in parts),
    )
    if strange:
        detail = _describe_position(next(part.strange_at for part in parts if part.strange), a, b)
        return Agreement(False, "not finite", float(strange), 0.0, strange, peak, detail)
    worst = max(parts, key=lambda part: part.used)
    detail = (
        f"{_describe_position(worst.worst_at, a, b)}; {mismatched} of {a.size} elements differ" if mismatched else ""
    )
    return Agreement(mismatched == 0, "worst_abs", worst.value, worst.bound, mismatched, peak, detail)


def _compare_chunk(start: int, a: Array, b: Array, rtol: float, atol: float) -> _ChunkResult:
    a, b = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    strange = ~finite & (a != b) & ~(np.isnan(a) & np.isnan(b))
    with np.errstate(over="ignore", invalid="ignore"):
        difference = np.where(finite, np.abs(a - b), 0.0)
        allowed = np.where(finite, atol + rtol * np.abs(b), atol)
    used = _used_share(difference, allowed)
    worst = int(np.argmax(used))
    return _ChunkResult(
        strange=int(strange.sum()),
        strange_at=start + int(np.argmax(strange)),
        mismatched=int((difference > allowed).sum()),
        peak=_largest_finite(difference),
        used=float(used[worst]),
        worst_at=start + worst,
        value=float(difference[worst]),
        bound=float(allowed[worst]),
    )


def _compare_integers(a: Array, b: Array, rtol: float, atol: float, share: float) -> Agreement:
    difference = _integer_distance(a, b)
    if rtol == 0 and atol == 0:
        return _compare_exactly(a, b, difference != 0, _largest_finite(difference), share)
    magnitude = np.abs(b.astype(np.float64))
    # Rounded down to whole numbers, so that differences above 2**53 are not rounded towards agreement.
    allowed = np.minimum(np.floor(atol + rtol * magnitude), 2.0**63).astype(np.uint64)
    return _check_bounds(a, b, difference, allowed, atol)


def _integer_distance(a: Array, b: Array) -> Array:
    """`|a - b|` of integers as uint64, exact: subtraction modulo 2**64 of the smaller from the larger one."""
    if {a.dtype.kind, b.dtype.kind} == {"i", "u"}:
        exact = [abs(int(x) - int(y)) for x, y in zip(a.flat, b.flat, strict=True)]
        return np.array([min(value, 2**64 - 1) for value in exact], dtype=np.uint64).reshape(a.shape)
    wide = np.int64 if a.dtype.kind == "i" else np.uint64
    a, b = a.astype(wide), b.astype(wide)
    with np.errstate(over="ignore"):
        return np.asarray(np.maximum(a, b).astype(np.uint64) - np.minimum(a, b).astype(np.uint64))


def _check_bounds(a: Array, b: Array, difference: Array, allowed: Array, atol: float) -> Agreement:
    if a.size == 0:
        return Agreement(True, "worst_abs", 0.0, atol, 0, 0.0)
    mismatched = int((difference > allowed).sum())
    worst = int(np.argmax(_used_share(difference, allowed)))
    value, bound = float(difference.flat[worst]), float(allowed.flat[worst])
    detail = f"{_describe_position(worst, a, b)}; {mismatched} of {a.size} elements differ" if mismatched else ""
    return Agreement(mismatched == 0, "worst_abs", value, bound, mismatched, _largest_finite(difference), detail)


def _used_share(difference: Array, allowed: Array) -> Array:
    """Return the share of its bound that each element uses; infinite for a difference with a bound of 0.

    An element beyond its bound always uses more than one within it, whatever rounding does to the quotient.
    """
    over = difference > allowed
    difference, allowed = difference.astype(np.float64), allowed.astype(np.float64)
    share = np.where(difference > 0, np.inf, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        np.divide(difference, allowed, out=share, where=(allowed > 0) & np.isfinite(difference))
    return np.where(over, np.maximum(share, np.nextafter(1.0, 2.0)), np.minimum(share, 1.0))


def _compare_exactly(a: Array, b: Array, unequal: Array, peak: float = 0.0, share: float = 0.0) -> Agreement:
    count, allowed = int(unequal.sum()), float(int(share * a.size))
    agrees = count <= allowed
    detail = (
        "" if agrees else f"{_describe_position(int(np.argmax(unequal)), a, b)}; {count} of {a.size} elements differ"
    )
    return Agreement(agrees, "mismatched elements", float(count), allowed, count, peak, detail)


def _incomparable(metric: Metric, detail: str, size: int) -> Agreement:
    return Agreement(False, metric, 1.0, 0.0, size, 0.0, detail)


def _largest_finite(difference: Array) -> float:
    return float(difference.max()) if difference.size else 0.0


def _describe_position(flat: int, a: Array, b: Array) -> str:
    index = ", ".join(str(int(i)) for i in np.unravel_index(flat, a.shape))
    return f"at [{index}]: {_format_value(a.flat[flat])} against {_format_value(b.flat[flat])}"


def _format_value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, np.floating) else repr(getattr(value, "item", lambda: value)())


def _format_shape(array: Array) -> str:
    return f"({', '.join(map(str, array.shape))})"


def are_both_nan(candidate: Array, reference: Array) -> bool:
    """Return whether both are NaN everywhere, which proves no agreement. An infinity is a value."""
    return _is_all_nan(candidate) and _is_all_nan(reference)


def is_negligible(candidate: Array, reference: Array, allowed: float, close: float) -> bool:
    """Whether two arrays agree only as zeros would, too: the reference is nowhere larger than what may differ.

    What is as near as the share `close` of the largest element agrees, however small that is.
    """
    if reference.dtype.kind not in "fc" or not reference.size or np.array_equal(candidate, reference):
        return False
    finite = np.isfinite(reference) & np.isfinite(candidate)
    largest = float(np.abs(reference[finite]).max(initial=0.0))
    return (
        largest <= allowed and float(np.abs(candidate[finite] - reference[finite]).max(initial=0.0)) > close * largest
    )


def _is_all_nan(array: Array) -> bool:
    return array.dtype.kind in "fc" and array.size > 0 and bool(np.isnan(array).all())
