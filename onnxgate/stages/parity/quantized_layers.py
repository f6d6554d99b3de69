"""Locate the loss of a quantized model against the float model, tensor by tensor, the worst first.

A quantized tensor is held against what it was before it was quantized, in the same run: so the loss of each layer is
its own, and not what came down from those before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from onnxgate.evidence.parity import Layer
from onnxgate.model.checking.quantization_parameters import QUANTIZED_INPUTS
from onnxgate.model.reading.fact_extraction import format_operator_name
from onnxgate.model.subgraphs.node_context import find_source_line
from onnxgate.numerics.metrics import MAX_DB, compute_sqnr_db

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto, NodeProto

    Array = NDArray[Any]
    Values = Mapping[str, Array]

MAX_LAYERS = 5
QUANTIZER_SUFFIXES = ("_QuantizeLinear_Input", "_quantized", "_QuantizeLinear_Output", "_DequantizeLinear_Output")
"""What onnxruntime.quantization adds to the name of the float tensor. Source: releases 1.16 to 1.31."""
MIN_NOISE_SHARE = 0.05
"""A layer that adds less noise than this share of the worst one's is not listed."""


@dataclass(frozen=True, slots=True)
class TensorPair:
    """A tensor of the float model, and what stands for it in the quantized one."""

    tensor: str
    node: int  # of the float model: the one that makes the tensor, or reads the weight; -1 if there is none
    kind: Literal["input", "output", "weight"]
    after: str  # the quantized model's value, as a float or as a step
    before: str = ""  # the same before it was quantized; "" if it is not available
    activation: str = ""  # "Relu" or "Clip" that the step does as well: values beyond it are not lost
    scale: str = ""  # `after` is a step: the names of its scale and zero point
    zero: str = ""


def pair_tensors(quantized: ModelProto, real: ModelProto) -> tuple[TensorPair, ...]:
    """The float model's tensors that the quantized one has, in the order of its nodes."""
    pairing = _TensorPairing(quantized, real)
    found: dict[tuple[str, str], TensorPair] = {}
    for pair in pairing.all():
        key = (pair.tensor, pair.kind)
        if key not in found or (pair.before and not found[key].before):
            found[key] = pair
    return tuple(found.values())


class _TensorPairing:
    def __init__(self, quantized: ModelProto, real: ModelProto) -> None:
        self._quantized, self._real = quantized.graph, real.graph
        self._makers = {name: node for node in quantized.graph.node for name in node.output if name}
        self._takers: dict[str, list[NodeProto]] = {}
        for node in quantized.graph.node:
            for name in node.input:
                self._takers.setdefault(name, []).append(node)
        self._weights = {tensor.name for tensor in quantized.graph.initializer}
        self._real_weights = {tensor.name for tensor in real.graph.initializer}
        self._real_inputs = {value.name for value in real.graph.input} - self._real_weights
        self._real_makers = {name: i for i, node in enumerate(real.graph.node) for name in node.output if name}
        self._real_nodes = {node.name: i for i, node in enumerate(real.graph.node) if node.name}

    def all(self) -> Iterator[TensorPair]:
        for node in self._quantized.node:
            if node.op_type == "DequantizeLinear":
                yield from self._dequantized(node)
            elif node.op_type not in ("QuantizeLinear", "DynamicQuantizeLinear"):
                yield from self._made(node)

    def _dequantized(self, node: NodeProto) -> Iterator[TensorPair]:
        maker = self._makers.get(node.input[0])
        if node.input[0] in self._weights:
            yield from self._weight(node)
        elif maker is not None and maker.op_type == "QuantizeLinear":
            name = self._float_name(maker.input[0]) or self._float_name(node.output[0])
            if name:
                pair = self._of(name, node.output[0], before=maker.input[0])
                yield replace(pair, activation=self._merged(pair))
        elif name := self._float_name(node.output[0]):
            yield self._of(name, node.output[0])

    def _merged(self, pair: TensorPair) -> str:
        """The float model's activation that the quantized one has no node for."""
        real = self._real.node[pair.node].op_type if pair.node >= 0 else ""
        maker = self._makers.get(pair.before)
        return real if real in ("Relu", "Clip") and (maker is None or maker.op_type != real) else ""

    def _weight(self, node: NodeProto) -> Iterator[TensorPair]:
        """A weight stands at the same input of the node of the same name."""
        for taker in self._takers.get(node.output[0], ()):
            index = self._real_nodes.get(taker.name, -1)
            position = list(taker.input).index(node.output[0])
            inputs = self._real.node[index].input if index >= 0 else ()
            if position < len(inputs) and inputs[position] in self._real_weights:
                yield TensorPair(inputs[position], index, "weight", node.output[0])

    def _made(self, node: NodeProto) -> Iterator[TensorPair]:
        slots = QUANTIZED_INPUTS.get(format_operator_name(node), ())
        out = slots[-1] if slots and slots[-1].data < 0 and slots[-1].scale >= 0 else None
        for name in filter(None, node.output):
            real = self._float_name(name)
            if not real:
                continue
            if out is None:
                yield self._of(real, name)
            elif out.zero < len(node.input):
                yield replace(self._of(real, name), scale=node.input[out.scale], zero=node.input[out.zero])

    def _float_name(self, name: str) -> str:
        """The float model's tensor of that name, or of the name that it had before it was quantized."""
        names = (name, *(name.removesuffix(suffix) for suffix in QUANTIZER_SUFFIXES if name.endswith(suffix)))
        return next((pair for pair in names if pair in self._real_makers or pair in self._real_inputs), "")

    def _of(self, tensor: str, after: str, before: str = "") -> TensorPair:
        index = self._real_makers.get(tensor, -1)
        return TensorPair(tensor, index, "input" if index < 0 else "output", after, before)


