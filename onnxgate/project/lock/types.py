"""The types of `onnxgate.lock`, with a table per target and per model, so that merges rarely conflict."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping

import msgspec

from onnxgate.model.facts import ExternalFile, ValueInfo

VERSION = 1
"""Newest supported format version. A lock with a larger `version` is rejected."""
REVISION = 0
"""Format revision, which is increased for additions that older releases can ignore."""


def digest_values(values: Mapping[str, object]) -> str:
    """Return the SHA-256 of the values as JSON; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()


class Table(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """One table of the file, without its digest; unknown keys are skipped, so that a newer `revision` can be read."""


class LockedRuntime(Table, frozen=True, kw_only=True, dict=True):
    """One exact release of an engine, in a locked environment or in the user's own environment."""

    engine: str  # the package's normalized name, such as "onnxruntime"
    release: str
    python: str = ""  # "3.11"; depends only on the release; "" in the user's own environment
    packages: tuple[str, ...] = ()  # sorted exact pins; in the user's own environment, only extensions
    extensions: tuple[str, ...] = ()  # requirements and paths of libraries, as in the config
    environment: str = ""  # path of the user's own environment, as in the config

    @property
    def variant(self) -> str:
        """
        The engine with extensions and environment: `onnxruntime+onnxruntime-extensions` or `onnxruntime@.venv`.

        It contains no space, so that a runtime's name can be parsed.
        """
        return _format_variant(self.engine, self.environment, self.extensions)

    @functools.cached_property
    def name(self) -> str:
        """The runtime's name, such as `onnxruntime 1.18.1`."""
        return f"{self.variant} {self.release}"


@functools.cache
def _format_variant(engine: str, environment: str, extensions: tuple[str, ...]) -> str:
    where = [f"@{environment}"] if environment else []
    words = "".join((engine, *where, *(f"+{extension}" for extension in extensions)))
    return words.replace("%", "%25").replace(" ", "%20")


class LockedTarget(Table, frozen=True, kw_only=True):
    """The runtimes of one target, in ascending order of release."""

    policy: str  # digest of the target's keys in the config
    runtimes: tuple[LockedRuntime, ...]


class LockedToolchain(Table, frozen=True, kw_only=True):
    """Exact public versions of the packages that models are exported with, without local suffixes (`+cpu`)."""

    policy: str
    python: str  # "3.11"
    packages: dict[str, str]


class MeasuredTolerance(Table, frozen=True, kw_only=True):
    """Measured noise of one output: the difference between float32 and float64 runs of the source."""

    noise: float
    bound: float


class MeasuredQuantization(Table, frozen=True, kw_only=True):
    """Similarity of one output between a quantized model and its float model, for the worst input case."""

    sqnr_db: float  # 200 for equal outputs
    cosine: float
    top1: float
    source: str  # path of the float model
    runtime: str  # the runtime that ran both models, such as "onnxruntime 1.31.1"


class LockedModel(Table, frozen=True, kw_only=True):
    """One model's facts, named as in `ModelFacts`, and its measurements."""

    sha256: str
    size_bytes: int
    ir_version: int
    opsets: dict[str, int]
    producer: str = ""
    inputs: tuple[ValueInfo, ...] = ()
    outputs: tuple[ValueInfo, ...] = ()
    operators: dict[str, int] = {}
    metadata_keys: tuple[str, ...] = ()
    external: tuple[ExternalFile, ...] = ()
    function_opsets: dict[str, int] = {}
    tolerance: dict[str, MeasuredTolerance] = {}
    quantization: dict[str, MeasuredQuantization] = {}


class Wheel(Table, frozen=True, kw_only=True):
    """One wheel of a package, for one or more of the five supported platforms."""

    file: str
    sha256: str


class LockedPackage(Table, frozen=True, kw_only=True):
    """The wheels of one package for one Python version."""

    name: str
    version: str
    python: str
    wheels: tuple[Wheel, ...]


class NpmPackage(Table, frozen=True, kw_only=True):
    """One npm package, for all platforms."""

    name: str
    version: str
    integrity: str  # "sha512-…": npm's subresource integrity of its archive

    @property
    def python(self) -> str:
        """Always empty, since npm packages run without Python."""
        return ""


PinnedPackage = LockedPackage | NpmPackage
"""A package that a runtime may pin."""


class Lock(Table, frozen=True, kw_only=True):
    """All of `onnxgate.lock`."""

    version: int = VERSION
    revision: int = REVISION
    targets: dict[str, LockedTarget] = {}
    toolchain: LockedToolchain | None = None
    models: dict[str, LockedModel] = {}
    packages: tuple[LockedPackage, ...] = ()
    npm: tuple[NpmPackage, ...] = ()

    @property
    def pinned(self) -> tuple[PinnedPackage, ...]:
        """All packages that runtimes pin."""
        return (*self.packages, *self.npm)
