"""Strict shape inference with folded constants: it finds shapes that contradict each other only after folding.

`onnx.checker` does not compute shapes that nodes compute, such as `Shape`, `Gather` and `Concat` before `Reshape`, and
does not look into operators that are functions. Runtimes do both when they load a model.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Mapping, Sequence, Set
from typing import TYPE_CHECKING, cast

import msgspec

from onnxgate.model.facts import DEFAULT_DOMAIN, canonical_domain
from onnxgate.model.onnx_functions import OnnxError, infer_shapes, inline_local_functions, inline_operators
from onnxgate.model.reading.tensor_data import MAX_SMALL_ELEMENTS, read_small_values
from onnxgate.model.reading.view import ModelView, OperatorKey, iter_node_subgraphs
from onnxgate.model.subgraphs.reduced_models import (
    called_function_key,
    function_key,
    iter_captured_names,
    iter_nested_nodes,
    list_needed_values,
)

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto

_INT64, _BOOL = 7, 9
_TENSOR = 4
"""Type of an attribute that is a tensor."""
_KNOWN_DOMAINS = frozenset({DEFAULT_DOMAIN, "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training"})
_MAX_ROUNDS = 8
"""Maximum number of times that shapes are inferred again because further constants were folded."""
INLINED_OPERATORS = frozenset({"CenterCropPad"})
"""Operators that no release of ONNX Runtime has a kernel for, and whose function body fixes ranks and sizes in all.

