"""Lossless casts, and the casts that a suggestion requires."""

from __future__ import annotations

import pytest

from onnxgate.support.matching.operations import Operation
from onnxgate.support.operators import find_newest_schema
from onnxgate.support.suggestions.type_casts import is_lossless_cast, list_casts


@pytest.mark.parametrize(
    ("source", "to", "kept"),
    [
        ("uint8", "int16", True),
        ("uint8", "int8", False),
        ("int8", "uint64", False),
        ("int64", "int32", False),
        ("uint32", "int64", True),
        ("bool", "uint8", True),
        ("int32", "float", False),
        ("int32", "double", True),
        ("int16", "float", True),
        ("int64", "double", False),
        ("uint16", "float16", False),
        ("float16", "float", True),
        ("bfloat16", "float", True),
        ("bfloat16", "float16", False),
        ("float16", "bfloat16", False),
        ("double", "float", False),
        ("float", "int64", False),
        ("float8e5m2", "float16", True),
    ],
)
def test_lossless_casts(source: str, to: str, kept: bool) -> None:
    """A cast is lossless if the target type represents every value."""
    assert is_lossless_cast(f"tensor({source})", f"tensor({to})") == kept


def test_inputs_are_cast_and_outputs_back() -> None:
    """Each cast is an operation that a release must implement."""
    schema = find_newest_schema("ai.onnx", "Mul", 14)
    given = Operation("ai.onnx", "Mul", 14, 14, ("tensor(uint16)",) * 2, ("tensor(uint16)",), (), static=False)

    assert schema is not None
    assert [(cast.inputs, cast.outputs) for cast in list_casts(given, schema, "T", "tensor(int32)")] == [
        (("tensor(uint16)",), ("tensor(int32)",)),
        (("tensor(uint16)",), ("tensor(int32)",)),
        (("tensor(int32)",), ("tensor(uint16)",)),
    ]
