"""An explained log as data."""

from __future__ import annotations

from typing import Any

from onnxgate.formats.json import encoded, titled_schema
from onnxgate.texts.explained import ExplainedLog


def format(log: ExplainedLog) -> str:
    """Indented JSON with a newline at its end."""
    return encoded(log)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of an explained log."""
    return titled_schema(ExplainedLog, "A log that onnxgate explained")
