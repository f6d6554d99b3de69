"""The types of `onnxgate.lock`. One table per target and per model, so that two branches rarely conflict."""

from __future__ import annotations

import msgspec

from onnxgate.model.facts import ExternalFile, ValueInfo

VERSION = 1
"""A lock with a larger `version` is refused."""
REVISION = 0
"""Counts additions that older readers may skip."""


class Table(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """One table of the file; unknown keys are skipped, so that a newer `revision` can be read."""


class LockedRuntime(Table, frozen=True, kw_only=True):
    """One exact release of an engine: in one locked environment, or in an environment of the user's own."""

    engine: str  # the package's normalised name: "onnxruntime"
    release: str
    python: str = ""  # "3.11"; depends on the release alone; "" in an environment of the user's own
    packages: tuple[str, ...] = ()  # sorted exact pins: "numpy==1.26.4"; of a user's environment only its extensions
    extensions: tuple[str, ...] = ()  # requirements and paths of libraries, as the config has them
    environment: str = ""  # where the user's own lies, as the config has it

    @property
    def variant(self) -> str:
        """The engine with what it is used with: `onnxruntime+onnxruntime-extensions`, `onnxruntime@.venv`.

        It has no space, so that a runtime's name can be taken apart again; two runtimes never share engine and release
        and differ in this.
        """
        where = [f"@{self.environment}"] if self.environment else []
        words = "".join((self.engine, *where, *(f"+{extension}" for extension in self.extensions)))
        return words.replace("%", "%25").replace(" ", "%20")

    @property
    def name(self) -> str:
        """What messages call it: `onnxruntime 1.18.1`."""
        return f"{self.variant} {self.release}"


class LockedTarget(Table, frozen=True, kw_only=True):
    """The runtimes of one target, in ascending order of release."""

    policy: str  # digest of what the config asks for
    runtimes: tuple[LockedRuntime, ...]
    resolved: str = ""  # digest of the runtimes as they were resolved, so that a lost row shows; "" in older locks


class LockedToolchain(Table, frozen=True, kw_only=True):
    """Exact public versions of what models are exported with; local suffixes (`+cpu`) are dropped."""

    policy: str
    python: str  # "3.11"
    packages: dict[str, str]


class MeasuredTolerance(Table, frozen=True, kw_only=True):
    """The noise of one output, measured from the source: float32 against float64 on the same inputs."""

    noise: float
    bound: float


class MeasuredQuantization(Table, frozen=True, kw_only=True):
    """What one output of a quantized model kept of the float model's, at worst over all cases."""

    sqnr_db: float  # 200 where nothing was lost
    cosine: float
    top1: float
    source: str  # the float model's path
    runtime: str  # "onnxruntime 1.31.1": what both were run on


class LockedModel(Table, frozen=True, kw_only=True):
    """One model's facts, as `model.facts.ModelFacts` has them, and what was measured for it."""

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
    """One file of a package, for one or more of the five platforms."""

    file: str
    sha256: str


class LockedPackage(Table, frozen=True, kw_only=True):
    """The wheels of one package for one Python."""

    name: str
    version: str
    python: str
    wheels: tuple[Wheel, ...]


class NpmPackage(Table, frozen=True, kw_only=True):
    """One package of npm, for every system; which registry has it is nobody's business in a lock."""

    name: str
    version: str
    integrity: str  # "sha512-…": npm's subresource integrity of its archive

    @property
    def python(self) -> str:
        """It has none."""
        return ""


PinnedPackage = LockedPackage | NpmPackage
"""What a runtime's packages may be."""


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
        """All that runtimes are made of."""
        return (*self.packages, *self.npm)
