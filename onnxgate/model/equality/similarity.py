"""Numeric distances between weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxgate.model.facts import count_elements
from onnxgate.model.reading.graph import Weight
from onnxgate.model.reading.tensor_data import UnreadableWeightError, decode_elements, read_chunks

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


_MIN_ELEMENTS = 16
"""Minimum number of elements of the weights that are checked for similarity."""
_COMPARED_ELEMENTS = 256
"""Maximum number of elements to read from each of two weights to decide whether they are similar."""
_SKETCH_ELEMENTS = 65536
"""Maximum number of elements to read from a weight to find its smallest and largest elements."""
_MAX_RELATIVE_DISTANCE = 0.5
"""Maximum relative distance between similar weights. Independent random weights have a distance of about 1.4."""


@dataclass(frozen=True, slots=True)
class WeightDistance:
    """Difference between two tensors of the same shape.

    `relative` is the L2 norm of the difference divided by the L2 norm of the old tensor; None if an element is NaN or
    infinite.
    """

    elements: int
    total: int
    unbounded: int = 0  # number of differing elements that are NaN or infinite
    largest: float | None = None  # None if there is no finite difference
    relative: float | None = None


def measure_distance(old: Weight, new: Weight) -> WeightDistance | None:
    """Measure the distance between two weights; None if their shapes differ or their elements are not numeric.

    Raises:
        UnreadableWeightError: data is missing.
    """
    if old.dims != new.dims or len(old.tensors) != len(new.tensors):
        return None
    indices = [b"".join(read_chunks(it.tensors[1], it.model)) for it in (old, new) if len(it.tensors) == 2]
    if len(set(indices)) > 1:  # sparse weights with different positions
        return None
    return _sum_distances(decode_weight(old), decode_weight(new), count_elements(new.tensors[0].dims))


def locate_extremes(weight: Weight) -> tuple[object, ...] | None:
    """Return the dims of a weight and the positions of its smallest and largest elements.

    Return None for small, constant or unreadable weights.
    """
    values = _read_sample(weight, _SKETCH_ELEMENTS)
    if values is None or values.max() == values.min():
        return None
    order = np.argpartition(values, (0, 1, len(values) - 3, len(values) - 2, len(values) - 1))
    return (weight.dims, *map(int, order[[0, 1, -3, -2, -1]]))


def is_similar(old: Weight, new: Weight) -> bool:
    """Return whether the first elements of two weights are similar, as after fine-tuning or type conversion."""
    if old.dims != new.dims:
        return False
    first, second = _read_sample(old, _COMPARED_ELEMENTS), _read_sample(new, _COMPARED_ELEMENTS)
    if first is None or second is None or len(first) != len(second):
        return False
    return bool(np.linalg.norm(first - second) < _MAX_RELATIVE_DISTANCE * np.linalg.norm(first))


def _read_sample(weight: Weight, most: int) -> Array | None:
    """Return the first elements of a weight as float64.

    Return None if the weight is small or unreadable, or if one of these elements is NaN or infinite.
    """
    if count_elements(weight.dims) < _MIN_ELEMENTS:
        return None
    try:
        stretch = next(decode_weight(weight) or iter(()), None)
    except (UnreadableWeightError, OSError):
        return None
    if stretch is None or stretch.dtype.kind == "c" or len(stretch) < _MIN_ELEMENTS:
        return None
    values = stretch[:most].astype(np.float64)
    return values if np.isfinite(values).all() else None


def decode_weight(weight: Weight) -> Iterator[Array] | None:
    """Decode the elements of a weight in chunks; None if they are not numeric."""
    tensor = weight.tensors[0]
    if decode_elements(b"", tensor.data_type) is None:
        return None

    def chunks() -> Iterator[Array]:
        remaining = count_elements(tensor.dims)
        for chunk in read_chunks(tensor, weight.model):
            elements = decode_elements(chunk, tensor.data_type)
            assert elements is not None
            yield elements[:remaining]
            remaining = max(remaining - len(elements), 0)

    return chunks()


def _sum_distances(old: Iterator[Array] | None, new: Iterator[Array] | None, total: int) -> WeightDistance | None:
    if old is None or new is None:
        return None
    elements, largest, squared_distance, length = 0, -math.inf, 0.0, 0.0
    compared, unbounded = 0, 0
    for a, b in _align_arrays(old, new):
        compared += len(a)
        with np.errstate(all="ignore"):
            first, second = _widen(a), _widen(b)
            apart = (first != second) & ~((first != first) & (second != second))  # NaN differs from itself
            length += _squared_norm(first)
            if not apart.any():
                continue
            elements += int(apart.sum())
            distance = np.abs(first[apart] - second[apart]).astype(np.float64)
        finite = distance[np.isfinite(distance)]
        unbounded += len(distance) - len(finite)
        largest = max(largest, float(finite.max()) if finite.size else -math.inf)
        squared_distance += float(np.dot(finite, finite))
    if compared < total:
        unit = "element" if compared == 1 else "elements"
        raise UnreadableWeightError(f"it has {compared:,} {unit}, but its shape requires {total:,}")
    if unbounded:
        return WeightDistance(elements, total, unbounded)
    relative = math.sqrt(squared_distance / length) if length > 0 and math.isfinite(squared_distance) else None
    return WeightDistance(elements, total, 0, largest if math.isfinite(largest) else None, relative)


def _widen(stretch: Array) -> Array:
    """Convert the elements to float64 or complex128.

    This is exact enough for differences of 64-bit integers.
    """
    return stretch.astype(np.complex128 if stretch.dtype.kind == "c" else np.float64)


def _squared_norm(stretch: Array) -> float:
    values = np.abs(stretch) if stretch.dtype.kind == "c" else stretch
    finite = values if np.isfinite(values).all() else values[np.isfinite(values)]
    return float(np.dot(finite, finite))


def _align_arrays(old: Iterator[Array], new: Iterator[Array]) -> Iterator[tuple[Array, Array]]:
    """Yield pairs of chunks with equal length from two sequences of chunks, up to the end of the shorter sequence."""
    before, after = next(old, None), next(new, None)
    while before is not None and after is not None:
        size = min(len(before), len(after))
        if size:
            yield before[:size], after[:size]
        before, after = before[size:], after[size:]
        before = before if len(before) else next(old, None)
        after = after if len(after) else next(new, None)
