"""Find the shapes, constants and neighbors of a node that kernels of ONNX Runtime depend on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from onnxgate.model.facts import DEFAULT_DOMAIN, canonical_domain
from onnxgate.model.reading.tensor_data import read_small_values
from onnxgate.model.reading.view import GraphView, NodeView
from onnxgate.support.matching.constant_nodes import COMPUTED, explain_fault, read_constant
from onnxgate.support.matching.float8_fusions import FUSED, Float8Fusions
from onnxgate.support.matching.operations import NodeTraits, ValueSource, WrongLoss

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TensorProto, TypeProto

NO_TRAITS = NodeTraits()
_RANKED = frozenset({"ArgMax", "ArgMin", "GroupNormalization", "LayerNormalization"})
DESCRIBED = frozenset(
    (
        *(*_RANKED, *COMPUTED, *FUSED, "Concat", "Div", "Dropout", "GridSample", "Identity", "MatMul", "Mod", "Resize"),
        *("SoftmaxCrossEntropyLoss", "Squeeze", "Upsample"),
    )
)
"""Names of the operators that have traits."""
_SQUEEZE_WITH_AXES_INPUT = 13
"""First opset in which the axes of Squeeze are an input. Older ones are inferred wrongly by old releases."""
_DOUBLE = 11
_INTEGERS = (6, 7)
_ALL_INTEGERS = (2, 3, 4, 5, 6, 7, 12, 13)
_FOLDED = frozenset(
    (
        *("Add", "Cast", "Concat", "ConstantOfShape", "Div", "Expand", "Gather", "Identity", "Mul", "Neg", "Range"),
        *("ReduceProd", "Reshape", "Shape", "Size", "Slice", "Sqrt", "Squeeze", "Sub", "Unsqueeze", "Where"),
    )
)
"""Operators of which ONNX Runtime computes nodes with constant inputs when it loads a model."""
_LOSS_WEIGHTS = 2
"""Index of the weights among the inputs of SoftmaxCrossEntropyLoss."""
_MAX_DEPTH = 32
"""Maximum number of nodes between a constant and a value that is computed from constants only."""


class Scope(Protocol):
    """Types and initializers of the values that a graph can use."""

    def type_of(self, name: str) -> TypeProto | None:
        """Return the type of a value; None if it is unknown."""

    def initializer(self, name: str) -> TensorProto | None:
        """Return the initializer with this name; None if the value is not an initializer."""


class TraitReader:
    """Reads the traits of the nodes of one graph."""

    def __init__(
        self,
        graph: GraphView,
        scope: Scope,
        scalar_squeezes: Mapping[str, str],
        *,
        is_in_function: bool,
        outer: TraitReader | None = None,
    ) -> None:
        self._graph = graph
        self._outer = outer  # reader of the graph that contains this one
        self._is_in_function = is_in_function
        self._scope = scope
        self._scalar_squeezes = scalar_squeezes
        self._producers: Mapping[str, NodeView] | None = None
        self._captured: set[str] | None = None
        self._float8_fusions: Float8Fusions | None = None
        self._sources: dict[str, ValueSource] = {}
        self._used: set[str] | None = None

    def read(self, node: NodeView) -> NodeTraits:
        """Return the traits of a node."""
        domain, name, _ = node.operator
        if name not in DESCRIBED or domain != DEFAULT_DOMAIN or not node.inputs:
            return NO_TRAITS
        if name in FUSED and (fusion := self._find_float8_fusion(node)):
            return NodeTraits(float8_fusion=fusion)
        if name == "GridSample":
            return NodeTraits(rank=next((rank for rank in map(self._rank, node.inputs[:2]) if rank >= 0), -1))
        if name == "GroupNormalization":
            return NodeTraits(rank=self._rank(node.inputs[0]), wrong_scale=self._find_wrong_scale(node))
        if name in _RANKED:
            return NodeTraits(rank=self._rank(node.inputs[0]))
        if name in ("Dropout", "Identity"):
            return NodeTraits(is_eliminated=True) if self._is_eliminated(node) else NO_TRAITS
        if name == "SoftmaxCrossEntropyLoss":
            wrong = self._find_wrong_loss(node) if len(node.inputs) > 1 else ""
            return NodeTraits(wrong_loss=wrong, has_fixed_scores=self._is_fixed(node.inputs[0])) if wrong else NO_TRAITS
        if name == "Squeeze" and len(node.inputs) == 1:
            return NodeTraits(as_scalar="".join(self._scalar_squeezes.get(name, "") for name in node.outputs[:1]))
        if name in COMPUTED or name == "Concat":
            fault = self._find_constant_fault(node)
            return NodeTraits(constant_fault=fault, has_late_fault=self._is_in_function) if fault else NO_TRAITS
        if name in ("Div", "Mod"):
            return self._read_division(node) if len(node.inputs) > 1 else NO_TRAITS
        if name == "MatMul":
            return NodeTraits(is_transposed=True) if self._is_fused_with_transpose(node) else NO_TRAITS
        return NodeTraits(scales=self._read_scales(node)) if name in ("Resize", "Upsample") else NO_TRAITS

    def _find_float8_fusion(self, node: NodeView) -> str:
        """Return the quantized operator that replaces a node of float8 values; "" if there is none."""
        if self._is_in_function:
            return ""
        if self._float8_fusions is None:
            self._float8_fusions = Float8Fusions(self._graph, self._scope.type_of)
        fusion = self._float8_fusions.find(node, is_output=any(map(self._is_output, node.outputs)))
        return fusion if fusion and self._list_captured().isdisjoint(node.outputs) else ""

    def find_source(self, name: str) -> ValueSource:
        """Return whether a value is computed from constants only, or from data that callers pass to the model."""
        if name not in self._sources:
            self._trace(name)
        return self._sources[name]

    def has_use(self, name: str) -> bool:
        """Return whether a node of the graph or of a graph in it takes a value, or it is an output of the graph."""
        if self._used is None:
            outputs = (getattr(value, "name", value) for value in self._graph.proto.output)
            self._used = {*outputs, *(name for node in self._graph.all_nodes() for name in node.inputs)}
        return name in self._used

    def is_model_output(self, name: str) -> bool:
        """Return whether a value of this graph is an output of the model."""
        return self._outer is None and not self._is_in_function and self._is_output(name)

    def _trace(self, name: str) -> None:
        """Find the source of a value after the sources of the values that it is computed from."""
        ahead = [name]
        while ahead:
            producer = self._producer(ahead[-1])
            missing = [it for it in producer.inputs if it and it not in self._sources] if producer is not None else []
            if missing and len(ahead) <= len(self._graph.nodes):
                ahead += missing
                continue
            current = ahead.pop()
            if current not in self._sources:
                self._sources[current] = self._read_source(current) if producer is None else self._combine(producer)

    def _read_source(self, name: str) -> ValueSource:
        """Return the source of a value that no node of this graph computes."""
        if any(tensor.name == name for tensor in getattr(self._graph.proto, "initializer", ())):
            return "constant"
        if any(value.name == name for value in getattr(self._graph.proto, "input", ())):
            return "unknown" if self._is_in_function else "input" if self._outer is None else "computed"
        return "unknown" if self._outer is None else self._outer.find_source(name)

    def _combine(self, producer: NodeView) -> ValueSource:
        """Return the source of the outputs of a node. The shape of a value can be known although its data is not."""
        sources = {self._sources.get(name, "unknown") for name in producer.inputs if name}
        if producer.operator[1] in ("Shape", "Size"):
            return "constant" if sources == {"constant"} or self._is_fixed(producer.inputs[0]) else "unknown"
        if not sources.isdisjoint(("input", "computed")) or producer.operator[1].startswith("Random"):
            return "computed"
        return "constant" if sources <= {"constant"} and not producer.graphs else "unknown"

    def _is_fixed(self, name: str) -> bool:
        """Return whether all sizes of a value of known rank are known."""
        value_type = self._scope.type_of(name)
        if value_type is None or not value_type.tensor_type.HasField("shape"):
            return False
        return all(dim.HasField("dim_value") for dim in value_type.tensor_type.shape.dim)

    def _find_wrong_loss(self, node: NodeView) -> WrongLoss:
        """Return how labels (N, D1, ...) do not fit scores (N, C, D1, ...), or "weights" if their rank is not 1.

        The result is "" if they fit or this is unknown.
        """
        scores, labels = map(self._scope.type_of, node.inputs[:2])
        if scores is None or labels is None or min(self._rank(name) for name in node.inputs[:2]) < 0:
            return ""
        expected, actual = ([*found.tensor_type.shape.dim] for found in (scores, labels))
        if not actual or len(expected) <= 1:
            return "scalar"
        del expected[1:2]
        if len(expected) != len(actual):
            return "rank"
        if len(node.inputs) > _LOSS_WEIGHTS and self._rank(node.inputs[_LOSS_WEIGHTS]) not in (-1, 1):
            return "weights" if self._can_weigh(node.inputs[_LOSS_WEIGHTS], actual) else "product"
        pairs = [pair for pair in zip(expected, actual, strict=True) if all(dim.HasField("dim_value") for dim in pair)]
        sizes = [(left.dim_value, right.dim_value) for left, right in pairs]
        return "size" if any(min(left, right) >= 0 and left != right for left, right in sizes) else ""

    def _find_wrong_scale(self, node: NodeView) -> Literal["", "channels", "bias"]:
        """Return with what the scale or bias of a GroupNormalization does not agree, if their sizes are known."""
        sizes = []
        for name in node.inputs[1:3]:
            value_type = self._scope.type_of(name) if self._rank(name) == 1 else None
            sizes.append(value_type.tensor_type.shape.dim[0].dim_value if value_type is not None else 0)
        known = {size for size in sizes if size > 1}
        if len(known) > 1:
            return "bias"
        data = self._scope.type_of(node.inputs[0])
        if not known or data is None or self._rank(node.inputs[0]) < 2 or not self._is_fixed(node.inputs[0]):
            return ""
        return "" if data.tensor_type.shape.dim[1].dim_value in known else "channels"

    def _can_weigh(self, weights: str, labels: Sequence[Any]) -> bool:
        """Return whether the weights that the labels select, of shape (labels, weights[1:]), may fit the labels."""
        value_type = self._scope.type_of(weights)
        dims = [] if value_type is None else [*value_type.tensor_type.shape.dim]
        pairs = zip(reversed([*labels, *dims[1:]]), reversed(labels), strict=False)
        known = [(left.dim_value, right.dim_value) for left, right in pairs if left.dim_value and right.dim_value]
        return bool(dims) and all(left == right or 1 in (left, right) for left, right in known)

    def _find_constant_fault(self, node: NodeView) -> str:
        """Return why a node of constants cannot be computed; "" if it can or this is unknown."""
        if node.operator[1] == "Concat":
            names = [name for name in node.inputs if name]
            is_computed = 0 < len(names) < len(node.inputs) and all(self._is_folded(name, 0) for name in names)
            return f"input {node.inputs.index('') + 1} is absent" if is_computed else ""
        constants = []
        for name in node.inputs:
            tensor = self._constant(name) if name else None
            if tensor is None:
                return ""
            constants.append(tensor)
        fault = explain_fault(node, constants)
        return fault if fault and all(map(self._is_stored, node.inputs)) else ""

    def _read_division(self, node: NodeView) -> NodeTraits:
        """Return whether a Div or Mod divides integers by a constant that contains 0, or by a value that may."""
        tensor = self._constant(node.inputs[1])
        if tensor is None:
            value_type = self._scope.type_of(node.inputs[0])
            is_integer = value_type is None or value_type.tensor_type.elem_type in (0, *_ALL_INTEGERS)
            return NodeTraits(divisor="unknown") if is_integer else NO_TRAITS
        if tensor.data_type not in _ALL_INTEGERS:
            return NO_TRAITS
        values = read_small_values(tensor)
        if values is None or 0 not in values:
            is_known = values is not None and self._is_stored(node.inputs[1])
            return NO_TRAITS if is_known else NodeTraits(divisor="unknown")
        if tensor.data_type not in _INTEGERS or not self._is_stored_here(node.inputs[1]):
            return NodeTraits(divisor="zero")
        is_computed = self._is_computed_dividend(node.inputs[0])
        return NodeTraits(
            divides_by_zero="constants" if is_computed else "input",
            has_late_fault=self._is_in_function,
            divisor="zero",
        )

    def _is_computed_dividend(self, name: str) -> bool:
        """Return whether a dividend becomes a constant that has elements when the model is loaded."""
        tensor = self._constant(name)
        if tensor is not None:
            return all(tensor.dims) and self._is_folded(name, 0)
        value_type = self._scope.type_of(name)
        has_elements = value_type is not None and all(dim.dim_value for dim in value_type.tensor_type.shape.dim)
        return has_elements and self._is_fixed(name) and self._is_folded(name, 0)

    def _is_folded(self, name: str, depth: int) -> bool:
        """Return whether ONNX Runtime certainly replaces a value by a constant when it loads the model."""
        producer = self._producer(name)
        if producer is None:
            return self._is_stored(name)
        if producer.operator[1] == "Constant":
            return True
        if producer.operator[1] == "Shape" and self._is_fixed(producer.inputs[0]):
            return True
        inputs = [name for name in producer.inputs if name]
        is_simple = producer.operator[1] in _FOLDED and bool(inputs) and depth < _MAX_DEPTH
        return is_simple and all(self._is_folded(name, depth + 1) for name in inputs)

    def _is_stored(self, name: str) -> bool:
        """Return whether a constant belongs to this graph or one around it, and callers of the model cannot replace it.

        Source: nodes in branches with constants of their own and of the model, loaded on ONNX Runtime 1.16.3 to 1.31.1.
        """
        if self._is_stored_here(name):
            return True
        declared = getattr(self._graph.proto, "input", ())
        is_captured = self._outer is not None and all(value.name != name for value in declared)
        return is_captured and self._outer is not None and self._outer._is_stored(name)

    def _is_stored_here(self, name: str) -> bool:
        """Return whether a constant belongs to this graph, and callers of the model cannot replace it."""
        if self._producer(name) is not None:
            return True
        own = any(tensor.name == name for tensor in getattr(self._graph.proto, "initializer", ()))
        return own and self._is_constant(name, 0)

    def _is_eliminated(self, node: NodeView) -> bool:
        """Return whether the optimizer removes an Identity or Dropout, so that it needs no kernel.

        It keeps nodes whose output a subgraph captures, Dropout with a ratio, a mask or as an output of the graph, and
        Identity whose input and output are those of the graph.
        Source: models with Identity and Dropout in 8 and 14 positions, loaded on ONNX Runtime 1.16.0 to 1.32.0.
        """
        is_output = any(map(self._is_output, node.outputs))
        if node.operator[1] == "Identity":
            is_output = is_output and self._producer(node.inputs[0]) is None
        elif len(node.inputs) > 1 or any(map(self._is_used, node.outputs[1:])):
            return False
        return not is_output and self._list_captured().isdisjoint(node.outputs)

    def _is_used(self, name: str) -> bool:
        return any(name in node.inputs for node in self._graph.nodes if name)

    def _list_captured(self) -> set[str]:
        """Return the names that nodes in subgraphs use."""
        if self._captured is None:
            inside = (graph for outer in self._graph.nodes for graph in outer.graphs)
            self._captured = {name for graph in inside for inner in graph.all_nodes() for name in inner.inputs}
        return self._captured

    def _producer(self, name: str) -> NodeView | None:
        if self._producers is None:
            self._producers = {output: node for node in self._graph.nodes for output in node.outputs if output}
        return self._producers.get(name)

    def _rank(self, name: str) -> int:
        value_type = self._scope.type_of(name)
        if value_type is None or not value_type.tensor_type.HasField("shape"):
            return -1
        return len(value_type.tensor_type.shape.dim)

    def _read_scales(self, node: NodeView) -> tuple[float, ...]:
        """Return the constant scales of Resize or Upsample for all axes; () if they are absent or not constant."""
        position = 1 if node.operator[1] == "Upsample" or len(node.inputs) == 2 else 2
        name = node.inputs[position] if position < len(node.inputs) else ""
        tensor = self._constant(name) if name else None
        values = read_small_values(tensor) if tensor is not None else None
        if not values:
            return ()
        axes = next((attribute.ints for attribute in node.attributes if attribute.name == "axes"), ())
        if not axes:
            return tuple(map(float, values))
        rank = self._rank(node.inputs[0])
        if rank < 0 or len(axes) != len(values) or not all(-rank <= axis < rank for axis in axes):
            return ()
        by_axis = {axis % rank: float(value) for axis, value in zip(axes, values, strict=True)}
        return tuple(by_axis.get(axis, 1.0) for axis in range(rank))

    def _constant(self, name: str) -> TensorProto | None:
        producer = self._producer(name)
        if producer is None:
            tensor = self._scope.initializer(name)
            return tensor if tensor is not None or self._outer is None else self._outer._constant(name)
        if producer.operator[1] != "Constant":
            return None
        return next((read_constant(attribute) for attribute in producer.attributes), None)

    def _is_fused_with_transpose(self, node: NodeView) -> bool:
        """Return whether the optimizer replaces MatMul and a Transpose before it by `com.microsoft.FusedMatMul`.

        Source: 40 models with MatMul and Transpose of doubles, loaded on ONNX Runtime 1.16.3 to 1.31.1.
        """
        first = self._scope.type_of(node.inputs[0])
        if first is None or first.tensor_type.elem_type != _DOUBLE or len(set(node.inputs)) != 2:
            return False
        return any(self._is_swapped(name, node.inputs[1 - index]) for index, name in enumerate(node.inputs))

    def _is_swapped(self, name: str, other: str) -> bool:
        producer = self._producer(name)
        while producer is not None and producer.operator[1] in ("Identity", "Cast") and producer.inputs:
            name = producer.inputs[0]
            producer = self._producer(name)
        if producer is None or producer.operator[1] != "Transpose" or self._is_output(name):
            return False
        source = producer.inputs[0]
        perm = next((tuple(attribute.ints) for attribute in producer.attributes if attribute.name == "perm"), ())
        rank = len(perm) or self._rank(source)
        perm = perm or tuple(reversed(range(rank)))
        if rank < 2 or self._is_constant(source, 0):
            return False
        if perm == (*range(rank - 2), rank - 1, rank - 2):
            return True
        with_batch = ((*range(1, rank - 1), 0, rank - 1), (*range(1, rank), 0))
        return rank > 2 and perm in with_batch and rank == self._rank(other)

    def _is_output(self, name: str) -> bool:
        return any(getattr(value, "name", value) == name for value in self._graph.proto.output)

    def _is_constant(self, name: str, depth: int) -> bool:
        """Return whether a value may be computed from constants only, so that ONNX Runtime folds its consumers."""
        producer = self._producer(name)
        if producer is not None:
            return depth >= _MAX_DEPTH or all(self._is_constant(it, depth + 1) for it in producer.inputs if it)
        declared = getattr(self._graph.proto, "input", ())
        return all(value.name != name for value in declared)


def find_scalar_squeezes(model: ModelProto, typed: GraphProto) -> Mapping[str, str]:
    """Return what fails if the output of a Squeeze without `axes` is a scalar, by the name of the output.

    ONNX Runtime 1.18.0 to 1.22.1 infers a scalar if a size of the input is unknown. `typed` is the model's graph with
    inferred types. Source: models with Squeeze before other operators, loaded on 9 releases.
    """
    opsets = [it.version for it in model.opset_import if canonical_domain(it.domain) == DEFAULT_DOMAIN]
    if not opsets or max(opsets) >= _SQUEEZE_WITH_AXES_INPUT:
        return {}
    plain = (node for node in model.graph.node if node.op_type == "Squeeze" and not node.domain and not node.attribute)
    nodes = [node for node in plain if len(node.input) == len(node.output) == 1]
    if not nodes:
        return {}
    types = {value.name: value.type.tensor_type for value in (*typed.input, *typed.value_info)}
    unsure = [node for node in nodes if (found := types.get(node.input[0])) is not None and _has_unknown_size(found)]
    names = {node.output[0]: types[node.input[0]].elem_type for node in unsure}
    if not names or _infer_with_squeezes(model, names, as_scalars=False):
        return {}
    return dict.fromkeys(names, message) if (message := _infer_with_squeezes(model, names, as_scalars=True)) else {}


def _has_unknown_size(tensor_type: TypeProto.Tensor) -> bool:
    return tensor_type.HasField("shape") and any(not dim.HasField("dim_value") for dim in tensor_type.shape.dim)


def _infer_with_squeezes(model: ModelProto, squeezed: Mapping[str, int], *, as_scalars: bool) -> str:
    """Return the error of shape inference if the outputs of Squeeze have rank 0, or an unknown rank; "" if none."""
    from onnx import shape_inference

    copy = type(model)()
    copy.CopyFrom(model)
    nodes = [node for node in copy.graph.node if not squeezed.keys() & set(node.output)]
    copy.graph.ClearField("node")
    copy.graph.node.extend(nodes)
    del copy.graph.value_info[:]
    for name, element in squeezed.items():
        tensor_type = copy.graph.input.add(name=name).type.tensor_type
        tensor_type.elem_type = element
        if as_scalars:
            tensor_type.shape.SetInParent()
    for output in copy.graph.output:
        output.type.tensor_type.ClearField("shape")
    try:
        shape_inference.infer_shapes(copy, strict_mode=True)
    except (shape_inference.InferenceError, RuntimeError, ValueError, IndexError) as error:
        operator = re.search(r"\(op_type:(\w+)", str(error))
        return f"`{operator[1]}` fails" if operator else "shape inference fails"
    return ""
