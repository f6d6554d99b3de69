"""A copy of a model that `onnx.checker` can judge: no weights, no files to open, nothing that it wrongly refuses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.model.external import data_file, data_range, entries, is_external
from onnxgate.model.opening import open_regular
from onnxgate.model.slim import DATA_FIELDS, SMALL_BYTES, pieces
from onnxgate.model.structure import holders, nodes, tensors
from onnxgate.model.types import data_bytes

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, SparseTensorProto, TensorProto

_EXTERNAL = 1
_NOWHERE = "#"
"""onnx takes a location that begins so for data in memory, and opens nothing. Source: onnx 1.16 and later."""
_CONTRIB = "com.microsoft"
_DEFAULT = "ai.onnx"
_EXPERIMENTAL = "onnxgate.experimental"
_EXPERIMENTAL_OPERATORS = frozenset(
    (
        *("ATen", "Affine", "ConstantFill", "Crop", "DynamicSlice", "GRUUnit"),
        *("GivenTensorFill", "ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh"),
    )
)
"""onnx.checker passes these, and prints a warning past `sys.stdout`. Source: onnx 1.23, checker.cc."""


_ADDED_OPERATORS = frozenset(
    (
        *("SimplifiedLayerNormalization", "DisentangledAttention_TRT", "EfficientNMS_TRT"),
        *("MultilevelCropAndResize_TRT", "PyramidROIAlign_TRT", "MemcpyFromHost", "MemcpyToHost"),
    )
)
"""ONNX Runtime adds these to the default domain; its optimizer writes some. Source: schemas of 1.16 to 1.31."""
_LAYER_NORMALIZATION_SINCE = 17
"""Before this opset of ONNX, ONNX Runtime has a LayerNormalization of its own."""


def checkable(model: ModelProto, path: Path) -> ModelProto:
    """The copy. Large and external weights of the main graph are typed inputs there; others have no data.

    `path` is where the model lies, for external data that are small enough to be read.
    """
    from onnx import ModelProto

    copy = ModelProto()
    copy.CopyFrom(model)
    for _, tensor in tensors(copy):
        _inline(tensor, path)
    _weights_to_inputs(copy.graph)
    _sparse_to_empty(copy)
    for _, tensor in tensors(copy):
        if is_away(tensor):
            _point_nowhere(tensor)
    _one_default_domain(copy)
    _rename_experimental(copy)
    _import_contrib(copy)
    return copy


def with_shapes(model: ModelProto) -> ModelProto:
    """A copy in which each input and output of the main graph says a shape, as `onnx.checker` wants; mostly itself."""
    lacking = [index for index, value in enumerate((*model.graph.input, *model.graph.output)) if lacks_shape(value)]
    if not lacking:
        return model
    copy = type(model)()
    copy.CopyFrom(model)
    for value in (*copy.graph.input, *copy.graph.output):
        if kind := lacks_shape(value):
            getattr(value.type, kind).shape.SetInParent()
    return copy


def with_dense_weights(model: ModelProto) -> ModelProto:
    """A copy in which sparse weights of the main graph are inputs; mostly itself.

    They are dense to the nodes that use them, and onnx's shape inference takes them for sparse tensors.
    Source: onnx.proto, `sparse_initializer`; ONNX Runtime makes them dense when it loads them.
    """
    if not model.graph.sparse_initializer:
        return model
    copy = type(model)()
    copy.CopyFrom(model)
    for sparse in copy.graph.sparse_initializer:
        _declare(copy.graph, sparse.values.name, sparse.values.data_type, sparse.dims)
    copy.graph.ClearField("sparse_initializer")
    return copy


def lacks_shape(value: object) -> str:
    """The kind of tensor that a graph input or output is, where it does not even say a rank; else ""."""
    kind = value.type.WhichOneof("value")  # type: ignore[attr-defined]
    if kind in ("tensor_type", "sparse_tensor_type") and not getattr(value.type, kind).HasField("shape"):  # type: ignore[attr-defined]
        return str(kind)
    return ""


def is_away(tensor: TensorProto) -> bool:
    """Whether its data stand elsewhere: in another file, or left in the model's."""
    return is_external(tensor) or bool(pieces(tensor))


