"""Hits about a changed model."""

from __future__ import annotations

from collections.abc import Sequence

from onnxgate.core.findings import Hit, Level
from onnxgate.core.relations import HitReference, follows_from
from onnxgate.core.text import join_phrases
from onnxgate.evidence.lock import ModelChange

ACCEPT_HINT = "or accept it with an `[[ignore]]` that has this content's `sha256`"
MAX_NAMES = 6
LOCK_BASELINE_RULES = ("model-changed",)
"""If the lock is the baseline, this rule reports the changed content."""


def create_breaking_hit(
    change: ModelChange, message: str, fix: str, *, level: Level | None = None, topic: str = ""
) -> Hit:
    """Create a hit for a change that breaks callers. `fix` describes how to keep the old interface."""
    return Hit(
        change.place,
        message,
        model=change.after.path,
        fix=f"{fix}, {ACCEPT_HINT}",
        relations=follows_from(*LOCK_BASELINE_RULES) if change.from_lock else (),
        level=level,
        topic=topic,
        identity=message.replace(change.baseline, ""),
    )


def create_note_hit(change: ModelChange, message: str, identity: str, *, unless: HitReference | None = None) -> Hit:
    """Create a hit for reviewers that breaks no caller. `unless` names a hit that reports the same."""
    causes = (*(LOCK_BASELINE_RULES if change.from_lock else ()), *([unless] if unless else []))
    return Hit(
        change.place,
        message,
        model=change.after.path,
        relations=follows_from(*causes),
        level=Level.NOTE,
        identity=identity,
    )


def quote_names(names: Sequence[str]) -> str:
    """Join names and the count of further ones: "`a`, `b` and 3 more"."""
    text = [f"`{name}`" for name in names[:MAX_NAMES]]
    more = len(names) - len(text)
    return join_phrases([*text, f"{more} more"] if more else text)
