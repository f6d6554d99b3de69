"""Answers to questions about support: which releases implement an operator, by version, type and provider.

The command `support`, the compatibility page and `onnxgate.api` read these values.
"""

from __future__ import annotations

from typing import Literal

import msgspec

SupportWay = Literal["kernel", "function", "cast", "folded", "none"]
"""How a release runs an operator: with a kernel, with the operator's function body, with a kernel between inserted
casts to float, or by removing the node while it loads the model. "none": it refuses the model."""


class SupportSpan(msgspec.Struct, frozen=True, omit_defaults=True):
    """Consecutive known releases that all run an operator in the same way. Both ends are included."""

    since: str  # exact release
    until: str  # exact release; the newest known release if support has not ended
    way: SupportWay
    reason: str = ""  # why these releases refuse the operator, if `way` is "none"


class TypeSupport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Releases that accept one type for a type parameter of an operator, with at least one choice of other types."""

    parameter: str  # name of the constraint (`T`), or of an input or output with a fixed type
    type: str  # as in ONNX schemas: "tensor(float16)"
    spans: tuple[SupportSpan, ...]  # ascending; together they cover all known releases


class VersionSupport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Support of one version of an operator, which models use if they import opset `version` to `last_opset`."""

    version: int
    last_opset: int | None  # None: no newer version is known
    deprecated: bool
    spans: tuple[SupportSpan, ...]  # the best way of any type, by release
    types: tuple[TypeSupport, ...]


class OperatorSupport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Support of one operator on all known releases of an engine."""

    engine: str
    domain: str  # "ai.onnx" for the default domain
    operator: str
    versions: tuple[VersionSupport, ...]  # ascending
    provider: str = "CPUExecutionProvider"
