"""Check a node against its operator's schema, and against restrictions of ONNX Runtime that no schema contains."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import msgspec

from onnxgate.core.findings import version_sort_key
from onnxgate.core.text import pluralize
from onnxgate.model.facts import DEFAULT_DOMAIN
from onnxgate.support.matching.operations import Operation, SupportGap
from onnxgate.support.operators import MIXED, SINGLE, VARIADIC, FormalParameter, Schema

UNNAMED_KIND = "???"
"""Text that ONNX Runtime reports as the kind of an attribute if it has no name for that kind."""


Violation = tuple[str, str]  # problem; facts that distinguish it from other problems of the operator


def find_schema_violation(operation: Operation, schema: Schema) -> SupportGap | None:
    """Return the first violation of the operator's schema by an operation; None if there is none."""
    name = f"{operation.label}({schema.since})"
    problems = itertools.chain(_check_attributes(operation, schema, name), _check_arguments(operation, schema, name))
    if violation := next(problems, None):
        return SupportGap("attribute-unsupported", violation[0], about=violation[1])
    violation = next(_check_types(operation, schema, name), None)
    return SupportGap("type-mismatch", violation[0], about=violation[1]) if violation else None


def _check_attributes(operation: Operation, schema: Schema, name: str) -> Iterator[Violation]:
    kinds = {attribute.name: attribute.kind for attribute in operation.attributes}
    for attribute, kind in kinds.items():
        declared = schema.attributes.get(attribute)
        if declared is None and not attribute.startswith("__"):
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
    for index, value_type in enumerate(operation.inputs):
        formal = find_parameter(schema.inputs, index)
        if value_type is None and formal is not None and formal.option == SINGLE:
            yield f"`{name}` lacks the required input `{formal.name}`", f"input {formal.name}"


def _check_types(operation: Operation, schema: Schema, name: str) -> Iterator[Violation]:
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
        if value_type and value_type not in schema.types_of(formal):
            yield f"`{name}` does not return `{value_type}` for `{formal.name}`", f"{formal.name}={value_type}"


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
    rules = _OUTPUT_TYPE_RULES.get(f"{operator}({schema.since})", {})
    types = []
    for position in range(count):
        rule = rules.get(position, "")
        index, default = (len(inputs), rule) if isinstance(rule, str) else rule
        by_rule = (inputs[index] if index < len(inputs) else None) or default
        types.append(_infer_bound_output(schema, bound, position) or by_rule)
    return types


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


AttributeValues = dict[str, int | str]
"""Values of integer and string attributes, by attribute name; 0 for attributes of other kinds."""


class ReleaseRestriction(msgspec.Struct, frozen=True):
    """A condition under which releases from `first` to `last` ("" means no bound) reject nodes of certain operators."""

    operators: tuple[str, ...]
    is_met: Callable[[AttributeValues], bool]
    problem: str
    first: str = ""
    last: str = ""
    attribute: str = ""  # the rejected attribute, or the first of several

    def concerns(self, operation: Operation, release: str) -> bool:
        """Return whether a release rejects an operation because of this restriction."""
        return (
            operation.domain == DEFAULT_DOMAIN
            and operation.name in self.operators
            and _is_release_within(release, self.first, self.last)
            and self.is_met(read_attribute_values(operation))
        )


