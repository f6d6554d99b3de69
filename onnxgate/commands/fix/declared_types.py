"""Fixes of declared types and shapes, which are inferred by onnx."""

from __future__ import annotations

from collections.abc import Container, Sequence

from onnx import ModelProto, ValueInfoProto

from onnxgate.commands.fix.definition import Change, Fix, FixRequest, NoFix
from onnxgate.commands.fix.model_file import (
    FieldMatch,
    Part,
    rewrite_fields,
)
from onnxgate.core.process_pool import FailedCallError
from onnxgate.core.text import truncate
from onnxgate.model.facts import Dim, ValueInfo
from onnxgate.model.onnx_functions import OnnxError, infer_shapes
from onnxgate.model.reading.fact_extraction import read_value_infos
from onnxgate.model.subgraphs.reduced_models import copy_for_checker, kind_without_shape


def _add_missing_types(request: FixRequest) -> Change | NoFix | None:
    """Add missing types of outputs, as found by ONNX's shape inference. Types of inputs cannot be inferred."""
    values = (*request.proto.graph.output, *request.proto.graph.value_info)
    untyped = {value.name for value in values if _lacks_type(value)}
    if not untyped:
        return None
    inferred, error = _infer_types(request, untyped)
    types = {name: value for name, value in inferred.items() if name in untyped and not _lacks_type(value)}
    if error or not types:
        names = ", ".join(f"`{name}`" for name in sorted(untyped))
        reason = f"shape inference could not determine the type of {names}{f' ({error})' if error else ''}"
        return NoFix(reason, "re-export the model with types for all outputs")

    def filled(match: FieldMatch) -> list[Part] | None:
        value = ValueInfoProto.FromString(match.content())
        if value.name not in types or not _lacks_type(value):
            return None
        value.type.CopyFrom(types[value.name].type)
        return match.replaced([value.SerializeToString()])

    def graph(match: FieldMatch) -> list[Part]:
        return match.edited({("GraphProto", "output"): filled, ("GraphProto", "value_info"): filled}, shallow=True)

    words = []
    for value in read_value_infos([types[name] for name in sorted(types)]):
        shape = "" if value.shape is None else f" [{', '.join(map(str, value.shape))}]"
        words.append(f"adds the type of `{value.name}`: {value.type}{shape}")
    follows = frozenset({"output-type-changed", "output-shape-changed"})
    return Change(rewrite_fields(request.path, {("ModelProto", "graph"): graph}), tuple(words), follows=follows)


def _correct_output_shapes(request: FixRequest) -> Change | NoFix | None:
    """Replace declared sizes of outputs that contradict the shapes that ONNX's shape inference finds without them.

    If there are none, a size that inference does not know must be the wrong one, and becomes unknown.
    """
    outputs = read_value_infos(request.proto.graph.output)
    declared = {value.name: value for value in outputs if value.shape is not None and value.type.startswith("tensor(")}
    fixed = {
        name for name, value in declared.items() if not value.shape or any(isinstance(dim, int) for dim in value.shape)
    }
    if not fixed:
        return None
    inferred, error = _infer_output_shapes(request)
    inputs = {dim for value in read_value_infos(request.proto.graph.input) for dim in value.shape or ()}
    corrected = {name: _correct_shape(declared[name], inferred.get(name), inputs) for name in sorted(fixed)}
    changed = {name: shape for name, shape in corrected.items() if shape is not None and shape != declared[name].shape}
    if not changed:
        loose = {name: _forget_sizes(declared[name], inferred.get(name)) for name in sorted(fixed)}
        changed = {name: shape for name, shape in loose.items() if corrected[name] is None and shape is not None}
    if not changed:
        unknown = [f"`{name}`" for name in sorted(fixed) if corrected[name] is None]
        hint = "export the model again with these output axes as dynamic"
        reason = f"shape inference could not determine the shape of {', '.join(unknown)}"
        return NoFix(f"{reason}{f' ({error})' if error else ''}", hint) if unknown else None

    def output(match: FieldMatch) -> list[Part] | None:
        value = ValueInfoProto.FromString(match.content())
        if value.name not in changed:
            return None
        shape = value.type.tensor_type.shape
        del shape.dim[:]
        for dim in changed[value.name]:
            if isinstance(dim, int):
                shape.dim.add(dim_value=dim)
            else:
                shape.dim.add(dim_param="" if dim == "?" else dim)
        return match.replaced([value.SerializeToString()])

    def graph(match: FieldMatch) -> list[Part]:
        return match.edited({("GraphProto", "output"): output}, shallow=True)

    words = tuple(
        f"declares the shape of `{name}` as {_format_dims(shape)} instead of {_format_dims(declared[name].shape or ())}"
        for name, shape in changed.items()
    )
    parts = rewrite_fields(request.path, {("ModelProto", "graph"): graph})
    return Change(parts, words, follows=frozenset({"output-shape-changed"}))


