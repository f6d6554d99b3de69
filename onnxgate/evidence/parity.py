"""Subjects of the parity stage's rules: measured differences, values only."""

from __future__ import annotations

from typing import Literal

import msgspec

from onnxgate.findings import Place


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One output in one case, candidate against reference.

    `worst_abs` is the absolute difference at the element that uses up most of its bound, and `bound` is that element's
    `atol + rtol * |b|`; the other metrics count against 0. `agrees` is `value <= bound`.
    """

    output: str  # "" where the number of outputs differs
    case: str
    optimization: str
    agrees: bool
    metric: str  # "worst_abs" | "mismatched elements" | "shape" | "type" | "outputs" | "not finite"
    value: float
    bound: float
    bound_from: Literal["config", "lock", "type"]
    detail: str = ""  # "shape (2, 10) against (1, 10)", "at [0, 3]: 1.25 against 0.5"


class FirstDifference(msgspec.Struct, frozen=True, kw_only=True):
    """Where a mismatch begins: the first node whose inputs agree on both sides and whose output does not."""

    node: str  # the model's own node; "" where it has no name
    operator: str  # "MatMul", or with its domain where that is not the default one
    output: str  # the value that differs first
    place: Place | None  # the source line that made the node
    case: str
    value: float  # largest absolute difference of that output
    before: float  # largest absolute difference among the node's inputs
    detail: str = ""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One runtime's outputs against one reference's, over all cases and levels."""

    model: str
    place: Place
    pair: Literal["source", "runtime", "optimization", "engine", "quantized"]
    runtime: str
    reference: str  # "the source" | "onnxruntime 1.31.1" | "optimization disabled" | the float model's path
    differences: tuple[Difference, ...]
    first: FirstDifference | None = None  # of what disagrees, where it was looked for and found