_FLOAT16 = 10
ATTRIBUTE_RESTRICTIONS = (
    ReleaseRestriction(
        ("GRU", "LSTM", "RNN"),
        lambda values: values.get("layout") == 1,
        "`layout` = 1 is not supported",
        attribute="layout",
    ),
    ReleaseRestriction(
        ("GRU", "LSTM", "RNN"),
        lambda values: int(values.get("hidden_size") or 0) <= 0,
        "`hidden_size` is required",
        attribute="hidden_size",
    ),
    ReleaseRestriction(
        ("DFT",),
        lambda values: bool(values.get("onesided")) and bool(values.get("inverse")),
        "`onesided` and `inverse` are not supported together",
        last="1.24.4",
        attribute="onesided",
    ),
    ReleaseRestriction(
        ("MelWeightMatrix",),
        lambda values: values.get("output_datatype") == _FLOAT16,
        "`output_datatype` = FLOAT16 is not supported",
        attribute="output_datatype",
    ),
    ReleaseRestriction(
        ("RotaryEmbedding",),
        lambda values: bool(values.get("rotary_embedding_dim")) and not values.get("num_heads"),
        "`rotary_embedding_dim` is not supported without `num_heads`",
        first="1.23.0",
        last="1.23.2",
        attribute="rotary_embedding_dim",
    ),
)
_FLOAT8 = tuple(f"tensor(float8{kind})" for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz"))
RESULT_TYPE_RESTRICTIONS = (
    (_FLOAT8, ReleaseRestriction(("ConstantOfShape",), lambda values: True, "does not make")),
    (
        ("tensor(bfloat16)",),
        ReleaseRestriction(("ConstantOfShape",), lambda values: True, "does not make", "1.17.0", "1.17.3"),
    ),
)
"""Output types, with the operators and releases that do not support outputs of these types."""
UNREGISTERED_TYPES = (
    (("tensor(complex64)", "tensor(complex128)"), "", ""),
    (("tensor(int4)", "tensor(uint4)"), "1.18.0", "1.18.1"),
    (("tensor(float4e2m1)",), "1.23.0", "1.23.2"),
    (("tensor(float8e8m0)",), "1.24.1", "1.26.0"),
)
"""Data types that some releases do not support, although they support opsets in which these types exist.

Each entry contains types, and the first and last release that do not support them; "" means no bound. Source: models
with a Constant of each type that the schema allows, loaded on 17 releases from 1.16.0 to 1.31.1.
"""
LOCALE_RESTRICTIONS = (
    ReleaseRestriction(("StringNormalizer",), lambda values: True, "", last="1.17.3"),
    ReleaseRestriction(
        ("StringNormalizer",), lambda values: not values.get("is_case_sensitive"), "", first="1.18.0", last="1.26.0"
    ),
    ReleaseRestriction(
        ("StringNormalizer",),
        lambda values: (
            values.get("case_change_action", "NONE") != "NONE"
            or (not values.get("is_case_sensitive") and "stopwords" in values)
        ),
        "",
        first="1.27.0",
    ),
)
"""Operators and releases with which a model loads only if a specific locale is installed on the machine."""


def find_restriction(operation: Operation, since: int, release: str) -> SupportGap | str | None:
    """Return the restriction because of which a release rejects an operation; None if there is none.

    If the outcome depends on the machine, the result is a string with the reason.
    """
    name = f"{operation.label}({since})"
    for restriction in ATTRIBUTE_RESTRICTIONS:
        if restriction.concerns(operation, release):
            problem = f"`{name}`: {restriction.problem}"
            return SupportGap("attribute-unsupported", problem, about=restriction.attribute)
    for types, restriction in RESULT_TYPE_RESTRICTIONS:
        if operation.outputs[:1] and operation.outputs[0] in types and restriction.concerns(operation, release):
            problem = f"there is no kernel for `{name}` with output type `{operation.outputs[0]}`"
            return SupportGap("missing-kernel", problem, about=operation.outputs[0])
    if any(restriction.concerns(operation, release) for restriction in LOCALE_RESTRICTIONS):
        locale = read_attribute_values(operation).get("locale", "en_US.UTF-8")
        return f"`{operation.label}` loads only if the locale `{locale}` is installed"
    return None


def find_body_restriction(operation: Operation, since: int, release: str) -> SupportGap | None:
    """Return why a release rejects an Attention node because of the type of its mask; None if it accepts the type.

    Source: models loaded on ONNX Runtime 1.23.0 to 1.32.0. If the mask is neither bool nor float, releases up to 1.23.2
    reject the node; releases up to 1.31.1 reject it only with `is_causal` or `nonpad_kv_seqlen` (the seventh input).
    """
    mask = operation.inputs[3] if operation.name == "Attention" and len(operation.inputs) > 3 else None
    if operation.domain != DEFAULT_DOMAIN or mask in (None, "", "tensor(bool)", "tensor(float)"):
        return None
    is_masked_again = operation.inputs[6:] not in ((), (None,)) or bool(
        read_attribute_values(operation).get("is_causal")
    )
    if not _is_release_within(release, "", "1.31.1" if is_masked_again else "1.23.2"):
        return None
    problem = f"there is no kernel for `{operation.label}({since})` with `attn_mask` = `{mask}`"
    return SupportGap(
        "missing-kernel", problem, "implements masks of `tensor(bool)` and `tensor(float)`", f"attn_mask={mask}"
    )


def is_unregistered_type(type_name: str, release: str) -> bool:
    """Return whether a release does not support a data type at all, not even for constants."""
    return any(
        type_name in types and _is_release_within(release, first, last) for types, first, last in UNREGISTERED_TYPES
    )


def _is_release_within(release: str, first: str, last: str) -> bool:
    version = version_sort_key(release)
    return (not first or version >= version_sort_key(first)) and (not last or version <= version_sort_key(last))


def read_attribute_values(operation: Operation) -> AttributeValues:
    """Return the values of an operation's integer and string attributes by name; 0 for other kinds of attributes."""
    from onnx import AttributeProto

    values: AttributeValues = {}
    for attribute in operation.attributes:
        proto = AttributeProto.FromString(attribute.data)
        text = proto.s.decode(errors="replace") if attribute.kind == "STRING" and attribute.data else 0
        values[attribute.name] = int(proto.i) if attribute.kind == "INT" else text
    return values