Source: kernels of ONNX Runtime 1.16 to 1.32; models of these operators with other ranks, loaded on these releases.
"""

_STARTS = INLINED_OPERATORS | {"Shape"}


class FoldedValue(msgspec.Struct, frozen=True):
    """A constant tensor of rank 0 or 1 with integers or booleans."""

    values: tuple[int, ...]
    is_scalar: bool = False
    element: int = _INT64


Fold = Callable[["NodeProto", Sequence[FoldedValue]], FoldedValue | None]
"""Function that returns the result of a node with constant inputs; None if it is unknown."""


def can_fold(view: ModelView) -> bool:
    """Return whether folding constants or inlining functions may change the shapes that onnx infers.

    onnx itself reads initializers and tensors of `Constant` nodes, so that these alone make no difference.
    """
    if any(node.operator[1] in _FOLDED for function in view.functions for node in function.nodes):
        return True
    if _captures_constants(view):
        return True
    constants = {name for name, _ in view.tensors}
    for node in view.graphs[0].nodes:
        name = node.operator[1]
        if name in _STARTS or (name in _FOLDS and node.inputs and constants.issuperset(node.inputs)):
            return True
        if name == "Constant":
            if any(attribute.name != "value" for attribute in node.attributes):
                return True
            constants.update(node.outputs)
    return False


def _captures_constants(view: ModelView) -> bool:
    """Return whether a node in a subgraph takes a constant of the main graph, which onnx does not read there."""
    inner = [graph for node in view.graphs[0].nodes for graph in node.graphs]
    if not inner:
        return False
    names = {tensor.name for tensor in view.graphs[0].proto.initializer if _is_list(tensor)}
    names.update(name for node in view.graphs[0].nodes if node.operator[1] == "Constant" for name in node.outputs)
    return any(not names.isdisjoint(node.inputs) for graph in inner for node in graph.all_nodes())


def _is_list(tensor: TensorProto) -> bool:
    return tensor.data_type == _INT64 and len(tensor.dims) <= 1


def folds_nodes(view: ModelView, model: ModelProto, inferred: ModelProto | None) -> bool:
    """Return whether a node other than a `Constant` with a tensor is inlined, or has a result that can be folded.

    `model` is a copy of the model in `view`, and `inferred` is this copy with inferred shapes. Fewer shapes are known
    without the declared ones, so that a model of which nothing is folded here has no further errors. None stands for a
    model whose shapes contradict each other.
    """
    nodes = [node for node in view.graphs[0].nodes if node.operator[1] in _FOLDED]
    if (
        inferred is None
        or view.functions
        or _captures_constants(view)
        or any(node.operator[1] in INLINED_OPERATORS for node in nodes)
    ):
        return True
    measured = {node.inputs[0] for node in nodes if node.operator[1] == "Shape" and node.inputs}
    shapes = _list_shapes(inferred.graph, measured)
    constants = _read_constants(model.graph, {name for node in nodes for name in node.inputs})
    for node in nodes:
        if node.operator[1] in _FOLDS and not constants.keys() >= {*node.inputs}:
            continue
        if (value := _fold_node(node.proto, shapes, constants)) is not None and len(node.outputs) == 1:
            if node.operator[1] != "Constant" or any(attribute.name != "value" for attribute in node.attributes):
                return True
            constants[node.outputs[0]] = value
    return False


def has_unknown_operators(view: ModelView) -> bool:
    """Return whether the main graph has operators that onnx does not know, after which it reports no errors."""
    functions = {function_key(function.proto) for function in view.functions}
    return any(
        node.operator[0] not in _KNOWN_DOMAINS and node.operator not in functions for node in view.graphs[0].nodes
    )


def remove_unknown_operators(model: ModelProto) -> bool:
    """Remove nodes whose types onnx cannot infer from a model; return whether there were any.

    These are operators that onnx does not know, nodes that contain one in a subgraph or in a local function that they
    call, and the nodes that take their outputs. The other nodes in the branches of an If stay.
    """
    opaque = _list_opaque_functions(model)
    known = {function_key(function) for function in model.functions} - opaque
    return _remove_unknown_nodes(model.graph, set(), lambda it: it in opaque or _is_unknown(it, known))


def _remove_unknown_nodes(graph: GraphProto, unknown: set[str], is_unknown: Callable[[OperatorKey], bool]) -> bool:
    """Remove the nodes from a graph, given the values of unknown type that it can use, to which it adds its own."""
    kept: list[NodeProto] = []
    has_removed = False
    for node in graph.node:
        is_known = not any(is_unknown(called_function_key(inner)) for inner in iter_nested_nodes(node))
        if is_known and unknown.isdisjoint(list_needed_values(node)):
            kept.append(node)
            continue
        has_removed = True
        unknown.update(filter(None, node.output))
        if (canonical_domain(node.domain), node.op_type) == (DEFAULT_DOMAIN, "If"):
            added = type(graph)()
            _add_branches(added, node, f"onnxgate.{len(kept)}", unknown, is_unknown)
            kept += added.node
    if has_removed:
        nodes = type(graph)(node=kept).node
        graph.ClearField("node")
        graph.node.extend(nodes)
    return has_removed


def _add_branches(
    graph: GraphProto, node: NodeProto, label: str, unknown: set[str], is_unknown: Callable[[OperatorKey], bool]
) -> None:
    """Add an If without its nodes of unknown types to a graph. No other node takes its output, which is `label`."""
    _add_true(graph, f"{label}.condition")
    node.input[:], node.output[:] = [f"{label}.condition"], [label]
    for number, branch in enumerate(iter_node_subgraphs(node)):
        _remove_unknown_nodes(branch, set(unknown), is_unknown)
        _add_true(branch, f"{label}.{number}")
        del branch.output[:]
        branch.output.add(name=f"{label}.{number}").type.tensor_type.elem_type = _BOOL
    graph.node.append(node)


def _add_true(graph: GraphProto, name: str) -> None:
    """Add a `Constant` with the scalar True to a graph."""
    attribute = graph.node.add(op_type="Constant", output=[name]).attribute.add(name="value", type=_TENSOR)
    attribute.t.data_type = _BOOL
    attribute.t.int32_data.append(1)


def _is_unknown(operator: OperatorKey, functions: Container[OperatorKey]) -> bool:
    return operator[0] not in _KNOWN_DOMAINS and operator not in functions


def _list_opaque_functions(model: ModelProto) -> set[OperatorKey]:
    """Return the local functions that contain an operator that onnx does not know, also in functions that they call."""
    operators: dict[OperatorKey, set[OperatorKey]] = {}
    for function in model.functions:
        inner = {called_function_key(it) for node in function.node for it in iter_nested_nodes(node)}
        operators[function_key(function)] = inner
    opaque = {key for key, inner in operators.items() if any(_is_unknown(it, operators) for it in inner)}
    while callers := {key for key, inner in operators.items() if key not in opaque and not inner.isdisjoint(opaque)}:
        opaque |= callers
    return opaque


def infer_folded_shapes(model: ModelProto, *, is_strict: bool = True) -> ModelProto:
    """Return a copy of a model with inferred shapes, folded constants and inlined functions.

    The declared shapes of outputs and values between nodes are not used. Strictly means without unknown operators.

    Raises:
        OnnxError: shapes contradict each other, and inference is strict.
        FailedCallError: a call of onnx failed.
    """
    copy = inline_functions(without_declared_shapes(model))
    if is_strict:
        remove_unknown_operators(copy)
    _pass_constants(copy.graph, {})
    constants: dict[str, FoldedValue] = {}
    inferred = copy
    for _ in range(_MAX_ROUNDS):
        inferred = infer_shapes(copy, check_type=is_strict, strict_mode=is_strict)
        if not _fold(copy.graph, _list_shapes(inferred.graph, _list_measured(copy.graph)), constants):
            break
    return inferred


def _pass_constants(graph: GraphProto, outer: Mapping[str, TensorProto]) -> None:
    """Copy the small lists of integers that subgraphs capture into the subgraphs, because onnx reads them only there.

    Source: Reshape and Unsqueeze in branches with captured shapes and axes, loaded on 4 releases from 1.16.3 to 1.32.0.
    """
    inputs = {value.name for value in graph.input}
    known = {name: tensor for name, tensor in outer.items() if name not in inputs}
    tensors = [(tensor.name, tensor) for tensor in graph.initializer]
    for node in graph.node:
        values = [it.t for it in node.attribute if it.name == "value"] if node.op_type == "Constant" else ()
        tensors += ((name, tensor) for tensor in values for name in node.output)
    for name, tensor in tensors:
        if name not in inputs and _is_list(tensor) and read_small_values(tensor) is not None:
            known[name] = tensor
    for subgraph in (subgraph for node in graph.node for subgraph in iter_node_subgraphs(node)) if known else ():
        for name in known.keys() & set(iter_captured_names(subgraph)):
            copy = subgraph.initializer.add()
            copy.CopyFrom(known[name])
            copy.name = name
        _pass_constants(subgraph, known)


def without_declared_shapes(model: ModelProto) -> ModelProto:
    """Copy a model without the shapes of its outputs and of values between nodes, which runtimes only warn about.

    Negative sizes of inputs become unknown, as in ONNX Runtime.
    """
    copy = type(model)()
    copy.CopyFrom(model)
    _clear_declared_shapes(copy.graph)
    for dim in (dim for value in copy.graph.input for dim in value.type.tensor_type.shape.dim):
        if dim.dim_value < 0:
            dim.Clear()
    return copy


def _clear_declared_shapes(graph: GraphProto) -> None:
    del graph.value_info[:]
    for output in graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    for subgraph in (subgraph for node in graph.node for subgraph in iter_node_subgraphs(node)):
        _clear_declared_shapes(subgraph)


def _inline_local_functions(model: ModelProto) -> ModelProto:
    """Replace local functions by their nodes, with the opsets that only functions import."""
    inlined = inline_local_functions(model)
    imported = {opset.domain for opset in inlined.opset_import}
    for opset in (opset for function in model.functions for opset in function.opset_import):
        if opset.domain not in imported:
            imported.add(opset.domain)
            inlined.opset_import.append(opset)
    return inlined


def inline_functions(model: ModelProto) -> ModelProto:
    """Replace local functions, and operators that runtimes replace by their function bodies, as far as onnx can."""
    used = sorted({node.op_type for node in model.graph.node if not node.domain} & INLINED_OPERATORS)
    try:
        model = _inline_local_functions(model) if model.functions else model
        return inline_operators(model, used) if used else model
    except OnnxError:  # older releases of onnx cannot inline operators
        return model


def _list_shapes(graph: GraphProto, names: Container[str]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the values with these names that have fixed dimensions."""
    values = (value for value in (*graph.input, *graph.value_info, *graph.output) if value.name in names)
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer if tensor.name in names}
    return shapes | {value.name: shape for value in values if (shape := _read_shape(value.type)) is not None}


