"""An inventory as data. Its JSON Schema is published."""

from __future__ import annotations

from typing import Any

from onnxgate.formats.json import encoded, titled_schema
from onnxgate.inventory import Inventory


def format(inventory: Inventory) -> str:
    """Indented JSON with a newline at its end."""
    return encoded(inventory)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of an inventory."""
    return titled_schema(Inventory, "An inventory of onnxgate")
