"""Check a node against its operator's schema, and infer output types from it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence

from onnxgate.core.text import pluralize
from onnxgate.model.subgraphs.reduced_models import EXPERIMENTAL_OPERATORS
from onnxgate.support.matching.operations import Operation, SupportGap
from onnxgate.support.operators import MIXED, SINGLE, VARIADIC, FormalParameter, Schema

UNNAMED_KIND = "???"
"""Text that ONNX Runtime reports as the kind of an attribute if it has no name for that kind."""


_WITH_ANY_ATTRIBUTE = frozenset({"LayerNormalization"})
"""Operators whose unknown attributes ONNX Runtime ignores.

Source: one-node models of all operators with an unknown attribute, loaded on ONNX Runtime 1.16.3 to 1.31.1.
"""
Violation = tuple[str, str]  # problem; facts that distinguish it from other problems of the operator


@functools.lru_cache(maxsize=2**12)  # releases share schemas
def find_schema_violation(operation: Operation, schema: Schema) -> SupportGap | None:
    """Return the first violation of the operator's schema by an operation; None if there is none."""
    name = f"{operation.label}({schema.since})"
    if operation.label in EXPERIMENTAL_OPERATORS:
        violation = next(_check_types(operation, schema, name), None)
        return SupportGap("type-mismatch", violation[0], about=violation[1]) if violation else None
    problems = itertools.chain(_check_attributes(operation, schema, name), _check_arguments(operation, schema, name))
    if violation := next(problems, None):
        return SupportGap("attribute-unsupported", violation[0], about=violation[1])
    violation = next(_check_types(operation, schema, name), None)
    return SupportGap("type-mismatch", violation[0], about=violation[1]) if violation else None


def _check_attributes(operation: Operation, schema: Schema, name: str) -> Iterator[Violation]:
    kinds = {attribute.name: attribute.kind for attribute in operation.attributes}
    for attribute, kind in kinds.items():
        declared = schema.attributes.get(attribute)
        if declared is None and not attribute.startswith("__") and operation.label not in _WITH_ANY_ATTRIBUTE:
            yield f"`{name}` has no attribute `{attribute}`", attribute
        elif declared is not None and kind != declared[0] != UNNAMED_KIND:
            problem = f"attribute `{attribute}` of `{name}` has type {kind} but must be {declared[0]}"
            yield problem, f"{attribute} {kind}"
    for attribute, (_, required) in schema.attributes.items():
        if required and attribute not in kinds:
            yield f"`{name}` lacks the required attribute `{attribute}`", attribute


def _check_arguments(operation: Operation, schema: Schema, name: str) -> Iterator[Violation]:
    for side, types, low, high in (
        ("input", operation.inputs, schema.inputs_min, schema.inputs_max),
        ("output", operation.outputs, schema.outputs_min, schema.outputs_max),
    ):
        if not low <= len(types) <= high:
            upper = f"{low} or more" if high >= 2**31 - 1 else f"{low} to {high}"
            number = pluralize(len(types), side)
            yield f"`{name}` has {number} but takes {low if low == high else upper}", f"{side}s"
    for side, formals, types in (
        ("input", schema.inputs, operation.inputs),
        ("output", schema.outputs, operation.outputs),
    ):
        for index, value_type in enumerate(types):
            formal = find_parameter(formals, index)
            if value_type is None and formal is not None and formal.option == SINGLE:
                yield f"`{name}` lacks the required {side} `{formal.name}`", f"{side} {formal.name}"


def _check_types(operation: Operation, schema: Schema, name: str) -> Iterator[Violation]:
    """Yield wrong types of inputs, and of outputs unless an attribute determines them: then, only kernels limit them.

    Source: Cast, Bernoulli, ConstantOfShape and 6 similar operators with each type, on ONNX Runtime 1.16 to 1.31.
    """
    bound: dict[str, str] = {}
    for formal, value_type in _pair_arguments(schema.inputs, operation.inputs):
        if not value_type:
            continue
        if value_type not in schema.types_of(formal):
            yield f"`{name}` does not accept `{value_type}` for `{formal.name}`", f"{formal.name}={value_type}"
        elif formal.option != MIXED and bound.setdefault(formal.type, value_type) != value_type:
            problem = f"`{name}` has inputs of types `{bound[formal.type]}` and `{value_type}`, which must match"
            yield problem, f"{bound[formal.type]} {value_type}"
    for formal, value_type in _pair_arguments(schema.outputs, operation.outputs):
        types = schema.types_of(formal)
        if value_type and value_type not in types and (formal.type in bound or len(types) == 1):
            yield f"`{name}` does not return `{value_type}` for `{formal.name}`", f"{formal.name}={value_type}"
        elif value_type and formal.option != MIXED and bound.get(formal.type, value_type) != value_type:
            problem = f"`{name}` returns `{bound[formal.type]}` for `{formal.name}`, but `{value_type}` is declared"
            yield problem, f"{formal.name}={value_type}"
    expected = _list_ruled_types(operation.label, schema, operation.inputs)
    for index, output_type in enumerate(operation.outputs):
        is_ruled = output_type and not _infer_bound_output(schema, bound, index)
        if is_ruled and expected.get(index, output_type) != output_type:
            yield f"`{name}` does not return `{output_type}` as output {index + 1}", f"output {index + 1}={output_type}"