def _infer_output_shapes(request: FixRequest) -> tuple[dict[str, ValueInfo], str]:
    """Return the outputs with inferred shapes, and the error if inference failed. Declared shapes are not used."""
    proto = copy_for_checker(request.proto, request.path)
    del proto.graph.value_info[:]
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    inferred, error = _infer(proto)
    return {value.name: value for value in read_value_infos(inferred.graph.output)}, error


def _infer(proto: ModelProto) -> tuple[ModelProto, str]:
    """Return the model with inferred types; an empty model and the error if inference failed."""
    try:
        return infer_shapes(proto, check_type=True, strict_mode=True), ""
    except (OnnxError, FailedCallError) as error:
        return ModelProto(), truncate(" ".join(str(error).split()))


def _correct_shape(declared: ValueInfo, inferred: ValueInfo | None, inputs: Container[Dim]) -> tuple[Dim, ...] | None:
    """Return the declared shape with inferred sizes; None if a fixed size cannot be inferred.

    A name is used only if an input has it, since inference also invents names.
    """
    if declared.shape is None or inferred is None or inferred.shape is None:
        return None
    if len(declared.shape) != len(inferred.shape):
        return tuple(dim if isinstance(dim, int) or dim in inputs else "?" for dim in inferred.shape)
    known = [isinstance(dim, int) or dim in inputs for dim in inferred.shape]
    pairs = list(zip(declared.shape, inferred.shape, known, strict=True))
    if any(isinstance(was, int) and not is_known for was, _, is_known in pairs):
        return None
    return tuple(now if isinstance(was, int) else was for was, now, _ in pairs)


def _forget_sizes(declared: ValueInfo, inferred: ValueInfo | None) -> tuple[Dim, ...] | None:
    """Return the declared shape without the fixed sizes that inference does not know; None if it knows no rank."""
    if declared.shape is None or inferred is None or inferred.shape is None:
        return None
    pairs = zip(declared.shape, inferred.shape, strict=True)
    return tuple("?" if isinstance(was, int) and not isinstance(now, int) else was for was, now in pairs)


def _format_dims(shape: Sequence[Dim]) -> str:
    return f"({', '.join(map(str, shape))})"


def _lacks_type(value: ValueInfoProto) -> bool:
    kind = value.type.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        return bool(kind_without_shape(value)) or not getattr(value.type, kind).elem_type
    return kind is None


def _infer_types(request: FixRequest, untyped: set[str]) -> tuple[dict[str, ValueInfoProto], str]:
    """Return the inferred type of each value, and the error if inference failed."""
    proto = copy_for_checker(request.proto, request.path)
    # Inference fails to merge its result with empty entries of inner values.
    for index in reversed(range(len(proto.graph.value_info))):
        if proto.graph.value_info[index].name in untyped:
            del proto.graph.value_info[index]
    inferred, error = _infer(proto)
    return {value.name: value for value in (*inferred.graph.value_info, *inferred.graph.output)}, error


MISSING_TYPES = Fix("missing-types", frozenset({"invalid-model"}), _add_missing_types)


OUTPUT_SHAPES = Fix("output-shapes", frozenset({"output-shape-wrong"}), _correct_output_shapes)
