"""Function bodies: what an operator consists of, and one call of a function as a model of its own."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxgate.model.reading.structure import iter_subgraphs

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TypeProto
    from onnx.defs import OpSchema


@dataclass(frozen=True, slots=True, eq=False)
class FunctionBody:
    """A function body of an operator, and the opset of ai.onnx that it was written for."""

    function: FunctionProto
    written_for: int


def find_schema(domain: str, name: str, since: int) -> OpSchema | None:
    """Return the schema of exactly this since-version in the installed onnx, None if it has none."""
    from onnx import defs

    try:
        schema = defs.get_schema(name, since, "" if domain == "ai.onnx" else domain)
    except defs.SchemaError:
        return None
    return schema if schema.since_version == since else None


def has_body(schema: OpSchema) -> bool:
    """Return whether the operator has a function body at some opset."""
    return bool(schema.has_function or schema.has_context_dependent_function)


def find_body(schema: OpSchema, opset: int, node: NodeProto, types: Sequence[TypeProto | None]) -> FunctionBody | None:
    """Return the operator's body for an opset, None if it has none.

    Source: ONNX Runtime 1.16 to 1.31 takes the body written for the newest opset that is not newer than the model's,
    and prefers one that depends on the context.
    """
    contextual = _newest_version(schema.context_dependent_function_opset_versions, opset)
    if schema.has_context_dependent_function:
        return None if contextual is None else _contextual_body(schema, contextual, node, types)
    plain = _newest_version(schema.function_opset_versions, opset)
    return None if plain is None else FunctionBody(_plain_body(schema, plain), plain)


def _newest_version(versions: Iterable[int], opset: int) -> int | None:
    return max((version for version in versions if version <= opset), default=None)


@functools.lru_cache(maxsize=512)
def _plain_body(schema: OpSchema, version: int) -> FunctionProto:
    from onnx import FunctionProto

    return FunctionProto.FromString(schema.get_function_with_opset_version(version))


def _contextual_body(
    schema: OpSchema, version: int, node: NodeProto, types: Sequence[TypeProto | None]
) -> FunctionBody | None:
    from onnx import FunctionProto, TypeProto

    serialized = [(value_type or TypeProto()).SerializeToString() for value_type in types]
    try:
        data = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), serialized)
    except (RuntimeError, ValueError, IndexError):  # the node does not meet the requirements of the body's builder
        return None
    return FunctionBody(FunctionProto.FromString(data), version) if data else None


def attribute_defaults(schema: OpSchema) -> dict[str, AttributeProto]:
    """Return the default values of an operator's attributes by name."""
    return {
        name: attribute.default_value for name, attribute in schema.attributes.items() if attribute.default_value.name
    }


def instantiate_function(
    function: FunctionProto,
    node: NodeProto,
    types: Sequence[TypeProto | None],
    *,
    imports: Mapping[str, int],
    defaults: Mapping[str, AttributeProto],
    functions: Sequence[FunctionProto] = (),
) -> ModelProto:
    """Return one call of a function as a model with typed inputs and its attributes; omitted arguments are "".

    `imports` is spelled as protobuf has it: "" is the default domain.
    """
    from onnx import ModelProto

    model = ModelProto(ir_version=8)
    for domain, version in imports.items():
        model.opset_import.add(domain=domain, version=version)
    model.functions.extend(functions)
    model.graph.name = function.name
    typed_inputs = {
        formal: value_type for formal, value_type in zip(function.input, types, strict=False) if value_type is not None
    }
    for formal, value_type in typed_inputs.items():
        model.graph.input.add(name=formal, type=value_type)
    model.graph.node.extend(function.node)
    _fill_attributes(
        model.graph.node, _attribute_values(function, node, defaults), set(function.input) - set(typed_inputs)
    )
    for name in function.output:
        model.graph.output.add(name=name)
    return model


def _attribute_values(
    function: FunctionProto, node: NodeProto, defaults: Mapping[str, AttributeProto]
) -> dict[str, AttributeProto]:
    own = {attribute.name: attribute for attribute in function.attribute_proto}
    return {**defaults, **own, **{attribute.name: attribute for attribute in node.attribute}}


def _fill_attributes(nodes: Iterable[NodeProto], values: Mapping[str, AttributeProto], absent: set[str]) -> None:
    for node in nodes:
        for index, name in enumerate(node.input):
            if name in absent:
                node.input[index] = ""
        attributes = list(_iter_filled_attributes(node.attribute, values))
        if len(attributes) != len(node.attribute) or any(attribute.ref_attr_name for attribute in node.attribute):
            del node.attribute[:]
            node.attribute.extend(attributes)
        for graph in _iter_node_subgraphs(node):
            _fill_attributes(graph.node, values, absent)


def _iter_filled_attributes(
    attributes: Iterable[AttributeProto], values: Mapping[str, AttributeProto]
) -> Iterator[AttributeProto]:
    from onnx import AttributeProto

    for attribute in attributes:
        if not attribute.ref_attr_name:
            yield attribute
        elif attribute.ref_attr_name in values:
            filled = AttributeProto()
            filled.CopyFrom(values[attribute.ref_attr_name])
            filled.name = attribute.name
            yield filled


def _iter_node_subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        yield from iter_subgraphs(attribute)
