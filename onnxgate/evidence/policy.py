"""Evidence about budgets, `[[ignore]]` entries and changes to the policy, from which rules create findings."""

from __future__ import annotations

from typing import Literal

import msgspec

from onnxgate.core.findings import Place

MEASUREMENT_PRECISION = 1.05
"""Factor by which a measured time or memory ratio may exceed its budget.

The measurements of two sessions with the same model can differ by this factor.

Source: measured with onnxruntime 1.31.1; the memory layout causes differences of a few percent.
"""


class ModelSize(msgspec.Struct, frozen=True, kw_only=True):
    """Size of a model including its external data, and the maximum size that its budget allows."""

    model: str
    place: Place
    size_bytes: int
    budget_mib: float


class Raced(msgspec.Struct, frozen=True, kw_only=True):
    """Time or memory that a model needs on one runtime, relative to its baseline, and the range of all measurements."""

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
        """Return "over" if the whole measured range exceeds the budget, and "unclear" if only the median does.

        Otherwise, return "within".
        """
        allowed = self.budget * MEASUREMENT_PRECISION
        if self.negligible or self.ratio <= allowed:
            return "within"
        return "over" if self.low > allowed else "unclear"

    @property
    def figures(self) -> str:
        """Format the measured ratio and its range, such as `3.02 (2.95–3.10)`."""
        return f"{self.ratio:.2f} ({self.low:.2f}–{self.high:.2f})"


class IgnoreUse(msgspec.Struct, frozen=True):
    """An `[[ignore]]` entry of the config, and whether it matched findings in a check."""

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
        """Return whether the entry has `sha256` or `fingerprints` and no longer matches any finding."""
        if self.sha256 and not self.content_there:
            return True
        return bool(self.sha256 or self.listed) and self.stage_ran and not self.used


class PolicyChange(msgspec.Struct, frozen=True, kw_only=True):
    """A difference between the policy (config and lock) of the baseline and the current policy."""

    place: Place  # line in the config or the lock
    message: str  # a sentence without a full stop, such as "target `edge` was removed"
    identity: str  # what changed, such as "target edge"
    is_weaker: bool  # the current policy accepts something that the baseline's policy would report
    fix: str = ""  # how to restore the policy of the baseline; "" if there is no short way
