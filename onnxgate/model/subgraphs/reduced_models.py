"""Reduced models: copies without weights for `onnx.checker`, and models that contain a single node."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onnxgate.core.files import open_regular
from onnxgate.model.facts import (
    CONTRIB_DOMAIN,
    DEFAULT_DOMAIN,
    ELEMENT_TYPES,
    canonical_domain,
    model_domain,
    required_bytes,
)
from onnxgate.model.reading.external_data import (
    ExternalUse,
    inspect_data_file,
    is_external,
    read_data_range,
    read_external_entries,
)
from onnxgate.model.reading.file_format import UnreadableModel
from onnxgate.model.reading.omitted_data import find_omitted_data, restore_lists, shorten_companions
from onnxgate.model.reading.structure import DATA_FIELDS, SMALL_BYTES
from onnxgate.model.reading.tensor_data import read_small_sparse_data
from onnxgate.model.reading.view import ModelView, OperatorKey, iter_node_subgraphs, iter_sparse_tensors

if TYPE_CHECKING:
    from onnx import (
        AttributeProto,
        FunctionProto,
        GraphProto,
        ModelProto,
        NodeProto,
        SparseTensorProto,
        TensorProto,
        TypeProto,
    )


_EXTERNAL_LOCATION = 1
_ABSENT_LOCATION = "#"
"""Location that marks external data as being in memory, so that onnx opens no file. Source: onnx since 1.16."""
_EXPERIMENTAL_DOMAIN = "onnxgate.experimental"
EXPERIMENTAL_OPERATORS = frozenset(
    (
        *("ATen", "Affine", "ConstantFill", "Crop", "DynamicSlice", "GRUUnit"),
        *("GivenTensorFill", "ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh"),
    )
)
"""Operators for which `onnx.checker` prints a warning that bypasses `sys.stdout`. Source: onnx 1.23, checker.cc.

ONNX Runtime does not check their attributes and number of inputs. Source: Crop and DynamicSlice with others, loaded on
1.16.3, 1.24.4 and 1.31.1.
"""


_ADDED_OPERATORS = frozenset(
    (
        *("SimplifiedLayerNormalization", "DisentangledAttention_TRT", "EfficientNMS_TRT"),
        *("MultilevelCropAndResize_TRT", "PyramidROIAlign_TRT", "MemcpyFromHost", "MemcpyToHost"),
    )
)
"""Operators that ONNX Runtime adds to the default domain. Source: schemas of 1.16–1.31."""
_LAST_IR_WITH_WEIGHTS_AS_INPUTS = 3
"""Last IR version that requires each initializer to be a graph input. Source: ONNX IR specification."""
_LAYER_NORMALIZATION_SINCE = 17
"""First opset with LayerNormalization in ONNX. For older opsets, ONNX Runtime provides its own operator."""

_DEPRECATED_GROUPS = range(18, 21)
"""Opsets in which onnx rejects GroupNormalization as deprecated, since its version 21 replaces it.

Source: 20 such nodes, also in branches and functions; ONNX Runtime 1.16.3, 1.18.1, 1.20.1, 1.24.4, 1.31.1 and 1.32.0
load them if they support the opset.
"""
_MOMENTS = (DEFAULT_DOMAIN, "MeanVarianceNormalization")
_MOMENT_AXES = (0, 2, 3)
"""Default axes of MeanVarianceNormalization, without which onnx 1.23 cannot infer its function body since opset 13.

