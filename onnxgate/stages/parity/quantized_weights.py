"""Find stored weights of a quantized or float16 model that differ from the float model by more than rounding.

Tools that rescale or retrain weights change most of them. A weight is therefore wrong only if most others are equal
except for rounding; the same applies to the channels of one weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxgate.evidence.parity import WrongWeight
from onnxgate.model.facts import count_tensor_elements
from onnxgate.model.quantization_consistency import list_slots
from onnxgate.model.quantization_parameters import INPUT_NAMES, StoredTensors, get_int_attribute
from onnxgate.model.reading.fact_extraction import format_operator_name
from onnxgate.model.reading.view import ModelView

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import NodeProto, TensorProto

    Array = NDArray[Any]

SUFFIX = "_quantized"
"""Suffix that onnxruntime.quantization adds to the name of a weight; its scale ends with `_scale`."""
BIASES = {"QLinearConv": 8, "com.microsoft.QLinearConv": 8, "com.microsoft.QGemm": 6}
"""Position of the bias, whose scale is the product of the scales of the first two quantized inputs."""
USUAL_SHARE = 0.75
"""Minimum share of the weights, or of the channels of a weight, that must agree with the float model."""
MAX_ELEMENTS = 1 << 26
"""Maximum size of a compared weight."""
ROUNDING_STEPS = 0.51
MIN_SHIFT = 0.75
"""Minimum median error of the elements of a weight, in steps, that shows a wrong zero point.

Rounding changes an element by at most half a step. Tools that learn the rounding change it by up to one step, in both
directions.
"""
MIN_SHIFTED_ELEMENTS = 8
INT8_TYPES = (2, 3)
_INTEGERS, _HALF, _FLOAT = (*INT8_TYPES, 6), 10, 1


@dataclass(frozen=True, slots=True)
class Limits:
    """Largest errors of correct weights, as a fraction of the float weight."""

    usual: float  # of the factor of most weights
    factor: float
    excess: float  # of the errors beyond rounding


QUANTIZED, CHANNEL, HALF = Limits(0.01, 0.03, 0.02), Limits(0.05, 0.2, 0.1), Limits(0.0005, 0.0, 0.001)
"""Limits for quantized weights, for their channels, and for float16 weights.

