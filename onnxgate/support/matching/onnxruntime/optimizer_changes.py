"""Find the nodes that ONNX Runtime's optimizer fuses with their neighbors before it selects kernels."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence

from onnxgate.model.facts import DEFAULT_DOMAIN
from onnxgate.model.reading.view import NodeView
from onnxgate.support.matching.graph_values import GraphValues
from onnxgate.support.matching.onnxruntime.simplified_graphs import (
    NEUTRAL_ELEMENTS,
    NEUTRAL_HALVES,
    SimplifiedGraph,
    simplify_graph,
)
from onnxgate.support.matching.operations import Fusion

_FLOAT, _FLOAT16, _DOUBLE, _BFLOAT16 = 1, 10, 11, 16
_ACTIVATIONS = frozenset({(DEFAULT_DOMAIN, "Relu"), (DEFAULT_DOMAIN, "Sigmoid"), (DEFAULT_DOMAIN, "Tanh")})
"""Activations with a kernel for doubles that ONNX Runtime fuses with a Gemm before them."""
_FACTORS = 2
"""Number of inputs of Mul, except in malformed models."""
_BATCH_NORMALIZATION_INPUTS = 5
_MATRIX = 2
"""Number of axes of a matrix."""
_ATTENTION_USES = range(2, 7)
"""How often the outputs of a LayerNormalization without a bias are taken if old releases crash because of it."""
_PARTS_OF_OTHERS = frozenset({"Div", "Erf", "Mul", "Pow", "ReduceMean", "Shape", "Sigmoid", "Size", "Sub", "Tanh"})
"""Operators that the optimizer may remove or fuse before it looks at the nodes that take a value."""
_REMOVABLE = frozenset(
    ("Cast", "CastLike", "Concat", "Dropout", "Expand", "Gather", "Identity", "If", "Pad", "Slice", "Transpose")
)
"""Operators of which the optimizer may remove nodes, so that others take their inputs, or join several."""
_FUSED_FIRST = frozenset({"Conv", "Gemm", "MatMul"})
"""Operators that the optimizer may fuse with nodes after them before it joins equal nodes."""
_EXPANDED = frozenset(
    (
        *("Celu", "Elu", "GroupNormalization", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "PRelu", "Selu"),
        *("Shrink", "Softplus", "Softsign", "ThresholdedRelu"),
    )
)
"""Operators that may be replaced by function bodies, in which several nodes take the input."""
_MOST_IN_BODY = 4
_MAX_REMOVED = 4
"""Number of nodes in sequence that the optimizer may remove, after which uses are not counted."""
_FUSED_WITH_LATER = frozenset({"Add", "Div", "Mul", "Sub"})
_FUSED_WITH_OTHERS = frozenset({"Pow", "ReduceMean", "Sub"})
"""Last and first operators, besides others, that the optimizer fuses into LayerNormalization and its variants."""


class OptimizerChanges:
    """Changes that the optimizer makes to the nodes of one graph."""

    def __init__(self, values: GraphValues) -> None:
        self._original = values

    @functools.cached_property
    def merged(self) -> SimplifiedGraph:
        """The graph without nodes that do nothing, in which equal nodes are merged."""
        graph = simplify_graph(self._original)
        merged = graph.merge_equal()
        while len(merged.values.graph.nodes) < len(graph.values.graph.nodes):
            graph, merged = merged, merged.merge_equal()
        return merged

    @property
    def _values(self) -> GraphValues:
        return self.merged.values

    def find_fusion(self, node: NodeView) -> Fusion:
        """Return what the optimizer makes of a node and its neighbors if some releases fail then; "" if nothing.

        Source: about 2,700 models with sequences of operators that ONNX Runtime fuses, of 6 types in opsets 13 to 22,
        loaded on 8 releases from 1.16.3 to 1.32.0; variants of those that failed, loaded on 12 to 19 releases.
        """
        operator, element = node.operator[1], self._original.element(node.inputs[0])
        is_concerned = element == _DOUBLE if operator in _FUSED_DOUBLES else element not in _UNFUSED.get(operator, ())
        find = _FINDERS.get(operator)
        if not is_concerned or (find is None and operator != "LayerNormalization"):
            return ""
        merged = self.merged.find(node)
        if find is None:
            return self._find_layer_before_attention(merged) if merged is not None else ""
        fusion = find(self._values, merged) if merged is not None else ""
        return fusion or (find(self._original, node) if operator in _FUSED_BEFORE_MERGES else "")

    def _find_layer_before_attention(self, node: NodeView) -> Fusion:
        """Return whether a LayerNormalization without a bias is taken as often as before an attention.

        Old releases then read the bias that it does not have.
        """
        if any(node.inputs[2:]):
            return ""
        if _may_be_computed(self._values, node):
            return ""
        ranges = [self._count_uses(output, 0) for output in node.outputs if output]
        least, most = (sum(numbers) for numbers in zip(*ranges, strict=True)) if ranges else (0, 0)
        if least in _ATTENTION_USES and most in _ATTENTION_USES:
            return "Attention"
        return "perhaps Attention" if least < _ATTENTION_USES.stop and most >= _ATTENTION_USES.start else ""

    def _count_uses(self, name: str, depth: int) -> tuple[int, int]:
        """Return how often nodes take a value at least and at most, after the optimizer changed them."""
        is_returned = self._values.is_in_function and self._values.is_output(name)
        if is_returned or name in self._values.list_captured() or depth > _MAX_REMOVED:
            return 0, _ATTENTION_USES.stop
        least: dict[tuple[object, ...], int] = {}  # equal nodes become one, also after the optimizer changed others
        most: dict[tuple[object, ...], int] = {}
        for user in self._values.list_users(name):
            operator = user.operator[1]
            if (operator == "Shape" and self._values.is_fixed(name)) or not _count_data_uses(user, name):
                continue
            number = _count_data_uses(user, name)
            returned = tuple(filter(self._values.is_output, user.outputs))  # nodes that make outputs stay
            key = (user.operator, tuple(map(self._name_kept, user.inputs)), returned)
            has_scalar = any(map(self._is_scalar, user.inputs))
            after = [it.operator[1] for output in user.outputs for it in self._values.list_users(output)]
            is_removable = (
                operator in _REMOVABLE
                or (operator in NEUTRAL_ELEMENTS and has_scalar)
                or (operator == "Relu" and "Clip" in after)
            )
            is_simple = user.operator[0] == DEFAULT_DOMAIN and operator not in _EXPANDED
            if is_simple and not is_removable and operator not in _PARTS_OF_OTHERS and self._is_read(user):
                least[key] = min(number, least.get(key, number))
            attributes = tuple(attribute.SerializeToString() for attribute in user.attributes)
            later = [self._count_uses(output, depth + 1)[1] for output in user.outputs[:1] if is_removable]
            is_joined = is_simple and not is_removable and operator not in _FUSED_FIRST
            exact = (user.operator, tuple(user.inputs), attributes, returned, None if is_joined else user.outputs[0])
            most[exact] = max(number, *later, 0) * (1 if is_simple else _MOST_IN_BODY)
        return sum(least.values()), sum(most.values())

    def _is_read(self, node: NodeView) -> bool:
        """Return whether an output of the graph depends on the data of a node, not only on the shape."""
        users = [user for output in node.outputs for user in self._values.list_users(output)]
        is_returned = any(map(self._values.is_output, node.outputs))
        is_read = is_returned or not users or any(user.operator[1] not in ("Shape", "Size") for user in users)
        return is_read and any(map(self._values.has_use, node.outputs))

    def _name_kept(self, name: str) -> str:
        """Return the name of a value, or "" if the optimizer may find that it equals another value."""
        return "" if self._values.producer(name) is not None or self._is_scalar(name) else name

    def _is_scalar(self, name: str) -> bool:
        tensor = self._values.constant(name)
        return tensor is not None and math.prod(tensor.dims) == 1

    def find_neighbors(self, node: NodeView) -> tuple[tuple[NodeView, str], ...]:
        """Return the node that makes the first input of a node, and those that take its output, with these values.

        The result is empty if a value belongs to another graph, too. Nodes that do nothing are not neighbors, and equal
        nodes have the neighbors of all of them.
        """
        merged = self.merged.find(node)
        if merged is None:
            return ()
        value, output = merged.inputs[0], merged.outputs[0]
        maker, users = self._values.producer(value), self._values.list_users(output)
        if self._values.is_output(output) or output in self._values.list_captured():
            return ()
        if maker is None or self._may_be_changed(maker, users):
            return ()
        return ((maker, value), *((user, output) for user in users))

    def _may_be_changed(self, maker: NodeView, users: Sequence[NodeView]) -> bool:
        """Return whether the optimizer may remove one of these nodes, or fuse it with others, before it expands bodies.

        Source: 54 by 54 operators and sequences around a CastLike, loaded on 6 releases from 1.16.3 to 1.30.0.
        """
        sources = [found for name in maker.inputs if (found := self._values.producer(name)) is not None]
        for source in sources if maker.operator[1] in ("Add", "Mul") else ():
            if source.operator[1] in _FUSED_WITH_LATER or self._is_batched_product(source):
                return True
        for user in users:
            taken = {it.operator[1] for it in self._values.list_users(user.outputs[0])}
            if (user.operator[1] == "Relu" and "Clip" in taken) or ("Add" in taken and self._is_batched_product(user)):
                return True
            if not (taken - {"Shape"} or any(map(self._values.is_output, user.outputs))):
                return True
            if len(users) > 1 and user.operator[1] in _FUSED_WITH_OTHERS:
                return True
        return any(map(self._has_neutral_element, (maker, *users)))

    def _is_batched_product(self, node: NodeView) -> bool:
        """Return whether a node is a MatMul that the optimizer fuses with an Add into Gemm, between Reshape nodes."""
        return node.operator[1] == "MatMul" and self._values.rank(node.outputs[0]) != 2

    def _has_neutral_element(self, node: NodeView) -> bool:
        """Return whether a node may do nothing because of a constant, such as an addition of 0."""
        if node.operator[1] not in NEUTRAL_ELEMENTS:
            return False
        constants = [tensor for name in node.inputs if (tensor := self._values.constant(name)) is not None]
        scalars = [tensor for tensor in constants if math.prod(tensor.dims) == 1]
        bits = [
            int.from_bytes(tensor.raw_data[:2], "little") if tensor.raw_data else next(iter(tensor.int32_data), 0)
            for tensor in scalars
        ]
        return not NEUTRAL_HALVES.keys().isdisjoint(bits)


def _find_quick_gelu(values: GraphValues, node: NodeView) -> Fusion:
    """Return whether a Mul of doubles multiplies x by the Sigmoid of x, or of x times a constant scalar."""
    if len(node.inputs) != _FACTORS:
        return ""
    for name, other in (node.inputs, reversed(node.inputs)):
        sigmoid = _find_sole_maker(values, name, "Sigmoid")
        if sigmoid is None or _may_be_constant(values, other):
            continue
        if sigmoid.inputs[0] == other:
            return "QuickGelu"
        scaled = _find_sole_maker(values, sigmoid.inputs[0], "Mul")
        factors = scaled.inputs if scaled is not None and len(scaled.inputs) == _FACTORS else None
        for factor, scale in (factors, reversed(factors)) if factors is not None else ():
            tensor = values.constant(scale)
            is_scalar = tensor is not None and [*tensor.dims] in ([], [1]) and values.is_stored(scale)
            if is_scalar and factor == other:
                return "QuickGelu"
    return ""


def _find_clipped_activation(values: GraphValues, node: NodeView) -> Fusion:
    """Return whether a Clip of neither float nor float16, with a constant minimum, follows a Relu."""
    if len(node.inputs) <= 1 or not node.inputs[1]:
        return ""
    relu = _find_sole_maker(values, node.inputs[0], "Relu")
    return "Clip" if relu is not None and values.is_folded(node.inputs[1]) else ""


def _find_product_with_activation(values: GraphValues, node: NodeView) -> Fusion:
    """Return whether the only node that takes the output of a Gemm of doubles is an activation.

    Transpose nodes may be between them if the Gemm has no bias: they are fused with the Gemm first.
    Source: 19 models with Gemm, Transpose and activations of doubles, loaded on 1.16.3, 1.17.3 and 1.18.1.
    """
    if _may_be_computed(values, node):
        return ""
    output = next(iter(node.outputs), "")
    for _ in values.graph.nodes:  # the graph may not be acyclic
        if not _is_taken_once(values, output):
            break
        user = _list_users(values, output)[0]
        if user.operator[:2] in _ACTIVATIONS:
            return "FusedGemm"
        if not _is_transpose(user) or not _is_product_without_bias(node):
            break
        output = user.outputs[0]
    return ""


def _is_product_without_bias(node: NodeView) -> bool:
    """Return whether a node is a Gemm with which the optimizer fuses a Transpose of its output."""
    return node.operator[:2] == (DEFAULT_DOMAIN, "Gemm") and not any(node.inputs[2:])


def _find_batched_product(values: GraphValues, node: NodeView) -> Fusion:
    """Return whether a BatchNormalization with constants follows a MatMul of more than 2 axes with a constant.

    Reshape and Transpose nodes may be between them. The second axis of the constant must have the normalized size.
    Source: 1,500 models with MatMul, 0 to 3 nodes and BatchNormalization, loaded on 5 releases from 1.16.3 to 1.22.1.
    """
    if len(node.inputs) < _BATCH_NORMALIZATION_INPUTS or any(node.outputs[1:]):
        return ""
    name, product = node.inputs[0], None
    for _ in values.graph.nodes:  # the graph may not be acyclic
        product = _find_sole_maker(values, name, "MatMul")
        between = _find_sole_maker(values, name, "Reshape") or _find_sole_maker(values, name, "Transpose")
        if between is None:
            break
        name = between.inputs[0]
    if product is None or max(map(values.rank, product.inputs)) <= _MATRIX:
        return ""
    weights, *vectors = (product.inputs[1], *node.inputs[1:_BATCH_NORMALIZATION_INPUTS])
    if not all(values.is_folded(name) for name in (weights, *vectors)):
        return ""
    size = _list_sizes(values, weights)[1:_MATRIX]
    return "Gemm" if size and all(_list_sizes(values, name) == size for name in vectors) else ""


def _list_sizes(values: GraphValues, name: str) -> list[int]:
    """Return the sizes of a value; [] if they are unknown."""
    value_type = values.type_of(name) if values.is_fixed(name) else None
    return [] if value_type is None else [dim.dim_value for dim in value_type.tensor_type.shape.dim]


def _find_product_of_transposed(values: GraphValues, node: NodeView) -> Fusion:
    """Return whether the optimizer replaces MatMul and a Transpose before it by `com.microsoft.FusedMatMul`.

    Source: 40 models with MatMul and Transpose of doubles, loaded on ONNX Runtime 1.16.3 to 1.31.1; 15 models with a
    Gemm before them, 266 with 2 to 4 Transpose nodes in sequence and 21 with a Cast, loaded on 1.16.3, 1.21.1 and
    1.25.1.
    """
    if len(node.inputs) != _FACTORS:
        return ""
    if not any(_is_swapped(values, name, node.inputs[1 - index]) for index, name in enumerate(node.inputs)):
        return ""
    return "FusedMatMul of one" if len(set(node.inputs)) == 1 else "FusedMatMul"


def _is_swapped(values: GraphValues, name: str, other: str) -> bool:
    """Return whether MatMul is fused with the Transpose nodes that make an input, also before a Cast."""
    perms: list[tuple[int, ...]] = []
    source, maker = name, values.producer(name)
    if maker is not None and maker.operator[:2] == (DEFAULT_DOMAIN, "Cast"):
        source = maker.inputs[0]
        maker = values.producer(source)
    if values.is_output(source):
        return False
    for _ in values.graph.nodes:  # the graph may not be acyclic
        if maker is None or not _is_transpose(maker):
            break
        perms.append(_get_permutation(values, maker))
        source = maker.inputs[0]
        maker = values.producer(source)
    if not perms or values.is_constant(source, 0):
        return False
    if maker is not None and _is_product_without_bias(maker) and _is_taken_once(values, source):
        return False  # the optimizer fuses Gemm and Transpose first
    rank = len(perms[0])
    if rank <= _MATRIX or any(sorted(perm) != [*range(rank)] for perm in perms):
        return rank == _MATRIX
    perm = _join_permutations(perms[::-1])
    if perm in ((*range(rank),), (*range(rank - 2), rank - 1, rank - 2)):
        return True
    with_batch = ((*range(1, rank - 1), 0, rank - 1), (*range(1, rank), 0))
    return perm in with_batch and rank == values.rank(other)


def _join_permutations(perms: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the order of axes after Transpose nodes of more than 2 axes are joined; () if they are removed."""
    joined: tuple[int, ...] = ()
    for perm in perms:
        if not joined:
            joined = perm
            continue
        joined = tuple(joined[axis] for axis in perm)
        if joined == (*range(len(perm)),):
            joined = ()
    return joined


