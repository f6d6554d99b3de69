"""Ranges of quantized values, and of activations that quantization tools replace by such a range.

A quantizer whose smallest value is 0 makes a preceding `Relu` superfluous.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from onnxgate.model.quantization_parameters import StoredTensors, get_int_attribute

if TYPE_CHECKING:
    from onnx import NodeProto

ACTIVATIONS = frozenset({"Relu", "Clip"})
_INTEGER_RANGES = {2: (0, 255), 3: (-128, 127), 4: (0, 65535), 5: (-32768, 32767), 21: (0, 15), 22: (-8, 7)}
_UINT8 = 2


class ValueRange(msgspec.Struct, frozen=True):
    """Smallest and largest value; `step` is the distance of quantized values, 0 for other values."""

    low: float
    high: float
    step: float = 0.0


def read_range(stored: StoredTensors, quantizer: NodeProto) -> ValueRange | None:
    """Return the range of the results of a `QuantizeLinear` with a single stored scale; None if it is unknown."""
    scale = stored.floats_of(quantizer, 1)
    if scale is None or scale.size != 1:
        return None
    element, point, step = get_int_attribute(quantizer, "output_dtype", _UINT8), 0.0, float(scale.flat[0])
    if len(quantizer.input) > 2 and quantizer.input[2]:
        tensor = stored.tensor(quantizer, 2)
        values = stored.values(tensor) if tensor is not None else None
        if tensor is None or values is None or tensor.data_type not in _INTEGER_RANGES:
            return None
        element, point = tensor.data_type, float(values.flat[0])
    if element not in _INTEGER_RANGES or not 0 < step < math.inf:
        return None
    low, high = _INTEGER_RANGES[element]
    return ValueRange((low - point) * step, (high - point) * step, step)


def read_limits(stored: StoredTensors, activation: NodeProto) -> ValueRange | None:
    """Return the range of the results of a `Relu` or `Clip`; None if it is unknown."""
    if activation.op_type == "Relu":
        return ValueRange(0.0, math.inf)
    limits = []
    for position, default in ((1, -math.inf), (2, math.inf)):
        given = activation.input[position] if position < len(activation.input) else ""
        name = ("min", "max")[position - 1]
        attribute = next((it.f for it in activation.attribute if it.name == name), default)
        values = stored.floats(given) if given else None
        if given and (values is None or values.size != 1):
            return None
        limits.append(float(values.flat[0]) if values is not None else attribute)
    return ValueRange(*limits)
