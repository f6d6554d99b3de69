"""Find values that a subgraph takes from an outer graph, but declares with another type or shape.

onnx uses the type that the subgraph declares. ONNX Runtime compares it with that of the outer graph, which it infers,
and inlines local functions first, without renaming the values that their subgraphs declare.
Source: 87 models with If, Loop, Scan and SequenceMap, a third of them in local functions; ONNX Runtime 1.16.3, 1.17.3,
1.18.1, 1.20.1, 1.24.4, 1.31.1 and 1.32.0 refuse the same ones, except as noted below. OpenVINO 2026.4.1 loads them.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import TYPE_CHECKING

import msgspec

from onnxgate.core.process_pool import FailedCallError
from onnxgate.model.constant_folding import infer_folded_shapes, inline_functions
from onnxgate.model.onnx_functions import OnnxError, ignore_error
from onnxgate.model.reading.structure import FIRST_IR_WITHOUT_INPUTS
from onnxgate.model.reading.view import ModelView, iter_node_subgraphs
from onnxgate.model.subgraphs.reduced_models import iter_nested_nodes, replace_elements

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TypeProto, ValueInfoProto

Sizes = Sequence[int]
"""Sizes of a tensor; negative for a dynamic size."""


_NOT_INFERRED = frozenset(
    (
        *("ConcatFromSequence", "Einsum", "GreaterOrEqual", "LessOrEqual", "MeanVarianceNormalization", "OneHot"),
        "SequenceAt",
    )
)
"""Operators whose output shapes ONNX Runtime does not infer, or only newer releases, unlike onnx.

Source: 3,526 captured outputs of 1,800 backend models, declared otherwise. All that load on 1.20.1 have one of these
operators, or initializers that are also inputs. 1.17.3, 1.24.4, 1.31.1 and 1.32.0 refuse the other 3,459, but 1.16.3
loads outputs of Reshape, Slice and CenterCropPad of which only the rank is known, and weights that functions capture.
1.16.3, 1.20.1 and 1.32.0 refuse 2,080 outputs that are declared with another element type. Outputs of OneHot are not
inferred until 1.20. Source: 24 of them, loaded on 17 releases from 1.16.3 to 1.32.0.
"""
_SHAPED_BY_INPUTS = {
    **dict.fromkeys(
        ("BlackmanWindow", "ConstantOfShape", "HammingWindow", "HannWindow", "MelWeightMatrix", "Range"), 0
    ),
    **dict.fromkeys(("AffineGrid", "CenterCropPad", "Col2Im", "DFT", "Expand", "MaxUnpool", "Pad", "ReduceSum"), 1),
    **dict.fromkeys(("Reshape", "Resize", "Slice", "Split", "Squeeze", "Tile", "TopK", "Unsqueeze", "Upsample"), 1),
}
"""Index of the first input on whose values the output shape depends, by operator.