def _is_transpose(node: NodeView) -> bool:
    return node.operator[:2] == (DEFAULT_DOMAIN, "Transpose")


def _get_permutation(values: GraphValues, transpose: NodeView) -> tuple[int, ...]:
    """Return the order of axes of a Transpose; () if it is unknown."""
    perm = next((tuple(attribute.ints) for attribute in transpose.attributes if attribute.name == "perm"), ())
    return perm or tuple(reversed(range(values.rank(transpose.inputs[0]))))


def _find_sole_maker(values: GraphValues, name: str, operator: str) -> NodeView | None:
    """Return the node with an operator that makes a value, if only one node takes the value."""
    maker = values.producer(name)
    is_made = maker is not None and maker.operator[:2] == (DEFAULT_DOMAIN, operator)
    return maker if is_made and _is_taken_once(values, name) else None


def _may_be_computed(values: GraphValues, node: NodeView) -> bool:
    """Return whether the optimizer may replace a node by constants."""
    return all(_may_be_constant(values, name) for name in node.inputs if name)


def _may_be_constant(values: GraphValues, name: str) -> bool:
    """Return whether a value may become a constant. Callers rarely pass constants to local functions."""
    return values.is_folded(name) if values.is_in_function else values.may_be_folded(name)


def _is_taken_once(values: GraphValues, name: str) -> bool:
    """Return whether one node takes a value once, and neither the graph returns it nor a subgraph captures it."""
    users = _list_users(values, name)
    if len(users) != 1 or _count_data_uses(users[0], name) != 1 or values.is_output(name):
        return False
    return name not in values.list_captured()