Source: 51 models of 13 networks with static (QDQ and QOperator) and dynamic quantization by onnxruntime.quantization
1.23.2. Of 2,153 weights, 2,057 have factors of 0.998 to 1.001 and errors beyond rounding of at most 0.016. The others
are biases that are small compared with their scale: factors of 0 to 0.41, but no errors beyond rounding. A weight is
therefore wrong only if both limits are exceeded. Measured 2026-11-28.
"""


@dataclass(frozen=True, slots=True)
class StoredWeight:
    """A weight with its name in the float model, and how it is dequantized; `scale` is None for float16."""

    name: str
    tensor: TensorProto
    scale: Array | None
    zero: Array | None
    axis: int | None


@dataclass(frozen=True, slots=True)
class WeightError:
    """Factor and error beyond rounding of a weight and of its channels, compared with the float model."""

    weight: StoredWeight
    factor: float
    excess: float
    channel_factors: Array
    channel_excesses: Array
    channel_shifts: Array  # median errors in steps

    @property
    def shift(self) -> float:
        """Shift of all channels; 0 if some are not shifted."""
        shifts = self.channel_shifts
        return float(np.median(shifts)) if (abs(shifts) >= MIN_SHIFT).all() else 0.0


def find_wrong_weights(quantized: ModelView, path: Path, real: ModelView, real_path: Path) -> tuple[WrongWeight, ...]:
    """Return the wrong weights of the model `quantized`, in the order of its nodes."""
    references = StoredTensors(real, real_path)
    stored = StoredTensors(quantized, path)
    least: dict[str, WeightError] = {}  # a bias may have several scales
    for weight in _list_weights(quantized, stored, references):
        error = _measure_error(weight, stored, references)
        if error is not None and (weight.name not in least or error.excess < least[weight.name].excess):
            least[weight.name] = error
    errors = least.values()
    wrong: list[WrongWeight] = []
    for limits, same_kind in (
        (QUANTIZED, [error for error in errors if error.weight.scale is not None]),
        (HALF, [error for error in errors if error.weight.scale is None]),
    ):
        usual = [abs(error.factor - 1) <= limits.usual for error in same_kind]
        is_comparable = sum(usual) >= USUAL_SHARE * len(usual)
        for error in same_kind:
            channels = tuple(_find_wrong_channels(error)) if limits is QUANTIZED else ()
            wrong += channels
            is_wrong = error.shift or _is_wrong(error.factor, error.excess, limits)
            if is_comparable and not channels and is_wrong:
                wrong.append(WrongWeight(weight=error.weight.name, factor=error.factor, shift=error.shift))
    return tuple(wrong)


def _is_wrong(factor: float, excess: float, limits: Limits) -> bool:
    return abs(factor - 1) >= limits.factor and excess > limits.excess


def _find_wrong_channels(error: WeightError) -> Iterator[WrongWeight]:
    factors = error.channel_factors
    if (abs(factors - 1) <= CHANNEL.usual).sum() < USUAL_SHARE * max(factors.size, 2):
        return
    for channel in range(factors.size):
        shift = 0.0 if error.shift else float(error.channel_shifts[channel])
        is_shifted = abs(shift) >= MIN_SHIFT
        if is_shifted or _is_wrong(factors[channel], error.channel_excesses[channel], CHANNEL):
            yield WrongWeight(
                weight=error.weight.name,
                channel=channel,
                factor=float(factors[channel]),
                shift=shift if is_shifted else 0.0,
            )


def _list_weights(model: ModelView, stored: StoredTensors, references: StoredTensors) -> Iterator[StoredWeight]:
    """Yield the weights that also exist in the float model. Weights are paired by name."""
    for view in model.nodes():
        node = view.proto
        for slot in list_slots(node):
            tensor = stored.tensor(node, slot.data)
            if tensor is None or tensor.data_type not in _INTEGERS or not (name := _float_name(tensor, references)):
                continue
            scale, zero = _float64(stored.floats_of(node, slot.scale)), stored.tensor(node, slot.zero)
            if slot.scale < 0:
                scale = _float64(stored.floats(f"{name}_scale"))
            axis = get_int_attribute(node, "axis", 1) if node.op_type in INPUT_NAMES else slot.axis
            points = stored.values(zero) if zero is not None else None
            if scale is not None and not get_int_attribute(node, "block_size", 0):
                yield StoredWeight(name, tensor, scale, points, axis)
        yield from _find_bias(node, stored, references)
    for tensor in model.proto.graph.initializer:
        if tensor.data_type == _HALF and references.get(tensor.name) is not None:
            yield StoredWeight(tensor.name, tensor, None, None, None)


def _find_bias(node: NodeProto, stored: StoredTensors, references: StoredTensors) -> Iterator[StoredWeight]:
    tensor = stored.tensor(node, BIASES.get(format_operator_name(node), -1))
    if tensor is not None and (name := _float_name(tensor, references)):
        scales = [_float64(stored.floats_of(node, slot.scale)) for slot in list_slots(node)[:2]]
        if scales[0] is not None and scales[1] is not None:
            yield StoredWeight(name, tensor, scales[0] * scales[1], None, 0)


def _float_name(tensor: TensorProto, references: StoredTensors) -> str:
    """Return the name of the weight in the float model; "" if it has none."""
    return next((name for name in (tensor.name.removesuffix(SUFFIX), tensor.name) if references.get(name)), "")


def _float64(values: Array | None) -> Array | None:
    return None if values is None else values.astype(np.float64).reshape(-1)


def _measure_error(weight: StoredWeight, stored: StoredTensors, references: StoredTensors) -> WeightError | None:
    """Compare a weight with the float model; return None if they are not comparable.

    A matrix may be transposed, because quantization tools replace `Gemm` with `MatMul`.
    """
    reference = references.get(weight.name)
    if reference is None or reference.data_type != _FLOAT:
        return None
    if not 0 < count_tensor_elements(reference) <= MAX_ELEMENTS:
        return None
    values, expected = stored.values(weight.tensor), references.values(reference)
    if values is None or expected is None or values.size != expected.size:
        return None
    a = values.reshape(tuple(weight.tensor.dims) or (1,))
    b = expected.reshape(tuple(reference.dims) or (1,))
    errors = [_compare(weight, a, other) for other in ([b, b.T] if b.ndim == 2 else [b]) if other.shape == a.shape]
    return min(filter(None, errors), key=lambda error: error.excess, default=None)


def _dequantize(weight: StoredWeight, values: Array) -> tuple[Array, Array | None] | None:
    """Return values of shape (channels, elements) and the step of each channel; None if the parameters do not fit."""
    if weight.scale is None:
        return values, None
    scale, zero = weight.scale.reshape(-1, 1), np.zeros(1) if weight.zero is None else weight.zero.astype(np.float64)
    if scale.size not in (1, len(values)) or zero.size not in (1, len(values)) or not np.isfinite(scale).all():
        return None
    return (values - zero.reshape(-1, 1)) * scale, abs(scale)


def _compare(weight: StoredWeight, values: Array, reference: Array) -> WeightError | None:
    """Compare a weight with the weight of the float model, which has the same shape."""
    axis = weight.axis if weight.axis is not None and -values.ndim <= weight.axis < values.ndim else 0
    a, b = (np.moveaxis(array.astype(np.float64), axis, 0) for array in (values, reference))
    b = b.reshape(len(b), -1)
    dequantized = _dequantize(weight, a.reshape(len(a), -1))
    if dequantized is None:
        return None
    a, step = dequantized
    shifts = _measure_shifts(a, b, step) if weight.tensor.data_type in INT8_TYPES else np.zeros(len(a))
    step = abs(b) * 2.0**-10 + 2.0**-24 if step is None else step
    power, product = np.square(b).sum(axis=1), (a * b).sum(axis=1)
    if not power.any() or not np.isfinite(power).all() or not np.isfinite(product).all():
        return None
    beyond = np.square(np.maximum(abs(a - b) - ROUNDING_STEPS * step, 0.0)).sum(axis=1)
    used = power > 0
    ones, zeros = np.ones(len(power)), np.zeros(len(power))
    return WeightError(
        weight=weight,
        factor=float(product.sum() / power.sum()),
        excess=float(np.sqrt(beyond.sum() / power.sum())),
        channel_factors=np.divide(product, power, out=ones, where=used),
        channel_excesses=np.sqrt(np.divide(beyond, power, out=zeros, where=used)),
        channel_shifts=shifts,
    )


def _measure_shifts(values: Array, reference: Array, step: Array | None) -> Array:
    """Return the median error of each channel in steps; 0 if the channel is too small, or mostly not shifted."""
    if step is None or values.shape[1] < MIN_SHIFTED_ELEMENTS:
        return np.zeros(len(values))
    errors = np.divide(values - reference, step, out=np.zeros_like(values), where=step > 0)
    return np.asarray(np.median(errors, axis=1))
