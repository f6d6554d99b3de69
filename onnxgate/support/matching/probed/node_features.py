"""Describe a node by features, such as `axes: dynamic` or `mode=reflect`, for engines whose support was probed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from onnxgate.core.text import join_phrases
from onnxgate.model.reading.view import iter_subgraphs
from onnxgate.model.subgraphs.reduced_models import iter_captured_names
from onnxgate.support.matching.operations import Attribute, Operation, TypedNode
from onnxgate.support.operators import MIXED, VARIADIC, FormalParameter, Schema

if TYPE_CHECKING:
    from onnx import AttributeProto, TypeProto

_MAX_NAMED_NUMBER = 9
_MAX_COUNT = 3
_RESULT_TYPES = frozenset({"to", "dtype", "output_dtype", "output_datatype"})
"""Attributes that set the type of an output, which is a feature of its own."""
MODEL_INPUT, MODEL_OUTPUT = "model input", "model output"
"""Features of sequences and optional values that are inputs and outputs of the model itself."""
_SOURCES = {"constant": "constant", "input": "dynamic", "computed": "dynamic", "unknown": ""}


def describe_node(node: TypedNode, schema: Schema) -> frozenset[str]:
    """Return the features of a node: types, constant, omitted and computed inputs, ranks, attributes, used outputs.

    A feature that depends on something unknown is absent.
    """
    return frozenset(
        chain(
            describe_operation(node.operation, schema), _describe_inputs(node, schema), _describe_outputs(node, schema)
        )
    )


def describe_operation(operation: Operation, schema: Schema) -> Iterator[str]:
    """Yield the features of a node that depend on neither constants, shapes nor neighbors: types and attributes."""
    attributes = {attribute.name: attribute for attribute in operation.attributes}
    yield from _describe_types(operation.inputs, operation.outputs, schema)
    for name in schema.attributes:
        yield from _describe_attribute(name, attributes.get(name))


def describe_given_inputs(operation: Operation, schema: Schema) -> Iterator[str]:
    """Yield which inputs a node has, and which it omits."""
    for index, formal in enumerate(schema.inputs):
        if formal.option not in (VARIADIC, MIXED):
            is_omitted = index >= len(operation.inputs) or operation.inputs[index] is None
            yield f"{formal.name}: {'omitted' if is_omitted else 'given'}"


def _describe_types(inputs: Sequence[str | None], outputs: Sequence[str | None], schema: Schema) -> Iterator[str]:
    """Yield the known types of the type parameters, such as `T=tensor(float)`."""
    for formals, types in ((schema.inputs, inputs), (schema.outputs, outputs)):
        for index, value_type in enumerate(types):
            formal = _find_formal(formals, index)
            if value_type and formal is not None and formal.type in schema.constraints:
                yield f"{formal.type}={value_type}"


def _find_formal(formals: Sequence[FormalParameter], index: int) -> FormalParameter | None:
    if index < len(formals):
        return formals[index]
    return formals[-1] if formals and formals[-1].option in (VARIADIC, MIXED) else None


def _describe_inputs(node: TypedNode, schema: Schema) -> Iterator[str]:
    names = node.proto.input
    sources = {node.source_of(name) for name in names if name}
    if sources == {"constant"}:
        yield "inputs: constant"
    elif not sources.isdisjoint(("input", "computed")):
        yield "inputs: not constant"
    for index, formal in enumerate(schema.inputs):
        if formal.option in (VARIADIC, MIXED):
            yield f"{formal.name}: {_count(len(names) - index)}"
            kinds = {_SOURCES[node.source_of(name)] for name in names[index:] if name}
            if len(kinds) == 1 and (kind := kinds.pop()):
                yield f"{formal.name}: {kind}"
        elif index >= len(names) or not names[index]:
            yield f"{formal.name}: omitted"
            continue
        else:
            yield f"{formal.name}: given"
            if source := _SOURCES[node.source_of(names[index])]:
                yield f"{formal.name}: {source}"
        if index < len(names) and names[index]:
            is_input = node.source_of(names[index]) == "input"
            yield from _describe_shape(formal.name, node.type_of(names[index]), is_input=is_input)
    for attribute in node.proto.attribute:
        for graph in iter_subgraphs(attribute):
            if any(node.source_of(name) in ("input", "computed") for name in iter_captured_names(graph)):
                yield f"{attribute.name}: uses computed values"


def _describe_shape(name: str, value_type: TypeProto | None, *, is_input: bool) -> Iterator[str]:
    """Yield the rank and whether all sizes are known. Engines may know more about computed values than onnx infers.

    Of a sequence or an optional value, only whether it is an input of the model, and its elements have no rank.
    """
    if value_type is None or not value_type.HasField("tensor_type"):
        if value_type is not None and is_input:
            yield f"{name}: {MODEL_INPUT}"
            element = _find_element(value_type)
            if element is not None and not element.tensor_type.HasField("shape"):
                yield f"{name}: rank unknown"
        return
    tensor_type = value_type.tensor_type
    if not tensor_type.HasField("shape"):
        if is_input:
            yield f"{name}: rank unknown"
        return
    dims = tensor_type.shape.dim
    yield f"{name}: rank {len(dims)}"
    is_static = all(dim.HasField("dim_value") for dim in dims)
    if is_static or is_input:
        yield f"{name}: {'static' if is_static else 'symbolic'}"
    if is_static and dims:
        size = 1
        for dim in dims:
            size *= dim.dim_value
        yield f"{name}: {'empty' if size == 0 else 'one element' if size == 1 else 'elements'}"
        if size:
            yield f"{name}: not empty"


def _find_element(value_type: TypeProto) -> TypeProto | None:
    """Return the tensor type in the type of a sequence or an optional value; None if it contains no tensors."""
    while kind := value_type.WhichOneof("value"):
        if kind == "tensor_type":
            return value_type
        if kind not in ("sequence_type", "optional_type"):
            break
        value_type = getattr(value_type, kind).elem_type
    return None


def _describe_outputs(node: TypedNode, schema: Schema) -> Iterator[str]:
    names = node.proto.output
    for index, (name, type_) in enumerate(zip(names, node.operation.outputs, strict=True)):
        formal = _find_formal(schema.outputs, index)
        if formal is not None and type_ and not type_.startswith("tensor(") and node.is_output(name):
            yield f"{formal.name}: {MODEL_OUTPUT}"
    for index, formal in enumerate(schema.outputs):
        if formal.option in (VARIADIC, MIXED):
            yield f"{formal.name}: {_count(len(names) - index)}"
        elif index:
            yield f"{formal.name}: {'used' if index < len(names) and node.is_used(names[index]) else 'unused'}"


def _count(number: int) -> str:
    return f"{number}" if number < _MAX_COUNT else f"{_MAX_COUNT} or more"


def _describe_attribute(name: str, attribute: Attribute | None) -> Iterator[str]:
    if attribute is None:
        yield f"{name}: unset"
        return
    yield f"{name}: set"
    if not attribute.data or name in _RESULT_TYPES:
        return
    from onnx import AttributeProto

    value = AttributeProto.FromString(attribute.data)
    match attribute.kind:
        case "INT":
            if abs(value.i) <= _MAX_NAMED_NUMBER:
                yield f"{name}={value.i}"
            yield f"{name}: {'negative' if value.i < 0 else 'zero' if value.i == 0 else 'positive'}"
        case "FLOAT":
            yield f"{name}={value.f:g}"
            yield f"{name}: {'nonzero' if value.f else 'zero'}"
        case "STRING":
            yield f"{name}={value.s.decode(errors='replace')[:40]}"
        case "STRINGS":
            for text in sorted({text.decode(errors="replace")[:40] for text in value.strings}):
                yield f"{name}: has {text}"
        case "INTS":
            yield from _describe_integers(name, value)


def _describe_integers(name: str, value: AttributeProto) -> Iterator[str]:
    numbers = value.ints
    yield f"{name}: {len(numbers)}"
    if any(number < 0 for number in numbers):
        yield f"{name}: negative"
    if len(set(numbers)) == 1 and numbers[0] in (0, 1):
        yield f"{name}: all {numbers[0]}"
    elif numbers:
        yield f"{name}: not all equal to 0 or 1"
    half = len(numbers) // 2
    if "pads" in name and len(numbers) % 2 == 0 and list(numbers[:half]) != list(numbers[half:]):
        yield f"{name}: uneven"


_STATE_PHRASES = {
    "dynamic": "{} that is not constant",
    "constant": "constant {}",
    "omitted": "no {}",
    "unset": "no {}",
    "model input": "{} that is an input of the model",
    "model output": "{} that is an output of the model",
    "uses computed values": "{} that uses computed values",
    "rank unknown": "{} of unknown rank",
    "symbolic": "{} with sizes that are not fixed",
    "static": "{} of fixed shape",
    "empty": "empty {}",
    "not empty": "{} that is not empty",
    "one element": "{} with one element",
    "elements": "{} with several elements",
    "used": "output {}",
    "unused": "unused output {}",
    "zero": "{} = `0`",
    "nonzero": "{} other than `0`",
    "positive": "{} greater than `0`",
    "negative": "negative {}",
    "all 0": "only `0` in {}",
    "all 1": "only `1` in {}",
    "not all equal to 0 or 1": "other values than `0` or `1` in {}",
    "uneven": "different values at the start and end in {}",
}
"""State of an input, output or attribute -> the feature in words."""


def word_feature(feature: str) -> str:
    """Return a feature in words: "`mode` = `cubic`", "`axes` that is not constant"."""
    name, separator, value = feature.partition("=")
    if separator:
        return f"`{name}` = `{value}`"
    name, _, state = feature.partition(": ")
    kind, _, value = state.partition(" ")
    if kind == "has":
        return f"`{value}` in `{name}`"
    if kind == "rank" and value.isdigit():
        return f"`{name}` of rank {value}"
    if kind.isdigit():
        return f"`{name}` of length {state}"
    return _STATE_PHRASES.get(state, "{}").format(f"`{name}`")


def word_features(features: Iterable[str]) -> str:
    """Return features in words, such as "`mode` = `cubic` and no `axes`", without those that follow from others."""
    ordered = sorted(features)
    valued = {feature.partition("=")[0] for feature in ordered if "=" in feature}
    words = [word_feature(feature) for feature in ordered if feature.partition(": ")[0] not in valued]
    return join_phrases(sorted(words, key=lambda text: text.startswith("no ")))
