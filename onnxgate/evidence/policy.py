"""Subjects of the rules about budgets and ignores."""

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
        """Return `3.02 (2.95–3.10)`."""
        return f"{self.ratio:.2f} ({self.low:.2f}–{self.high:.2f})"


class IgnoreUse(msgspec.Struct, frozen=True):
    """The use of one `[[ignore]]` entry in a check."""

    place: Place
    rule: str
    model: str  # the glob
    until: str  # ISO date, "" if it has none
    expired: bool
    used: bool  # it met a finding that it is about, which it accepts unless it has ended
    stage_ran: bool  # the rule could find what there is to find in every model that the glob matches
    sha256: str = ""  # the content that it applies to, "" for any
    content_there: bool = True  # a model that the glob matches has that content, or it is not known of each
    listed: int = 0  # how many fingerprints it lists, 0 if it accepts all findings of its rule
    resolved: int = 0  # how many of them no finding has

    @property
    def is_spent(self) -> bool:
        """Return whether an entry that lists content or fingerprints has nothing left to accept."""
        if self.sha256 and not self.content_there:
            return True
        return bool(self.sha256 or self.listed) and self.stage_ran and not self.used
