"""What became of models since the baseline, as every format says it."""

from __future__ import annotations

from collections.abc import Sequence

from onnxgate.formats import phrases
from onnxgate.report import Against, Change, Report

KINDS = {"added": "is new", "removed": "is removed", "renamed": "is renamed", "changed": "changed"}
WORST = len(phrases.LEVELS)
"""The weight of a model of which nothing is wrong."""


def baseline(against: Against) -> str:
    """`origin/main (1a2b3c4)`."""
    name = phrases.short(against.name)
    return name if against.commit.startswith(name) else f"{name} ({against.commit[:7]})"


def title(report: Report) -> str:
    """`changed since origin/main (1a2b3c4)`; "" where models were held against nothing, or nothing can be told."""
    if report.against is None or not (report.changes or _nothing_changed(report)):
        return ""
    since = f"since {baseline(report.against)}"
    return f"changed {since}" if report.changes else f"no model changed {since}"


def _nothing_changed(report: Report) -> bool:
    """That no change is told says so only where all models were looked at."""
    return "lock" in report.stages and not any(each.stage == "lock" for each in report.undecided)


def weigh(report: Report) -> dict[str, int]:
    """How grave the worst finding about each model is; the smaller the graver."""
    weights: dict[str, int] = {}
    for finding in report.findings:
        if not finding.ignored:
            weight = phrases.LEVELS.index(finding.level)
            weights[finding.model] = min(weight, weights.get(finding.model, WORST))
    return weights


def ordered(report: Report) -> list[Change]:
    """Models with the gravest findings first."""
    weights = weigh(report)
    return sorted(report.changes, key=lambda change: weights.get(change.model, WORST))


def what(change: Change) -> str:
    """`is new`, `is renamed from models/old.onnx`."""
    before = f" from {phrases.short(change.before)}" if change.before else ""
    return f"{KINDS[change.kind]}{before}"


def differences(change: Change, most: int) -> Sequence[str]:
    """The gravest of them, and how many more there are."""
    shown = [phrases.short(each) for each in change.said[:most]]
    more = len(change.said) - len(shown)
    return [*shown, f"… and {more} more"] if more else shown
