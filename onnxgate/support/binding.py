"""Arguments bound to a schema's formal parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxgate.support.table import MIXED, VARIADIC, Formal, Schema

Types = Sequence[str | None]


def formal_of(formals: Sequence[Formal], index: int) -> Formal | None:
    """The formal parameter of an argument; the last one takes all that follow where it is variadic."""
    if index < len(formals):
        return formals[index]
    if formals and formals[-1].option in (VARIADIC, MIXED):
        return formals[-1]
    return None


def arguments(formals: Sequence[Formal], types: Types) -> Iterator[tuple[Formal, str]]:
    """Each argument that is there with its formal parameter; a type may be ""."""
    for index, each in enumerate(types):
        formal = formal_of(formals, index)
        if formal is not None and each is not None:
            yield formal, each


def bindings(schema: Schema, inputs: Types) -> dict[str, str]:
    """Type constraints with the types that the inputs give them."""
    bound: dict[str, str] = {}
    for formal, each in arguments(schema.inputs, inputs):
        if each and formal.option != MIXED:
            bound.setdefault(formal.type, each)
    return bound


def bound_outputs(operator: str, schema: Schema, inputs: Types, count: int) -> list[str]:
    """Types of an operator's outputs as far as they follow from the inputs alone; "" where they do not."""
    bound = bindings(schema, inputs)
    rule = _INFERRED.get(f"{operator}({schema.since})", {})
    return [_output(schema, bound, index) or _inferred(rule.get(index, ""), inputs) for index in range(count)]


_INFERRED: dict[str, dict[int, str | tuple[int, str]]] = {
    "LayerNormalization(1)": {1: "tensor(float)", 2: "tensor(float)"},
    "SimplifiedLayerNormalization(1)": {1: "tensor(float)"},
    "com.microsoft.GridSample(1)": {0: (0, "")},
    "com.microsoft.MatMulInteger16(1)": {0: "tensor(int32)"},
    "com.microsoft.QGemm(1)": {0: (8, "tensor(float)")},
    "com.microsoft.QuantizeLinear(1)": {0: "tensor(uint8)"},
}
"""What ONNX Runtime infers beyond the schema: a type, or that of an input, and what holds where that is left out.

Source: error texts of one-node models that declare another type, on ONNX Runtime 1.16 to 1.31.
"""


def _inferred(rule: str | tuple[int, str], inputs: Types) -> str:
    if isinstance(rule, str):
        return rule
    index, otherwise = rule
    return (inputs[index] if index < len(inputs) else None) or otherwise


def _output(schema: Schema, bound: dict[str, str], index: int) -> str:
    formal = formal_of(schema.outputs, index)
    if formal is None or formal.option == MIXED:
        return ""
    if formal.type in bound:
        return bound[formal.type]
    types = schema.types_of(formal)
    return next(iter(types)) if len(types) == 1 else ""


def first_argument(schema: Schema, key: str, inputs: Types, outputs: Types) -> str | None:
    """The type that a kernel's constraint is held to: of the first argument there is whose parameter it names.

    Source: ONNX Runtime 1.16 to 1.31; of a variadic parameter only the first argument counts.
    """
    for formals, types in ((schema.inputs, inputs), (schema.outputs, outputs)):
        for index, formal in enumerate(formals):
            if key in (formal.type, formal.name) and index < len(types) and types[index] is not None:
                return types[index]
    return None