def _list_measured(graph: GraphProto) -> set[str]:
    """Return the names of the values whose shape a node computes."""
    return {node.input[0] for node in graph.node if node.op_type == "Shape" and node.input}


def _read_shape(value_type: TypeProto) -> tuple[int, ...] | None:
    tensor_type = value_type.tensor_type
    if not tensor_type.HasField("shape") or not all(dim.HasField("dim_value") for dim in tensor_type.shape.dim):
        return None
    shape = tuple(dim.dim_value for dim in tensor_type.shape.dim)
    return shape if all(size >= 0 for size in shape) else None


def _fold(graph: GraphProto, shapes: Mapping[str, tuple[int, ...]], constants: dict[str, FoldedValue]) -> bool:
    """Replace nodes with constant results by initializers; return whether there were any."""
    names = {tensor.name for tensor in graph.initializer} - constants.keys()
    constants.update(_read_constants(graph, names))
    outputs = {value.name for value in graph.output}
    remaining, folded = [], False
    for node in graph.node:
        value = _fold_node(node, shapes, constants)
        if value is None or len(node.output) != 1 or node.output[0] in outputs:
            remaining.append(node)
            continue
        name = node.output[0]
        constants[name], folded = value, True
        dims = [] if value.is_scalar else [len(value.values)]
        data = {"int64_data" if value.element == _INT64 else "int32_data": value.values}
        graph.initializer.add(name=name, data_type=value.element, dims=dims, **data)
    if folded:
        nodes = type(graph)(node=remaining).node
        graph.ClearField("node")
        graph.node.extend(nodes)
    return folded


