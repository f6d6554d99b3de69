"""Find out whether a float model contains the dequantized weights of a model whose weights alone are quantized.

It then computes the same as the quantized model, except for rounding in float32.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from onnxgate.model.facts import count_tensor_elements
from onnxgate.model.quantization_parameters import StoredTensors
from onnxgate.model.reading.view import ModelView
from onnxgate.stages.parity.quantized_weights import MAX_ELEMENTS, dequantize_stored, list_dequantized

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

EQUAL_SHARE = 0.5
"""Minimum share of the dequantized weights that a float model contains, if it was derived from the quantized one.

A weight that was not rounded to the quantized numbers differs from the dequantized one.
"""
MIN_LEVELS = 16
"""Minimum number of different values in a weight that is not equal to another one by chance."""
FLOAT_ROUNDING = 1e-6
"""Maximum difference of equal weights relative to the largest element; tools dequantize in float32 or float64."""


def has_dequantized_weights(quantized: ModelView, path: Path, real: ModelView, real_path: Path) -> bool:
    """Return whether a float model contains most dequantized weights of a model, except for float32 rounding.

    An exporter may rename weights, so they are paired by their values.
    """
    stored, references = StoredTensors(quantized, path), StoredTensors(real, real_path)
    weights = [dequantize_stored(weight, stored) for weight in list_dequantized(quantized, stored)]
    known = [array for array in weights if array is not None and np.unique(array).size >= MIN_LEVELS]
    if not known:
        return False
    floats = _FloatWeights(real, references)
    return sum(map(floats.contains, known)) >= EQUAL_SHARE * len(known)


class _FloatWeights:
    """Weights of a float model, found by their values. Only sums are kept in memory."""

    def __init__(self, model: ModelView, references: StoredTensors) -> None:
        self._references = references
        self._by_size: dict[int, list[tuple[TensorProto, float]]] = {}
        for _, tensor in model.tensors:
            size = count_tensor_elements(tensor)
            if tensor.data_type == TensorProto.FLOAT and MIN_LEVELS <= size <= MAX_ELEMENTS:
                values = references.values(tensor)
                if values is not None:
                    self._by_size.setdefault(size, []).append((tensor, float(np.square(values.astype("f8")).sum())))

    def contains(self, weight: Array) -> bool:
        """Return whether a weight or its transpose is one of the float weights."""
        power = float(np.square(weight).sum())
        layouts = [weight, weight.T] if weight.ndim == 2 else [weight]
        for tensor, other in self._by_size.get(weight.size, []):
            values = self._references.values(tensor) if math.isclose(power, other, rel_tol=FLOAT_ROUNDING) else None
            largest = FLOAT_ROUNDING * float(abs(weight).max())
            if values is not None and any((abs(it.reshape(-1) - values) <= largest).all() for it in layouts):
                return True
        return False
