"""Find nodes that tract refuses because a size of an input is dynamic.

Almost all probes of the table have fixed sizes. tract needs fixed numbers of channels, for example, and compares sizes
with those of weights when it loads a model. Not covered: Squeeze of a dynamic axis, Reshape to a constant shape of
another size, and Resize by factors that are not integers.
Source: 17,182 models with one or two nodes, in which some axes of the first input are dynamic, loaded on 0.21.8, 0.22.4
and 0.23.9.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from onnxgate.support.matching.operations import SupportGap, TypedNode

if TYPE_CHECKING:
    from onnx import TensorShapeProto

DYNAMIC_SIZE = "dynamic size"
"""What a gap because of a dynamic size is about (`SupportGap.about`)."""
BOUNDS = "slice bounds"
"""What a gap because of computed bounds of Slice is about."""
RECURRENT = frozenset({"GRU", "LSTM", "RNN"})
_CHANNELS, _SPACE, _ALL = slice(1, 2), slice(2, None), slice(None)
_FIXED_AXES: Mapping[str, slice] = {
    "Attention": _ALL,
    "AveragePool": _CHANNELS,
    "BatchNormalization": _CHANNELS,
    "Conv": _CHANNELS,
    "ConvTranspose": _CHANNELS,
    "DFT": slice(-1, None),
    "DepthToSpace": _CHANNELS,
    "GlobalLpPool": _SPACE,
    "GroupNormalization": _CHANNELS,
    "InstanceNormalization": _CHANNELS,
    "MaxPool": _CHANNELS,
    "Multinomial": _ALL,
    "NonMaxSuppression": _ALL,
    "RotaryEmbedding": _ALL,
    "STFT": slice(1, None),
    "SpaceToDepth": _SPACE,
}
"""Axes of the first input whose sizes tract usually needs as numbers."""
_NORMALIZED = frozenset({"LayerNormalization", "RMSNormalization"})
"""Operators that need fixed sizes of the axes from the attribute `axis`, which is the last axis by default."""
_CERTAIN = frozenset({"AveragePool", "DepthToSpace", "Flatten", "MaxPool", "Multinomial", "SpaceToDepth"})
"""Operators for which all models with such sizes were refused."""
_GENERATED = "unk__"
"""Beginning of names that the inference of onnx gives to sizes that it does not know. tract may know them."""
_STATES = {"LSTM": (5, 6)}
"""Indexes of initial states among the inputs. Without them, a dynamic batch ends the process."""


def find_dynamic_size(node: TypedNode) -> SupportGap | str | None:
    """Return why tract refuses, or may refuse, a node that it accepts with fixed sizes; None if it accepts the node."""
    name = node.operation.name
    proto = node.proto
    if node.operation.domain != "ai.onnx" or not proto.input:
        return None
    shapes = [_get_shape(node, value) for value in proto.input]
    if name == "Slice":
        return _match_slice(node, shapes)
    first = shapes[0]
    if first is None or not any(map(_is_named, first.dim)):
        return None
    axes = [axis for axis in _list_fixed_axes(node, shapes) if axis < len(first.dim) and _is_named(first.dim[axis])]
    if not axes:
        return None
    sizes = f"the dynamic size `{first.dim[axes[0]].dim_param}` in axis {axes[0]} of its first input"
    if name == "Flatten":
        sizes = "several dynamic sizes of its input"
    is_certain = name in _CERTAIN
    if name in RECURRENT:
        is_certain = not all(_iterate_states(node, shapes)) and axes[0] == _get_batch_axis(node)
    if is_certain and node.source_of(proto.input[0]) == "input":
        signal = "SIGABRT" if name in RECURRENT else ""
        detail = f"ends with {signal} when the model is loaded" if signal else ""
        return SupportGap("attribute-unsupported", f"`{name}` is refused with {sizes}", detail, DYNAMIC_SIZE, signal)
    return f"tract may refuse `{name}` with {sizes}"


def _match_slice(node: TypedNode, shapes: Sequence[TensorShapeProto | None]) -> SupportGap | str | None:
    """Return what happens to Slice without `axes` if its bounds are computed. It must have bounds of all axes.

    Source: 95 models with combinations of constant, computed and omitted inputs, loaded on 0.21.8 and 0.23.9.
    """
    bounds = node.proto.input[1:3]
    sources = {node.source_of(bound) for bound in bounds}
    if any(node.proto.input[3:4]) or sources.isdisjoint(("input", "computed")):
        return None
    data, count = shapes[0], shapes[1] and [dim.dim_value for dim in shapes[1].dim]
    if data is not None and count == [len(data.dim)]:
        return None
    what = "with `starts` or `ends` that are not constant, and no `axes`"
    if data is not None and count and count[0] and "input" in sources:
        return SupportGap("attribute-unsupported", f"`Slice` is refused {what}", about=BOUNDS)
    return f"tract may refuse `Slice` {what}"


def _list_fixed_axes(node: TypedNode, shapes: Sequence[TensorShapeProto | None]) -> Iterator[int]:
    """Yield axes of the first input that need a fixed size, or of which several are dynamic although one may be."""
    name = node.operation.name
    assert shapes[0] is not None
    first = shapes[0].dim
    second = shapes[1].dim if len(shapes) > 1 and shapes[1] is not None else ()
    rank = len(first)
    if name in _FIXED_AXES:
        yield from range(rank)[_FIXED_AXES[name]]
    if name in RECURRENT:
        batch = _get_batch_axis(node)
        states = list(_iterate_states(node, shapes))
        if not all(states) or any(_is_fixed(state, batch) for state in states):
            yield batch
        if any(node.proto.input[4:5]):  # sequence_lens
            yield 1 - batch
    elif name in _NORMALIZED:
        yield from range(rank)[_get_integer(node, "axis", -1) :]
    elif name == "Hardmax":
        yield from range(rank)[slice(_get_integer(node, "axis", -1), None)][:1]
    elif name == "DFT" and len(node.proto.input) > 1:
        yield from range(1, rank)
    elif name == "ConvTranspose" and any(attribute.name == "output_shape" for attribute in node.proto.attribute):
        yield from range(rank)
    elif name == "Flatten":
        named = [axis for axis in range(rank) if _is_named(first[axis])]
        yield from named if len(named) > 1 else ()
    elif name == "GridSample":
        yield from range(1 if second and second[0].HasField("dim_value") else 0)
    elif name == "QuantizeLinear":
        yield from range(rank)[slice(_get_integer(node, "axis", 1), None)][:1] if _list_sizes(second) else ()
    elif name == "PRelu":
        yield from (rank - back for back in _list_sizes(second) if back <= rank)
    elif name == "MatMul" and rank and second:
        if second[-2 if len(second) > 1 else 0].HasField("dim_value"):
            yield rank - 1
        yield from (rank - back for back in _list_sizes(second) if 2 < back <= rank)
    elif name == "Gemm" and len(second) == rank:
        if second[1 if _get_integer(node, "transB", 0) else 0].HasField("dim_value"):
            yield 0 if _get_integer(node, "transA", 0) else 1
    elif name == "Einsum":
        yield from _list_unequal_axes(node, shapes)


def _iterate_states(
    node: TypedNode, shapes: Sequence[TensorShapeProto | None]
) -> Iterator[TensorShapeProto | Literal[True] | None]:
    """Yield the shape of each initial state of a recurrent node; True if it is unknown, None if there is no state."""
    for index in _STATES.get(node.operation.name, (5,)):
        is_given = any(node.proto.input[index : index + 1])
        yield (shapes[index] or True) if is_given else None


def _list_unequal_axes(node: TypedNode, shapes: Sequence[TensorShapeProto | None]) -> Iterator[int]:
    """Yield axes of the first input of Einsum whose letter also stands for another size."""
    equation = next(
        (attribute.s.decode(errors="replace") for attribute in node.proto.attribute if attribute.name == "equation"), ""
    )
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    sizes: dict[str, set[object]] = {}
    for term, shape in zip(terms, shapes, strict=False):
        for letter, dim in zip(term, shape.dim if shape is not None and "." not in term else (), strict=False):
            if dim.HasField("dim_value") or _is_named(dim):
                sizes.setdefault(letter, set()).add(dim.dim_param or dim.dim_value)
    for axis, letter in enumerate(terms[0] if "." not in terms[0] else ""):
        if len(sizes.get(letter, ())) > 1:
            yield axis


def _get_batch_axis(node: TypedNode) -> int:
    return 0 if _get_integer(node, "layout", 0) else 1


def _is_fixed(shape: TensorShapeProto | Literal[True] | None, axis: int) -> bool:
    if shape is None or isinstance(shape, bool):
        return False
    return any(dim.HasField("dim_value") for dim in shape.dim[axis : axis + 1])


def _list_sizes(dims: Sequence[TensorShapeProto.Dimension]) -> list[int]:
    """Return the positions, counted from the end, of fixed sizes that are not broadcast."""
    return [back for back, dim in enumerate(reversed(dims), 1) if dim.dim_value > 1]


def _get_shape(node: TypedNode, name: str) -> TensorShapeProto | None:
    value_type = node.type_of(name) if name else None
    if value_type is None or not value_type.tensor_type.HasField("shape"):
        return None
    return value_type.tensor_type.shape


def _get_integer(node: TypedNode, name: str, default: int) -> int:
    return next((int(attribute.i) for attribute in node.proto.attribute if attribute.name == name), default)


def _is_named(dim: TensorShapeProto.Dimension) -> bool:
    return bool(dim.dim_param) and not dim.dim_param.startswith(_GENERATED)
