"""What one build says of itself, in the words of the worker that writes it down."""

from __future__ import annotations

from typing import Literal

import msgspec


class DumpedFormal(msgspec.Struct, frozen=True, array_like=True):
    """One formal parameter."""

    name: str
    type: str
    option: Literal["Single", "Optional", "Variadic"]
    homogeneous: bool


class DumpedSchema(msgspec.Struct, frozen=True, kw_only=True):
    """One version of one operator's schema."""

    domain: str  # "" for the default one
    name: str
    since: int
    deprecated: bool
    experimental: bool
    inputs: tuple[DumpedFormal, ...]
    outputs: tuple[DumpedFormal, ...]
    constraints: dict[str, tuple[str, ...]]
    attributes: dict[str, tuple[str, bool]]  # name -> type ("INT"), required
    inputs_range: tuple[int, int]
    outputs_range: tuple[int, int]


class DumpedKernel(msgspec.Struct, frozen=True, kw_only=True):
    """One registered kernel."""

    domain: str
    name: str
    versions: tuple[int, int]
    provider: str
    constraints: dict[str, tuple[str, ...]]


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    """All that a build says of itself. Releases before 1.16 have no `registry` to read."""

    registry: bool
    release: str
    commit: str
    platform: str
    schemas: tuple[DumpedSchema, ...]
    kernels: tuple[DumpedKernel, ...]


def decode_dump(data: bytes) -> Dump:
    """A dump as it was written."""
    return msgspec.json.decode(data, type=Dump)