Source: 18 such nodes. The releases above load them, except those in local functions since 1.17.
"""


def copy_for_checker(model: ModelProto, path: Path) -> ModelProto:
    """Copy a model for `onnx.checker`. Large and external weights become inputs or, in subgraphs, lose their data.

    `path` is the model file; it is used to read small external data.
    """
    copy = deepcopy(model)
    view = ModelView(copy)
    shorten_companions(view)
    for _, tensor in view.tensors:
        _inline_small_data(tensor, path)
    weights_to_inputs(copy.graph)  # the view still contains them, but changes there do not affect the copy
    _empty_sparse_tensors(view)
    for _, tensor in view.tensors:
        if has_data_elsewhere(tensor):
            remove_data(tensor)
    # The checker treats "" and "ai.onnx" as different domains; ONNX Runtime 1.16–1.31 treats them as equal.
    # Source: onnx 1.23, checker.cc.
    imports = (imported for holder in (copy, *copy.functions) for imported in holder.opset_import)
    for holder in (*(node.proto for node in view.nodes()), *imports):
        holder.domain = model_domain(holder.domain)
    _rename_experimental(view)
    for moments in (node for graph in view.graphs for node in graph.nodes if node.operator[:2] == _MOMENTS):
        if all(attribute.name != "axes" for attribute in moments.attributes):
            moments.proto.attribute.add(name="axes", type=7, ints=_MOMENT_AXES)
    if any(node.operator[0] == CONTRIB_DOMAIN for node in view.nodes()):
        _import_domain(copy, CONTRIB_DOMAIN)  # ONNX Runtime does not require this import. Source: measured on 1.3–1.31
    return copy


def needs_copy_for_checker(model: ModelView) -> bool:
    """Return whether `copy_for_checker` would change the model."""
    imports = [{opset.domain for opset in holder.opset_import} for holder in (model.proto, *model.proto.functions)]
    operators = {node.operator[:2] for node in model.nodes()}
    renamed = {(DEFAULT_DOMAIN, name) for name in _list_renamed_operators(model.proto)}
    calls_contrib = any(domain == CONTRIB_DOMAIN for domain, _ in operators)
    return (
        bool(model.declared)
        or model.spells_default_domain
        or any(DEFAULT_DOMAIN in domains for domains in imports)
        or (calls_contrib and any(CONTRIB_DOMAIN not in domains for domains in imports))
        or not renamed.isdisjoint(operators)
        or _MOMENTS in operators
    )


def add_missing_shapes(model: ModelProto) -> ModelProto:
    """Add missing shapes to inputs and outputs, because `onnx.checker` requires them; copy the model only if needed."""
    if not any(map(kind_without_shape, (*model.graph.input, *model.graph.output))):
        return model
    copy = deepcopy(model)
    for value in (*copy.graph.input, *copy.graph.output):
        if kind := kind_without_shape(value):
            getattr(value.type, kind).shape.SetInParent()
    return copy


def replace_sparse_tensors(model: ModelProto) -> ModelProto:
    """Copy a model with dense initializers and constants in place of sparse ones, which lose their data unless small.

    Nodes use them as dense tensors, but onnx does not read them, and treats initializers as values of sparse types.
    Source: onnx.proto, `sparse_initializer`; ONNX Runtime converts both to dense tensors when it loads a model.
    """
    copy = deepcopy(model)
    for scope in ModelView(copy).scopes:
        for sparse in getattr(scope.proto, "sparse_initializer", ()):
            _make_dense(sparse, scope.proto.initializer.add())
        if hasattr(scope.proto, "sparse_initializer"):
            scope.proto.ClearField("sparse_initializer")
        for node in scope.nodes:
            if node.operator[1] == "Constant" and [it.name for it in node.attributes] == ["sparse_value"]:
                attribute = node.attributes[0]
                if attribute.HasField("sparse_tensor"):
                    attribute.name, attribute.type = "value", attribute.TENSOR
                    _make_dense(attribute.sparse_tensor, attribute.t)
                    attribute.ClearField("sparse_tensor")
    return copy


def _make_dense(sparse: SparseTensorProto, dense: TensorProto) -> None:
    dense.name, dense.data_type = sparse.values.name, sparse.values.data_type
    dense.dims.extend(sparse.dims)
    data = read_small_sparse_data(sparse)
    if data is None:
        remove_data(dense)
    else:
        dense.raw_data = data


def kind_without_shape(value: object) -> str:
    """Return "tensor_type" or "sparse_tensor_type" if the rank of a graph input or output is unknown; otherwise ""."""
    kind = value.type.WhichOneof("value")  # type: ignore[attr-defined]
    if kind in ("tensor_type", "sparse_tensor_type") and not getattr(value.type, kind).HasField("shape"):  # type: ignore[attr-defined]
        return str(kind)
    return ""


def remove_accepted_violations(model: ModelProto, *, in_1_17: bool = False) -> ModelProto | None:
    """Copy a model without the violations of the specification that all known runtimes accept; None if it has none.

    The last attribute of a name counts. In the main graph, except for Constant, only 1.16 and 1.17 accept several.
    Source: loaded and run with ONNX Runtime 1.16.3, 1.17.3, 1.19.2, 1.22.1, 1.25.1 and 1.31.1; 24 models with repeated
    attributes, loaded on 8 releases from 1.16.3 to 1.32.0. Releases refuse most of these violations in subgraphs. Up to
    IR version 3, they also refuse weights that are neither inputs nor used by the main graph itself; 27 models with
    weights that only subgraphs use were loaded on 5 releases from 1.16.3 to 1.32.0.
    """
    copy = deepcopy(model)
    graph = copy.graph
    graph.name = graph.name or "graph"
    nested = [inner for node in graph.node for inner in iter_nested_nodes(node)]
    unused = list_unused_weights(graph).difference(*(node.output for node in nested))  # a name must not be repeated
    if copy.ir_version == _LAST_IR_WITH_WEIGHTS_AS_INPUTS:
        inputs = {value.name for value in graph.input}
        unused &= inputs
        own = inputs.union((value.name for value in graph.output), *(node.input for node in graph.node))
        is_accepted = own.issuperset(tensor.name for tensor in graph.initializer)
        copy.ir_version += is_accepted and not _has_inner_weights(graph)
    _sort_nodes(graph)
    in_graph = [node for node in graph.node if in_1_17 or node.op_type == "Constant"]
    for node in (*in_graph, *(node for function in copy.functions for node in function.node)):
        last = {attribute.name: attribute for attribute in node.attribute}
        if len(last) < len(node.attribute):
            replace_elements(node, "attribute", last.values())
    made = {name for node in graph.node for name in node.output} | {tensor.name for tensor in graph.initializer}
    for output in [it for it in graph.output if it.name in made and not it.HasField("type")]:
        graph.output.remove(output)
    weights = {tensor.name: tensor for tensor in graph.initializer}  # the last of a name counts, or a sparse one
    for name in unused.union(sparse.values.name for sparse in graph.sparse_initializer):
        weights.pop(name, None)
    replace_elements(graph, "initializer", weights.values())
    used = {name for node in graph.node for name in list_needed_values(node)} | {value.name for value in graph.output}
    used.update(weights, (value.name for value in graph.input))
    used.update(*(node.output for node in nested if node.op_type != "Constant"))
    constants = [node for node in graph.node if node.op_type == "Constant" and len(node.output) == 1]
    for node in [it for it in constants if it.output[0] not in used and _is_ignored_if_unused(it)]:
        graph.node.remove(node)
    _rename_deprecated(copy)
    return None if copy == model else copy


def _rename_deprecated(model: ModelProto) -> None:
    """Move nodes that onnx rejects as deprecated to another domain."""
    imports = (it.version for it in model.opset_import if canonical_domain(it.domain) == DEFAULT_DOMAIN)
    if max(imports, default=0) in _DEPRECATED_GROUPS:
        _rename_nodes(ModelView(model), frozenset({"GroupNormalization"}))


def _is_ignored_if_unused(constant: NodeProto) -> bool:
    """Return whether runtimes ignore an unused constant; they read sparse ones, and refuse some of them."""
    values = constant.attribute
    return not any(
        it.HasField("sparse_tensor") or (it.HasField("t") and it.t.data_type not in ELEMENT_TYPES) for it in values
    )


def _has_inner_weights(graph: GraphProto) -> bool:
    """Return whether a subgraph has initializers that are not its inputs."""
    inner = [subgraph for node in graph.node for subgraph in iter_node_subgraphs(node)]
    return any(
        not {tensor.name for tensor in it.initializer} <= {value.name for value in it.input} or _has_inner_weights(it)
        for it in inner
    )


def _sort_nodes(graph: GraphProto) -> None:
    """Sort the nodes of a graph topologically. If that is not possible, do not change their order."""
    makers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    sorter = TopologicalSorter(
        {
            index: [makers[name] for name in list_needed_values(node) if name in makers]
            for index, node in enumerate(graph.node)
        }
    )
    with suppress(CycleError):
        replace_elements(graph, "node", [graph.node[index] for index in sorter.static_order()])


def list_unused_weights(graph: GraphProto) -> frozenset[str]:
    """Return the initializers that no node or output uses, except those of an unknown type, which runtimes refuse."""
    used = {name for node in graph.node for name in list_needed_values(node)} | {value.name for value in graph.output}
    return frozenset(tensor.name for tensor in graph.initializer if tensor.data_type in ELEMENT_TYPES) - used


def list_unread_weights(model: ModelView) -> frozenset[str]:
    """Return the initializers of a model whose external data ONNX Runtime does not read, so that it may be missing.

    They do not include initializers with the name of another tensor.
    Source: models with unused, missing or invalid external data, loaded on ONNX Runtime 1.16.3, 1.20.1, 1.24.4, 1.31.1
    and 1.32.0 and ONNX Runtime Web 1.30.0. OpenVINO 2026.4.1 refuses some of them, and tract 0.23.9 all.
    """
    if not model.external:
        return frozenset()
    graph, names = model.proto.graph, Counter(name for name, _ in model.tensors)
    unused = list_unused_weights(graph) - {value.name for value in graph.input}
    return frozenset(name for name in unused if names[name] == 1)


def mark_unused(model: ModelView, uses: Sequence[ExternalUse]) -> tuple[ExternalUse, ...]:
    """Mark the problems of data that ONNX Runtime does not read. Git LFS can fetch a pointer, so it is not marked."""
    unread = list_unread_weights(model) if any(use.problem for use in uses) else frozenset()
    return tuple(
        msgspec.structs.replace(use, is_unused=use.problem != "lfs-pointer" and use.tensor in unread) for use in uses
    )


def replace_elements(
    holder: GraphProto | NodeProto, field: str, elements: Iterable[NodeProto | TensorProto | AttributeProto]
) -> None:
    """Replace the elements of a repeated field, such as the nodes of a graph, possibly by some of them."""
    copies = getattr(type(holder)(**{field: elements}), field)
    holder.ClearField(field)
    getattr(holder, field).extend(copies)


def has_data_elsewhere(tensor: TensorProto) -> bool:
    """Return whether the data of a tensor is external, or was omitted when the model was read."""
    return is_external(tensor) or bool(find_omitted_data(tensor))


def _inline_small_data(tensor: TensorProto, path: Path) -> None:
    """Store small external data in the tensor, because shape inference needs it. Other checks report invalid data."""
    needed = required_bytes(tensor)
    location = read_external_entries(tensor).get("location")
    if not is_external(tensor) or needed is None or needed > SMALL_BYTES or not location:
        return
    file = inspect_data_file(path, location)
    if file.problem:
        return
    try:
        offset, _ = read_data_range(tensor)
        if offset > file.size_bytes:
            return
        with open_regular(file.path) as stream:
            stream.seek(offset)
            data = stream.read(needed)
    except (OSError, ValueError):
        return
    if len(data) == needed:
        _clear_data(tensor)
        tensor.raw_data = data


def remove_data(tensor: TensorProto) -> None:
    """Replace the data of a tensor by an external location that onnx does not read."""
    _clear_data(tensor)
    tensor.data_location = _EXTERNAL_LOCATION
    tensor.external_data.add(key="location", value=_ABSENT_LOCATION)


def _clear_data(tensor: TensorProto) -> None:
    for name in (*DATA_FIELDS.values(), "string_data", "external_data", "data_location"):
        tensor.ClearField(name)


def weights_to_inputs(graph: GraphProto) -> None:
    """Replace the initializers without data by inputs, because shape inference in onnx refuses them."""
    input_names = {value.name for value in graph.input}
    retained = []
    for tensor in graph.initializer:
        if not has_data_elsewhere(tensor):
            retained.append(tensor)
        elif tensor.name not in input_names:
            declare_input(graph, tensor.name, tensor.data_type, tensor.dims)
    if len(retained) < len(graph.initializer):
        replace_elements(graph, "initializer", retained)


def declare_input(graph: GraphProto, name: str, data_type: int, dims: Iterable[int]) -> None:
    """Add an input with a fixed shape to the graph."""
    value = graph.input.add(name=name)
    value.type.tensor_type.elem_type = data_type
    value.type.tensor_type.shape.SetInParent()
    for size in dims:
        value.type.tensor_type.shape.dim.add().dim_value = size


def _empty_sparse_tensors(model: ModelView) -> None:
    """Replace sparse tensors whose data was omitted with empty ones, because the checker reads the indices."""
    attributes = (attribute for node in model.nodes() for attribute in node.attributes)
    nested = (sparse for attribute in attributes for sparse in iter_sparse_tensors(attribute))
    for sparse in itertools.chain(*(graph.proto.sparse_initializer for graph in model.graphs), nested):
        if has_data_elsewhere(sparse.values) or has_data_elsewhere(sparse.indices):
            _clear_data(sparse.values)
            sparse.values.ClearField("dims")
            sparse.values.dims.append(0)
            sparse.ClearField("indices")


def _rename_experimental(model: ModelView) -> None:
    _rename_nodes(model, _list_renamed_operators(model.proto))


def _rename_nodes(model: ModelView, names: frozenset[str]) -> None:
    renamed = {(DEFAULT_DOMAIN, name) for name in names}
    nodes = [node for node in model.nodes() if node.operator[:2] in renamed]
    for node in nodes:
        node.proto.domain = _EXPERIMENTAL_DOMAIN
    if nodes:
        _import_domain(model.proto, _EXPERIMENTAL_DOMAIN)


def _list_renamed_operators(model: ModelProto) -> frozenset[str]:
    """List the operators that the copy moves from the default domain to another domain."""
    opsets = (
        imported.version for imported in model.opset_import if canonical_domain(imported.domain) == DEFAULT_DOMAIN
    )
    added = {"LayerNormalization"} if max(opsets, default=0) < _LAYER_NORMALIZATION_SINCE else frozenset()
    return _ADDED_OPERATORS | EXPERIMENTAL_OPERATORS | added


def _import_domain(model: ModelProto, domain: str) -> None:
    for holder in (model, *model.functions):
        if all(imported.domain != domain for imported in holder.opset_import):
            holder.opset_import.add(domain=domain, version=1)


MAX_CONSTANT_BYTES = 64 * 1024
"""Maximum size in bytes of the constants that an extracted model keeps. Runtimes may need shapes, axes or scales."""


class NodeSurroundings(msgspec.Struct, frozen=True):
    """Values and local functions of a model that an extracted node can use."""

    imports: Mapping[str, int]  # required opsets by domain; the default domain is "ai.onnx"
    type_of: Callable[[str], TypeProto | None]  # type of a value, with its shape if known
    constants: Mapping[str, TensorProto | NodeProto]  # initializers and `Constant` nodes, by value name
    functions: Mapping[OperatorKey, FunctionProto]  # local functions of the model


def extract_node(node: NodeProto, around: NodeSurroundings, ir_version: int, path: Path) -> bytes | None:
    """Create a model that contains the node and the functions that it calls; None if that is not possible.

    The types of all inputs must be known, and the data of the node must be available. Omitted lists in its attributes
    are read from the model at `path`. Inputs keep known shapes, so that runtimes can fold `Shape` nodes.
    """
    from onnx import ModelProto

    model = ModelProto(ir_version=ir_version)
    model.graph.name = "alone"
    for domain, version in sorted(around.imports.items()):
        model.opset_import.add(domain=model_domain(domain), version=version)
    model.functions.extend(_find_called_functions(node, around.functions).values())
    for name in list_needed_values(node):
        if not _provide_value(model.graph, name, around):
            return None
    model.graph.node.add().CopyFrom(node)
    for name in filter(None, node.output):
        output = model.graph.output.add(name=name, type=around.type_of(name))
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")  # a wrong shape would cause a different fault
    if any(has_data_elsewhere(tensor) for _, tensor in ModelView(model).tensors):
        return None
    try:
        restore_lists((model.graph, *model.functions), path)
    except (OSError, UnreadableModel):
        return None
    return bytes(model.SerializeToString())


def list_needed_values(node: NodeProto) -> tuple[str, ...]:
    """Return the names of the values that a node needs: its inputs, then the values that its subgraphs capture."""
    captured = (name for graph in iter_node_subgraphs(node) for name in iter_captured_names(graph))
    return tuple(dict.fromkeys((*filter(None, node.input), *captured)))


def function_key(function: FunctionProto) -> OperatorKey:
    """Return the key that identifies a local function: its domain, name and overload."""
    return (canonical_domain(function.domain), function.name, function.overload)


def called_function_key(node: NodeProto) -> OperatorKey:
    """Return the key of the local function that a node calls if the model contains it."""
    return (canonical_domain(node.domain), node.op_type, node.overload)


def iter_captured_names(graph: GraphProto) -> Iterator[str]:
    """Yield the names of the values from enclosing graphs that a graph uses."""
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {sparse.values.name for sparse in graph.sparse_initializer}
    own |= {name for node in graph.node for name in node.output}
    used = (name for node in graph.node for name in list_needed_values(node))
    yield from (name for name in (*used, *(value.name for value in graph.output)) if name not in own)


def _provide_value(graph: GraphProto, name: str, around: NodeSurroundings) -> bool:
    """Add a value to the graph as a constant or input; return False if that is not possible."""
    constant = around.constants.get(name)
    if constant is not None and constant.ByteSize() <= MAX_CONSTANT_BYTES and not _has_data_elsewhere_in(constant):
        holder = graph.node if hasattr(constant, "op_type") else graph.initializer
        holder.add().CopyFrom(constant)
        return True
    value_type = around.type_of(name)
    if value_type is None or value_type.WhichOneof("value") is None:
        return False
    graph.input.add(name=name, type=value_type)
    return True


def _has_data_elsewhere_in(constant: TensorProto | NodeProto) -> bool:
    if hasattr(constant, "op_type"):
        return any(has_data_elsewhere(attribute.t) for attribute in constant.attribute if attribute.HasField("t"))
    return has_data_elsewhere(constant)


def _find_called_functions(
    node: NodeProto, functions: Mapping[OperatorKey, FunctionProto]
) -> dict[OperatorKey, FunctionProto]:
    """Return the local functions that a node calls directly or indirectly, callees first.

    Source: the reference evaluator in onnx 1.23 refuses a function that is listed before its callees.
    """
    called: dict[OperatorKey, FunctionProto] = {}
    entered: set[OperatorKey] = set()
    ahead = [called_function_key(inner) for inner in iter_nested_nodes(node)]
    while ahead:
        key = ahead[-1]
        if key in functions and key not in entered:
            entered.add(key)
            ahead += [called_function_key(inner) for it in functions[key].node for inner in iter_nested_nodes(it)]
            continue
        if key in functions:
            called.setdefault(key, functions[key])
        ahead.pop()
    return called


def iter_nested_nodes(node: NodeProto) -> Iterator[NodeProto]:
    """Yield the node and all nodes in its subgraphs."""
    yield node
    for graph in iter_node_subgraphs(node):
        for inner in graph.node:
            yield from iter_nested_nodes(inner)
