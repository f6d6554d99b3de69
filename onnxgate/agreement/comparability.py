"""What a comparison element by element can mean for a model: nothing where it draws numbers, little where it rounds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxgate.agreement.randomness import random_outputs
from onnxgate.model.facts import ModelFacts

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_CONTRIBUTED = (
    *("DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "MatMulBnb4", "MatMulIntegerToFloat", "MatMulNBits"),
    *("QAttention", "QGemm", "QMoE", "QEmbedLayerNormalization", "QuantizeLinear", "MulInteger", "NhwcMaxPool"),
    *("QLinearAdd", "QLinearAveragePool", "QLinearConcat", "QLinearConv", "QLinearGlobalAveragePool"),
    *("QLinearLeakyRelu", "QLinearMul", "QLinearReduceMean", "QLinearSigmoid", "QLinearSoftmax", "QLinearWhere"),
)
QUANTIZED = frozenset(
    {
        "QuantizeLinear",
        "DynamicQuantizeLinear",
        "MatMulInteger",
        "ConvInteger",
        "QLinearConv",
        "QLinearMatMul",
        *(f"com.microsoft.{name}" for name in _CONTRIBUTED),
    }
)
"""Operators that round to steps: one step more or less is right, and grows on its way to the output."""


@dataclass(frozen=True, slots=True)
class Comparability:
    """`half`: 16 bits are computed with somewhere; `random` and `quantized` name the operators that make it so.

    `random` are those that reach an output, and `random_outputs` the outputs that they reach.
    """

    half: bool = False
    random: tuple[str, ...] = ()
    quantized: tuple[str, ...] = ()
    random_outputs: frozenset[str] = frozenset()
    bfloat16: bool = False  # of the 16 bits, only 8 are the number's

    def is_random(self, output: str) -> bool:
        """Whether an output, or the layout of one that is no tensor, is drawn."""
        return output.removesuffix(" (layout)") in self.random_outputs


def comparability(facts: ModelFacts, proto: ModelProto) -> Comparability:
    """What a model's operators and types allow to conclude from a difference."""
    from onnxgate.model.structure import nodes, tensors

    every = list(nodes(proto))
    drawn = random_outputs(proto)
    types = {tensor.data_type for _, tensor in tensors(proto)} | _cast_to(every)
    return Comparability(
        half=not types.isdisjoint(_halves()),
        bfloat16=_halves()[1] in types,
        random=tuple(sorted(frozenset().union(*drawn.values()))),
        random_outputs=frozenset(drawn),
        quantized=tuple(sorted(name for name in facts.operators if name in QUANTIZED)),
    )


def _halves() -> tuple[int, int]:
    from onnx import TensorProto

    return TensorProto.FLOAT16, TensorProto.BFLOAT16


def _cast_to(nodes: Iterable[NodeProto]) -> set[int]:
    return {
        attribute.i
        for node in nodes
        if node.op_type == "Cast"
        for attribute in node.attribute
        if attribute.name == "to"
    }
