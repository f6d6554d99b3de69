"""Find the shapes, constants and neighbors of a node that kernels of ONNX Runtime depend on."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from onnxgate.model.facts import CONTRIB_DOMAIN, DEFAULT_DOMAIN, canonical_domain
from onnxgate.model.onnx_functions import OnnxError, infer_shapes
from onnxgate.model.reading.tensor_data import read_small_values
from onnxgate.model.reading.view import NodeView
from onnxgate.support.matching.constant_nodes import COMPUTED, explain_fault
from onnxgate.support.matching.graph_values import GraphValues
from onnxgate.support.matching.onnxruntime.attribute_conditions import find_repeated_ngram
from onnxgate.support.matching.onnxruntime.contrib_restrictions import (
    CONTRIB_RANKS,
    find_wrong_rank,
)
from onnxgate.support.matching.onnxruntime.float8_fusions import FUSED, Float8Fusions
from onnxgate.support.matching.onnxruntime.optimizer_changes import OptimizerChanges
from onnxgate.support.matching.onnxruntime.simplified_graphs import is_eliminated
from onnxgate.support.matching.operations import NO_TRAITS, Fusion, NodeTraits, WrongLoss

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TypeProto

_RANKED = frozenset({"ArgMax", "ArgMin", "GroupNormalization", "LayerNormalization"})
_SHAPES = {"AffineGrid": 1, "ConstantOfShape": 0, "Expand": 1, "Reshape": 1}
"""Index of the input whose length is the rank of the output, by operator."""
_INT64_END = 2**63
_MAX_RANK = 2**31 - 1
"""Maximum number of elements of a list in protobuf, and thus of the sizes in a shape."""
DESCRIBED = frozenset(
    (
        *(
            *_RANKED,
            *COMPUTED,
            *FUSED,
            *CONTRIB_RANKS,
            *_SHAPES,
            "BatchNormalization",
            "Clip",
            "Concat",
            "Div",
            "Dropout",
            "GridSample",
        ),
        *(
            "Add",
            "Identity",
            "If",
            "Mod",
            "Mul",
            "NegativeLogLikelihoodLoss",
            "OneHot",
            "Optional",
            "Pad",
            "Resize",
            "Sub",
            "SoftmaxCrossEntropyLoss",
            "Squeeze",
            "TfIdfVectorizer",
            "Upsample",
        ),
    )
)
"""Names of the operators that have traits."""
READERS = frozenset({*COMPUTED, "Concat", "Div", "If", "Mod", "OneHot", "Optional", "Pad", "Resize", "Upsample"})
"""Names of the operators whose traits depend on the values of constant inputs, also in local functions."""
_SQUEEZE_WITH_AXES_INPUT = 13
"""First opset in which the axes of Squeeze are an input. Older ones are inferred wrongly by old releases."""
_INTEGERS = (2, 3, 4, 5, 6, 7, 12, 13)
_NEUTRAL_PLACES: Mapping[str, tuple[int, ...]] = {"Add": (0, 1), "Div": (1,), "Mul": (0, 1), "Sub": (1,)}
"""Indexes of the inputs that may be neutral, so that ONNX Runtime removes the node."""
_MAX_IDENTITIES = 32
_LOSS_WEIGHTS = 2
"""Index of the weights among the inputs of SoftmaxCrossEntropyLoss."""


class TraitReader:
    """Reads the traits of the nodes of one graph."""

    def __init__(self, values: GraphValues, scalar_squeezes: Mapping[str, str]) -> None:
        self.values = values
        self.changes = OptimizerChanges(values)
        self._scalar_squeezes = scalar_squeezes
        self._float8_fusions: Float8Fusions | None = None

    def read(self, node: NodeView) -> NodeTraits:
        """Return the traits of a node."""
        domain, name, _ = node.operator
        if domain == CONTRIB_DOMAIN and name in CONTRIB_RANKS:
            ranks = {index: self.values.rank(node.inputs[index]) for index in range(len(node.inputs))}
            return NodeTraits(wrong_rank=wrong) if (wrong := find_wrong_rank(name, ranks)) else NO_TRAITS
        if domain == CONTRIB_DOMAIN and name == "Pad" and self._has_nested_pads(node.inputs[1:2]):
            return NodeTraits(wrong_rank="constant `pads` must have one axis, or two, of which the first has size 1")
        if name not in DESCRIBED or domain != DEFAULT_DOMAIN or not node.inputs:
            return NO_TRAITS
        if name in _SHAPES and self._has_long_shape(node.inputs[_SHAPES[name] :][:1]):
            return NodeTraits(has_long_shape=True)
        if name in FUSED and (fusion := self._find_float8_fusion(node)):
            return NodeTraits(float8_fusion=fusion)
        if name == "GridSample":
            return NodeTraits(rank=next((rank for rank in map(self.values.rank, node.inputs[:2]) if rank >= 0), -1))
        if name == "GroupNormalization":
            return NodeTraits(
                rank=self.values.rank(node.inputs[0]),
                wrong_scale=self._find_wrong_scale(node),
                has_overflow=self._has_overflow(node.inputs[0]),
            )
        if name in _RANKED:
            fault = self._find_constant_fault(node) if name in COMPUTED else ""
            return NodeTraits(
                rank=self.values.rank(node.inputs[0]),
                fusion=self.changes.find_fusion(node),
                constant_fault=fault,
                has_late_fault=bool(fault) and self.values.is_in_function,
            )
        if name in ("Dropout", "Identity"):
            return NodeTraits(is_eliminated=True) if is_eliminated(self.values, node) else NO_TRAITS
        if name == "SoftmaxCrossEntropyLoss":
            wrong = self._find_wrong_loss(node) if len(node.inputs) > 1 else ""
            return (
                NodeTraits(wrong_loss=wrong, has_fixed_scores=self.values.is_fixed(node.inputs[0]))
                if wrong
                else NO_TRAITS
            )
        if name == "NegativeLogLikelihoodLoss":
            is_scalar = len(node.inputs) > 1 and self.values.rank(node.inputs[1]) == 0
            return NodeTraits(wrong_loss="scalar") if is_scalar else NO_TRAITS
        scalar = self._scalar_squeezes.get(node.outputs[0], "") if name == "Squeeze" and node.outputs else ""
        if scalar and len(node.inputs) == 1:
            return NodeTraits(as_scalar=scalar)
        if name == "Range" and (place := self._find_listed_bounds(node)):
            return NodeTraits(listed_bounds=place)
        if name == "If":
            return NodeTraits(has_list_condition=True) if self._is_folded_list(node.inputs[0]) else NO_TRAITS
        if name in COMPUTED or name == "Concat":
            fault = self._find_constant_fault(node)
            late = bool(fault) and self.values.is_in_function
            fixed = name == "Split" and self._is_axis_fixed(node)
            return NodeTraits(constant_fault=fault, has_late_fault=late, has_fixed_axis=fixed)
        if name in _NEUTRAL_PLACES and (fusion := self._combine_with_nothing(node)):
            return NodeTraits(fusion=fusion)
        if name == "OneHot":
            return self._read_depth(node.inputs[1]) if len(node.inputs) > 1 else NO_TRAITS
        if name == "TfIdfVectorizer":
            repeated = find_repeated_ngram(node.attributes)
            return NodeTraits(repeated_ngram=repeated) if repeated else NO_TRAITS
        if name == "Optional":
            return NodeTraits(fusion="Optional") if self.values.is_folded(node.inputs[0]) else NO_TRAITS
        if name in ("Div", "Mod"):
            inputs = tuple(map(self._follow_identities, node.inputs))
            return self._read_division(replace(node, inputs=inputs)) if len(inputs) > 1 else NO_TRAITS
        if name in ("Resize", "Upsample"):
            return self._read_scales(node)
        fusion = self.changes.find_fusion(node)
        return NodeTraits(fusion=fusion) if fusion else NO_TRAITS

    def _find_float8_fusion(self, node: NodeView) -> str:
        """Return the quantized operator that replaces a node of float8 values; "" if there is none."""
        if self.values.is_in_function or not self._has_dequantized:
            return ""
        merged = self.changes.merged
        if self._float8_fusions is None:
            self._float8_fusions = Float8Fusions(merged.values)
        found = merged.find(node)
        fusion = self._float8_fusions.find(found) if found is not None else ""
        return fusion if found is not None and merged.values.list_captured().isdisjoint(found.outputs) else ""

    @functools.cached_property
    def _has_dequantized(self) -> bool:
        return any(node.operator[1] == "DequantizeLinear" for node in self.values.graph.nodes)

    def _is_axis_fixed(self, node: NodeView) -> bool:
        """Return whether the size along the attribute `axis` is a known number."""
        value_type = self.values.type_of(node.inputs[0])
        axis = next((attribute.i for attribute in node.attributes if attribute.name == "axis"), 0)
        sizes = value_type.tensor_type.shape.dim if value_type is not None else ()
        return -len(sizes) <= axis < len(sizes) and sizes[axis].HasField("dim_value")

    def _find_wrong_loss(self, node: NodeView) -> WrongLoss:
        """Return how labels (N, D1, ...) do not fit scores (N, C, D1, ...), or "weights" if their rank is not 1.

        The result is "" if they fit or this is unknown.
        """
        scores, labels = map(self.values.type_of, node.inputs[:2])
        if scores is None or labels is None or min(self.values.rank(name) for name in node.inputs[:2]) < 0:
            return ""
        expected, actual = ([*found.tensor_type.shape.dim] for found in (scores, labels))
        if not actual or len(expected) <= 1:
            return "scalar"
        del expected[1:2]
        if len(expected) != len(actual):
            return "rank"
        if len(node.inputs) > _LOSS_WEIGHTS and self.values.rank(node.inputs[_LOSS_WEIGHTS]) not in (-1, 1):
            return "weights" if self._can_weigh(node.inputs[_LOSS_WEIGHTS], actual) else "product"
        pairs = [pair for pair in zip(expected, actual, strict=True) if all(dim.HasField("dim_value") for dim in pair)]
        sizes = [(left.dim_value, right.dim_value) for left, right in pairs]
        return "size" if any(min(left, right) >= 0 and left != right for left, right in sizes) else ""

    def _is_folded_list(self, name: str) -> bool:
        """Return whether a value becomes a constant that does not have one element.

        Source: 44 conditions of If, loaded on 8 releases from 1.16.3 to 1.32.0.
        """
        values = self.values
        tensor = values.constant(name)
        if tensor is not None:
            return values.is_stored(name) and math.prod(tensor.dims) != 1
        value_type = values.type_of(name) if values.is_fixed(name) and values.is_folded(name) else None
        return value_type is not None and math.prod(dim.dim_value for dim in value_type.tensor_type.shape.dim) != 1

    def _find_listed_bounds(self, node: NodeView) -> Literal["", "same graph", "function", "outer graph"]:
        """Return where a bound of a Range that is not a scalar is computed from constants; "" if there is none.

        onnx checks only stored bounds.
        """
        values = self.values
        listed = [name for name in node.inputs if values.rank(name) > 0]
        if not listed or not all(values.is_folded(name) for name in node.inputs):
            return ""
        producers = (values.producer(name) for name in listed)  # Identity is removed before constants are computed
        is_here = any(producer is not None and producer.operator[1] != "Identity" for producer in producers)
        if not is_here and all(values.constant(name) is None for name in listed):
            return "outer graph" if values.is_inner else "same graph"
        return "function" if values.is_in_function else "same graph"

    def _find_wrong_scale(self, node: NodeView) -> Literal["", "channels", "bias"]:
        """Return with what the scale or bias of a GroupNormalization does not agree, if their sizes are known."""
        fixed = [name for name in node.inputs[1:3] if self.values.is_fixed(name)]
        types = [value_type for name in fixed if (value_type := self.values.type_of(name)) is not None]
        sizes = {math.prod(dim.dim_value for dim in value_type.tensor_type.shape.dim) for value_type in types}
        known = {size for size in sizes if size >= 0 and size != 1}
        if len(known) > 1:
            return "bias"
        data = self.values.type_of(node.inputs[0])
        if (
            not known
            or data is None
            or self.values.rank(node.inputs[0]) < 2
            or not self.values.is_fixed(node.inputs[0])
        ):
            return ""
        channels = data.tensor_type.shape.dim[1].dim_value
        return "" if channels < 0 or channels in (1, *known) else "channels"  # a negative size is dynamic

    def _can_weigh(self, weights: str, labels: Sequence[Any]) -> bool:
        """Return whether the weights that the labels select, of shape (labels, weights[1:]), may fit the labels."""
        value_type = self.values.type_of(weights)
        dims = [] if value_type is None else [*value_type.tensor_type.shape.dim]
        pairs = zip(reversed([*labels, *dims[1:]]), reversed(labels), strict=False)
        known = [(left.dim_value, right.dim_value) for left, right in pairs if left.dim_value and right.dim_value]
        return bool(dims) and all(left == right or 1 in (left, right) for left, right in known)

    def _find_constant_fault(self, node: NodeView) -> str:
        """Return why a node of constants cannot be computed; "" if it can or this is unknown."""
        if node.operator[1] == "Concat":
            names = [name for name in node.inputs if name]
            is_computed = 0 < len(names) < len(node.inputs) and all(self.values.is_folded(name) for name in names)
            return f"input {node.inputs.index('') + 1} is absent" if is_computed else ""
        constants, names = [], [self._follow_identities(name) for name in node.inputs]
        for name in names:
            tensor = self.values.constant(name) if name else None
            if tensor is None:
                return ""
            constants.append(tensor)
        fault = explain_fault(node, constants, self.values.imports.get(DEFAULT_DOMAIN, 0))
        return fault if fault and all(map(self.values.is_stored, names)) else ""

    def _follow_identities(self, name: str) -> str:
        """Return the value that nodes of this graph return unchanged as another one; releases remove these nodes first.

        Source: 22 nodes of constants, Resize and Upsample with Identity before one or all inputs, and 54 in branches
        and functions, loaded on 6 to 8 releases from 1.16.3 to 1.32.0.
        """
        for _ in range(_MAX_IDENTITIES):
            producer = self.values.producer(name)
            if producer is None or producer.operator[:2] != (DEFAULT_DOMAIN, "Identity") or len(producer.inputs) != 1:
                break
            name = producer.inputs[0]
        return name

    def _read_division(self, node: NodeView) -> NodeTraits:
        """Return whether a Div or Mod divides integers by a constant that contains 0, or by a value that may."""
        tensor = self.values.constant(node.inputs[1])
        if tensor is None:
            value_type = self.values.type_of(node.inputs[0])
            is_integer = value_type is None or value_type.tensor_type.elem_type in (0, *_INTEGERS)
            return NodeTraits(divisor="unknown") if is_integer else NO_TRAITS
        if tensor.data_type not in _INTEGERS:
            return NO_TRAITS
        values = read_small_values(tensor)
        if values is None or 0 not in values:
            is_known = values is not None and self.values.is_stored(node.inputs[1])
            return NO_TRAITS if is_known else NodeTraits(divisor="unknown")
        if not self.values.is_stored(node.inputs[1]):
            return NodeTraits(divisor="zero")
        is_computed = self._is_computed_dividend(node.inputs[0])
        is_here = self.values.is_stored_here(node.inputs[1])
        return NodeTraits(
            divides_by_zero="constants" if is_computed else "input" if is_here else "input in subgraph",
            has_late_fault=self.values.is_in_function,
            divisor="zero",
        )

    def _is_computed_dividend(self, name: str) -> bool:
        """Return whether a dividend becomes a constant that has elements when the model is loaded."""
        tensor = self.values.constant(name)
        if tensor is not None:
            return all(tensor.dims) and self.values.is_folded(name)
        value_type = self.values.type_of(name)
        has_elements = value_type is not None and all(dim.dim_value for dim in value_type.tensor_type.shape.dim)
        return has_elements and self.values.is_fixed(name) and self.values.is_folded(name)

    def _combine_with_nothing(self, node: NodeView) -> Fusion:
        """Return how ONNX Runtime fails to remove a node that combines a value with a constant without elements."""
        values = self.values
        if values.is_in_function or values.is_inner or len(node.inputs) <= 1:
            return ""
        for place in _NEUTRAL_PLACES[node.operator[1]]:
            name, other = node.inputs[place], node.inputs[1 - place]
            if not name or not self._has_no_elements(name) or values.rank(other) < values.rank(name):
                continue
            if values.producer(other) is None:
                is_stored = values.constant(name) is not None and values.is_stored(name)
                if is_stored and values.find_source(other) == "input":
                    return "no elements"
            elif values.find_source(other) == "computed" and values.is_folded(name):
                return "no elements returned" if any(map(values.is_output, node.outputs)) else ""
        return ""

    def _has_no_elements(self, name: str) -> bool:
        value_type = self.values.type_of(name) if self.values.is_fixed(name) else None
        return value_type is not None and any(not dim.dim_value for dim in value_type.tensor_type.shape.dim)

    def _has_overflow(self, name: str) -> bool:
        """Return whether the product of fixed sizes exceeds 64 bits, also before a size of 0."""
        value_type = self.values.type_of(name) if self.values.is_fixed(name) else None
        sizes = [] if value_type is None else [dim.dim_value for dim in value_type.tensor_type.shape.dim]
        is_fixed = min(sizes, default=0) >= 0  # a negative size is dynamic
        return is_fixed and max(itertools.accumulate(sizes, operator.mul), default=0) >= _INT64_END

    def _has_nested_pads(self, names: Sequence[str]) -> bool:
        """Return whether the constant pads of a Pad of `com.microsoft` are neither a list nor a list of one list.

        Source: pads with 0 to 3 axes, also in branches and as defaults of inputs, loaded on 6 releases from 1.16.3 on.
        """
        name = self._follow_identities(names[0]) if names else ""
        tensor = self.values.constant(name) if name and self.values.is_stored(name) else None
        return tensor is not None and not (len(tensor.dims) == 1 or (len(tensor.dims) == 2 and tensor.dims[0] == 1))

    def _has_long_shape(self, names: Sequence[str]) -> bool:
        value_type = self.values.type_of(names[0]) if names else None
        sizes = [] if value_type is None else [dim.dim_value for dim in value_type.tensor_type.shape.dim]
        return len(sizes) == 1 and sizes[0] > _MAX_RANK

    def _read_depth(self, name: str) -> NodeTraits:
        if not self._has_no_elements(name):
            return NO_TRAITS
        is_stored = self.values.constant(name) is not None and self.values.is_stored(name)
        return NodeTraits(empty_depth="constant" if is_stored else "value")

    def _read_scales(self, node: NodeView) -> NodeTraits:
        """Return the constant scales of Resize or Upsample for all axes, if callers cannot replace them."""
        position = 1 if node.operator[1] == "Upsample" or len(node.inputs) == 2 else 2
        name = self._follow_identities(node.inputs[position]) if position < len(node.inputs) else ""
        scales = self._list_scales(node, name) if name and self.values.is_stored(name) else ()
        if not scales:
            return NO_TRAITS
        is_captured = not self.values.is_stored_here(name)
        return NodeTraits(self.values.rank(node.inputs[0]), scales=scales, captures_scales=is_captured)

    def _list_scales(self, node: NodeView, name: str) -> tuple[float, ...]:
        tensor = self.values.constant(name)
        values = read_small_values(tensor) if tensor is not None else None
        if not values:
            return ()
        axes = next((attribute.ints for attribute in node.attributes if attribute.name == "axes"), ())
        if not axes:
            return tuple(map(float, values))
        rank = self.values.rank(node.inputs[0])
        if rank < 0 or len(axes) != len(values) or not all(-rank <= axis < rank for axis in axes):
            return ()
        by_axis = {axis % rank: float(value) for axis, value in zip(axes, values, strict=True)}
        return tuple(by_axis.get(axis, 1.0) for axis in range(rank))


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
        infer_shapes(copy, strict_mode=True)
    except OnnxError as error:
        operator = re.search(r"\(op_type:(\w+)", str(error))
        return f"`{operator[1]}` fails" if operator else "shape inference fails"
    return ""
