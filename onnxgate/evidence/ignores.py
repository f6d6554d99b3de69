"""Subjects of the gate's own rules: the ignores of the config, and what came of them."""

from __future__ import annotations

from dataclasses import dataclass

from onnxgate.findings import Place


@dataclass(frozen=True, slots=True)
class IgnoreUse:
    """One `[[ignore]]` entry after all findings were weighed."""

    place: Place
    rule: str
    model: str  # the glob
    until: str  # ISO date, "" where it has none
    expired: bool
    used: bool
    stage_ran: bool  # the rule's stage ran on every model that the glob matches, and it matches at least one
