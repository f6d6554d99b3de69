"""Checks of a node against its operator's schema, and against restrictions of releases beyond schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from onnxgate.core.findings import version_sort_key
from onnxgate.support.matching.operations import Operation, SupportGap
from onnxgate.support.tables.operators import MIXED, SINGLE, VARIADIC, FormalParameter, Schema

UNNAMED_KIND = "???"
"""Spelling of attribute kinds that a release cannot name, such as types of values."""


def find_schema_violation(operation: Operation, schema: Schema) -> SupportGap | None:
    """Return the first violation of the schema."""
    return next(_find_schema_violations(operation, schema), None)


def format_versioned_name(operation: Operation, schema: Schema) -> str:
    """Return the operator's name with its version: `Det(11)`."""
    return f"{operation.label}({schema.since})"


def _find_schema_violations(operation: Operation, schema: Schema) -> Iterator[SupportGap]:
    yield from _check_attributes(operation, schema)
    yield from _check_argument_counts(operation, schema)
    yield from _check_input_types(operation, schema)


def _check_attributes(operation: Operation, schema: Schema) -> Iterator[SupportGap]:
    name = format_versioned_name(operation, schema)
    kinds = {attribute.name: attribute.kind for attribute in operation.attributes}
    for attribute, kind in kinds.items():
        declared = schema.attributes.get(attribute)
        if declared is None and not attribute.startswith("__"):
            yield SupportGap("attribute-unsupported", f"`{name}` has no attribute `{attribute}`")
        elif declared is not None and kind != declared[0] != UNNAMED_KIND:
            problem = f"attribute `{attribute}` of `{name}` is {kind} and must be {declared[0]}"
            yield SupportGap("attribute-unsupported", problem)
    for attribute, (_, required) in schema.attributes.items():
        if required and attribute not in kinds:
            yield SupportGap("attribute-unsupported", f"`{name}` lacks its attribute `{attribute}`")


def _check_argument_counts(operation: Operation, schema: Schema) -> Iterator[SupportGap]:
    name = format_versioned_name(operation, schema)
    for what, types, low, high in (
        ("inputs", operation.inputs, schema.inputs_min, schema.inputs_max),
        ("outputs", operation.outputs, schema.outputs_min, schema.outputs_max),
    ):
        if not low <= len(types) <= high:
            yield SupportGap(
                "attribute-unsupported", f"`{name}` has {len(types)} {what} and takes {_format_count_range(low, high)}"
            )
    for index, value_type in enumerate(operation.inputs):
        formal = find_parameter(schema.inputs, index)
        if value_type is None and formal is not None and formal.option == SINGLE:
            yield SupportGap("attribute-unsupported", f"`{name}` lacks its input `{formal.name}`")


def _format_count_range(low: int, high: int) -> str:
    if low == high:
        return str(low)
    return f"{low} or more" if high >= 2**31 - 1 else f"{low} to {high}"


def _check_input_types(operation: Operation, schema: Schema) -> Iterator[SupportGap]:
    name = format_versioned_name(operation, schema)
    bound: dict[str, str] = {}
    for formal, value_type in pair_arguments(schema.inputs, operation.inputs):
        if not value_type:
            continue
        if value_type not in schema.types_of(formal):
            yield SupportGap("type-mismatch", f"`{name}` does not take {_format_argument(formal, value_type)}")
        elif formal.option != MIXED and bound.setdefault(formal.type, value_type) != value_type:
            problem = f"`{name}` is given `{bound[formal.type]}` and `{value_type}` where both must be of one type"
            yield SupportGap("type-mismatch", problem)
    yield from _check_output_types(operation.outputs, schema, bound, name)


def _check_output_types(
    outputs: ArgumentTypes, schema: Schema, bound: dict[str, str], name: str
) -> Iterator[SupportGap]:
    for formal, value_type in pair_arguments(schema.outputs, outputs):
        if value_type and value_type not in schema.types_of(formal):
            yield SupportGap("type-mismatch", f"`{name}` does not give {_format_argument(formal, value_type)}")


def _format_argument(formal: FormalParameter, value_type: str) -> str:
    return f"`{value_type}` as `{formal.name}`"


ArgumentTypes = Sequence[str | None]


def find_parameter(formals: Sequence[FormalParameter], index: int) -> FormalParameter | None:
    """Return the formal parameter of an argument; a variadic last one accepts all further arguments."""
    if index < len(formals):
        return formals[index]
    if formals and formals[-1].option in (VARIADIC, MIXED):
        return formals[-1]
    return None


