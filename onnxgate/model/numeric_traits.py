"""Traits of a model that limit how its outputs can be compared: random operators and rounding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnx import TensorProto

from onnxgate.model.facts import DEFAULT_DOMAIN, ModelFacts
from onnxgate.model.reading.tensor_data import read_array
from onnxgate.model.reading.view import ModelView, NodeView, OperatorKey
from onnxgate.model.subgraphs.reduced_models import function_key

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
"""Operators that quantize. A difference of one quantization step is acceptable, and may grow in later nodes."""


_LOW_TYPES = (21, 22, 23, 25, 26)  # UINT4, INT4, FLOAT4E2M1, UINT2 and INT2, which old releases of onnx do not name
_HALF_TYPES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


@dataclass(frozen=True, slots=True)
class NumericTraits:
    """Numeric traits of a model.

    `half` means that some nodes compute with 16-bit floats; to round numbers to 16 bits, and to convert them back, is
    not enough. `quantized` contains the quantizing operators, or `DequantizeLinear` if only weights are quantized
    (`weights_only`). `random` contains the random operators that affect an output, and `random_outputs` the affected
    outputs.
    """

    half: bool = False
    random: tuple[str, ...] = ()
    quantized: tuple[str, ...] = ()
    random_outputs: frozenset[str] = frozenset()
    bfloat16: bool = False  # 16-bit floats have only 8 bits of precision
    weights_only: bool = False  # weights are quantized, but all operators compute with floats
    has_quantized_factors: bool = False  # some of these weights are factors of `MatMul` or `Gemm`
    low_bits: bool = False  # some weights have at most 4 bits
    constant_outputs: frozenset[str] = frozenset()  # outputs that the values of the inputs do not affect

    def is_random(self, output: str) -> bool:
        """Return whether an output is random.

        The name `x (layout)` refers to the structure of the non-tensor output `x`, and is treated like `x`.
        """
        return output.removesuffix(" (layout)") in self.random_outputs


def detect_numeric_traits(facts: ModelFacts, model: ModelView) -> NumericTraits:
    """Detect the numeric traits of a model from its operators and types."""
    drawn = find_random_outputs(model)
    types = {tensor.data_type for _, tensor in model.tensors} | _find_half_casts(model)
    quantized = tuple(sorted(name for name in facts.operators if name in QUANTIZED_OPERATORS))
    weights = _find_dequantized_weights(model) if not quantized else frozenset[str]()
    return NumericTraits(
        half=not types.isdisjoint(_HALF_TYPES),
        bfloat16=TensorProto.BFLOAT16 in types,
        random=tuple(sorted(frozenset().union(*drawn.values()))),
        random_outputs=frozenset(drawn),
        quantized=("DequantizeLinear",) if weights else quantized,
        weights_only=bool(weights),
        has_quantized_factors=any(
            node.operator[1] in ("MatMul", "Gemm") and not weights.isdisjoint(node.inputs[:2]) for node in model.nodes()
        ),
        constant_outputs=_find_constant_outputs(model) - drawn.keys(),
        low_bits=not types.isdisjoint(_LOW_TYPES) or any(map(_has_low_bits, model.nodes())),
    )


def _has_low_bits(node: NodeView) -> bool:
    bits = next((attribute.i for attribute in node.attributes if attribute.name == "bits"), 4)
    return node.operator[1] == "MatMulBnb4" or (node.operator[1] == "MatMulNBits" and bits <= 4)


def _find_dequantized_weights(model: ModelView) -> frozenset[str]:
    """Return the values that are dequantized from stored tensors, and those that are moved or cast from them."""
    stored = {name for name, _ in model.tensors if name}
    weights: set[str] = set()
    for node in model.nodes():
        source = node.inputs[0] if node.inputs else ""
        is_weight = source in stored if node.operator[1] == "DequantizeLinear" else source in weights
        if is_weight and node.operator[1] in ("DequantizeLinear", "Cast", "Identity", "Reshape", "Transpose"):
            weights.update(node.outputs)
    return frozenset(weights)


def _find_half_casts(model: ModelView) -> set[int]:
    """Return the 16-bit types that numbers are cast to, except if they are only cast back."""
    targets = {
        id(node): attribute.i
        for node in model.nodes()
        if node.operator[1] == "Cast"
        for attribute in node.attributes
        if attribute.name == "to"
    }
    computing = (node for node in model.nodes() if targets.get(id(node), TensorProto.FLOAT16) in _HALF_TYPES)
    used = {name for node in computing for name in node.inputs}
    graphs = (graph for node in model.nodes() for graph in node.graphs)
    used |= {value.name for graph in (model.graphs[0], *graphs) for value in graph.proto.output}
    used |= {name for function in model.functions for name in function.proto.output}
    casts = (node for node in model.nodes() if targets.get(id(node)) in _HALF_TYPES)
    return {targets[id(node)] for node in casts if not used.isdisjoint(node.outputs)}


RANDOM_OPERATORS = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
"""Operators whose results differ between runs or, even with the same seed, between runtimes."""

SHAPE_OPERATORS = frozenset({"Shape", "Size"})
"""Operators whose results depend only on the shape of their inputs, not on the values of the elements."""

RandomOperators = frozenset[str]  # names of operators
RandomFunctions = Mapping[OperatorKey, RandomOperators]
NO_OPERATORS: RandomOperators = frozenset()


def find_random_outputs(model: ModelView) -> dict[str, RandomOperators]:
    """Map each output that depends on random operators to these operators; other outputs are omitted."""
    flags = {node.inputs[2] for node in model.nodes() if node.operator[1] == "Dropout" and len(node.inputs) > 2}
    constants = [(name, tensor) for name, tensor in model.tensors if name and name in flags]
    flagged = ((name, read_array(tensor)) for name, tensor in constants)  # a flag is small, so it is never omitted
    training = frozenset(name for name, array in flagged if array is not None and array.any())
    functions = _find_random_functions(model, training)
    reached: dict[str, RandomOperators] = {}  # value in the main graph -> random operators that affect it
    for node in model.graphs[0].nodes:  # in topological order
        read = () if node.operator[1] in SHAPE_OPERATORS else _values_read(node)
        operators = _random_operators_of(node, functions, training)
        operators = operators.union(*(reached.get(name, NO_OPERATORS) for name in read))
        reached.update(dict.fromkeys(filter(None, node.outputs), operators))
    return {output.name: reached[output.name] for output in model.proto.graph.output if reached.get(output.name)}


def _find_constant_outputs(model: ModelView) -> frozenset[str]:
    """Return the outputs that depend only on stored values and on the shapes of inputs."""
    graph = model.proto.graph
    varying = {value.name for value in graph.input} - {tensor.name for tensor in graph.initializer}
    for node in model.graphs[0].nodes:  # in topological order
        if node.operator[1] not in SHAPE_OPERATORS and not varying.isdisjoint(_values_read(node)):
            varying.update(filter(None, node.outputs))
    return frozenset(value.name for value in graph.output) - varying


def _random_operators_of(node: NodeView, functions: RandomFunctions, training: frozenset[str]) -> RandomOperators:
    """Return the random operators of a node, its subgraphs and the functions that it calls."""
    operators = functions.get(node.operator, NO_OPERATORS)
    domain, name, _ = node.operator
    trains = name == "Dropout" and not training.isdisjoint(node.inputs[2:])
    if domain == DEFAULT_DOMAIN and (name in RANDOM_OPERATORS or trains):
        operators |= {name}
    inner_nodes = (inner for graph in node.graphs for inner in graph.nodes)
    return operators.union(*(_random_operators_of(inner, functions, training) for inner in inner_nodes))


def _values_read(node: NodeView) -> set[str]:
    """Return the names of the values that a node and its subgraphs use."""
    outputs = (value.name for graph in node.graphs for value in graph.proto.output)
    return {*node.inputs, *outputs}.union(*(_values_read(inner) for graph in node.graphs for inner in graph.nodes))


def _operators_of(node: NodeView) -> frozenset[OperatorKey]:
    """Return the operators of a node and of the nodes in its subgraphs."""
    inner_nodes = (inner for graph in node.graphs for inner in graph.nodes)
    return frozenset({node.operator}).union(*(_operators_of(inner) for inner in inner_nodes))


def _find_random_functions(model: ModelView, training: frozenset[str]) -> RandomFunctions:
    """Map each local function to the random operators in it and in the functions that it calls."""
    functions = {function_key(function.proto): function for function in model.functions}
    callers: dict[OperatorKey, list[OperatorKey]] = {}
    by_function: dict[OperatorKey, RandomOperators] = {}
    for key, function in functions.items():
        called = frozenset[OperatorKey]().union(*(_operators_of(node) for node in function.nodes))
        for callee in called & functions.keys():
            callers.setdefault(callee, []).append(key)
        own = (_random_operators_of(node, {}, training) for node in function.nodes)
        by_function[key] = NO_OPERATORS.union(*own)
    pending = list(functions)
    while pending:
        callee = pending.pop()
        for caller in callers.get(callee, ()):
            if not by_function[callee] <= by_function[caller]:
                by_function[caller] |= by_function[callee]
                pending.append(caller)
    return by_function
