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
    select: Select = "minors"  # of that range: each minor's newest patch, the first and the last, the newest, or all
    providers: tuple[str, ...] = ("CPUExecutionProvider",)  # in order of preference; others than the CPU need `python`
    optimization: tuple[OptimizationLevel, ...] = ("all", "disabled")  # models are run, and compared, at each of these
    extensions: tuple[str, ...] = ()  # packages, or paths of libraries, that register custom operators
    python: str | None = None  # an interpreter or an environment's folder with a build of one's own; none is made then
    required: bool = True  # false: where it cannot run it is skipped, visibly, and no failure


class Toolchain(Table, frozen=True, kw_only=True):
    """What the models are exported with."""

    python: str | None = None  # an interpreter or an environment's folder, relative to the config
    requires: tuple[str, ...] = ()  # packages that it must have: "torch==2.13.*"; the lock pins their versions


class Tolerance(Table, frozen=True, kw_only=True):
    """`|a - b| <= atol + rtol * |b|` with b the reference."""

    rtol: float  # times the reference's magnitude
    atol: float  # allowed whatever the magnitude


class Budget(Table, frozen=True, kw_only=True):
    """What a model may cost; the ratios are candidate / baseline, measured side by side in one run."""

    size_mib: float | None = None  # file and external data
    slower_than_baseline: float | None = None  # 1.2: the median run may take 1.2 times the baseline's
    memory_over_baseline: float | None = None  # 1.2: the peak may be 1.2 times the baseline's


class ModelSettings(Table, frozen=True, kw_only=True):
    """Settings for the models that `path` (a file or a glob) matches; several that match are merged in order."""

    path: str  # a model or a glob, relative to the config
    targets: tuple[str, ...] | None = None  # names of `[targets]`; default: all
    source: str | None = None  # "file.py:callable", which returns what its framework exports
    command: tuple[str, ...] | None = None  # a program that exports to {output}; {python} and {opset} are filled in
    sizes: dict[str, tuple[int, ...]] | None = None  # an axis' name -> what to try it with; default: a few sizes
    inputs: str | None = None  # a glob of .npz files or test_data_set_* folders, or "file.py:callable"
    tolerance: dict[str, float | Tolerance] | None = None  # rtol and atol for all outputs, or an output's name -> both
    quantized_from: str | None = None  # the float model's path, relative to the config
    budget: Budget | None = None  # what the model may cost


class Ignore(Table, frozen=True, kw_only=True):
    """One accepted finding; `reason` is not optional."""

    rule: str  # the rule whose findings are accepted
    reason: str  # said wherever the finding is counted as ignored
    model: str = "**"  # a path or a glob; default: every model
    until: datetime.date | None = None  # the last day on which the entry holds
    sha256: str | None = None  # holds while the model's content is this: `check --show-ignores` prints it
    fingerprints: tuple[str, ...] | None = None  # accepts these findings alone: `check --write-ignores` writes them


class Limits(Table, frozen=True, kw_only=True):
    """What one job may take."""

    time_s: float = 300.0  # a load, a run or an export that takes longer is stopped
    memory_mib: int | None = None  # default: 4 x model size + 4 GiB


class Config(Table, frozen=True, kw_only=True):
    """All of `onnxgate.toml`."""

    required_version: str | None = None  # a specifier, ">=0.1,<0.2": another onnxgate refuses to judge
    models: tuple[str, ...] | None = None  # paths, folders or globs; default: every .onnx file that git tracks
    exclude: tuple[str, ...] = ()  # globs of files and folders that hold no models of the project
    ir_version: str | int | None = None  # what models must be stamped with: 10, or a specifier, "<=10"
    opset: dict[str, int] = {}  # a domain -> the version that models must import: { "ai.onnx" = 18 }
    targets: dict[str, Target] = {}  # by a name of your choice
    toolchain: Toolchain = Toolchain()  # what models are exported with
    model: tuple[ModelSettings, ...] = ()  # settings of single models, or of those that a glob matches
    rules: dict[str, Literal["error", "warning", "note", "off"]] = {}  # a rule -> its level, or off
    ignore: tuple[Ignore, ...] = ()  # findings that are accepted
    limits: Limits = Limits()  # what one job may take
