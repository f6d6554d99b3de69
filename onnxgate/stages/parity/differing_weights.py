"""Differences between the weights of a float16 model and those of a fresh export of its source."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from onnxgate.model.equality.model_comparison import WeightPair
from onnxgate.model.reading.tensor_data import UnreadableWeightError, decode_elements, read_chunks
from onnxgate.model.subgraphs.instrumented_models import find_live_values
from onnxgate.model.subgraphs.reduced_models import list_needed_values
from onnxgate.model.subgraphs.widened_models import hash_values
from onnxgate.numerics.first_difference import NO_DISTANCE
from onnxgate.numerics.streams import CHUNK_ELEMENTS
from onnxgate.stages.parity.first_difference import DifferenceOrigin
from onnxgate.stages.parity.source_difference import FreshExport, find_node_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto

    Array = NDArray[Any]

MAX_STEPS = 2.0
"""Maximum difference in float16 steps of a stored weight of the source. Rounding it causes at most one step."""
MAX_COMPUTED_STEPS = 8.0
"""Maximum root mean square difference in float16 steps of weights that two exports compute differently."""
MIN_UNEQUAL_SHARE = 0.05
"""Minimum share of elements that differ if a tool computed the weights in float16.

If it computed them in float32, they equal those of a fresh export after rounding. Source: chosen.
"""
MIN_COMPUTED_ELEMENTS = 16
"""Minimum number of elements of computed weights. A few constants may be wrong instead."""
_STEP, _SMALLEST_STEP = 2.0**-10, 2.0**-24
"""Size of a float16 step relative to the smallest number with this step, and the smallest step."""


@dataclass(frozen=True, slots=True)
class DifferingWeight:
    """A weight of a float16 model, with its SHA-256 and the float16 numbers of a fresh export."""

    name: str  # "" for a constant without a name
    sha256: str
    fresh: Array


@dataclass(frozen=True, slots=True)
class WeightComparison:
    """Differences between float16 weights and a fresh export.

    `computed_in_half` means that weights which are in neither the source nor `differing` were computed in float16.
    """

    differing: tuple[DifferingWeight, ...] = ()
    unequal: tuple[tuple[str, int, int], ...] = ()  # SHA-256, unequal elements and all elements of similar weights

    def is_computed_in_half(self, exact: Collection[str]) -> bool:
        """Return whether a tool computed weights in float16; those in `exact`, given by SHA-256, were not computed."""
        computed = [(unequal, size) for sha256, unequal, size in self.unequal if sha256 not in exact]
        size = sum(size for _, size in computed)
        return size >= MIN_COMPUTED_ELEMENTS and sum(it for it, _ in computed) > MIN_UNEQUAL_SHARE * size


def compare_weights(fresh: FreshExport, model: Path, limit: int) -> WeightComparison:
    """Compare the float16 weights of the model at `model` with those in the same place of a fresh export.

    If more than `limit` weights differ by more than rounding, none of them are returned.
    """
    differing: dict[tuple[str, str], DifferingWeight] = {}
    unequal: list[tuple[str, int, int]] = []
    for pair in fresh.weights:
        arrays = _read_pair(pair, model, fresh.path)
        if arrays is None:
            continue
        values, others = arrays
        difference = _compare(values, others)
        sha256 = hash_values(values)
        if difference.mean_square <= MAX_COMPUTED_STEPS**2:
            unequal.append((sha256, difference.unequal, values.size))
        if difference.largest > MAX_STEPS and len(differing) <= limit:
            found = DifferingWeight(pair.old.name, sha256, others.astype(np.float16))
            differing.setdefault((found.name, sha256), found)
    return WeightComparison(tuple(differing.values()) if len(differing) <= limit else (), tuple(unequal))


def _read_pair(pair: WeightPair, model: Path, fresh: Path) -> tuple[Array, Array] | None:
    """Return two weights of the same shape; None if they are not comparable floating-point weights."""
    old, new = pair.old, pair.new
    has_types = old.data_type == TensorProto.FLOAT16 and new.data_type in (TensorProto.FLOAT16, TensorProto.FLOAT)
    if not has_types or list(old.dims) != list(new.dims):
        return None
    values, others = _read(old, model), _read(new, fresh)
    return None if values is None or others is None else (values, others)


def _read(tensor: TensorProto, model: Path) -> Array | None:
    try:
        values = decode_elements(b"".join(read_chunks(tensor, model)), tensor.data_type)
        return None if values is None else values.reshape(tuple(tensor.dims))
    except (UnreadableWeightError, OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class _Difference:
    """Difference in float16 steps from a weight that is rounded to float16."""

    unequal: int
    largest: float
    mean_square: float


def _compare(values: Array, fresh: Array) -> _Difference:
    """Compare two weights in parts. Weights that are not finite in float16 differ infinitely for rounding only."""
    unequal, largest, total = 0, 0.0, 0.0
    flat, other = values.reshape(-1), fresh.reshape(-1)
    for start in range(0, flat.size, CHUNK_ELEMENTS):
        a = flat[start : start + CHUNK_ELEMENTS].astype(np.float64)
        with np.errstate(over="ignore"):
            b = other[start : start + CHUNK_ELEMENTS].astype(np.float16).astype(np.float64)
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            return _Difference(0, 0.0, np.inf)
        steps = np.abs(a - b) / np.maximum(np.abs(b) * _STEP, _SMALLEST_STEP)
        unequal += int((a != b).sum())
        largest = max(largest, float(steps.max()))
        total += float(np.square(steps).sum())
    return _Difference(unequal, largest, total / max(flat.size, 1))


def locate_differing_weight(proto: ModelProto, names: Collection[str]) -> tuple[DifferenceOrigin, str] | None:
    """Return the first node that uses one of these weights, without distances, and the name of the weight."""
    alive = find_live_values(proto.graph)
    for index, node in enumerate(proto.graph.node):
        if not alive.isdisjoint(list_needed_values(node)):
            for name in find_node_weights(proto, index):
                if name in names:
                    return DifferenceOrigin(index, node.output[0], NO_DISTANCE, NO_DISTANCE), name
    return None
