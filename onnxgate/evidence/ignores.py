"""Subjects of the gate's own rules: the ignores of the config, and what came of them."""

from __future__ import annotations

from dataclasses import dataclass

from onnxgate.core.findings import Place


@dataclass(frozen=True, slots=True)
class IgnoreUse:
    """One `[[ignore]]` entry after all findings were weighed."""

    place: Place
    rule: str
    model: str  # the glob
    until: str  # ISO date, "" where it has none
    expired: bool
    used: bool  # it met a finding that it is about, which it accepts unless it has ended
    stage_ran: bool  # the rule could find what there is to find in every model that the glob matches
    sha256: str = ""  # the content that it holds for, "" where it holds for any
    content_there: bool = True  # a model that the glob matches has that content, or it is not known of each
    listed: int = 0  # how many fingerprints it lists, 0 where it accepts all findings of its rule
    gone: int = 0  # how many of them no finding has

    @property
    def done(self) -> bool:
        """Whether an entry that can hide nothing new has nothing left to accept."""
        if self.sha256 and not self.content_there:
            return True
        return bool(self.sha256 or self.listed) and self.stage_ran and not self.used