def pair_arguments(formals: Sequence[FormalParameter], types: ArgumentTypes) -> Iterator[tuple[FormalParameter, str]]:
    """Yield each argument that is present with its formal parameter; a type can be ""."""
    for index, value_type in enumerate(types):
        formal = find_parameter(formals, index)
        if formal is not None and value_type is not None:
            yield formal, value_type


def bind_types(schema: Schema, inputs: ArgumentTypes) -> dict[str, str]:
    """Return the type constraints that the inputs bind, with their types."""
    bound: dict[str, str] = {}
    for formal, value_type in pair_arguments(schema.inputs, inputs):
        if value_type and formal.option != MIXED:
            bound.setdefault(formal.type, value_type)
    return bound


def infer_output_types(operator: str, schema: Schema, inputs: ArgumentTypes, count: int) -> list[str]:
    """Return the types of an operator's outputs as inferred from its inputs; "" if they cannot be inferred."""
    bound = bind_types(schema, inputs)
    rule = _OUTPUT_TYPE_RULES.get(f"{operator}({schema.since})", {})
    return [
        _infer_bound_output(schema, bound, index) or _apply_output_rule(rule.get(index, ""), inputs)
        for index in range(count)
    ]


_OUTPUT_TYPE_RULES: dict[str, dict[int, str | tuple[int, str]]] = {
    "LayerNormalization(1)": {1: "tensor(float)", 2: "tensor(float)"},
    "SimplifiedLayerNormalization(1)": {1: "tensor(float)"},
    "com.microsoft.GridSample(1)": {0: (0, "")},
    "com.microsoft.MatMulInteger16(1)": {0: "tensor(int32)"},
    "com.microsoft.QGemm(1)": {0: (8, "tensor(float)")},
    "com.microsoft.QuantizeLinear(1)": {0: "tensor(uint8)"},
}
"""Types that ONNX Runtime infers beyond the schema: a type, or an input's index with a default type.

Source: error texts of one-node models that declare another type, on ONNX Runtime 1.16 to 1.31.
"""


def _apply_output_rule(rule: str | tuple[int, str], inputs: ArgumentTypes) -> str:
    if isinstance(rule, str):
        return rule
    index, otherwise = rule
    return (inputs[index] if index < len(inputs) else None) or otherwise


def _infer_bound_output(schema: Schema, bound: dict[str, str], index: int) -> str:
    formal = find_parameter(schema.outputs, index)
    if formal is None or formal.option == MIXED:
        return ""
    if formal.type in bound:
        return bound[formal.type]
    types = schema.types_of(formal)
    return next(iter(types)) if len(types) == 1 else ""


def find_constrained_type(schema: Schema, key: str, inputs: ArgumentTypes, outputs: ArgumentTypes) -> str | None:
    """Return the type with which a kernel's constraint is compared: of the first present argument that it names.

    Source: ONNX Runtime 1.16 to 1.31; of a variadic parameter only the first argument counts.
    """
    for formals, types in ((schema.inputs, inputs), (schema.outputs, outputs)):
        for index, formal in enumerate(formals):
            if key in (formal.type, formal.name) and index < len(types) and types[index] is not None:
                return types[index]
    return None


AttributeValues = dict[str, int | str]
"""Attributes with one integer or string, by name."""


@dataclass(frozen=True, slots=True)
class ReleaseRestriction:
    """A condition under which releases from `first` to `last` ("": no bound) reject certain operators."""

    operators: tuple[str, ...]
    holds: Callable[[AttributeValues], bool]
    problem: str
    first: str = ""
    last: str = ""

    def concerns(self, operation: Operation, release: str) -> bool:
        """Return whether the release rejects the node for this reason."""
        return (
            operation.domain == "ai.onnx"
            and operation.name in self.operators
            and _is_release_within(release, self.first, self.last)
            and self.holds(read_attribute_values(operation))
        )


