"""What a model's file says, as values: the facts that lock, rules and inputs work from."""

from __future__ import annotations

import msgspec

Dim = int | str
"""A fixed size, a named symbol, or `"?"` where the file names neither."""


class ValueInfo(msgspec.Struct, frozen=True, order=True):
    """One graph input or output. `type` is spelled as ONNX Runtime spells it: `tensor(float)`, `seq(tensor(int64))`."""

    name: str
    type: str
    shape: tuple[Dim, ...] | None = None  # None: rank unknown


class ExternalFile(msgspec.Struct, frozen=True, order=True, rename="kebab"):
    """One file of external data that a model refers to. `location` is as the model writes it."""

    location: str
    size_bytes: int
    sha256: str


class ModelFacts(msgspec.Struct, frozen=True):
    """Facts of one readable model. `path` uses `/` and is relative to the config's folder."""

    path: str
    sha256: str
    size_bytes: int
    ir_version: int
    opsets: dict[str, int]  # domain -> version; the default domain is spelled "ai.onnx"
    producer: str  # "pytorch 2.13.0", without local build suffix
    inputs: tuple[ValueInfo, ...]  # without initializers
    outputs: tuple[ValueInfo, ...]
    operators: dict[str, int]  # "Conv" or "com.microsoft.Gelu" -> count, subgraphs and local functions included
    metadata_keys: tuple[str, ...]
    external: tuple[ExternalFile, ...] = ()
    function_opsets: dict[str, int] = {}  # what local functions import, the newest per domain; as `opsets`
    # What a lock does not have, and only the file tells:
    optional_inputs: tuple[ValueInfo, ...] = ()  # an initializer gives their value, and a caller may feed another
    functions: tuple[str, ...] = ()  # local functions, sorted, spelled as `operators`
    unread: tuple[str, ...] = ()  # locations of external data that `external` lacks: missing, or outside the folder

    @property
    def needed_opsets(self) -> dict[str, int]:
        """What a runtime must implement, for functions that nothing calls too. Source: ONNX Runtime 1.16 to 1.31."""
        domains = sorted({*self.opsets, *self.function_opsets})
        return {domain: max(self.opsets.get(domain, 0), self.function_opsets.get(domain, 0)) for domain in domains}
