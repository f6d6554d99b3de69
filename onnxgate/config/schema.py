"""The JSON Schema of `onnxgate.toml`, for editors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from onnxgate.config.types import Config

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(rule_ids: Iterable[str] = ()) -> dict[str, Any]:
    """The schema, made from the types alone; with `rule_ids`, names of rules are held to these."""
    made = msgspec.json.schema(Config)
    ids = sorted(rule_ids)
    if ids:
        definitions = made["$defs"]
        definitions["Config"]["properties"]["rules"]["propertyNames"] = {"enum": ids}
        definitions["Ignore"]["properties"]["rule"]["enum"] = ids
    return {"$schema": DIALECT, "title": "onnxgate.toml", **made}