def _inline(tensor: TensorProto, path: Path) -> None:
    """Read small external data, since shape inference may need them; what is amiss with others is said elsewhere."""
    needed = data_bytes(tensor)
    location = entries(tensor).get("location")
    if not is_external(tensor) or needed is None or needed > SMALL_BYTES or not location:
        return
    file = data_file(path, location)
    if file.problem:
        return
    try:
        offset, _ = data_range(tensor)
        if offset > file.size_bytes:
            return
        with open_regular(file.path) as stream:
            stream.seek(offset)
            data = stream.read(needed)
    except (OSError, ValueError):
        return
    if len(data) == needed:
        _clear(tensor)
        tensor.raw_data = data


def _clear(tensor: TensorProto) -> None:
    for name in (*DATA_FIELDS.values(), "string_data", "external_data", "data_location"):
        tensor.ClearField(name)


def _weights_to_inputs(graph: GraphProto) -> None:
    known = {value.name for value in graph.input}
    kept = []
    for tensor in graph.initializer:
        if not is_away(tensor):
            kept.append(tensor)
        elif tensor.name not in known:
            _declare(graph, tensor.name, tensor.data_type, tensor.dims)
    if len(kept) < len(graph.initializer):
        _keep(graph, kept)


def _keep(graph: GraphProto, kept: list[TensorProto]) -> None:
    holder = type(graph)()
    holder.initializer.extend(kept)
    graph.ClearField("initializer")
    graph.initializer.extend(holder.initializer)


def _declare(graph: GraphProto, name: str, data_type: int, dims: Sequence[int]) -> None:
    value = graph.input.add()
    value.name = name
    value.type.tensor_type.elem_type = data_type
    value.type.tensor_type.shape.SetInParent()
    for size in dims:
        value.type.tensor_type.shape.dim.add().dim_value = size


def _sparse_to_empty(model: ModelProto) -> None:
    """The checker reads a sparse tensor's indices; one whose data are away becomes one without any value."""
    for holder in holders(model):
        for sparse in getattr(holder, "sparse_initializer", ()):
            _empty(sparse)
    for node in nodes(model):
        for attribute in node.attribute:
            for sparse in attribute.sparse_tensors:
                _empty(sparse)
            if attribute.HasField("sparse_tensor"):
                _empty(attribute.sparse_tensor)


def _empty(sparse: SparseTensorProto) -> None:
    if is_away(sparse.values) or is_away(sparse.indices):
        _clear(sparse.values)
        sparse.values.ClearField("dims")
        sparse.values.dims.append(0)
        sparse.ClearField("indices")


def _point_nowhere(tensor: TensorProto) -> None:
    _clear(tensor)
    tensor.data_location = _EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", _NOWHERE


def _one_default_domain(model: ModelProto) -> None:
    """The checker holds the two spellings of the default domain for two domains. Source: onnx 1.23, checker.cc.

    ONNX Runtime 1.16 to 1.31 loads a node of one spelling under an import of the other.
    """
    for node in nodes(model):
        if node.domain == _DEFAULT:
            node.domain = ""
    for holder in (model, *model.functions):
        for imported in holder.opset_import:
            if imported.domain == _DEFAULT:
                imported.domain = ""


def _rename_experimental(model: ModelProto) -> None:
    opset = max((each.version for each in model.opset_import if not each.domain), default=0)
    added = _ADDED_OPERATORS | ({"LayerNormalization"} if opset < _LAYER_NORMALIZATION_SINCE else set())
    found = [node for node in nodes(model) if not node.domain and node.op_type in added | _EXPERIMENTAL_OPERATORS]
    for node in found:
        node.domain = _EXPERIMENTAL
    if found:
        _import(model, _EXPERIMENTAL)


def _import_contrib(model: ModelProto) -> None:
    """ONNX Runtime needs no import for its own domain. Source: measured on 1.3 to 1.31."""
    if any(node.domain == _CONTRIB for node in nodes(model)):
        _import(model, _CONTRIB)


def _import(model: ModelProto, domain: str) -> None:
    for holder in (model, *model.functions):
        if all(imported.domain != domain for imported in holder.opset_import):
            added = holder.opset_import.add()
            added.domain, added.version = domain, 1
