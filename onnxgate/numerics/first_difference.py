"""First difference between two runs of one graph: distances between values, and the node that causes the difference.

Rounding errors accumulate, so that no fixed bound can distinguish them from a fault. To find a fault in a single node,
the node is run in isolation with the inputs from the reference run, which excludes earlier differences.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxgate.model.subgraphs.instrumented_models import SearchNode
from onnxgate.numerics.streams import iter_chunks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

ROUNDING_BY_WIDTH = {2: 4e-3, 4: 4e-6, 8: 4e-6}
"""Relative difference that rounding in one node may cause on a different engine, keyed by size of a float in bytes.

Source: 4 ULP of float16 and 32 ULP of float32. Doubles are often casts of float32.
"""
MIN_GROWTH = 2.0
"""Minimum factor by which the distance between two runs grows from the inputs to the outputs of a suspect node."""
NEAR_WORST_FACTOR = 16.0
"""Suspect nodes are ignored if they differ this many times less in isolation than the node that differs most."""
MAX_SUSPECTS = 48
MASKED_MAGNITUDE = 1e30
"""Numbers of at least this magnitude are treated as the fill values of a mask."""
MIN_FILL = 1e3
"""Minimum magnitude of a fill value whose counterpart in the other run is a fill value of `MASKED_MAGNITUDE`.

Source: converters to float16 write -1e4 or -65504 for -3.4e38. `exp(-1e3)` is 0, also after the addition of a score.
"""

FILL_SPREAD = 1e-2
"""Maximum relative spread of negative values that are fill values if the other run has negative infinity instead.

