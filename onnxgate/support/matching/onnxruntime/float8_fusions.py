"""Find nodes of dequantized float8 values that ONNX Runtime replaces by quantized operators for integers.

Source: 566 models with float8 values before and after 23 operators in opsets 19 to 25, loaded on 14 to 34 releases
from 1.16.0 to 1.32.0. The outcome of other nodes depends on the release, such as with float16, a bias, an activation
before the output is quantized, a vector of scales for the first input of Gemm, or without zero points.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxgate.model.facts import DEFAULT_DOMAIN
from onnxgate.model.reading.view import NodeView
from onnxgate.support.matching.graph_values import GraphValues

_REQUANTIZED: Mapping[str, str] = {
    "Add": "com.microsoft.QLinearAdd",
    "AveragePool": "com.microsoft.QLinearAveragePool",
    "Concat": "com.microsoft.QLinearConcat",
    "Conv": "QLinearConv",
    "Gemm": "com.microsoft.QGemm",
    "GlobalAveragePool": "com.microsoft.QLinearGlobalAveragePool",
    "LeakyRelu": "com.microsoft.QLinearLeakyRelu",
    "MatMul": "QLinearMatMul",
    "Mul": "com.microsoft.QLinearMul",
    "Sigmoid": "com.microsoft.QLinearSigmoid",
    "Softmax": "com.microsoft.QLinearSoftmax",
    "Where": "com.microsoft.QLinearWhere",
}
"""Operators that are replaced if their inputs are dequantized and their output is quantized, with the replacement."""
_DEQUANTIZED = {"Gemm": "com.microsoft.QGemm", "MatMul": "com.microsoft.MatMulIntegerToFloat"}
"""Operators that are also replaced if their output is not quantized, with the replacement."""
_ACTIVATIONS = frozenset({"Clip", "Relu"})
"""Operators that ONNX Runtime may fuse with a quantization of their output before."""
FUSED = frozenset(_REQUANTIZED)
_WITH_WEIGHTS = frozenset({"Conv", "Gemm", "MatMul"})
"""Operators whose second input may have a scale for each channel."""
_FLOAT, _FLOAT8 = 1, frozenset({17, 18, 19, 20})
_SCALE, _ZERO_POINT = 1, 2
"""Indexes among the inputs of DequantizeLinear and QuantizeLinear."""


class Float8Fusions:
    """The fusions of float8 values in one graph."""

    def __init__(self, values: GraphValues) -> None:
        self._values = values
        self._dequantized: dict[str, int] = {}  # output of DequantizeLinear -> float8 type of its input
        self._with_scalar: set[str] = set()  # those outputs that have one scale
        for node in values.graph.nodes:
            if node.operator[:2] == (DEFAULT_DOMAIN, "DequantizeLinear") and (element := self._find_float8(node, 0)):
                self._dequantized[node.outputs[0]] = element
                if self._has_one_scale(node):
                    self._with_scalar.add(node.outputs[0])

    def find(self, node: NodeView) -> str:
        """Return the operator that replaces a node; "" if there is none. Nodes of constants are computed before."""
        element = self._find_input_type(node) if self._dequantized else 0
        if not element or all(self._values.may_be_folded(name) for name in node.inputs if name):
            return ""
        is_output = self._values.is_output(node.outputs[0])
        name, consumers = node.operator[1], self._values.list_users(node.outputs[0])
        quantizing = [consumer for consumer in consumers if _is_quantizing(consumer)]
        if not quantizing:
            is_fused_before = any(self._is_fused_with(name, consumer) for consumer in consumers)
            return _DEQUANTIZED.get(name, "") if (consumers or is_output) and not is_fused_before else ""
        if len(consumers) > 1 or is_output or not self._has_one_scale(quantizing[0]):
            return ""
        return _REQUANTIZED[name] if self._find_float8(quantizing[0], _ZERO_POINT) == element else ""

    def _find_input_type(self, node: NodeView) -> int:
        """Return the float8 type from which all inputs of a node are dequantized; 0 if there is none."""
        name = node.operator[1]
        if name in _WITH_WEIGHTS:
            values = node.inputs[:2]
            if any(node.inputs[2:]) or values[0] not in self._with_scalar:
                return 0
        else:
            values = node.inputs[1:] if name == "Where" else node.inputs
            if not self._with_scalar.issuperset(values):
                return 0
        elements = {self._dequantized.get(value, 0) for value in values}
        return elements.pop() if len(elements) == 1 else 0

    def _is_fused_with(self, name: str, consumer: NodeView) -> bool:
        """Return whether ONNX Runtime may fuse a node with its consumer before it replaces the node."""
        if consumer.operator[1] in _ACTIVATIONS:
            return any(map(_is_quantizing, self._values.list_users(consumer.outputs[0])))
        return name == "MatMul" and consumer.operator[1] == "Add"

    def _find_float8(self, node: NodeView, value: int) -> int:
        """Return the float8 type of an input if the scale is a float and the zero point has the same type; else 0."""
        if len(node.inputs) <= _ZERO_POINT or not node.inputs[_ZERO_POINT]:
            return 0
        element, scale, zero_point = (
            self._values.element(node.inputs[index]) for index in (value, _SCALE, _ZERO_POINT)
        )
        return element if element in _FLOAT8 and zero_point == element and scale == _FLOAT else 0

    def _has_one_scale(self, node: NodeView) -> bool:
        value_type = self._values.type_of(node.inputs[_SCALE])
        if value_type is None or not value_type.tensor_type.HasField("shape"):
            return False
        return all(dim.dim_value == 1 for dim in value_type.tensor_type.shape.dim)


def _is_quantizing(node: NodeView) -> bool:
    return node.operator[:2] == (DEFAULT_DOMAIN, "QuantizeLinear")