If such an input is computed, for example by `Mul`, and all inputs are constant, ONNX Runtime also computes the node. It
compares a declared shape with that of the result only if it knew the shape before: never until 1.28, for some operators
since 1.29. Source: 1,530 captured results of 27 operators, loaded on 1.20.1, 1.24.4, 1.31.1 and 1.32.0, and 570 of 15
operators, loaded on 8 to 17 releases from 1.16.3 on.
"""


class TensorKind(msgspec.Struct, frozen=True):
    """Element type (0: unknown) and sizes (None: unknown rank) of a tensor."""

    element: int
    sizes: Sizes | None = None


class ContradictedCapture(msgspec.Struct, frozen=True):
    """A value that a subgraph declares with another type or shape than the outer graph."""

    name: str
    declared: TensorKind
    actual: TensorKind
    loads_on_first: bool = False  # ONNX Runtime 1.16 may load the model; see `_NOT_INFERRED`


def declares_captures(view: ModelView) -> bool:
    """Return whether a subgraph declares the type of a value that it does not contain itself."""
    return any(_list_declared(graph.proto) for graph in view.graphs[1:])


def find_contradicted_capture(model: ModelProto) -> ContradictedCapture | None:
    """Return the first value that a subgraph declares with another type or shape than the outer graph."""
    try:
        inlined = inline_functions(model)
        inferred = infer_folded_shapes(_remove_unread(inlined), is_strict=False)
    except (OnnxError, FailedCallError) as error:
        ignore_error(error)
        return None
    found = next(_compare_subgraphs(inlined.graph, inferred.graph, ChainMap(), _list_unshaped(inlined)), None)
    return msgspec.structs.replace(found, loads_on_first=_may_load_on_first(model, found)) if found else None


def _may_load_on_first(model: ModelProto, found: ContradictedCapture) -> bool:
    nodes = (node for holder in (model.graph, *model.functions) for node in holder.node)
    if any(found.name in inner.output for node in nodes for inner in iter_nested_nodes(node)):
        is_other_rank = found.actual.element == found.declared.element and found.actual.sizes is not None
        return is_other_rank and max(found.actual.sizes or (), default=0) < 0
    return bool(model.functions) and any(found.name == tensor.name for tensor in model.graph.initializer)


def _remove_unread(model: ModelProto) -> ModelProto:
    """Copy a model without initializers that callers can replace, and without nodes whose output shapes are unknown."""
    copy = type(model)()
    copy.CopyFrom(model)
    graph = copy.graph
    inputs = {value.name for value in graph.input} if copy.ir_version >= FIRST_IR_WITHOUT_INPUTS else set()
    replace_elements(graph, "initializer", [tensor for tensor in graph.initializer if tensor.name not in inputs])
    graphs = [graph]
    while graphs:
        graph = graphs.pop()
        retained = [it for it in graph.node if it.op_type not in _NOT_INFERRED or any(iter_node_subgraphs(it))]
        replace_elements(graph, "node", retained)
        graphs += _list_subgraphs(graph)
    return copy


def _list_unshaped(model: ModelProto) -> set[str]:
    """Return the names of values that ONNX Runtime computes before it knows their shapes."""
    inputs = {value.name for value in model.graph.input}
    constants: set[str] = set()
    computed: set[str] = set()
    unshaped: set[str] = set()
    graphs = [model.graph]
    for graph in graphs:  # outer graphs first
        constants.update(name for name in _read_weights(graph) if name not in inputs)
        for node in graph.node:
            is_constant = constants.issuperset(filter(None, node.input))
            if not is_constant and node.op_type not in ("Shape", "Size"):
                continue
            shaping = node.input[_SHAPED_BY_INPUTS.get(node.op_type, len(node.input)) :]
            is_unshaped = not computed.isdisjoint(shaping) or not unshaped.isdisjoint(node.input)
            unshaped.update(node.output if is_constant and is_unshaped else ())
            is_stored = node.op_type == "Constant" or (node.op_type == "Identity" and computed.isdisjoint(node.input))
            computed.update(() if is_stored else node.output)
            constants.update(node.output)
        graphs += _list_subgraphs(graph)
    return unshaped


def _compare_subgraphs(
    graph: GraphProto, inferred: GraphProto, outer: ChainMap[str, TensorKind], unshaped: Set[str]
) -> Iterator[ContradictedCapture]:
    """Yield each value that a subgraph declares with another type than the graph or, in `outer`, an outer graph.

    `inferred` is the graph with inferred instead of declared shapes. It may lack nodes without subgraphs. Inferred
    shapes of values in `unshaped` are not used.
    """
    subgraphs = _list_subgraphs(graph)
    if not subgraphs:
        return
    known = outer.new_child(_read_weights(inferred))
    known.update(_read_kinds((*inferred.input, *inferred.value_info, *inferred.output)))
    for name in unshaped & known.maps[0].keys():
        known[name] = TensorKind(known[name].element)
    made = {name for node in graph.node for name in node.output}
    for name, kind in _read_kinds((*graph.value_info, *graph.output)):
        if name in made:
            known[name] = _merge(known.get(name), kind)
    for subgraph, typed in zip(subgraphs, _list_subgraphs(inferred), strict=True):
        visible = known.new_child()
        used = {name for node in subgraph.node for name in node.input}
        for name, declared in _list_declared(subgraph).items():
            if name not in used:  # or only by a subgraph
                continue
            actual = known.get(name)
            if actual is not None and _contradict(actual, declared):
                yield ContradictedCapture(name, declared, actual)
            visible[name] = _merge(actual, declared)
        yield from _compare_subgraphs(subgraph, typed, visible, unshaped)


def _read_weights(graph: GraphProto) -> dict[str, TensorKind]:
    kinds = {tensor.name: TensorKind(tensor.data_type, [*tensor.dims]) for tensor in graph.initializer}
    for sparse in graph.sparse_initializer:
        kinds[sparse.values.name] = TensorKind(sparse.values.data_type, [*sparse.dims])
    return kinds


def _contradict(kind: TensorKind, other: TensorKind) -> bool:
    if kind.element and other.element and kind.element != other.element:
        return True
    return kind.sizes is not None and other.sizes is not None and not may_be_equal(kind.sizes, other.sizes)


def _merge(kind: TensorKind | None, declared: TensorKind) -> TensorKind:
    """Combine an inferred type with a declared one, as ONNX Runtime does. Sizes that contradict become dynamic."""
    if kind is None or kind.sizes is None or declared.sizes is None:
        return declared if kind is None or kind.sizes is None else kind
    if len(kind.sizes) != len(declared.sizes):
        return TensorKind(kind.element)
    pairs = zip(kind.sizes, declared.sizes, strict=True)
    sizes = [max(one, other) if min(one, other) < 0 or one == other else -1 for one, other in pairs]
    return TensorKind(kind.element, sizes)


def _list_declared(graph: GraphProto) -> dict[str, TensorKind]:
    """Return the types that a subgraph declares for values that it does not contain itself."""
    if not graph.value_info:
        return {}
    own = {name for node in graph.node for name in node.output} | {value.name for value in graph.input}
    own.update(tensor.name for tensor in graph.initializer)
    own.update(sparse.values.name for sparse in graph.sparse_initializer)
    return {name: kind for name, kind in _read_kinds(graph.value_info) if name not in own}


def _read_kinds(values: Iterable[ValueInfoProto]) -> Iterator[tuple[str, TensorKind]]:
    for value in values:
        if value.type.HasField("tensor_type"):
            tensor_type = value.type.tensor_type
            sizes = list_sizes(tensor_type) if tensor_type.HasField("shape") else None
            yield value.name, TensorKind(tensor_type.elem_type, sizes)


def _list_subgraphs(graph: GraphProto) -> list[GraphProto]:
    return [subgraph for node in graph.node for subgraph in iter_node_subgraphs(node)]


def list_sizes(tensor_type: TypeProto.Tensor) -> list[int]:
    """Return the sizes of a tensor type; negative for a dynamic size."""
    return [dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor_type.shape.dim]


def may_be_equal(sizes: Sizes, others: Sizes) -> bool:
    """Return whether two shapes have the same rank, and no axis has different fixed sizes."""
    pairs = zip(sizes, others, strict=False)
    return len(sizes) == len(others) and all(one < 0 or other < 0 or one == other for one, other in pairs)