def _read_constants(graph: GraphProto, names: Set[str]) -> dict[str, FoldedValue]:
    """Return the small initializers with these names that are not inputs."""
    needed = names - {value.name for value in graph.input}
    tensors = (tensor for tensor in graph.initializer if tensor.name in needed)
    return {tensor.name: value for tensor in tensors if (value := _read_constant(tensor)) is not None}


def _read_constant(tensor: TensorProto) -> FoldedValue | None:
    if tensor.data_type != _INT64 or len(tensor.dims) > 1:
        return None
    values = read_small_values(tensor)
    return None if values is None else FoldedValue(tuple(map(int, values)), not tensor.dims)


def _read_constant_node(node: NodeProto) -> FoldedValue | None:
    for attribute in node.attribute:
        match attribute.name:
            case "value":
                return _read_constant(attribute.t)
            case "value_int":
                return FoldedValue((attribute.i,), is_scalar=True)
            case "value_ints" if len(attribute.ints) <= MAX_SMALL_ELEMENTS:
                return FoldedValue(tuple(attribute.ints))
    return None


def _fold_node(
    node: NodeProto, shapes: Mapping[str, tuple[int, ...]], constants: Mapping[str, FoldedValue]
) -> FoldedValue | None:
    """Return the constant result of a node; None if it is unknown, invalid or too large."""
    if canonical_domain(node.domain) != DEFAULT_DOMAIN:
        return None
    if node.op_type == "Shape":
        shape = shapes.get(node.input[0]) if node.input else None
        return None if shape is None else _fold_shape(node, shape)
    if node.op_type == "Constant":
        return _read_constant_node(node)
    fold = _FOLDS.get(node.op_type)
    inputs = [constants.get(name) for name in node.input]
    if fold is None or not inputs or any(value is None for value in inputs):
        return None
    try:
        value = fold(node, cast("list[FoldedValue]", inputs))
    except (ArithmeticError, IndexError, ValueError):  # the node is invalid, which strict inference reports
        return None
    is_valid = value is not None and len(value.values) <= MAX_SMALL_ELEMENTS
    return value if value is not None and is_valid and all(-(2**63) <= it < 2**63 for it in value.values) else None


def _attribute(node: NodeProto, name: str, default: int) -> int:
    return next((attribute.i for attribute in node.attribute if attribute.name == name), default)


def _fold_shape(node: NodeProto, shape: tuple[int, ...]) -> FoldedValue:
    return FoldedValue(shape[slice(_attribute(node, "start", 0), _attribute(node, "end", len(shape)))])


def _fold_gather(node: NodeProto, inputs: Sequence[FoldedValue]) -> FoldedValue | None:
    data, indices = inputs
    if data.is_scalar or _attribute(node, "axis", 0) not in (0, -1):
        return None
    return FoldedValue(tuple(data.values[index] for index in indices.values), indices.is_scalar)


def _fold_concat(node: NodeProto, inputs: Sequence[FoldedValue]) -> FoldedValue | None:
    if any(value.is_scalar for value in inputs):
        return None
    return FoldedValue(tuple(item for value in inputs for item in value.values))


def _fold_size(node: NodeProto, inputs: Sequence[FoldedValue]) -> FoldedValue | None:
    """Return the size of a constant. ONNX Runtime 1.16 to 1.32 does not fold the size of other values of a known shape.

    Source: models with Size of an input and of a constant before Range, Unsqueeze and ConstantOfShape.
    """
    return FoldedValue((len(inputs[0].values),), is_scalar=True)


def _fold_slice(node: NodeProto, inputs: Sequence[FoldedValue]) -> FoldedValue | None:
    data, starts, ends, *more = inputs
    steps = more[1].values if len(more) > 1 else (1,)
    if data.is_scalar or len(starts.values) != 1 or len(ends.values) != 1 or len(steps) != 1 or steps[0] <= 0:
        return None
    return FoldedValue(data.values[starts.values[0] : ends.values[0] : steps[0]])


