"""Find the nodes that ONNX Runtime's optimizer removes, or fuses with their neighbors before it selects kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from onnxgate.model.facts import DEFAULT_DOMAIN
from onnxgate.model.reading.view import NodeView
from onnxgate.support.matching.graph_values import GraphValues
from onnxgate.support.matching.operations import Fusion

_FLOAT, _FLOAT16, _DOUBLE = 1, 10, 11
_ACTIVATIONS = frozenset({"Relu", "Sigmoid", "Tanh"})
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
_REMOVABLE = frozenset(("Cast", "Concat", "Dropout", "Expand", "Gather", "Identity", "If", "Pad", "Slice", "Transpose"))
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
_WITH_NEUTRAL_ELEMENT = frozenset({"Add", "Div", "Mul", "Sub"})
"""Operators of which the optimizer removes nodes with a constant 0 or 1."""
_NEUTRAL_HALVES = frozenset({0x0000, 0x8000, 0x3C00})
"""Bits of 0, -0 and 1 as float16."""
_FUSED_WITH_LATER = frozenset({"Add", "Div", "Mul", "Sub"})
_FUSED_WITH_OTHERS = frozenset({"Pow", "ReduceMean", "Sub"})
"""Last and first operators, besides others, that the optimizer fuses into LayerNormalization and its variants."""


class OptimizerChanges:
    """Changes that the optimizer makes to the nodes of one graph."""

    def __init__(self, values: GraphValues) -> None:
        self._values = values

    def find_fusion(self, node: NodeView) -> Fusion:
        """Return what the optimizer makes of a node and its neighbors if some releases fail then; "" if nothing.

        Source: about 2,700 models with sequences of operators that ONNX Runtime fuses, of 6 types in opsets 13 to 22,
        loaded on 8 releases from 1.16.3 to 1.32.0; variants of those that failed, loaded on 12 to 19 releases.
        """
        find: Callable[[NodeView], Fusion] | None = {
            "BatchNormalization": self._find_batched_product,
            "Clip": self._find_clipped_activation,
            "Gemm": self._find_product_with_activation,
            "LayerNormalization": self._find_layer_before_attention,
            "MatMul": self._find_product_of_transposed,
            "Mul": self._find_quick_gelu,
        }.get(node.operator[1])
        return find(node) if find is not None else ""

    def _find_quick_gelu(self, node: NodeView) -> Fusion:
        """Return whether a Mul of doubles multiplies x by the Sigmoid of x, or of x times a constant scalar."""
        if self._values.element(node.inputs[0]) != _DOUBLE or len(node.inputs) != _FACTORS:
            return ""
        for name, other in (node.inputs, reversed(node.inputs)):
            sigmoid = self._sole_maker(name, "Sigmoid")
            if sigmoid is None or self._values.is_folded(other, 0):
                continue
            argument = self._skip_removed(sigmoid.inputs[0])
            if argument == self._skip_removed(other):
                return "QuickGelu"
            scaled = self._sole_maker(argument, "Mul")
            factors = scaled.inputs if scaled is not None and len(scaled.inputs) == _FACTORS else None
            for factor, scale in (factors, reversed(factors)) if factors is not None else ():
                tensor = self._values.constant(scale)
                is_scalar = tensor is not None and math.prod(tensor.dims) == 1 and self._values.is_stored(scale)
                if is_scalar and self._skip_removed(factor) == self._skip_removed(other):
                    return "QuickGelu"
        return ""

    def _find_clipped_activation(self, node: NodeView) -> Fusion:
        """Return whether a Clip of neither float nor float16, with a constant minimum, follows a Relu."""
        is_limited = len(node.inputs) > 1 and bool(node.inputs[1])
        if not is_limited or self._values.element(node.inputs[0]) in (0, _FLOAT, _FLOAT16):
            return ""
        relu = self._sole_maker(node.inputs[0], "Relu")
        return "Clip" if relu is not None and self._values.is_folded(node.inputs[1], 0) else ""

    def _find_product_with_activation(self, node: NodeView) -> Fusion:
        """Return whether the only node that takes the output of a Gemm of doubles is an activation."""
        output = next(iter(node.outputs), "")
        if self._values.element(node.inputs[0]) != _DOUBLE:
            return ""
        for _ in self._values.graph.nodes:  # the graph may not be acyclic
            if not self._is_taken_once(output):
                break
            user = self._values.list_users(output)[0]
            if not self._is_passed(user):
                return "FusedGemm" if user.operator[1] in _ACTIVATIONS else ""
            output = user.outputs[0]
        return ""

    def _find_batched_product(self, node: NodeView) -> Fusion:
        """Return whether a BatchNormalization with constants follows a MatMul of more than 2 axes with a constant.

        A Reshape or Transpose may be between them. A constant of one axis is not fused.
        """
        if len(node.inputs) < _BATCH_NORMALIZATION_INPUTS or any(node.outputs[1:]):
            return ""
        value = node.inputs[0]
        between = self._sole_maker(value, "Reshape") or self._sole_maker(value, "Transpose")
        product = self._sole_maker(value if between is None else between.inputs[0], "MatMul")
        if product is None or self._values.rank(product.inputs[0]) <= _MATRIX:
            return ""
        if self._values.rank(product.inputs[1]) < _MATRIX:
            return ""
        constants = (product.inputs[1], *node.inputs[1:_BATCH_NORMALIZATION_INPUTS])
        return "Gemm" if all(self._values.is_folded(name, 0) for name in constants) else ""

    def _find_product_of_transposed(self, node: NodeView) -> Fusion:
        return "FusedMatMul" if self._is_fused_with_transpose(node) else ""

    def _find_layer_before_attention(self, node: NodeView) -> Fusion:
        """Return whether a LayerNormalization without a bias is taken as often as before an attention.

        Old releases then read the bias that it does not have.
        """
        if any(node.inputs[2:]) or self._values.element(node.inputs[0]) not in (_FLOAT, _DOUBLE):
            return ""
        if self._values.is_folded(node.inputs[0], 0):
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
            if operator == "Shape" and self._values.is_fixed(name):
                continue
            number = user.inputs.count(name)
            returned = tuple(filter(self._values.is_output, user.outputs))  # nodes that make outputs stay
            key = (user.operator, tuple(map(self._name_kept, user.inputs)), returned)
            has_scalar = any(map(self._is_scalar, user.inputs))
            after = [it.operator[1] for output in user.outputs for it in self._values.list_users(output)]
            is_removable = (
                operator in _REMOVABLE
                or (operator in _WITH_NEUTRAL_ELEMENT and has_scalar)
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

    def _sole_maker(self, name: str, operator: str) -> NodeView | None:
        """Return the node with an operator that makes a value, if only one node takes the value."""
        taken = name
        while (maker := self._values.producer(name)) is not None and self._is_passed(maker):
            taken, name = maker.inputs[0], maker.inputs[0]
            if not self._is_taken_once(taken):
                return None
        is_made = maker is not None and maker.operator[:2] == (DEFAULT_DOMAIN, operator)
        return maker if is_made and self._is_taken_once(name) else None

    def _is_taken_once(self, name: str) -> bool:
        """Return whether one node takes a value once, and neither the graph returns it nor a subgraph captures it."""
        users = self._values.list_users(name)
        if len(users) != 1 or users[0].inputs.count(name) != 1 or self._values.is_output(name):
            return False
        return name not in self._values.list_captured()

    def _skip_removed(self, name: str) -> str:
        """Return the value that takes the place of a value if the optimizer removes the nodes that make it."""
        while (maker := self._values.producer(name)) is not None and self._is_passed(maker):
            name = maker.inputs[0]
        return name

    def is_eliminated(self, node: NodeView) -> bool:
        """Return whether the optimizer removes an Identity or Dropout, so that it needs no kernel.

        It keeps nodes whose output a subgraph captures, Dropout with a ratio, a mask or as an output of the graph, and
        Identity whose input and output are those of the graph.
        Source: models with Identity and Dropout in 8 and 14 positions, loaded on ONNX Runtime 1.16.0 to 1.32.0.
        """
        is_output = any(map(self._values.is_output, node.outputs))
        if node.operator[1] == "Identity":
            is_output = is_output and self._values.producer(node.inputs[0]) is None
        elif len(node.inputs) > 1 or any(map(self._values.is_used, node.outputs[1:])):
            return False
        return not is_output and self._values.list_captured().isdisjoint(node.outputs)

    def _is_fused_with_transpose(self, node: NodeView) -> bool:
        """Return whether the optimizer replaces MatMul and a Transpose before it by `com.microsoft.FusedMatMul`.

        Source: 40 models with MatMul and Transpose of doubles, loaded on ONNX Runtime 1.16.3 to 1.31.1.
        """
        if self._values.element(node.inputs[0]) != _DOUBLE or len(set(node.inputs)) != 2:
            return False
        return any(self._is_swapped(name, node.inputs[1 - index]) for index, name in enumerate(node.inputs))

    def _is_swapped(self, name: str, other: str) -> bool:
        producer = self._values.producer(name)
        while producer is not None and producer.operator[1] in ("Identity", "Cast") and producer.inputs:
            name = producer.inputs[0]
            producer = self._values.producer(name)
        if producer is None or producer.operator[1] != "Transpose" or self._values.is_output(name):
            return False
        source = producer.inputs[0]
        perm = next((tuple(attribute.ints) for attribute in producer.attributes if attribute.name == "perm"), ())
        rank = len(perm) or self._values.rank(source)
        perm = perm or tuple(reversed(range(rank)))
        if rank < 2 or self._values.is_constant(source, 0):
            return False
        if perm == (*range(rank - 2), rank - 1, rank - 2):
            return True
        with_batch = ((*range(1, rank - 1), 0, rank - 1), (*range(1, rank), 0))
        return rank > 2 and perm in with_batch and rank == self._values.rank(other)

    def find_neighbors(self, node: NodeView) -> tuple[tuple[NodeView, str], ...]:
        """Return the node that makes the first input of a node, and those that take its output, with these values.

        The result is empty if a value belongs to another graph, too. Instead of an Identity that the optimizer removes,
        those on its other side are neighbors.
        """
        value, output = node.inputs[0], node.outputs[0]
        maker = self._values.producer(value)
        while maker is not None and self._is_removed(maker):
            value = maker.inputs[0]
            maker = self._values.producer(value)
        users: list[tuple[NodeView, str]] = []
        ahead = [output]
        while ahead:
            name = ahead.pop()
            if self._values.is_output(name) or name in self._values.list_captured():
                return ()
            for user in self._values.list_users(name):
                ahead += user.outputs[:1] if self._is_removed(user) else ()
                users += () if self._is_removed(user) else ((user, name),)
        if maker is None or self._may_be_changed(maker, [user for user, _ in users]):
            return ()
        return ((maker, value), *users)

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
        if node.operator[1] not in _WITH_NEUTRAL_ELEMENT:
            return False
        constants = [tensor for name in node.inputs if (tensor := self._values.constant(name)) is not None]
        scalars = [tensor for tensor in constants if math.prod(tensor.dims) == 1]
        bits = [
            int.from_bytes(tensor.raw_data[:2], "little") if tensor.raw_data else next(iter(tensor.int32_data), 0)
            for tensor in scalars
        ]
        return not _NEUTRAL_HALVES.isdisjoint(bits)

    def _is_removed(self, node: NodeView) -> bool:
        return node.operator[:2] == (DEFAULT_DOMAIN, "Identity") and self.is_eliminated(node)

    def _is_passed(self, node: NodeView) -> bool:
        """Return whether the optimizer removes an Identity, Dropout or Cast before it fuses nodes."""
        if node.operator[0] != DEFAULT_DOMAIN or not node.inputs or not node.outputs:
            return False
        if node.operator[1] == "Cast":
            elements = {self._values.element(name) for name in (node.inputs[0], node.outputs[0])}
            is_shared = self._values.is_output(node.outputs[0]) or node.outputs[0] in self._values.list_captured()
            return len(elements) == 1 and 0 not in elements and not is_shared
        return node.operator[1] in ("Dropout", "Identity") and self.is_eliminated(node)