@dataclass(frozen=True, slots=True)
class NodePlaces:
    """The float model, and the folders below which the lines lie that made its nodes."""

    proto: ModelProto
    root: Path  # git's root
    folder: Path  # the config's folder


def find_worst_layers(
    pairs: Sequence[TensorPair], quantized: Values, real: Values, places: NodePlaces
) -> tuple[Layer, ...]:
    """The layers that add most noise, worst first. The values are of one case."""
    proto = places.proto
    noises = {
        pair.tensor: _relative_noise(_dequantized_value(pair, quantized), real.get(pair.tensor)) for pair in pairs
    }
    added = [(pair, _added_noise(pair, quantized, real, noises, proto)) for pair in pairs]
    known = sorted(((pair, noise) for pair, noise in added if noise is not None), key=lambda pair: -pair[1])
    if not known or known[0][1] <= 0:
        return ()
    least = MIN_NOISE_SHARE * known[0][1]
    return tuple(
        _create_layer(
            pair,
            noise,
            noises[pair.tensor],
            _clipped_share(_value_before_quantization(pair, quantized, real), quantized.get(pair.after)),
            places,
        )
        for pair, noise in known[:MAX_LAYERS]
        if noise >= least
    )


def _added_noise(
    pair: TensorPair, quantized: Values, real: Values, noises: Mapping[str, float | None], proto: ModelProto
) -> float | None:
    """The noise that a layer adds by itself, as a share of the float tensor's power."""
    before = _value_before_quantization(pair, quantized, real)
    if before is not None:
        return _relative_noise(_dequantized_value(pair, quantized), before)
    own = noises[pair.tensor]
    if own is None or pair.kind != "output":
        return own
    noise_of_inputs = [noises.get(name) or 0.0 for name in proto.graph.node[pair.node].input]
    return max(own - max(noise_of_inputs, default=0.0), 0.0)


def _value_before_quantization(pair: TensorPair, quantized: Values, real: Values) -> Array | None:
    """The values that were quantized, as an activation leaves them that is part of the step."""
    before, reference = quantized.get(pair.before), real.get(pair.tensor)
    if before is None or not pair.activation or reference is None or not reference.size:
        return before
    if pair.activation == "Relu":
        return np.asarray(np.maximum(before, 0))
    return np.asarray(np.clip(before, reference.min(), reference.max()))


def _relative_noise(value: Array | None, reference: Array | None) -> float | None:
    """Return power of the difference over power of the reference; None if they cannot be compared."""
    if value is None or reference is None or value.shape != reference.shape or not reference.size:
        return None
    if reference.dtype.kind != "f" or value.dtype.kind != "f":
        return None

    finite = np.isfinite(reference) & np.isfinite(value)
    ratio = compute_sqnr_db(value[finite].astype(np.float64), reference[finite].astype(np.float64))
    return 0.0 if ratio >= MAX_DB else float(10.0 ** (-ratio / 10.0))


def _dequantized_value(pair: TensorPair, values: Values) -> Array | None:
    """The quantized model's value as numbers."""
    value = values.get(pair.after)
    if value is None or not pair.scale:
        return value
    scale, zero = values.get(pair.scale), values.get(pair.zero)
    if scale is None or zero is None or scale.size != 1 or zero.size != 1:
        return None

    return np.asarray((value.astype(np.float64) - float(zero.flat[0])) * float(scale.flat[0]))


def _create_layer(
    pair: TensorPair,
    added: float,
    noise: float | None,
    clipped: float,
    places: NodePlaces,
) -> Layer:
    proto = places.proto
    node = proto.graph.node[pair.node] if pair.node >= 0 else _find_consumer(proto, pair.tensor)
    return Layer(
        tensor=pair.tensor,
        node=node.name if node is not None else "",
        operator=format_operator_name(node) if node is not None else "",
        kind=pair.kind,
        sqnr_db=_to_decibels(noise if noise is not None else added),
        lost_here_db=_to_decibels(added),
        clipped=clipped,
        place=find_source_line(node, places.root, places.folder) if node is not None else None,
    )


def _find_consumer(proto: ModelProto, tensor: str) -> NodeProto | None:
    return next((node for node in proto.graph.node if tensor in node.input), None)


def _to_decibels(noise: float) -> float:
    return round(-10.0 * math.log10(noise), 2) if noise > 0 else 200.0


def _clipped_share(before: Array | None, after: Array | None) -> float:
    """The share of elements that were beyond the range of what they were quantized to."""
    if before is None or after is None or before.shape != after.shape or not after.size:
        return 0.0

    levels = np.unique(after)
    step = float(np.diff(levels).min()) if levels.size > 1 else 0.0
    beyond = (before > levels[-1] + step) | (before < levels[0] - step)
    return round(float(beyond.mean()), 3)
