"""Dataflow in a graph: constants, and the nodes that use a value after simple operators.

Used to detect roles of inputs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from onnx import TensorProto, numpy_helper

from onnxgate.model.facts import DEFAULT_DOMAIN, Dim, count_tensor_elements
from onnxgate.model.local_functions import inline_local_functions
from onnxgate.model.reading.fact_extraction import format_operator_name
from onnxgate.model.reading.view import GraphView, ModelView, iter_node_subgraphs

if TYPE_CHECKING:
    import onnx

VALUE_PRESERVING_OPERATORS = frozenset(
    {"Identity", "Cast", "CastLike", "Unsqueeze", "Squeeze", "Reshape", "Flatten", "Expand"}
)
"""Operators whose output contains the values of their first input, possibly with a different shape or type."""
MAX_VARIANTS = 4
"""Maximum number of paths from one value to another that are followed."""

_MAX_DENOMINATOR_BITS = 8192
"""Maximum size in bits of the denominator of a scale or offset. Values with larger denominators are not followed."""
_SHAPE_PRESERVING_OPERATORS = frozenset({"Identity", "Cast", "DequantizeLinear"})

ELEMENT_SELECTING_OPERATORS = VALUE_PRESERVING_OPERATORS | {
    "Transpose",
    "Slice",
    "Tile",
    "Split",
    "Gather",
    "GatherND",
    "GatherElements",
    "Dropout",
    "Clip",
    "Pad",
    "Floor",
    "Ceil",
    "Round",
    "TopK",
    "DepthToSpace",
    "SpaceToDepth",
    "SequenceInsert",
    "ai.onnx.ml.ArrayFeatureExtractor",
}
"""Operators whose outputs contain some or all values of their first input, possibly rounded."""

REDUCING_OPERATORS = frozenset(
    {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "CumSum", "GlobalAveragePool", "AveragePool"}
)
"""Operators whose results are positive if their inputs are positive."""

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "Equal": operator.eq,
    "Greater": operator.gt,
    "GreaterOrEqual": operator.ge,
    "Less": operator.lt,
    "LessOrEqual": operator.le,
}


@dataclass(frozen=True, slots=True)
class DerivedValue:
    """A value computed from another value as `scale * value + offset`.

    `flipped` means logical negation; `summed` means the sum or mean of several values; `compared` means the result of a
    comparison.
    """

    name: str
    offset: Fraction = Fraction(0)
    flipped: bool = False
    scale: Fraction = Fraction(1)
    summed: bool = False
    compared: bool = False


@dataclass(frozen=True, slots=True)
class ValueUse:
    """A use of a value: the input of a node that receives the value directly or after simple operators."""

    node: onnx.NodeProto
    position: int
    value: DerivedValue

    @property
    def operator(self) -> str:
        """Name of the operator, with its domain unless it is the default domain."""
        return format_operator_name(self.node)

    def attribute(self, name: str, default: int = 0) -> int:
        """Return the value of the node's integer attribute, or `default` if the node does not have it."""
        return next((int(attribute.i) for attribute in self.node.attribute if attribute.name == name), default)

    def listed(self, name: str) -> tuple[str | int | float, ...]:
        """Return the elements of the node's attribute if it is a list of numbers or strings."""
        for attribute in self.node.attribute:
            if attribute.name == name:
                return (*(text.decode() for text in attribute.strings), *attribute.ints, *attribute.floats)
        return ()

    def input_name(self, position: int) -> str:
        """Return the name of the value at this input of the node; "" if the node has no such input."""
        return self.node.input[position] if position < len(self.node.input) else ""


