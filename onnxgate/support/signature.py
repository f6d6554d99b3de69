"""Whether a node is what its operator's schema allows: attributes, number of arguments, types."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.support.binding import Types, arguments, formal_of
from onnxgate.support.operations import Miss, Operation
from onnxgate.support.table import MIXED, SINGLE, Formal, Schema

UNSPELLED = "???"
"""What a release's own wheel calls kinds of attributes that it has no word for: types of values."""


def fault(operation: Operation, schema: Schema) -> Miss | None:
    """The first thing that the schema does not allow."""
    return next(_faults(operation, schema), None)


def versioned(operation: Operation, schema: Schema) -> str:
    """The operator with the version that it is of: `Det(11)`."""
    return f"{operation.label}({schema.since})"


def _faults(operation: Operation, schema: Schema) -> Iterator[Miss]:
    yield from _attributes(operation, schema)
    yield from _arity(operation, schema)
    yield from _types(operation, schema)


def _attributes(operation: Operation, schema: Schema) -> Iterator[Miss]:
    name = versioned(operation, schema)
    given = {attribute.name: attribute.kind for attribute in operation.attributes}
    for attribute, kind in given.items():
        known = schema.attributes.get(attribute)
        if known is None and not attribute.startswith("__"):
            yield Miss("attribute-unsupported", f"`{name}` has no attribute `{attribute}`")
        elif known is not None and kind != known[0] != UNSPELLED:
            problem = f"attribute `{attribute}` of `{name}` is {kind} and must be {known[0]}"
            yield Miss("attribute-unsupported", problem)
    for attribute, (_, required) in schema.attributes.items():
        if required and attribute not in given:
            yield Miss("attribute-unsupported", f"`{name}` lacks its attribute `{attribute}`")


def _arity(operation: Operation, schema: Schema) -> Iterator[Miss]:
    name = versioned(operation, schema)
    for what, types, low, high in (
        ("inputs", operation.inputs, schema.inputs_min, schema.inputs_max),
        ("outputs", operation.outputs, schema.outputs_min, schema.outputs_max),
    ):
        if not low <= len(types) <= high:
            yield Miss("attribute-unsupported", f"`{name}` has {len(types)} {what} and takes {_range(low, high)}")
    for index, each in enumerate(operation.inputs):
        formal = formal_of(schema.inputs, index)
        if each is None and formal is not None and formal.option == SINGLE:
            yield Miss("attribute-unsupported", f"`{name}` lacks its input `{formal.name}`")


def _range(low: int, high: int) -> str:
    if low == high:
        return str(low)
    return f"{low} or more" if high >= 2**31 - 1 else f"{low} to {high}"


def _types(operation: Operation, schema: Schema) -> Iterator[Miss]:
    name = versioned(operation, schema)
    bound: dict[str, str] = {}
    for formal, each in arguments(schema.inputs, operation.inputs):
        if not each:
            continue
        if each not in schema.types_of(formal):
            yield Miss("type-mismatch", f"`{name}` does not take {_as(formal, each)}")
        elif formal.option != MIXED and bound.setdefault(formal.type, each) != each:
            problem = f"`{name}` is given `{bound[formal.type]}` and `{each}` where both must be of one type"
            yield Miss("type-mismatch", problem)
    yield from _outputs(operation.outputs, schema, bound, name)


def _outputs(outputs: Types, schema: Schema, bound: dict[str, str], name: str) -> Iterator[Miss]:
    for formal, each in arguments(schema.outputs, outputs):
        if each and each not in schema.types_of(formal):
            yield Miss("type-mismatch", f"`{name}` does not give {_as(formal, each)}")


def _as(formal: Formal, each: str) -> str:
    return f"`{each}` as `{formal.name}`"