_FLOAT16 = 10
ATTRIBUTE_RESTRICTIONS = (
    ReleaseRestriction(
        ("GRU", "LSTM", "RNN"), lambda values: values.get("layout") == 1, "`layout` = 1 is not implemented"
    ),
    ReleaseRestriction(
        ("GRU", "LSTM", "RNN"), lambda values: int(values.get("hidden_size") or 0) <= 0, "`hidden_size` must be given"
    ),
    ReleaseRestriction(
        ("DFT",),
        lambda values: bool(values.get("onesided")) and bool(values.get("inverse")),
        "`onesided` and `inverse` are not implemented together",
        last="1.24.4",
    ),
    ReleaseRestriction(
        ("MelWeightMatrix",),
        lambda values: values.get("output_datatype") == _FLOAT16,
        "`output_datatype` = FLOAT16 is not implemented",
    ),
    ReleaseRestriction(
        ("RotaryEmbedding",),
        lambda values: bool(values.get("rotary_embedding_dim")) and not values.get("num_heads"),
        "`rotary_embedding_dim` is not implemented without `num_heads`",
        first="1.23.0",
        last="1.23.2",
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
"""Result types that constructors reject."""
UNREGISTERED_TYPES = (
    (("tensor(complex64)", "tensor(complex128)"), "", ""),
    (("tensor(int4)", "tensor(uint4)"), "1.18.0", "1.18.1"),
    (("tensor(float4e2m1)",), "1.23.0", "1.23.2"),
    (("tensor(float8e8m0)",), "1.24.1", "1.26.0"),
)
"""Types that ONNX has at a release's opset and the release has not: first and last release, "" for no bound.

Source: Constant with a value of each type that the schema allows, loaded on 17 releases from 1.16.0 to 1.31.1.
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
"""Conditions under which loading a model needs a locale of the machine."""


def find_restriction(operation: Operation, since: int, release: str) -> SupportGap | str | None:
    """Return why the release rejects the node; a text if that depends on the machine."""
    for restriction in ATTRIBUTE_RESTRICTIONS:
        if restriction.concerns(operation, release):
            return SupportGap("attribute-unsupported", f"`{operation.label}({since})`: {restriction.problem}")
    for types, restriction in RESULT_TYPE_RESTRICTIONS:
        if operation.outputs[:1] and operation.outputs[0] in types and restriction.concerns(operation, release):
            name = f"{operation.label}({since})"
            return SupportGap(
                "missing-kernel", f"there is no kernel for `{name}` with `{operation.outputs[0]}` as its result"
            )
    if any(locale_restriction.concerns(operation, release) for locale_restriction in LOCALE_RESTRICTIONS):
        locale = read_attribute_values(operation).get("locale", "en_US.UTF-8")
        return f"`{operation.label}` loads only where the machine has the locale `{locale}`"
    return None


def find_body_restriction(operation: Operation, since: int, release: str) -> SupportGap | None:
    """Return why the function body of an operator is invalid for its types.

    Source: loads on ONNX Runtime 1.23.0 to 1.31.1: Attention(23) until 1.23.2, Attention(24) on all of them.
    """
    mask = operation.inputs[3] if operation.name == "Attention" and len(operation.inputs) > 3 else None
    if operation.domain != "ai.onnx" or mask in (None, "", "tensor(bool)", "tensor(float)"):
        return None
    if since == 23 and version_sort_key(release) > version_sort_key("1.23.2"):
        return None
    problem = f"there is no kernel for `{operation.label}({since})` with `attn_mask` = `{mask}`"
    return SupportGap("missing-kernel", problem, "implements masks of `tensor(bool)` and `tensor(float)`")


def is_unregistered_type(type_name: str, release: str) -> bool:
    """Return whether a release lacks a type, even for constants."""
    return any(
        type_name in types and _is_release_within(release, first, last) for types, first, last in UNREGISTERED_TYPES
    )


def _is_release_within(release: str, first: str, last: str) -> bool:
    version = version_sort_key(release)
    return (not first or version >= version_sort_key(first)) and (not last or version <= version_sort_key(last))


def read_attribute_values(operation: Operation) -> AttributeValues:
    """Return the node's attributes; the value is 0 for kinds other than one integer or string."""
    return dict(_read_attribute_values(operation))


def _read_attribute_values(operation: Operation) -> Iterator[tuple[str, int | str]]:
    from onnx import AttributeProto

    for attribute in operation.attributes:
        proto = AttributeProto.FromString(attribute.data) if attribute.data else None
        if proto is not None and attribute.kind == "INT":
            yield attribute.name, int(proto.i)
        elif proto is not None and attribute.kind == "STRING":
            yield attribute.name, proto.s.decode(errors="replace")
        else:
            yield attribute.name, 0
