"""The types of `onnxgate.toml`; the editor's JSON Schema is generated from them."""

from __future__ import annotations

import datetime
from typing import Literal

import msgspec


class Table(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """One table of the file."""


OptimizationLevel = Literal["all", "disabled"]
Select = Literal["minors", "bounds", "newest", "all"]


class Target(Table, frozen=True, kw_only=True):
    """What the project promises to support."""

    runtime: str  # a PEP 508 requirement: "onnxruntime>=1.18,<1.32"
    select: Select = "minors"
    providers: tuple[str, ...] = ("CPUExecutionProvider",)
    optimization: tuple[OptimizationLevel, ...] = ("all", "disabled")
    extensions: tuple[str, ...] = ()  # packages, or paths of libraries, that register custom operators
    python: str | None = None  # an interpreter or an environment's folder with a build of one's own; none is made then
    required: bool = True


class Toolchain(Table, frozen=True, kw_only=True):
    """What the models are exported with."""

    python: str | None = None  # an interpreter or an environment's folder, relative to the config
    requires: tuple[str, ...] = ()


class Tolerance(Table, frozen=True, kw_only=True):
    """`|a - b| <= atol + rtol * |b|` with b the reference."""

    rtol: float
    atol: float


class Budget(Table, frozen=True, kw_only=True):
    """What a model may cost; the ratios are candidate / baseline, measured side by side in one run."""

    size_mib: float | None = None  # file and external data
    slower_than_baseline: float | None = None  # 1.2: the median run may take 1.2 times the baseline's
    memory_over_baseline: float | None = None  # 1.2: the peak may be 1.2 times the baseline's


class ModelSettings(Table, frozen=True, kw_only=True):
    """Settings for the models that `path` (a file or a glob) matches; several that match are merged in order."""

    path: str
    targets: tuple[str, ...] | None = None
    source: str | None = None  # "file.py:callable"
    command: tuple[str, ...] | None = None
    sizes: dict[str, tuple[int, ...]] | None = None
    inputs: str | None = None  # a glob of .npz files or test_data_set_* folders, or "file.py:callable"
    tolerance: dict[str, float | Tolerance] | None = None  # rtol and atol for all outputs, or an output's name -> both
    quantized_from: str | None = None  # the float model's path, relative to the config
    budget: Budget | None = None


class Ignore(Table, frozen=True, kw_only=True):
    """One accepted finding; `reason` is not optional."""

    rule: str
    reason: str
    model: str = "**"
    until: datetime.date | None = None
    sha256: str | None = None  # holds while the model's content is this: `check --show-ignores` prints it
    fingerprints: tuple[str, ...] | None = None  # accepts these findings alone: `check --write-ignores` writes them


class Limits(Table, frozen=True, kw_only=True):
    """What one job may take."""

    time_s: float = 300.0
    memory_mib: int | None = None  # default: 4 x model size + 4 GiB


class Config(Table, frozen=True, kw_only=True):
    """All of `onnxgate.toml`."""

    required_version: str | None = None
    models: tuple[str, ...] | None = None  # None: every .onnx file that git tracks
    exclude: tuple[str, ...] = ()
    ir_version: str | int | None = None
    opset: dict[str, int] = {}
    targets: dict[str, Target] = {}
    toolchain: Toolchain = Toolchain()
    model: tuple[ModelSettings, ...] = ()
    rules: dict[str, Literal["error", "warning", "note", "off"]] = {}
    ignore: tuple[Ignore, ...] = ()
    limits: Limits = Limits()
