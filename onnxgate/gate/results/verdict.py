"""The verdict: pass, fail or undecided."""

from __future__ import annotations

from collections.abc import Iterable

from onnxgate.core.report import LEVELS, FailOn, Finding, Verdict


def decide_verdict(findings: Iterable[Finding], undecided: bool, fail_on: FailOn) -> tuple[Verdict, int]:
    """Return the verdict and the exit status.

    A finding at or above the level of `fail_on` fails (1), whether or not something else is undecided (3).
    """
    closing = {"error": LEVELS[:1], "warning": LEVELS[:2], "never": ()}[fail_on]
    if any(finding.level in closing and not finding.ignored for finding in findings):
        return "fail", 1
    return ("undecided", 3) if undecided else ("pass", 0)
