"""A matrix as data. Its JSON Schema is published."""

from __future__ import annotations

from typing import Any

from onnxgate.formats.json import encoded, titled_schema
from onnxgate.matrix import Matrix


def format(matrix: Matrix) -> str:
    """Indented JSON with a newline at its end."""
    return encoded(matrix)


def parse(text: str | bytes) -> Matrix:
    """The matrix that `format` wrote."""
    import msgspec

    return msgspec.json.decode(text, type=Matrix)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a matrix."""
    return titled_schema(Matrix, "A matrix of onnxgate")
