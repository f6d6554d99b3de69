"""Evidence that the rules about budgets and ignores check."""

from __future__ import annotations

from typing import Literal

import msgspec

from onnxgate.core.findings import Place

MEASUREMENT_PRECISION = 1.05
"""Factor by which a ratio may exceed its budget. Two sessions of the same model can differ by this factor.

Source: measured with onnxruntime 1.31.1; the memory layout causes differences of a few percent.
"""


class ModelSize(msgspec.Struct, frozen=True, kw_only=True):
    """Size of a model with its external data, and its budget."""

    model: str
    place: Place
    size_bytes: int
    budget_mib: float


class Raced(msgspec.Struct, frozen=True, kw_only=True):
    """Time or memory of a model on one runtime, divided by that of its baseline, with the measured range."""

    model: str
    place: Place
    runtime: str
    measure: Literal["time", "memory"]
    baseline: str  # "`models/float.onnx`", "`models/m.onnx` at `origin/main`"
    case: str
    budget: float
    ratio: float
    low: float
    high: float
    negligible: bool = False  # the excess is too small to measure

    @property
    def verdict(self) -> Literal["within", "over", "unclear"]:
        """Return "over" if the whole range exceeds the budget, "unclear" if only the median does, else "within"."""
        allowed = self.budget * MEASUREMENT_PRECISION
        if self.negligible or self.ratio <= allowed:
            return "within"
        return "over" if self.low > allowed else "unclear"

    @property
    def figures(self) -> str:
        """Format the ratio and its range, such as `3.02 (2.95–3.10)`."""
        return f"{self.ratio:.2f} ({self.low:.2f}–{self.high:.2f})"


class IgnoreUse(msgspec.Struct, frozen=True):
    """How one `[[ignore]]` entry was used in a check."""

    place: Place
    rule: str
    model: str  # glob for model paths
    until: str  # ISO date; "" if the entry has none
    expired: bool
    used: bool  # the entry matches a finding
    stage_ran: bool  # the rule was checked completely for every model that the glob matches
    sha256: str = ""  # hash of the model that the entry applies to; "" for any model
    content_there: bool = True  # a matching model has this hash, or the hash of a matching model is unknown
    listed: int = 0  # number of listed fingerprints; 0 if the entry accepts all findings of its rule
    resolved: int = 0  # number of listed fingerprints that match no finding

    @property
    def is_spent(self) -> bool:
        """Return whether an entry with `sha256` or `fingerprints` no longer matches any finding."""
        if self.sha256 and not self.content_there:
            return True
        return bool(self.sha256 or self.listed) and self.stage_ran and not self.used