ArgumentTypes = Sequence[str | None]


def find_parameter(formals: Sequence[FormalParameter], index: int) -> FormalParameter | None:
    """Return the formal parameter of the argument at `index`; a variadic last parameter takes all further arguments."""
    if index < len(formals):
        return formals[index]
    if formals and formals[-1].option in (VARIADIC, MIXED):
        return formals[-1]
    return None


def _pair_arguments(formals: Sequence[FormalParameter], types: ArgumentTypes) -> Iterator[tuple[FormalParameter, str]]:
    """Yield the formal parameter and the type ("" if unknown) of each argument that is not omitted."""
    for index, value_type in enumerate(types):
        formal = find_parameter(formals, index)
        if formal is not None and value_type is not None:
            yield formal, value_type


def infer_output_types(operator: str, schema: Schema, inputs: ArgumentTypes, count: int) -> list[str]:
    """Return the type of each output of an operator, inferred from the input types; "" if it cannot be inferred."""
    bound: dict[str, str] = {}
    for formal, value_type in _pair_arguments(schema.inputs, inputs):
        if value_type and formal.option != MIXED:
            bound.setdefault(formal.type, value_type)
    ruled = _list_ruled_types(operator, schema, inputs)
    return [_infer_bound_output(schema, bound, position) or ruled.get(position, "") for position in range(count)]


def _list_ruled_types(operator: str, schema: Schema, inputs: ArgumentTypes) -> dict[int, str]:
    """Return the types of outputs that the schema does not determine, by index."""
    types: dict[int, str] = {}
    for position, rule in _OUTPUT_TYPE_RULES.get(f"{operator}({schema.since})", {}).items():
        index, default = (len(inputs), rule) if isinstance(rule, str) else rule
        known = inputs[index] if index < len(inputs) else None
        types[position] = known or default
    return {position: value_type for position, value_type in types.items() if value_type}


_OUTPUT_TYPE_RULES: dict[str, dict[int, str | tuple[int, str]]] = {
    "LayerNormalization(1)": {1: "tensor(float)", 2: "tensor(float)"},
    "SimplifiedLayerNormalization(1)": {1: "tensor(float)"},
    "com.microsoft.GridSample(1)": {0: (0, "")},
    "com.microsoft.MatMulInteger16(1)": {0: "tensor(int32)"},
    "com.microsoft.QGemm(1)": {0: (8, "tensor(float)")},
    "com.microsoft.QuantizeLinear(1)": {0: "tensor(uint8)"},
}
"""Output types that ONNX Runtime infers although the schema does not determine them, by operator and output index.

A value is a type, or a pair: the index of the input that has the same type, and the type if that input is omitted.
Source: error texts of one-node models that declare a different output type, on ONNX Runtime 1.16 to 1.31.
"""


def _infer_bound_output(schema: Schema, bound: dict[str, str], index: int) -> str:
    formal = find_parameter(schema.outputs, index)
    if formal is None or formal.option == MIXED:
        return ""
    if formal.type in bound:
        return bound[formal.type]
    types = schema.types_of(formal)
    return next(iter(types)) if len(types) == 1 else ""


def find_constrained_type(schema: Schema, key: str, inputs: ArgumentTypes, outputs: ArgumentTypes) -> str | None:
    """Return the argument type that must meet the type constraint `key` of a kernel; None if the arguments are omitted.

    It is the type of the first argument that belongs to the constraint and is not omitted.

    Source: ONNX Runtime 1.16 to 1.31, which checks only the first argument of a variadic parameter.
    """
    for formals, types in ((schema.inputs, inputs), (schema.outputs, outputs)):
        for index, formal in enumerate(formals):
            if key in (formal.type, formal.name) and index < len(types) and types[index] is not None:
                return types[index]
    return None
