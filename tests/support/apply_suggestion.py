"""Apply suggestions to models as a user would."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx
import onnx.inliner
from onnx import ModelProto, NodeProto, helper

from onnxgate.model.facts import ELEMENT_TYPES
from onnxgate.support.matching.operations import (
    AttributeAddition,
    AttributeRemoval,
    DomainImport,
    FunctionExpansion,
    Operation,
    OperatorReplacement,
    OpsetChange,
    Suggestion,
    TypeCast,
)
from onnxgate.support.operators import Schema
from onnxgate.support.suggestions.type_casts import change_parameter_type

NUMBERS = {f"tensor({element.name})": number for number, element in ELEMENT_TYPES.items()}
VALUES = {"INT": 1, "INTS": [1], "FLOAT": 1.0, "STRING": "linear"}


def applied(
    model: ModelProto, way: Suggestion, nodes: Sequence[str], operation: Operation, schema: Schema | None
) -> ModelProto:
    """Return a copy of the model with the suggestion applied to the nodes of these names."""
    copy = ModelProto.FromString(model.SerializeToString())
    match way:
        case OpsetChange(domain, version):
            stamp(copy, domain, version)
        case DomainImport(domain, version):
            for holder in (copy, *copy.functions):
                if domain not in {imported.domain or "ai.onnx" for imported in holder.opset_import}:
                    holder.opset_import.append(helper.make_opsetid(domain, version))
        case FunctionExpansion():
            copy = expanded(copy, nodes)
        case _:
            for graph_node in [node for node in copy.graph.node if node.name in nodes]:
                change(copy, graph_node, way, operation, schema)
    return copy


def stamp(model: ModelProto, domain: str, version: int) -> None:
    """Import another version of a domain, in the model and in its functions."""
    for holder in (model, *model.functions):
        for imported in holder.opset_import:
            if (imported.domain or "ai.onnx") == domain:
                imported.version = version


def expanded(model: ModelProto, nodes: Sequence[str]) -> ModelProto:
    """Write defaults explicitly first: onnx does not substitute them for attributes that a body refers to."""
    opset = next(imported.version for imported in model.opset_import if not imported.domain)
    operators = set()
    for node in model.graph.node:
        if node.name in nodes:
            operators.add(("", node.op_type))
            given = {attribute.name for attribute in node.attribute}
            for name, attribute in onnx.defs.get_schema(node.op_type, opset).attributes.items():
                if name not in given and attribute.default_value.name:
                    node.attribute.append(attribute.default_value)
    return onnx.inliner.inline_selected_functions(model, sorted(operators), inline_schema_functions=True)


def change(model: ModelProto, node: NodeProto, way: Suggestion, operation: Operation, schema: Schema | None) -> None:
    """Apply a suggestion to one node."""
    match way:
        case TypeCast(parameter, to):
            assert schema is not None
            other = change_parameter_type(operation, schema, parameter, to)
            assert other is not None
            cast(model, node, operation, other)
        case AttributeRemoval(attribute):
            without(model, node, attribute)
        case AttributeAddition(attributes):
            for name, kind in attributes:
                drop(node, name)
                node.attribute.append(helper.make_attribute(name, VALUES[kind]))
        case OperatorReplacement(domain, name, order, attributes):
            given = list(node.input)
            node.domain, node.op_type = "" if domain == "ai.onnx" else domain, name
            if order is not None:
                del node.input[:]
                node.input.extend("" if index is None else given[index] for index in order)
            node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes)


def drop(node: NodeProto, attribute: str) -> None:
    """Remove an attribute if the node has it."""
    kept = [each for each in node.attribute if each.name != attribute]
    del node.attribute[:]
    node.attribute.extend(kept)


def without(model: ModelProto, node: NodeProto, attribute: str) -> None:
    """Remove an attribute; transpose inputs and outputs for `layout` of a recurrent node."""
    drop(node, attribute)
    if attribute == "layout":
        between(model, node, list(transposed(node)))


def transposed(node: NodeProto) -> Iterator[NodeProto]:
    """Return a Transpose between batch-first and time-first."""
    yield helper.make_node("Transpose", [node.input[0]], [f"{node.name}_time_first"], perm=[1, 0, 2])
    yield helper.make_node("Transpose", [f"{node.name}_time_first_out"], [node.output[0]], perm=[2, 0, 1, 3])
    node.input[0], node.output[0] = f"{node.name}_time_first", f"{node.name}_time_first_out"


def cast(model: ModelProto, node: NodeProto, before: Operation, after: Operation) -> None:
    """Cast inputs of another type, and cast the outputs back."""
    made = []
    for index, (old, new) in enumerate(zip(before.inputs, after.inputs, strict=True)):
        if new and old != new:
            name = f"{node.name}_in_{index}"
            made.append(helper.make_node("Cast", [node.input[index]], [name], to=NUMBERS[new]))
            node.input[index] = name
    for index, (old, new) in enumerate(zip(before.outputs, after.outputs, strict=True)):
        if old and old != new:
            name = f"{node.name}_out_{index}"
            made.append(helper.make_node("Cast", [name], [node.output[index]], to=NUMBERS[old]))
            node.output[index] = name
    between(model, node, made)


def between(model: ModelProto, node: NodeProto, made: Sequence[NodeProto]) -> None:
    """Insert nodes around one: its producers before it, the others after it."""
    nodes = list(model.graph.node)
    index = nodes.index(node)
    before = [each for each in made if set(each.output) & set(node.input)]
    after = [each for each in made if set(each.input) & set(node.output)]
    ordered = [*nodes[:index], *before, node, *after, *nodes[index + 1 :]]
    copies = [NodeProto.FromString(each.SerializeToString()) for each in ordered]
    del model.graph.node[:]
    model.graph.node.extend(copies)