class DataflowGraph:
    """The nodes of a model, indexed by their inputs and outputs, including nodes in subgraphs and local functions.

    Equal names in sibling subgraphs are treated as one value, so some of the reported uses may not exist.
    """

    def __init__(self, model: ModelView) -> None:
        self._consumers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
        self._producers: dict[str, onnx.NodeProto] = {}
        self._tensors: dict[str, onnx.TensorProto] = {}
        self._dims: dict[str, tuple[Dim, ...]] = {}
        self._leaving: dict[str, list[str]] = {}  # output of a subgraph -> outputs of its node
        self.model = inline_local_functions(model)
        self._add(self.model.graphs[0])

    def _add(self, view: GraphView) -> None:
        graph = view.proto
        self._tensors.update((tensor.name, tensor) for tensor in graph.initializer)
        for value in (*graph.input, *graph.value_info, *graph.output):
            if value.type.HasField("tensor_type") and value.type.tensor_type.HasField("shape"):
                self._dims[value.name] = tuple(_read_dim(dim) for dim in value.type.tensor_type.shape.dim)
        for node in view.nodes:
            for position, name in enumerate(node.inputs):
                self._consumers.setdefault(name, []).append((node.proto, position))
            self._producers.update((name, node.proto) for name in node.outputs)
            for body in node.graphs:
                self._add(body)
                results = body.proto.output[1:] if node.operator[1] == "Loop" else body.proto.output  # [0]: condition
                for inner, outer in zip(results, node.outputs, strict=False):
                    self._leaving.setdefault(inner.name, []).append(outer)

    def uses(self, name: str) -> Iterator[ValueUse]:
        """Yield each use of the value, including uses after it was reshaped, cast, negated, scaled or shifted."""
        pending = [DerivedValue(name)]
        variants_by_name: dict[str, set[DerivedValue]] = {name: set(pending)}
        while pending:
            value = pending.pop()
            onward = [replace(value, name=outer) for outer in self._leaving.get(value.name, ())]
            for node, position in self._consumers.get(value.name, ()):
                use = ValueUse(node, position, value)
                yield use
                onward += self._onward(use)
            for step in onward:
                variants = variants_by_name.setdefault(step.name, set())
                if step not in variants and len(variants) < MAX_VARIANTS:
                    variants.add(step)
                    pending.append(step)

    def _onward(self, use: ValueUse) -> Iterable[DerivedValue]:
        value = use.value
        match use.operator, use.position:
            case ("Not", _):
                value = replace(value, flipped=not value.flipped)
            case ("And" | "Or" | "Concat" | "Min" | "Max", _) | ("Where", 1 | 2):
                pass
            case ("If", _) | ("Loop", 0 | 1):
                return []
            case ("Loop" | "Scan", position):
                bodies = [body for body in iter_node_subgraphs(use.node) if position < len(body.input)]
                return [replace(value, name=body.input[position].name) for body in bodies]
            case ("Neg", _):
                value = replace(value, offset=-value.offset, scale=-value.scale)
            case (name, 0) if name in ELEMENT_SELECTING_OPERATORS:
                pass
            case (name, 0) if name in REDUCING_OPERATORS:
                value = replace(value, summed=True)
            case _:
                return self._computed(use)
        return [replace(value, name=name) for name in use.node.output]

    def _computed(self, use: ValueUse) -> Iterable[DerivedValue]:
        """Follow an operator that combines a value with a constant: `Add`, `Sub`, `Mul`, `Div` or a comparison."""
        constant = self.scalar(use.input_name(1 - use.position)) if use.position < 2 else None
        if constant is None or not math.isfinite(constant) or not use.node.output:
            return []
        value, by = replace(use.value, name=use.node.output[0]), Fraction(constant)
        if max(value.scale.denominator.bit_length(), value.offset.denominator.bit_length()) > _MAX_DENOMINATOR_BITS:
            return []
        match use.operator, use.position:
            case ("Add", _):
                return [replace(value, offset=value.offset + by)]
            case ("Sub", 0):
                return [replace(value, offset=value.offset - by)]
            case ("Sub", 1):
                flipped = value.flipped != (by == 1)
                return [replace(value, offset=by - value.offset, scale=-value.scale, flipped=flipped)]
            case ("Mul", _) if by:
                return [replace(value, offset=value.offset * by, scale=value.scale * by)]
            case ("Div", 0) if by:
                return [replace(value, offset=value.offset / by, scale=value.scale / by)]
        truth = None if value.summed else self.truth(use)
        return [] if truth is None else [DerivedValue(value.name, flipped=value.flipped != (not truth), compared=True)]

    def truth(self, use: ValueUse) -> bool | None:
        """Return the result of comparing the value 1 with a constant; None if 0 gives the same result."""
        compare = COMPARISONS.get(use.operator)
        constant = self.scalar(use.input_name(1 - use.position)) if compare else None
        if compare is None or constant is None:
            return None
        sides = [(x, constant) if use.position == 0 else (constant, x) for x in (0.0, 1.0)]
        at_zero, at_one = (compare(left, right) for left, right in sides)
        return at_one if at_zero != at_one else None

    def nodes(self, operators: Container[str]) -> Iterator[onnx.NodeProto]:
        """Yield the nodes of the default domain that use one of these operators, including nodes in subgraphs."""
        for node in self.model.nodes():
            if node.operator[0] == DEFAULT_DOMAIN and node.operator[1] in operators:
                yield node.proto

    def producer(self, name: str) -> onnx.NodeProto | None:
        """Return the node that computes a value; None for a weight or an input."""
        return self._producers.get(name)

    def dims(self, name: str) -> tuple[Dim, ...] | None:
        """Return the declared shape of a value.

        For a value that is cast or dequantized, the shape of the original is used.
        """
        for value in self._back(name, _SHAPE_PRESERVING_OPERATORS):
            if value in self._tensors:
                return tuple(self._tensors[value].dims)
            if value in self._dims:
                return self._dims[value]
            node = self._producers.get(value)
            if node is not None and node.op_type == "Constant":
                return next(
                    (_read_constant_dims(attr) for attr in node.attribute if attr.name.startswith("value")), None
                )
        return None

    def scalar(self, name: str) -> float | None:
        """Return the value of a constant that has one element; None for any other value."""
        numbers = self.numbers(name)
        return numbers[0] if len(numbers) == 1 else None

    def numbers(self, name: str) -> tuple[float, ...]:
        """Return the elements of a small constant; empty for any other value."""
        for value in self._back(name, VALUE_PRESERVING_OPERATORS):
            if value in self._tensors:
                return _read_elements(self._tensors[value])
            node = self._producers.get(value)
            if node is not None and node.op_type in {"Constant", "ConstantOfShape"}:
                constants = (_read_constant(attr) for attr in node.attribute if attr.name.startswith("value"))
                return next(constants, ())
        return ()

    def _back(self, name: str, through: Collection[str]) -> Iterator[str]:
        """Yield the value and the values from which it is computed by the operators in `through`; stop at a cycle."""
        visited: set[str] = set()
        while name not in visited:
            visited.add(name)
            yield name
            node = self._producers.get(name)
            if node is None or node.op_type not in through or not node.input:
                return
            name = node.input[0]


