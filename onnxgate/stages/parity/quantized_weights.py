"""Find stored weights of a quantized or float16 model that differ from the float model by more than rounding.

Tools that rescale or retrain weights change most of them. A weight is therefore wrong only if most others are equal
except for rounding; the same applies to the channels of one weight.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxgate.evidence.parity import WrongWeight
from onnxgate.model.facts import count_tensor_elements
from onnxgate.model.quantization_consistency import list_slots
from onnxgate.model.quantization_parameters import INPUT_NAMES, QuantizedInput, StoredTensors, get_int_attribute
from onnxgate.model.reading.fact_extraction import format_operator_name
from onnxgate.model.reading.view import ModelView

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import NodeProto, TensorProto

    Array = NDArray[Any]

_SUFFIX = re.compile(r"_(quantized|(DQ_)?Q[248](G\d+)?)$")
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
MAX_SHIFT_SPREAD = 1.0
"""Maximum median distance of the errors of a shifted weight from their median, in steps; rounding alone gives 0.25."""
SHIFTED_TYPES = (2, 3, 21, 22)  # integers with 8 and 4 bits
_INTEGERS, _HALF, _FLOAT = (*SHIFTED_TYPES, 6), 10, 1


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
    """A weight with its name in the float model, and how it is dequantized; `scale` is None for float16.

    With `block`, the weight is a matrix, and `scale` (channels, blocks) has one element for each `block` elements of a
    channel. With `packed`, the matrix is stored as in `MatMulNBits`, with this number of elements in each channel.
    """

    name: str
    tensor: TensorProto
    scale: Array | None
    zero: Array | None
    axis: int | None
    block: int = 0
    packed: int = 0
    bits: int = 8


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


def list_dequantized(model: ModelView, stored: StoredTensors) -> Iterator[StoredWeight]:
    """Yield the weights that `DequantizeLinear` nodes dequantize; each name is that of the tensor."""
    for view in model.nodes():
        node = view.proto
        tensor = stored.tensor(node, 0) if node.op_type == "DequantizeLinear" else None
        if tensor is not None and tensor.data_type in SHIFTED_TYPES:
            yield from _read_slot(
                node, list_slots(node)[0], StoredWeight(tensor.name, tensor, None, None, None), stored
            )


def dequantize_stored(weight: StoredWeight, stored: StoredTensors) -> Array | None:
    """Return the dequantized values of a weight, in its shape; None if they cannot be read."""
    values = _read_values(weight, stored) if count_tensor_elements(weight.tensor) <= MAX_ELEMENTS else None
    if values is None:
        return None
    moved = np.moveaxis(values.astype(np.float64), _axis_of(weight, values), 0)
    dequantized = _dequantize(weight, moved.reshape(len(moved), -1))
    if dequantized is None:
        return None
    return np.moveaxis(dequantized[0].reshape(moved.shape), 0, _axis_of(weight, values))


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
            yield from _read_slot(node, slot, StoredWeight(name, tensor, None, None, None), stored)
        yield from _find_packed(node, stored, references)
        yield from _find_bias(node, stored, references)
    for tensor in model.proto.graph.initializer:
        if tensor.data_type == _HALF and references.get(tensor.name) is not None:
            yield StoredWeight(tensor.name, tensor, None, None, None)


def _read_slot(
    node: NodeProto, slot: QuantizedInput, weight: StoredWeight, stored: StoredTensors
) -> Iterator[StoredWeight]:
    """Yield a weight with its scale and zero point; nothing if they are not stored."""
    scale, zero = _float64(stored.floats_of(node, slot.scale)), stored.tensor(node, slot.zero)
    if slot.scale < 0:
        scale = _float64(stored.floats(f"{weight.name}_scale"))
    axis = get_int_attribute(node, "axis", 1) if node.op_type in INPUT_NAMES else slot.axis
    points = stored.values(zero) if zero is not None else None
    block = get_int_attribute(node, "block_size", 0)
    if scale is not None and not block:
        yield replace(weight, scale=scale, zero=points, axis=axis)
    elif scale is not None and len(weight.tensor.dims) == 2 and axis in (-2, -1, 0, 1):
        channel = 1 - axis % 2
        like = stored.tensor(node, slot.scale)
        scales, zeros = (_arrange_blocks(it, like, channel) for it in (scale, points))
        yield replace(weight, scale=scales, zero=zeros, axis=channel, block=block)


def _arrange_blocks(values: Array | None, like: TensorProto | None, channel: int) -> Array | None:
    """Return the scales or zero points of a matrix in blocks, whose shape is that of `like`, as (channels, blocks).

    4-bit values may have one element too many.
    """
    if values is None or like is None or values.size < math.prod(like.dims):
        return None
    blocks = values[: math.prod(like.dims)].reshape(tuple(like.dims))
    return blocks if channel == 0 else blocks.T


def _find_packed(node: NodeProto, stored: StoredTensors, references: StoredTensors) -> Iterator[StoredWeight]:
    """Yield the weight of a `MatMulNBits` node, whose columns are the channels."""
    tensor = stored.tensor(node, 1) if format_operator_name(node) == "com.microsoft.MatMulNBits" else None
    if tensor is None or not (name := _float_name(tensor, references)):
        return
    columns, rows, block, bits = (
        get_int_attribute(node, key, 4 if key == "bits" else 0) for key in ("N", "K", "block_size", "bits")
    )
    scale, zero = _float64(stored.floats_of(node, 2)), stored.tensor(node, 3)
    if scale is None or min(columns, rows, block) < 1 or bits not in (4, 8):
        return
    blocks = math.ceil(rows / block)
    points: Array | None = np.full(columns * blocks, 2.0 ** (bits - 1))
    if zero is not None:
        points = stored.values(zero)
        if points is not None and points.dtype == np.uint8:
            points = _unpack(points, columns, bits)[:, :blocks]
    if points is not None and scale.size == points.size == columns * blocks:
        scales, zeros = scale.reshape(columns, blocks), points.reshape(columns, blocks)
        yield StoredWeight(name, tensor, scales, zeros, 0, block, packed=rows, bits=bits)


def _unpack(content: Array, rows: int, bits: int) -> Array:
    """Unpack unsigned integers of 4 bits; those of 8 bits are not packed. Return an array with this number of rows."""
    values = np.stack([content & 15, content >> 4], axis=-1) if bits == 4 else content
    return values.reshape(rows, -1)


def _find_bias(node: NodeProto, stored: StoredTensors, references: StoredTensors) -> Iterator[StoredWeight]:
    tensor = stored.tensor(node, BIASES.get(format_operator_name(node), -1))
    if tensor is not None and (name := _float_name(tensor, references)):
        scales = [_float64(stored.floats_of(node, slot.scale)) for slot in list_slots(node)[:2]]
        if scales[0] is not None and scales[1] is not None:
            yield StoredWeight(name, tensor, scales[0] * scales[1], None, 0)


def _float_name(tensor: TensorProto, references: StoredTensors) -> str:
    """Return the name of the weight in the float model; "" if it has none."""
    return next((name for name in (_SUFFIX.sub("", tensor.name), tensor.name) if references.get(name)), "")


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
    a, expected = _read_values(weight, stored), references.values(reference)
    if a is None or expected is None or a.size != expected.size:
        return None
    b = expected.reshape(tuple(reference.dims) or (1,))
    errors = [_compare(weight, a, other) for other in ([b, b.T] if b.ndim == 2 else [b]) if other.shape == a.shape]
    return min(filter(None, errors), key=lambda error: error.excess, default=None)


def _read_values(weight: StoredWeight, stored: StoredTensors) -> Array | None:
    values, dims = stored.values(weight.tensor), tuple(weight.tensor.dims) or (1,)
    if values is None or not weight.packed:
        return None if values is None else values[: math.prod(dims)].reshape(dims)
    return _unpack(values, len(weight.scale if weight.scale is not None else ()), weight.bits)[:, : weight.packed]


def _dequantize(weight: StoredWeight, values: Array) -> tuple[Array, Array | None] | None:
    """Return values of shape (channels, elements) and the step of each channel; None if the parameters do not fit."""
    if weight.scale is None:
        return values, None
    if weight.block:
        zeros = np.zeros_like(weight.scale) if weight.zero is None else weight.zero.astype(np.float64)
        scale, zero = (np.repeat(it, weight.block, axis=1)[:, : values.shape[1]] for it in (weight.scale, zeros))
        is_valid = scale.shape == zero.shape == values.shape and bool(np.isfinite(scale).all())
        return ((values - zero) * scale, abs(scale)) if is_valid else None
    scale, zero = weight.scale.reshape(-1, 1), np.zeros(1) if weight.zero is None else weight.zero.astype(np.float64)
    if scale.size not in (1, len(values)) or zero.size not in (1, len(values)) or not np.isfinite(scale).all():
        return None
    return (values - zero.reshape(-1, 1)) * scale, abs(scale)


def _compare(weight: StoredWeight, values: Array, reference: Array) -> WeightError | None:
    """Compare a weight with the weight of the float model, which has the same shape."""
    axis = _axis_of(weight, values)
    a, b = (np.moveaxis(array.astype(np.float64), axis, 0) for array in (values, reference))
    b = b.reshape(len(b), -1)
    dequantized = _dequantize(weight, a.reshape(len(a), -1))
    if dequantized is None:
        return None
    a, step = dequantized
    shifts = _measure_shifts(a, b, step) if weight.tensor.data_type in SHIFTED_TYPES else np.zeros(len(a))
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


def _axis_of(weight: StoredWeight, values: Array) -> int:
    return weight.axis if weight.axis is not None and -values.ndim <= weight.axis < values.ndim else 0


def _measure_shifts(values: Array, reference: Array, step: Array | None) -> Array:
    """Return the median error of each channel in steps; 0 if the channel is too small, or its errors are not similar.

    A wrong scale changes each element by another number of steps.
    """
    if step is None or values.shape[1] < MIN_SHIFTED_ELEMENTS:
        return np.zeros(len(values))
    errors = np.divide(values - reference, step, out=np.zeros_like(values), where=step > 0)
    shifts = np.median(errors, axis=1)
    spreads = np.median(abs(errors - shifts[:, None]), axis=1)
    return np.where(spreads <= MAX_SHIFT_SPREAD, shifts, 0.0)
