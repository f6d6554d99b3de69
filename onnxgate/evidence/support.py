"""Subjects of the support stage's rules."""

from __future__ import annotations

from dataclasses import dataclass

from onnxgate.findings import Place
from onnxgate.model.facts import ModelFacts


@dataclass(frozen=True, slots=True)
class RuntimeSupport:
    """What one runtime implements. Kernels and schemas come beside the limits."""

    name: str  # "onnxruntime 1.18.1"
    release: str
    max_ir: int | None  # None: not known
    newest_opsets: dict[str, int]  # domain -> newest version; a domain that is not there is not limited


@dataclass(frozen=True, slots=True)
class ModelOnRuntime:
    """One model and one runtime that it is promised on."""

    model: ModelFacts
    place: Place
    runtime: RuntimeSupport
    ir_works_since: str  # first release that takes the model's IR version, "" where none does
    opset_works_since: dict[str, str]  # domain -> first release that takes the model's opset of it
    ir_needed: int  # smallest IR version that the model's features and opsets need (Source: onnx's own table)


@dataclass(frozen=True, slots=True)
class UnsupportedData:
    """A runtime for which nothing can be predicted, and why."""

    place: Place
    runtime: str
    reason: str