def _read_dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    return int(dim.dim_value) if dim.HasField("dim_value") else (dim.dim_param or "?")


def _read_constant_dims(attribute: onnx.AttributeProto) -> tuple[Dim, ...]:
    if attribute.HasField("t"):
        return tuple(attribute.t.dims)
    return (max(map(len, (attribute.ints, attribute.floats, attribute.strings))),) if attribute.name[-1] == "s" else ()


MAX_CONSTANT_ELEMENTS = 64
"""Maximum number of elements of a constant that is read."""


def _read_constant(attribute: onnx.AttributeProto) -> tuple[float, ...]:
    if attribute.HasField("t"):
        return _read_elements(attribute.t)
    if attribute.HasField("f"):
        return (float(attribute.f),)
    if attribute.HasField("i"):
        return (float(attribute.i),)
    return tuple(map(float, (*attribute.ints, *attribute.floats)))[:MAX_CONSTANT_ELEMENTS]


def _read_elements(tensor: onnx.TensorProto) -> tuple[float, ...]:
    """Return the elements of a tensor in memory order; empty if it is large, external or not numeric."""
    if not 0 < count_tensor_elements(tensor) <= MAX_CONSTANT_ELEMENTS or tensor.data_location == TensorProto.EXTERNAL:
        return ()
    if tensor.data_type == TensorProto.STRING:
        return ()
    try:
        return tuple(map(float, numpy_helper.to_array(tensor).flat))
    except (LookupError, TypeError, ValueError, OverflowError):  # missing data or non-numeric type
        return ()
