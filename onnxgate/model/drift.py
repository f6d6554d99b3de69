"""How far a weight moved: element by element, whatever the types that it was and is kept in, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onnxgate.model.types import ELEMENT_TYPES, STRING, count_of
from onnxgate.model.weights import UnreadableWeightError, chunks

if TYPE_CHECKING:
    import numpy as np
    from onnx import TensorProto

    from onnxgate.model.wiring import Weight

    Array = np.ndarray[Any, Any]

_NUMBERS = {
    1: "<f4",
    2: "u1",
    3: "i1",
    4: "<u2",
    5: "<i2",
    6: "<i4",
    7: "<i8",
    9: "u1",
    10: "<f2",
    11: "<f8",
    12: "<u4",
    13: "<u8",
    14: "<c8",
    15: "<c16",
}
_BFLOAT16 = 16
_FEWEST, _RESEMBLING, _SKETCHED = 16, 256, 65536
"""Elements that are needed to know a weight by what it is like, and that are looked at."""
_NEAR = 0.5
"""Two weights drawn alike and independently lie about 1.4 times their length from each other."""
_HALVES = {21: 0, 22: 8}
"""Types of four bits, low half first; the second number is what wraps to negative."""
_FLOAT8 = {17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz"}


@dataclass(frozen=True, slots=True)
class Drift:
    """How two tensors of one shape differ. `relative` is the distance of all elements by the length of the old ones.

    Where elements are NaN or infinite, in one of the two, there is no distance.
    """

    elements: int
    total: int
    unbounded: int = 0  # such elements, of those that differ
    largest: float | None = None  # None: not numbers that can be told apart
    relative: float | None = None


def drift(old: Weight, new: Weight) -> Drift | None:
    """How far it moved; None where that cannot be said: shapes differ, or it holds no numbers of one kind.

    Raises:
        UnreadableWeightError: the data of one of them are not there.
    """
    if old.dims != new.dims or len(old.tensors) != len(new.tensors):
        return None
    if len(old.tensors) == 2 and _bytes(old, 1) != _bytes(new, 1):  # sparse ones, of other elements
        return None
    return _compared(numbers(old), numbers(new), count_of(new.tensors[0].dims))


def sketch(weight: Weight) -> tuple[object, ...] | None:
    """Where its extreme elements stand; None for small weights, for such as have none, and for what cannot be read."""
    import numpy as np

    values = _sample(weight, _SKETCHED)
    if values is None or values.max() == values.min():
        return None
    order = np.argpartition(values, (0, 1, len(values) - 3, len(values) - 2, len(values) - 1))
    return (weight.dims, *map(int, order[[0, 1, -3, -2, -1]]))


def resemble(old: Weight, new: Weight) -> bool:
    """One may be the other, tuned or kept in another type: their first elements lie near each other."""
    import numpy as np

    if old.dims != new.dims:
        return False
    first, second = _sample(old, _RESEMBLING), _sample(new, _RESEMBLING)
    if first is None or second is None or len(first) != len(second):
        return False
    return bool(np.linalg.norm(first - second) < _NEAR * np.linalg.norm(first))


def _sample(weight: Weight, most: int) -> Array | None:
    """Its first elements; None of small weights, and of what cannot be read or is not finite."""
    import numpy as np

    if count_of(weight.dims) < _FEWEST:
        return None
    try:
        stretch = next(numbers(weight) or iter(()), None)
    except (UnreadableWeightError, OSError):
        return None
    if stretch is None or stretch.dtype.kind == "c" or len(stretch) < _FEWEST:
        return None
    values = stretch[:most].astype(np.float64)
    return values if np.isfinite(values).all() else None


def _bytes(weight: Weight, index: int) -> bytes:
    return b"".join(chunks(weight.tensors[index], weight.model))


def numbers(weight: Weight) -> Iterator[Array] | None:
    """The weight's elements, stretch by stretch; None where they are no numbers."""
    tensor = weight.tensors[0]
    element = ELEMENT_TYPES.get(tensor.data_type)
    if element is None or tensor.data_type == STRING or not _is_known(tensor.data_type):
        return None
    return _decoded(tensor, weight)


