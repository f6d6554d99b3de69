"""Subjects of the support stage's rules."""

from __future__ import annotations

from dataclasses import dataclass, field

from onnxgate.findings import Place
from onnxgate.model.facts import ModelFacts


@dataclass(frozen=True, slots=True)
class RuntimeSupport:
    """What one runtime implements. Kernels and schemas come beside the limits."""

    name: str  # "onnxruntime 1.18.1"
    max_ir: int
    newest_opsets: dict[str, int]  # domain -> newest version; a domain that is not there is not limited


@dataclass(frozen=True, slots=True)
class ModelOnRuntime:
    """One model and one runtime that it is promised on, with what its other runtimes and releases take."""

    model: ModelFacts
    place: Place
    runtime: RuntimeSupport
    common_ir: int  # the newest IR version that every runtime of the model takes
    common_opsets: dict[str, int]  # likewise, per limited domain
    ir_works_since: str  # first release that takes the model's IR version, "" where none does
    opset_works_since: dict[str, str] = field(default_factory=dict)  # domain -> first release that takes its opset


@dataclass(frozen=True, slots=True)
class UnpredictedRuntime:
    """A runtime of which nothing can be predicted, and why."""

    place: Place
    runtime: str
    reason: str
