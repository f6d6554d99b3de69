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


def bound_outputs(schema: Schema, inputs: Types, count: int) -> list[str]:
    """Types of the outputs as far as they follow from the inputs alone; "" where they do not."""
    bound = bindings(schema, inputs)
    return [_output(schema, bound, index) for index in range(count)]


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