def _list_users(values: GraphValues, name: str) -> list[NodeView]:
    """Return the nodes that take the data of a value, not only its type or known shape."""
    return [
        user
        for user in values.list_users(name)
        if _count_data_uses(user, name) and not (user.operator[1] == "Shape" and values.is_fixed(name))
    ]


def _count_data_uses(user: NodeView, name: str) -> int:
    """Return how often a node takes a value. CastLike uses only the type of its second input."""
    return (user.inputs[:1] if user.operator[1] == "CastLike" else user.inputs).count(name)


_FINDERS: Mapping[str, Callable[[GraphValues, NodeView], Fusion]] = {
    "BatchNormalization": _find_batched_product,
    "Clip": _find_clipped_activation,
    "Gemm": _find_product_with_activation,
    "MatMul": _find_product_of_transposed,
    "Mul": _find_quick_gelu,
}
_FUSED_DOUBLES = frozenset({"Gemm", "MatMul", "Mul"})
"""Operators of which only nodes of doubles are fused into operators without a kernel."""
_UNFUSED = {"Clip": (0, _FLOAT, _FLOAT16), "LayerNormalization": (0, _FLOAT16, _BFLOAT16)}
"""Element types of nodes that no release fails to fuse; 0 means an unknown type."""
_FUSED_BEFORE_MERGES = frozenset({"BatchNormalization", "Clip"})
"""Operators that the optimizer fuses before it merges equal nodes, and again afterwards."""