def _is_known(data_type: int) -> bool:
    return data_type in _NUMBERS or data_type in _HALVES or data_type == _BFLOAT16 or _float8(data_type) is not None


def _decoded(tensor: TensorProto, weight: Weight) -> Iterator[Array]:
    left = count_of(tensor.dims)
    for chunk in chunks(tensor, weight.model):
        stretch = _as_numbers(chunk, tensor.data_type)[:left]
        left -= len(stretch)
        yield stretch


def _as_numbers(chunk: bytes, data_type: int) -> Array:
    import numpy as np

    if data_type in _NUMBERS:
        return _whole(chunk, _NUMBERS[data_type])
    if data_type == _BFLOAT16:
        return (_whole(chunk, "<u2").astype(np.uint32) << 16).view(np.float32)
    if data_type in _HALVES:
        both = np.frombuffer(chunk, np.uint8)
        halves = np.stack([both & 15, both >> 4], axis=1).ravel().astype(np.int8)
        wrap = _HALVES[data_type]
        return np.where(halves >= wrap, halves - 16, halves) if wrap else halves
    return np.frombuffer(chunk, _float8(data_type)).astype(np.float32)


def _whole(chunk: bytes, kind: str) -> Array:
    """The elements that are there in full: data may be shorter than shape and type say."""
    import numpy as np

    return np.frombuffer(chunk, kind, count=len(chunk) // np.dtype(kind).itemsize)


def _float8(data_type: int) -> Any:
    """The type of numbers of eight bits, where its package is here; onnx 1.19 and later bring it."""
    try:
        import ml_dtypes
    except ImportError:
        return None
    return getattr(ml_dtypes, _FLOAT8[data_type]) if data_type in _FLOAT8 else None


def _compared(old: Iterator[Array] | None, new: Iterator[Array] | None, total: int) -> Drift | None:
    import numpy as np

    if old is None or new is None:
        return None
    elements, largest, moved, length = 0, -math.inf, 0.0, 0.0
    seen, unbounded = 0, 0
    for a, b in _aligned(old, new):
        seen += len(a)
        with np.errstate(all="ignore"):
            first, second = _wide(a), _wide(b)
            apart = (first != second) & ~((first != first) & (second != second))  # NaN differs from itself
            length += _energy(first)
            if not apart.any():
                continue
            elements += int(apart.sum())
            distance = np.abs(first[apart] - second[apart]).astype(np.float64)
        finite = distance[np.isfinite(distance)]
        unbounded += len(distance) - len(finite)
        largest = max(largest, float(finite.max()) if finite.size else -math.inf)
        moved += float(np.dot(finite, finite))
    if seen < total:
        raise UnreadableWeightError(f"it holds {seen:,} elements, and its shape needs {total:,}")
    if unbounded:
        return Drift(elements, total, unbounded)
    relative = math.sqrt(moved / length) if length > 0 and math.isfinite(moved) else None
    return Drift(elements, total, 0, largest if math.isfinite(largest) else None, relative)


def _wide(stretch: Array) -> Array:
    """Numbers of which differences are exact enough; integers of 64 bits lose nothing that is looked at."""
    import numpy as np

    return stretch.astype(np.complex128 if stretch.dtype.kind == "c" else np.float64)


def _energy(stretch: Array) -> float:
    import numpy as np

    values = np.abs(stretch) if stretch.dtype.kind == "c" else stretch
    finite = values if np.isfinite(values).all() else values[np.isfinite(values)]
    return float(np.dot(finite, finite))


def _aligned(old: Iterator[Array], new: Iterator[Array]) -> Iterator[tuple[Array, Array]]:
    """Stretches of equal length; what one of them has too much is left."""
    before, after = next(old, None), next(new, None)
    while before is not None and after is not None:
        size = min(len(before), len(after))
        if size:
            yield before[:size], after[:size]
        before, after = before[size:], after[size:]
        before = before if len(before) else next(old, None)
        after = after if len(after) else next(new, None)
