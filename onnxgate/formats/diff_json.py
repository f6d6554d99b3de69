"""A difference as data. Its JSON Schema is published."""

from __future__ import annotations

from typing import Any

from onnxgate.formats.json import encoded, titled_schema
from onnxgate.model.difference import Difference


def format(found: Difference) -> str:
    """Indented JSON with a newline at its end."""
    return encoded(found)


def parse(text: str | bytes) -> Difference:
    """The difference that `format` wrote."""
    import msgspec

    return msgspec.json.decode(text, type=Difference)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a difference."""
    return titled_schema(Difference, "A difference of two models by onnxgate")
