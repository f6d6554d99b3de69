"""Hits about a model that changed, said in one way."""

from __future__ import annotations

from collections.abc import Sequence

from onnxgate.core.findings import Hit, Level, join_phrases
from onnxgate.core.relations import HitReference, follows_from
from onnxgate.evidence.lock import ModelChange

ACCEPT_HINT = "or accept it with an `[[ignore]]` that has this content's `sha256`"
MAX_NAMES = 6
LOCK_BASELINE_RULES = ("model-changed",)
"""Where the lock is the baseline, this rule says that the content is another, and how."""


def create_breaking_hit(
    change: ModelChange, message: str, fix: str, *, level: Level | None = None, topic: str = ""
) -> Hit:
    """What callers of the model stumble over. `fix` says how to keep what they have."""
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
    """What a reviewer should know, and no caller stumbles over. `unless`: what says it already."""
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
    """Names in a row, and how many more there are: "`a`, `b` and 3 more"."""
    text = [f"`{name}`" for name in names[:MAX_NAMES]]
    more = len(names) - len(text)
    return join_phrases([*text, f"{more} more"] if more else text)