Source: chosen. The sums of a fill value and scores below 100 differ by less.
"""


@dataclass(frozen=True, slots=True)
class Distance:
    """Distance between a value and its reference; infinite if they cannot be compared, for example because of NaN."""

    largest: float  # absolute
    relative: float  # relative to the largest magnitude of the reference
    rounding: float = 0.0  # highest relative distance that rounding can cause in this type


NO_DISTANCE = Distance(0.0, 0.0)
_INCOMPARABLE = Distance(math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Suspect:
    """A node at which two runs start to differ: the distance of its output is much larger than those of its inputs."""

    step: SearchNode
    output: str  # output of the node with the largest distance
    before: Distance
    after: Distance

    @property
    def growth(self) -> float:
        """Factor by which the relative distance grows from inputs to output.

        Input distances below 1e-7 are treated as 1e-7.
        """
        return self.after.relative / max(self.before.relative, 1e-7)


def measure_distance(candidate: Array, reference: Array, tokens: Array | None = None) -> Distance:
    """Return the distance between an array and its reference, which are read in chunks.

    `tokens` is the mask (batch, time) of the tokens to compare; None compares all elements.
    """
    kind = reference.dtype.kind
    if candidate.shape != reference.shape or candidate.dtype.kind not in _COMPARABLE_KINDS.get(kind, ""):
        return _INCOMPARABLE
    compared = find_token_elements(tokens, reference.shape) if tokens is not None else None
    if kind in "US":
        return NO_DISTANCE if _are_equal(candidate, reference, compared) else _INCOMPARABLE
    if candidate.dtype == reference.dtype and _are_equal(candidate, reference, compared):
        return NO_DISTANCE
    largest, magnitude = 0.0, 0.0
    for a, b in _iter_compared(candidate, reference, compared):
        difference, peak = _difference_and_peak(a, b)
        largest, magnitude = max(largest, difference), max(magnitude, peak)
    if largest == 0:
        return NO_DISTANCE
    if kind in "iub":
        return Distance(largest, largest / max(1.0, magnitude))
    width = min(candidate.dtype.itemsize, reference.dtype.itemsize) // (2 if kind == "c" else 1)
    return Distance(largest, largest / magnitude if magnitude else math.inf, ROUNDING_BY_WIDTH.get(width, 4e-6))


def find_token_elements(tokens: Array, shape: tuple[int, ...]) -> Array | None:
    """Return which elements of a value of this shape belong to the tokens to compare; None if the axes are unknown.

    `tokens` has the axes (batch, time). Values may have the axes (batch x heads, ..., time, ...), (time, batch, ...) or
    (batch x time, ...). The last of three or more axes never is the time: it belongs to attention keys or to channels.
    """
    batch, time = tokens.shape
    if shape == tokens.shape:
        return tokens
    if len(shape) >= 3 and batch and shape[0] % batch == 0:
        axis = next((axis for axis in range(len(shape) - 2, 0, -1) if shape[axis] == time), None)
        if axis is not None:
            rows = np.repeat(tokens, shape[0] // batch, axis=0)
            return _broadcast_from(rows, (0, axis), shape)
    if len(shape) >= 3 and shape[:2] == (time, batch):
        return _broadcast_from(tokens.T, (0, 1), shape)
    return _broadcast_from(tokens.reshape(-1), (0,), shape) if shape[:1] == (batch * time,) else None


def _broadcast_from(part: Array, axes: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """Broadcast an array with only these axes of `shape` to the whole shape."""
    return np.broadcast_to(part.reshape([size if axis in axes else 1 for axis, size in enumerate(shape)]), shape)


def _iter_compared(candidate: Array, reference: Array, compared: Array | None) -> Iterator[tuple[Array, Array]]:
    for start, a, b in iter_chunks(candidate, reference):
        if compared is None:
            yield a, b
        else:
            chosen = compared.flat[start : start + a.size]
            yield a[chosen], b[chosen]


def _are_equal(candidate: Array, reference: Array, compared: Array | None) -> bool:
    return all(np.array_equal(a, b) for a, b in _iter_compared(candidate, reference, compared))


_COMPARABLE_KINDS = {"f": "f", "c": "c", "i": "iu", "u": "iu", "b": "b", "U": "US", "S": "US"}


def _difference_and_peak(a: Array, b: Array) -> tuple[float, float]:
    """Return the largest difference between two chunks, and the largest magnitude in the reference chunk `b`."""
    if b.dtype.kind == "c":
        a, b = a.astype(np.complex128).view(np.float64), b.astype(np.complex128).view(np.float64)
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        largest, peak = float(np.abs(a - b).max(initial=0.0)), float(np.abs(b).max(initial=0.0))
    return (largest, peak) if math.isfinite(largest) and peak < MASKED_MAGNITUDE else _difference_and_peak_scaled(a, b)


def _difference_and_peak_scaled(a: Array, b: Array) -> tuple[float, float]:
    """Like `_difference_and_peak`, but ignore equal non-finite elements and small differences between fill values."""
    compared = ~_are_fills(a, b)
    a, b = a[compared], b[compared]
    finite = np.isfinite(a) & np.isfinite(b)
    if (~finite & (a != b) & ~(np.isnan(a) & np.isnan(b))).any():
        return math.inf, 1.0
    magnitude = np.abs(np.where(finite, b, 0.0))
    counted = finite & (magnitude < MASKED_MAGNITUDE)
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(np.where(finite, a - b, 0.0))
    difference = np.where(counted | (difference > 1e-3 * magnitude), difference, 0.0)
    return float(difference.max(initial=0.0)), float(np.abs(b[counted]).max(initial=0.0))


def _are_fills(a: Array, b: Array) -> Array:
    """Return which elements are masked in both arrays, perhaps by different fill values of the same sign.

    An infinite element of `a` only counts if all these elements of `b` are nearly equal: it may be an overflow.
    """
    with np.errstate(invalid="ignore"):
        fills = (np.abs(b) >= MASKED_MAGNITUDE) & (np.abs(a) >= MIN_FILL)
        overflowed = np.isneginf(a) & (b <= -MIN_FILL) & ~fills
    values = b[overflowed]
    if values.size > 1 and values.max() - values.min() <= FILL_SPREAD * -values.min():
        fills |= overflowed
    return np.asarray(fills & (np.sign(a) == np.sign(b)))


def find_suspects(steps: Sequence[SearchNode], distances: Mapping[str, Distance]) -> tuple[Suspect, ...]:
    """Return the nodes at which the distance between two runs grows most, in graph order.

    If the distance of a node's output is unknown, the largest distance of the node's inputs is used.
    """
    reach = dict(distances)
    suspects = []
    for step in steps:
        known = (reach[name] for name in step.inputs if name in reach)
        before = max(known, key=lambda distance: distance.relative, default=NO_DISTANCE)
        for name in step.outputs:
            reach.setdefault(name, before)
        measured = [(distances[name], name) for name in step.outputs if name in distances]
        if measured:
            after, output = max(measured, key=lambda pair: pair[0].relative)
            if after.relative > MIN_GROWTH * before.relative:
                suspects.append(Suspect(step, output, before, after))
    worst = sorted(suspects, key=lambda suspect: -suspect.growth)[:MAX_SUSPECTS]
    return tuple(suspect for suspect in suspects if suspect in worst)


def find_first_difference(suspects: Sequence[Suspect], own: Mapping[str, Distance], *, exact: bool) -> Suspect | None:
    """Return the first suspect node that differs in isolation; None if rounding can explain all differences.

    `own` contains the distance of each suspect's output if the node is run with the inputs from the reference run.
    `exact` means that both runs compute identically, so that rounding cannot cause a difference.
    """
    pairs = [(suspect, own[suspect.output]) for suspect in suspects if suspect.output in own]
    pairs = [(suspect, off) for suspect, off in pairs if off.relative > (0.0 if exact else off.rounding)]
    worst = max((off.relative for _, off in pairs), default=0.0)
    return next((suspect for suspect, off in pairs if off.relative >= worst / NEAR_WORST_FACTOR), None)


def longest_path(steps: Sequence[SearchNode], output: str) -> tuple[str, ...]:
    """Return the names of the values on the longest path to an output, including values inside fused nodes."""
    makers = {name: step for step in steps for name in step.outputs}
    depth: dict[str, int] = {}
    for step in steps:
        deepest = max((depth.get(name, 0) for name in step.inputs), default=0)
        depth.update(dict.fromkeys(step.outputs, deepest + 1))
    way: dict[str, None] = {}
    name: str | None = output
    while name in makers and name not in way:  # the graph may not be acyclic
        way[name] = None
        name = max(makers[name].inputs, key=lambda name: depth.get(name, 0), default=None)
    return tuple(reversed(way))
