"""Subjects of the gate's own rules: the ignores of the config and their use."""

from __future__ import annotations

from dataclasses import dataclass

from onnxgate.core.findings import Place


@dataclass(frozen=True, slots=True)
class IgnoreUse:
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
    gone: int = 0  # how many of them no finding has

    @property
    def done(self) -> bool:
        """Whether an entry that lists content or fingerprints has nothing left to accept."""
        if self.sha256 and not self.content_there:
            return True
        return bool(self.sha256 or self.listed) and self.stage_ran and not self.used
