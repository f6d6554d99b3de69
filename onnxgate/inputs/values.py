"""Values of generated inputs, which depend on the role of the input and on a seed.

They are equal on all systems and with all releases of NumPy: only integer arithmetic and exactly rounded operations are
applied to raw Philox bits, since NumPy's distributions can change between releases.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxgate.inputs.roles import (
    CategoryRole,
    IndexRole,
    KnownRole,
    LengthRole,
    MaskRole,
    PlainRole,
    RangeRole,
    ValueDomain,
)
from onnxgate.inputs.shape_inputs import FixedValues

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")
MAX_PLAIN_INTEGER = 8  # exclusive upper bound of integers without a known role
DOMAIN_MARGIN = 0.1  # distance between generated values and the bounds of a domain


def generate_values(role: KnownRole, dtype: str, shape: Sequence[int], seed: str) -> Array:
    """Generate values of a NumPy type for an input with this role, for example valid indices or a mask."""
    match role:
        case MaskRole():
            return _generate_mask(role, tuple(shape), seed).astype(dtype)
        case IndexRole():
            return _generate_indices(role, tuple(shape), seed).astype(dtype)
        case LengthRole(limit):
            lengths = draw_integers(seed, 1, max(limit, 1) + 1, tuple(shape))
            if lengths.size:
                lengths.flat[0] = max(limit, 1)  # the full axis
            return lengths.astype(dtype)
        case CategoryRole(values):
            return np.array(values)[draw_integers(seed, 0, len(values), tuple(shape))].astype(dtype)
        case FixedValues(values):
            return np.array(values, dtype).reshape(tuple(shape))
        case RangeRole(low, high):
            return _generate_between(low, high, tuple(shape), seed).astype(dtype)
        case PlainRole(domain):
            return _generate_plain(domain, np.dtype(dtype), tuple(shape), seed)


def draw_bits(seed: str, count: int) -> NDArray[np.uint64]:
    """Return `count` pseudorandom 64-bit numbers that are determined by `seed`."""
    key = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:16], "little")
    return np.asarray(np.random.Philox(key=key).random_raw(count), dtype=np.uint64)


def draw_integers(seed: str, low: int, high: int, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return pseudorandom integers from `low` to `high - 1`."""
    raw = draw_bits(seed, math.prod(shape)) >> np.uint64(11)
    return np.asarray((raw % np.uint64(max(high - low, 1))).astype(np.int64).reshape(shape) + low)


def draw_normal(seed: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return pseudorandom, approximately normal numbers with mean 0 and variance 1.

    Each is the sum of four uniform 16-bit numbers, which limits them to ±3.47.
    """
    raw = draw_bits(seed, math.prod(shape))
    lanes = [(raw >> np.uint64(shift) & np.uint64(0xFFFF)).astype(np.float64) for shift in (0, 16, 32, 48)]
    total: NDArray[np.float64] = sum(lanes, np.zeros(raw.size))
    return ((total / 65536.0 - (2.0 - 2.0 / 65536.0)) * math.sqrt(3.0)).reshape(shape)


def _generate_plain(domain: ValueDomain, dtype: np.dtype[Any], shape: tuple[int, ...], seed: str) -> Array:
    if dtype.kind == "U":
        return np.array(WORDS)[draw_integers(seed, 0, len(WORDS), shape)]
    is_image = dtype == np.uint8 and len(shape) >= 3
    if dtype.kind in "iu" and (domain != "zero" or is_image):
        high = 256 if is_image else MAX_PLAIN_INTEGER
        return draw_integers(seed, 1 if domain == "positive" else 0, high, shape).astype(dtype)
    return np.asarray(_move_into_domain(domain, draw_normal(seed, shape))).astype(dtype)


def _move_into_domain(domain: ValueDomain, values: Array) -> Array:
    """Transform approximately normal values so that they are in the given domain of a function."""
    match domain:
        case "any":
            return values
        case "positive":
            return np.abs(values) + DOMAIN_MARGIN
        case "unit":
            return values / 4.0
        case "fraction":
            return np.abs(values) / 4.0
        case "above one":
            return np.abs(values) + 1.0 + DOMAIN_MARGIN
        case "zero":
            return np.zeros(values.shape)


def _generate_between(low: float, high: float, shape: tuple[int, ...], seed: str) -> Array:
    """Return pseudorandom values between two bounds, not too close to either bound. One bound can be infinite."""
    if math.isfinite(low) and math.isfinite(high):
        share = DOMAIN_MARGIN / 2 + (1 - DOMAIN_MARGIN) * draw_integers(seed, 0, 1 << 16, shape) / 65536.0
        return np.asarray(low + (high - low) * share)
    distance = np.abs(draw_normal(seed, shape)) + DOMAIN_MARGIN
    return np.asarray(low + distance if math.isfinite(low) else high - distance)


def _generate_indices(role: IndexRole, shape: tuple[int, ...], seed: str) -> Array:
    """Generate indices within the bounds of the role.

    They are consecutive along the axis on which they must be distinct.
    """
    span = max(role.high - role.low, 1)
    if role.distinct_along is not None and shape:
        return np.asarray(role.low + np.indices(shape)[role.distinct_along % len(shape)] % span)
    values = draw_integers(seed, role.low, role.low + span, shape)
    return np.where(values == role.avoid, role.low + (values - role.low + 1) % span, values)


def _generate_mask(role: MaskRole, shape: tuple[int, ...], seed: str) -> Array:
    """Generate a mask whose rows along the last axis end with padding, which covers one element to half of the row.

    The first row has no padding, and no row is masked completely. If the polarity is unknown, each row contains both
    values, and True comes first.
    """
    if not shape:
        return np.array(role.keeps is not False)
    length = shape[-1]
    lengths = length - np.asarray(draw_integers(seed, 1, length // 2 + 1, shape[:-1])) * (length > 1)
    if lengths.size and role.keeps is not None:
        lengths.flat[0] = length
    keep = np.arange(length) < np.asarray(lengths)[..., None]
    return ~keep if role.keeps is False else keep
