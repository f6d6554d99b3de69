"""Subjects of the rules about budgets: what a model may cost, and what it does; values only."""

from __future__ import annotations

from typing import Literal

import msgspec

from onnxgate.core.findings import Place

MEASUREMENT_PRECISION = 1.05
"""A ratio that is this little above its budget is within it: two sessions of one model differ by as much.

Source: measured with onnxruntime 1.31.1, where memory happens to lie makes a few percent.
"""


class ModelSize(msgspec.Struct, frozen=True, kw_only=True):
    """A model's file with its external data, and what they may take."""

    model: str
    place: Place
    size_bytes: int
    budget_mib: float


class Raced(msgspec.Struct, frozen=True, kw_only=True):
    """A model against its baseline on one runtime: how many times as much it takes, and how far that is certain."""

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
    negligible: bool = False  # what is beyond the budget is less than can be weighed

    @property
    def verdict(self) -> Literal["within", "over", "unclear"]:
        """Over only where all of the spread is; unclear where the figure is and the spread is not."""
        allowed = self.budget * MEASUREMENT_PRECISION
        if self.negligible or self.ratio <= allowed:
            return "within"
        return "over" if self.low > allowed else "unclear"

    @property
    def figures(self) -> str:
        """`3.02 (2.95 to 3.10)`."""
        return f"{self.ratio:.2f} ({self.low:.2f} to {self.high:.2f})"
