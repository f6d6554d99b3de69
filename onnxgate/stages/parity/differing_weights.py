"""Weights of a float16 model that differ from a fresh export of its source by more than rounding."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from onnxgate.model.reading.tensor_data import UnreadableWeightError, decode_elements, read_chunks
from onnxgate.model.subgraphs.instrumented_models import find_live_values
from onnxgate.model.subgraphs.reduced_models import list_needed_values
from onnxgate.numerics.first_difference import NO_DISTANCE
from onnxgate.stages.parity.first_difference import DifferenceOrigin
from onnxgate.stages.parity.source_difference import FreshExport, find_node_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto

    Array = NDArray[Any]

MAX_STEPS = 4.0
"""Maximum root mean square difference in float16 steps that rounding explains.

A weight that is rounded once differs by up to half a step, and one that is computed in float16 by a few. A fault of 1 %
is 10 to 20 steps. Source: chosen; a float16 number has 11 significant bits.
"""
MIN_PART_ELEMENTS = 16
"""Minimum size of a row or column that is compared on its own. Single elements may be differences of large numbers."""
_STEP, _SMALLEST = 2.0**-11, 2.0**-24


@dataclass(frozen=True, slots=True)
class DifferingWeight:
    """A weight of a float16 model, with its SHA-256 and the float32 numbers of a fresh export."""

    name: str
    sha256: str
    fresh: Array


def find_differing_weights(fresh: FreshExport, model: Path) -> Iterator[DifferingWeight]:
    """Yield the float16 weights that differ from those in the same place of a fresh export.

    `model` is the path of the committed model.
    """
    known: set[str] = set()
    for pair in fresh.weights:
        old, new = pair.old, pair.new
        has_types = old.data_type == TensorProto.FLOAT16 and new.data_type in (TensorProto.FLOAT16, TensorProto.FLOAT)
        if not has_types or list(old.dims) != list(new.dims):
            continue
        values, others = _read(old, model), _read(new, fresh.path)
        if values is None or others is None:
            continue
        sha256 = hashlib.sha256(values.tobytes()).hexdigest()
        if sha256 not in known and _differs(values, others):
            known.add(sha256)
            yield DifferingWeight(old.name, sha256, others.astype(np.float32))


def _read(tensor: TensorProto, model: Path) -> Array | None:
    try:
        values = decode_elements(b"".join(read_chunks(tensor, model)), tensor.data_type)
        return None if values is None else values.reshape(tuple(tensor.dims))
    except (UnreadableWeightError, OSError, ValueError):
        return None


def _differs(values: Array, fresh: Array) -> bool:
    """Return whether a weight, or one of its rows or columns, differs by more than rounding to float16."""
    a, b = values.astype(np.float64), fresh.astype(np.float64)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return False
    distance, step = np.square(a - b), np.square(np.maximum(np.abs(b) * _STEP, _SMALLEST))
    return any(
        (difference.sum(axis=1) > MAX_STEPS**2 * rounding.sum(axis=1)).any()
        for difference, rounding in zip(_divide(distance), _divide(step), strict=True)
    )


def _divide(values: Array) -> list[Array]:
    """Return the whole array, its rows and its columns, each as one row of a matrix. Short ones are left out."""
    matrices = [values.reshape(1, -1)]
    if values.ndim > 1 and values.size:
        matrices += [np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1) for axis in (0, -1)]
    return [matrix for matrix in matrices if matrix is matrices[0] or matrix.shape[1] >= MIN_PART_ELEMENTS]


def locate_differing_weight(proto: ModelProto, names: Collection[str]) -> tuple[DifferenceOrigin, str] | None:
    """Return the first node that uses one of these weights, without distances, and the name of the weight."""
    alive = find_live_values(proto.graph)
    for index, node in enumerate(proto.graph.node):
        if not alive.isdisjoint(list_needed_values(node)):
            for name in find_node_weights(proto, index):
                if name in names:
                    return DifferenceOrigin(index, node.output[0], NO_DISTANCE, NO_DISTANCE), name
    return None
