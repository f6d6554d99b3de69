"""Find activations of the float model that a quantized model does not compute.

Quantization tools remove a `Relu` or `Clip` if all quantized values are in its range. With a wrong zero point or scale,
values remain that the activation would have changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxgate.evidence.parity import MissingActivation
from onnxgate.model.quantization_parameters import StoredTensors
from onnxgate.model.quantized_ranges import ACTIVATIONS, ValueRange, read_limits, read_range
from onnxgate.model.reading.view import ModelView
from onnxgate.numerics.streams import iter_parts
from onnxgate.stages.parity.quantized_layers import TensorPair, pair_tensors

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import GraphProto, NodeProto

    Array = NDArray[Any]

_FOLDED = frozenset({"BatchNormalization", "Identity"})
"""Operators that tools merge into the node before them."""
MAX_EXCESS = 0.01
"""Maximum excess of a quantized range over a limit of `Clip`, as a fraction of the limit."""


@dataclass(frozen=True, slots=True)
class RemovedActivation:
    """An activation of the float model whose quantized output has a larger range. `value` is dequantized."""

    value: str
    tensor: str  # output of the activation
    node: NodeProto
    limits: ValueRange
    step: float

    def find_excess(self, values: Array) -> MissingActivation | None:
        """Return the value that is farthest outside of the range of the activation; None if there is none."""
        low, high = math.inf, -math.inf
        for part in iter_parts(values):
            numbers = part[np.isfinite(part)]
            if numbers.size:
                low, high = min(low, float(numbers.min())), max(high, float(numbers.max()))
        if _is_below(low, self.limits, self.step):
            return self._describe(low, self.limits.low)
        return self._describe(high, self.limits.high) if _is_above(high, self.limits, self.step) else None

    def _describe(self, value: float, limit: float) -> MissingActivation:
        return MissingActivation(
            tensor=self.tensor, node=self.node.name, operator=self.node.op_type, value=value, limit=limit
        )


def find_removed_activations(
    quantized: ModelView, path: Path, real: ModelView, real_path: Path
) -> Iterator[RemovedActivation]:
    """Yield the removed activations that the quantized range does not replace, in the order of the float model.

    An activation was removed if the node whose output it changes is quantized directly, under the name of the output of
    the activation.
    """
    stored, references = StoredTensors(quantized, path), StoredTensors(real, real_path)
    makers, real_makers = _map_makers(quantized.proto.graph), _map_makers(real.proto.graph)
    for pair in pair_tensors(quantized.proto, real.proto):
        node = real.proto.graph.node[pair.node]
        if pair.kind != "output" or not pair.before or node.op_type not in ACTIVATIONS:
            continue
        quantizer = makers[makers[pair.after].input[0]]
        if not _is_removed(pair, node, makers, real_makers):
            continue
        values, limits = read_range(stored, quantizer), read_limits(references, node)
        if values is None or limits is None:
            continue
        if _is_below(values.low, limits, values.step) or _may_be_above(values, limits):
            yield RemovedActivation(pair.after, pair.tensor, node, limits, values.step)


def _map_makers(graph: GraphProto) -> dict[str, NodeProto]:
    return {name: node for node in graph.node for name in node.output if name}


def _is_removed(
    pair: TensorPair, activation: NodeProto, makers: dict[str, NodeProto], real: dict[str, NodeProto]
) -> bool:
    """Return whether the quantized model quantizes the input of the activation instead of its output."""
    own, other = makers.get(pair.before), real.get(activation.input[0])
    passed: set[str] = set()
    while other is not None and own is not None and other.op_type in _FOLDED and own.op_type != other.op_type:
        if other.input[0] in passed:  # the graph is not acyclic
            return False
        passed.add(other.input[0])
        other = real.get(other.input[0])
    if own is None or other is None or own.domain != other.domain or own.op_type != other.op_type:
        return False
    return own.name == other.name or not own.name or not other.name


def _is_below(low: float, limits: ValueRange, step: float) -> bool:
    # A quantized range contains 0 exactly; other limits are rounded.
    return low < limits.low - (0.5 if limits.low == 0 else 1.0) * step


def _is_above(high: float, limits: ValueRange, step: float) -> bool:
    return high > limits.high + step


def _may_be_above(values: ValueRange, limits: ValueRange) -> bool:
    """Return whether the quantized range exceeds the upper limit.

    Some tools use powers of two as scales, and then accept larger values.
    """
    is_power_of_two = math.frexp(values.step)[0] == 0.5
    return not is_power_of_two and values.high > limits.high + max(values.step, MAX_EXCESS * abs(limits.high))
