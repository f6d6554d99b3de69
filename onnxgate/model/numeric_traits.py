"""Traits of a model that limit a comparison of its outputs: random operators and rounding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx import TensorProto, numpy_helper

from onnxgate.model.facts import DEFAULT_DOMAIN, ModelFacts, canonical_domain
from onnxgate.model.reading.structure import iter_node_subgraphs, iter_nodes, iter_tensors

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


_CONTRIB_QUANTIZED = (
    *("DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "MatMulBnb4", "MatMulIntegerToFloat", "MatMulNBits"),
    *("QAttention", "QGemm", "QMoE", "QEmbedLayerNormalization", "QuantizeLinear", "MulInteger", "NhwcMaxPool"),
    *("QLinearAdd", "QLinearAveragePool", "QLinearConcat", "QLinearConv", "QLinearGlobalAveragePool"),
    *("QLinearLeakyRelu", "QLinearMul", "QLinearReduceMean", "QLinearSigmoid", "QLinearSoftmax", "QLinearWhere"),
)
QUANTIZED_OPERATORS = frozenset(
    {
        "QuantizeLinear",
        "DynamicQuantizeLinear",
        "MatMulInteger",
        "ConvInteger",
        "QLinearConv",
        "QLinearMatMul",
        *(f"com.microsoft.{name}" for name in _CONTRIB_QUANTIZED),
    }
)
"""Operators that round to steps: one step more or less is right, and grows on its way to the output."""


@dataclass(frozen=True, slots=True)
class NumericTraits:
    """`half`: 16 bits are computed with somewhere; `random` and `quantized` name the operators that make it so.

    `random` are those that reach an output, and `random_outputs` the outputs that they reach.
    """

    half: bool = False
    random: tuple[str, ...] = ()
    quantized: tuple[str, ...] = ()
    random_outputs: frozenset[str] = frozenset()
    bfloat16: bool = False  # of the 16 bits, only 8 are the number's

    def is_random(self, output: str) -> bool:
        """Return whether an output, or the layout of one that is not a tensor, is random."""
        return output.removesuffix(" (layout)") in self.random_outputs


def detect_numeric_traits(facts: ModelFacts, proto: ModelProto) -> NumericTraits:
    """What a model's operators and types allow to conclude from a difference."""
    casts = (node for node in iter_nodes(proto) if node.op_type == "Cast")
    drawn = find_random_outputs(proto)
    types = {tensor.data_type for _, tensor in iter_tensors(proto)}
    types |= {attribute.i for node in casts for attribute in node.attribute if attribute.name == "to"}
    return NumericTraits(
        half=not types.isdisjoint((TensorProto.FLOAT16, TensorProto.BFLOAT16)),
        bfloat16=TensorProto.BFLOAT16 in types,
        random=tuple(sorted(frozenset().union(*drawn.values()))),
        random_outputs=frozenset(drawn),
        quantized=tuple(sorted(name for name in facts.operators if name in QUANTIZED_OPERATORS)),
    )


RANDOM_OPERATORS = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
"""Operators whose results differ by design between two runs, or between two runtimes whatever their seed."""

SHAPE_OPERATORS = frozenset({"Shape", "Size"})
"""Operators that look at no element."""

RandomOperators = frozenset[str]  # operators
RandomFunctions = Mapping[tuple[str, str], RandomOperators]
NO_OPERATORS: RandomOperators = frozenset()


def find_random_outputs(proto: ModelProto) -> dict[str, RandomOperators]:
    """The outputs of a model that random operators reach, with these operators."""
    flags = {node.input[2] for node in iter_nodes(proto) if node.op_type == "Dropout" and len(node.input) > 2}
    constants = [(name, tensor) for name, tensor in iter_tensors(proto) if name and name in flags]
    training = frozenset(name for name, tensor in constants if numpy_helper.to_array(tensor).any())
    functions = _find_random_functions(proto, training)
    reached: dict[str, RandomOperators] = {}  # value of the main graph -> the operators that reach it
    for node in proto.graph.node:  # in topological order
        read = () if node.op_type in SHAPE_OPERATORS else _values_read(node)
        operators = _random_operators_of(node, functions, training)
        operators = operators.union(*(reached.get(name, NO_OPERATORS) for name in read))
        reached.update(dict.fromkeys(filter(None, node.output), operators))
    return {output.name: reached[output.name] for output in proto.graph.output if reached.get(output.name)}


def _random_operators_of(node: NodeProto, functions: RandomFunctions, training: frozenset[str]) -> RandomOperators:
    """Return the random operators that a node is, calls or contains in its subgraphs."""
    operators = functions.get((node.domain, node.op_type), NO_OPERATORS)
    trains = node.op_type == "Dropout" and training & set(node.input[2:])
    if canonical_domain(node.domain) == DEFAULT_DOMAIN and (node.op_type in RANDOM_OPERATORS or trains):
        operators |= {node.op_type}
    inner_nodes = (inner for graph in iter_node_subgraphs(node) for inner in graph.node)
    return operators.union(*(_random_operators_of(inner, functions, training) for inner in inner_nodes))


def _values_read(node: NodeProto) -> set[str]:
    """Return the values that a node and its subgraphs read; names are unique over both."""
    graphs = list(iter_node_subgraphs(node))
    outputs = (value.name for graph in graphs for value in graph.output)
    return {*node.input, *outputs}.union(*(_values_read(inner) for graph in graphs for inner in graph.node))


def _find_random_functions(proto: ModelProto, training: frozenset[str]) -> RandomFunctions:
    """Map each local function to its random operators, including those of its callees in any order."""
    by_function: dict[tuple[str, str], RandomOperators] = {}
    before = None
    while by_function != before:
        before = dict(by_function)
        for function in proto.functions:
            by_function[function.domain, function.name] = NO_OPERATORS.union(
                *(_random_operators_of(node, by_function, training) for node in function.node)
            )
    return by_function
