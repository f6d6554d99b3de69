"""Find the tensors of a model with the largest quantization loss.

A quantized tensor is compared with its values before quantization in the same run, so the loss of a layer does not
include the loss of preceding layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from onnxgate.core.findings import Place
from onnxgate.evidence.parity import Layer
from onnxgate.model.quantization_parameters import QUANTIZED_INPUTS
from onnxgate.model.reading.fact_extraction import format_operator_name
from onnxgate.numerics.metrics import MAX_DB, compute_chunked_sqnr_db
from onnxgate.numerics.streams import iter_chunks, iter_parts

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto, NodeProto

    Array = NDArray[Any]
    Values = Mapping[str, Array]
    FindPlace = Callable[[NodeProto], Place | None]

MAX_LAYERS = 5
QUANTIZER_SUFFIXES = ("_QuantizeLinear_Input", "_quantized", "_QuantizeLinear_Output", "_DequantizeLinear_Output")
"""Suffixes that onnxruntime.quantization adds to names of float tensors. Source: releases 1.16–1.31."""
MIN_NOISE_SHARE = 0.05
"""Minimum noise of a reported layer, as a share of the noise of the worst layer."""


@dataclass(frozen=True, slots=True)
class TensorPair:
    """A tensor in the float model and its counterpart in the quantized model."""

    tensor: str
    node: int  # node in the float model that computes the tensor or reads the weight; -1 if there is none
    kind: Literal["input", "output", "weight"]
    after: str  # float or integer value in the quantized model
    before: str = ""  # value before quantization; "" if not available
    activation: str = ""  # "Relu" or "Clip" if quantization includes it; clipping then loses nothing
    scale: str = ""  # if `after` is an integer: names of its scale and zero point
    zero: str = ""


def pair_tensors(quantized: ModelProto, real: ModelProto) -> tuple[TensorPair, ...]:
    """Pair the tensors of the float model with those of the quantized model, in the node order of the float model."""
    pairs: dict[tuple[str, str], TensorPair] = {}
    for pair in _TensorPairing(quantized, real).list_pairs():
        key = (pair.tensor, pair.kind)
        if key not in pairs or (pair.before and not pairs[key].before):
            pairs[key] = pair
    return tuple(pairs.values())


class _TensorPairing:
    def __init__(self, quantized: ModelProto, real: ModelProto) -> None:
        self._quantized, self._real = quantized.graph, real.graph
        self._makers = {name: node for node in quantized.graph.node for name in node.output if name}
        self._consumers: dict[str, list[NodeProto]] = {}
        for node in quantized.graph.node:
            for name in node.input:
                self._consumers.setdefault(name, []).append(node)
        self._weights = {tensor.name for tensor in quantized.graph.initializer}
        self._real_weights = {tensor.name for tensor in real.graph.initializer}
        self._real_inputs = {value.name for value in real.graph.input} - self._real_weights
        self._real_makers = {name: i for i, node in enumerate(real.graph.node) for name in node.output if name}
        self._real_nodes = {node.name: i for i, node in enumerate(real.graph.node) if node.name}

    def list_pairs(self) -> Iterator[TensorPair]:
        for node in self._quantized.node:
            if node.op_type == "DequantizeLinear":
                yield from self._pair_dequantized(node)
            elif node.op_type not in ("QuantizeLinear", "DynamicQuantizeLinear"):
                yield from self._pair_outputs(node)

    def _pair_dequantized(self, node: NodeProto) -> Iterator[TensorPair]:
        maker = self._makers.get(node.input[0])
        if node.input[0] in self._weights:
            yield from self._pair_weight(node)
        elif maker is not None and maker.op_type == "QuantizeLinear":
            before = maker.input[0]
            if name := self._float_name(before) or self._float_name(node.output[0]):
                pair = self._create_pair(name, node.output[0], before)
                # Quantization may include an activation of the float model.
                activation = self._real.node[pair.node].op_type if pair.node >= 0 else ""
                own = self._makers[before].op_type if before in self._makers else ""
                is_merged = activation in ("Relu", "Clip") and activation != own
                yield replace(pair, activation=activation if is_merged else "")
        elif name := self._float_name(node.output[0]):
            yield self._create_pair(name, node.output[0])

    def _pair_weight(self, node: NodeProto) -> Iterator[TensorPair]:
        """Yield the weight at the same input of the node with the same name in the float model."""
        for consumer in self._consumers.get(node.output[0], ()):
            index = self._real_nodes.get(consumer.name, -1)
            position = list(consumer.input).index(node.output[0])
            inputs = self._real.node[index].input if index >= 0 else ()
            if position < len(inputs) and inputs[position] in self._real_weights:
                yield TensorPair(inputs[position], index, "weight", node.output[0])

    def _pair_outputs(self, node: NodeProto) -> Iterator[TensorPair]:
        slots = QUANTIZED_INPUTS.get(format_operator_name(node), ())
        out = slots[-1] if slots and slots[-1].data < 0 and slots[-1].scale >= 0 else None
        for name in filter(None, node.output):
            real = self._float_name(name)
            if not real:
                continue
            if out is None:
                yield self._create_pair(real, name)
            elif out.zero < len(node.input):
                yield replace(self._create_pair(real, name), scale=node.input[out.scale], zero=node.input[out.zero])

    def _float_name(self, name: str) -> str:
        """Return the name of the corresponding tensor in the float model."""
        names = (name, *(name.removesuffix(suffix) for suffix in QUANTIZER_SUFFIXES if name.endswith(suffix)))
        return next((name for name in names if name in self._real_makers or name in self._real_inputs), "")

    def _create_pair(self, tensor: str, after: str, before: str = "") -> TensorPair:
        index = self._real_makers.get(tensor, -1)
        return TensorPair(tensor, index, "input" if index < 0 else "output", after, before)


@dataclass(frozen=True, slots=True)
class _Elements:
    """Elements of an array, computed lazily and processed in chunks."""

    array: Array
    convert: Callable[[Array], Array] = np.asarray

    @property
    def kind(self) -> str:
        """NumPy kind of the element type."""
        return self.convert(self.array.reshape(-1)[:0]).dtype.kind


def find_worst_layers(
    pairs: Sequence[TensorPair], quantized: Values, real: Values, proto: ModelProto, place_of: FindPlace
) -> tuple[Layer, ...]:
    """Return the layers that add the most noise, worst first.

    `proto` is the float model. The values belong to one case; they are looked up when needed and read in chunks.
    """
    noises = {
        pair.tensor: _relative_noise(_dequantized_value(pair, quantized), _plain_value(pair.tensor, real))
        for pair in pairs
    }
    added = [(pair, _added_noise(pair, quantized, real, noises, proto)) for pair in pairs]
    noisy = sorted(((pair, noise) for pair, noise in added if noise), key=lambda entry: -entry[1])
    least = MIN_NOISE_SHARE * noisy[0][1] if noisy else 0.0
    layers = []
    for pair, noise in noisy[:MAX_LAYERS]:
        if noise >= least:
            total = noises[pair.tensor]
            clipped = _clipped_share(_value_before_quantization(pair, quantized, real), quantized.get(pair.after))
            layers.append(_create_layer(pair, noise, noise if total is None else total, clipped, proto, place_of))
    return tuple(layers)


def _added_noise(
    pair: TensorPair, quantized: Values, real: Values, noises: Mapping[str, float | None], proto: ModelProto
) -> float | None:
    """Return the noise that the layer itself adds, as a share of the power of the float tensor."""
    before = _value_before_quantization(pair, quantized, real)
    if before is not None:
        return _relative_noise(_dequantized_value(pair, quantized), before)
    own = noises[pair.tensor]
    if own is None or pair.kind != "output":
        return own
    noise_of_inputs = [noises.get(name) or 0.0 for name in proto.graph.node[pair.node].input]
    return max(own - max(noise_of_inputs, default=0.0), 0.0)


def _plain_value(name: str, values: Values) -> _Elements | None:
    value = values.get(name)
    return None if value is None else _Elements(value)


def _value_before_quantization(pair: TensorPair, quantized: Values, real: Values) -> _Elements | None:
    """Return the values before quantization; an activation that the quantized layer includes is applied to them."""
    before = _plain_value(pair.before, quantized)
    reference = real.get(pair.tensor) if before is not None and pair.activation else None
    if before is None or reference is None or not reference.size:
        return before
    if pair.activation == "Relu":
        return replace(before, convert=lambda elements: np.asarray(np.maximum(elements, 0)))
    low, high = reference.min(), reference.max()
    return replace(before, convert=lambda elements: np.asarray(np.clip(elements, low, high)))


def _relative_noise(value: _Elements | None, reference: _Elements | None) -> float | None:
    """Return the power of the difference divided by the power of the reference; None if they are not comparable."""
    if value is None or reference is None or value.array.shape != reference.array.shape or not reference.array.size:
        return None
    if reference.kind != "f" or value.kind != "f":
        return None
    ratio = compute_chunked_sqnr_db(partial(_iter_finite, value, reference))
    return 0.0 if ratio >= MAX_DB else float(10.0 ** (-ratio / 10.0))


def _iter_finite(value: _Elements, reference: _Elements) -> Iterator[tuple[Array, Array]]:
    """Yield the elements that are finite on both sides, as float64."""
    for _, a, b in iter_chunks(value.array, reference.array):
        a, b = value.convert(a), reference.convert(b)
        finite = np.isfinite(b) & np.isfinite(a)
        yield a[finite].astype(np.float64), b[finite].astype(np.float64)


def _dequantized_value(pair: TensorPair, values: Values) -> _Elements | None:
    """Return the dequantized value of the quantized model."""
    value = _plain_value(pair.after, values)
    if value is None or not pair.scale:
        return value
    scale, zero = values.get(pair.scale), values.get(pair.zero)
    if scale is None or zero is None or scale.size != 1 or zero.size != 1:
        return None
    step, offset = float(scale.flat[0]), float(zero.flat[0])
    return replace(value, convert=lambda elements: np.asarray((elements.astype(np.float64) - offset) * step))


def _create_layer(
    pair: TensorPair, added: float, total: float, clipped: float, proto: ModelProto, place_of: FindPlace
) -> Layer:
    nodes = proto.graph.node
    consumer = next((node for node in nodes if pair.tensor in node.input), None)
    node = nodes[pair.node] if pair.node >= 0 else consumer
    return Layer(
        tensor=pair.tensor,
        node=node.name if node is not None else "",
        operator=format_operator_name(node) if node is not None else "",
        kind=pair.kind,
        sqnr_db=_to_decibels(total),
        lost_here_db=_to_decibels(added),
        clipped=clipped,
        place=place_of(node) if node is not None else None,
    )


def _to_decibels(noise: float) -> float:
    return round(-10.0 * math.log10(noise), 2) if noise > 0 else 200.0


def _clipped_share(before: _Elements | None, after: Array | None) -> float:
    """Return the share of elements outside the quantized range."""
    if before is None or after is None or before.array.shape != after.shape or not after.size:
        return 0.0
    levels = after.reshape(-1)[:0]
    for part in iter_parts(after):
        levels = np.unique(np.concatenate([levels, np.unique(part)]))
    step = float(np.diff(levels).min()) if levels.size > 1 else 0.0
    low, high = levels[0] - step, levels[-1] + step
    parts = map(before.convert, iter_parts(before.array))
    beyond = sum(int(((part > high) | (part < low)).sum()) for part in parts)
    return round(beyond / after.size, 3)