def _fold_unsqueeze(node: NodeProto, inputs: Sequence[FoldedValue]) -> FoldedValue | None:
    is_first = len(inputs) == 1 or inputs[1].values in ((0,), (-1,))
    return FoldedValue(inputs[0].values) if inputs[0].is_scalar and is_first else None


def _fold_squeeze(node: NodeProto, inputs: Sequence[FoldedValue]) -> FoldedValue | None:
    if len(inputs[0].values) == 1:
        return FoldedValue(inputs[0].values, is_scalar=True)
    has_axes = len(inputs) > 1 or any(attribute.name == "axes" for attribute in node.attribute)
    return None if has_axes else inputs[0]  # a list of several elements stays a list


def _fold_cast(node: NodeProto, inputs: Sequence[FoldedValue]) -> FoldedValue | None:
    same = msgspec.structs.replace(inputs[0], element=_INT64)
    return same if _attribute(node, "to", 0) == _INT64 else None


def _fold_identity(node: NodeProto, inputs: Sequence[FoldedValue]) -> FoldedValue | None:
    return inputs[0]


def _fold_where(node: NodeProto, inputs: Sequence[FoldedValue]) -> FoldedValue | None:
    size = max(len(value.values) for value in inputs)
    if any(len(value.values) not in (1, size) for value in inputs):
        return None
    rows = zip(*(_broadcast(value.values, size) for value in inputs), strict=True)
    chosen = tuple(left if condition else right for condition, left, right in rows)
    return FoldedValue(chosen, all(value.is_scalar for value in inputs), inputs[1].element)


def _fold_not(node: NodeProto, inputs: Sequence[FoldedValue]) -> FoldedValue | None:
    return FoldedValue(tuple(int(not value) for value in inputs[0].values), inputs[0].is_scalar, _BOOL)


def _fold_range(node: NodeProto, inputs: Sequence[FoldedValue]) -> FoldedValue | None:
    if not all(value.is_scalar and value.element == _INT64 for value in inputs):
        return None
    numbers = range(*(value.values[0] for value in inputs))
    return FoldedValue(tuple(numbers)) if len(numbers) <= MAX_SMALL_ELEMENTS else None


def _divide(dividend: int, divisor: int) -> int:
    """Divide integers and round toward zero, as ONNX does."""
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


def _elementwise(compute: Callable[[int, int], int], element: int = _INT64) -> Fold:
    """Return a function that folds an elementwise operator with two inputs, with broadcasting."""

    def fold(node: NodeProto, inputs: Sequence[FoldedValue]) -> FoldedValue | None:
        left, right = inputs
        sizes = {len(left.values), len(right.values)}
        size = min(sizes) if 0 in sizes else max(sizes)
        if not sizes <= {1, size}:
            return None
        pairs = zip(_broadcast(left.values, size), _broadcast(right.values, size), strict=True)
        values = tuple(int(compute(*pair)) for pair in pairs)
        return FoldedValue(values, left.is_scalar and right.is_scalar, element)

    return fold


def _fold_modulo(node: NodeProto, inputs: Sequence[FoldedValue]) -> FoldedValue | None:
    """Fold `Mod` with the sign of the divisor; with `fmod`, the sign differs."""
    is_fmod = any(attribute.name == "fmod" and attribute.i for attribute in node.attribute)
    return None if is_fmod else _elementwise(operator.mod)(node, inputs)


def _broadcast(values: tuple[int, ...], size: int) -> tuple[int, ...]:
    return values * size if len(values) == 1 else values


_FOLDS: Mapping[str, Fold] = {
    "Add": _elementwise(operator.add),
    "And": _elementwise(operator.and_, _BOOL),
    "Cast": _fold_cast,
    "Concat": _fold_concat,
    "Div": _elementwise(_divide),
    "Equal": _elementwise(operator.eq, _BOOL),
    "Gather": _fold_gather,
    "Greater": _elementwise(operator.gt, _BOOL),
    "Identity": _fold_identity,
    "Less": _elementwise(operator.lt, _BOOL),
    "Max": _elementwise(max),
    "Min": _elementwise(min),
    "Mod": _fold_modulo,
    "Mul": _elementwise(operator.mul),
    "Not": _fold_not,
    "Or": _elementwise(operator.or_, _BOOL),
    "Range": _fold_range,
    "Size": _fold_size,
    "Slice": _fold_slice,
    "Squeeze": _fold_squeeze,
    "Sub": _elementwise(operator.sub),
    "Unsqueeze": _fold_unsqueeze,
    "Where": _fold_where,
}
"""Functions that fold operators on integer constants, by operator."""
_FOLDED = _STARTS | _FOLDS.keys() | {"Constant"}
