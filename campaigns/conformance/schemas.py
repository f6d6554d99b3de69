"""Operator schemas that the wheel of a release reports."""

from __future__ import annotations

from pathlib import Path

import msgspec

DOMAINS = ("ai.onnx", "ai.onnx.ml", "com.microsoft")


class Formal(msgspec.Struct, frozen=True):
    """One formal parameter; `option` is Single, Optional or Variadic."""

    name: str
    type: str
    option: str


class Schema(msgspec.Struct, frozen=True):
    """One version of one operator's schema."""

    domain: str
    name: str
    since: int
    deprecated: bool
    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    constraints: dict[str, tuple[str, ...]]
    attributes: dict[str, str]
    required: tuple[str, ...]
    least_inputs: int
    least_outputs: int


def read(path: Path) -> list[Schema]:
    """Read the schemas that `child.py` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=list[Schema])


def in_force(schemas: list[Schema], newest_opsets: dict[str, int]) -> list[tuple[Schema, int]]:
    """Yield every schema that is not deprecated, with the newest released opset that selects it."""
    versions: dict[tuple[str, str], list[int]] = {}
    for schema in schemas:
        versions.setdefault((schema.domain, schema.name), []).append(schema.since)
    chosen = []
    for schema in sorted(schemas, key=lambda each: (each.domain, each.name, each.since)):
        later = [since for since in versions[schema.domain, schema.name] if since > schema.since]
        last = min(later) - 1 if later else max(newest_opsets.get(schema.domain, schema.since), schema.since)
        if schema.domain in DOMAINS and not schema.deprecated:
            chosen.append((schema, last))
    return chosen
