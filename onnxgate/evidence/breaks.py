"""Hits about a model that changed, said in one way."""

from __future__ import annotations

from collections.abc import Sequence

from onnxgate.evidence.changes import ModelChange
from onnxgate.findings import Hit, Level, Said, listed

ACCEPT = "or accept it with an `[[ignore]]` that has this content's `sha256`"
NAMES_SAID = 6
SAID_BY_THE_LOCK = ("model-changed",)
"""Where the lock is the baseline, this rule says that the content is another, and how."""


def breaks(change: ModelChange, message: str, fix: str, *, level: Level | None = None, about: str = "") -> Hit:
    """What callers of the model stumble over. `fix` says how to keep what they have."""
    return Hit(
        change.place,
        message,
        model=change.after.path,
        fix=f"{fix}, {ACCEPT}",
        follows_from=SAID_BY_THE_LOCK if change.from_lock else (),
        level=level,
        about=about,
        identity=message.replace(change.baseline, ""),
    )


def tells(change: ModelChange, message: str, identity: str, *, unless: tuple[Said, ...] = ()) -> Hit:
    """What a reviewer should know, and no caller stumbles over. `unless`: what says it already."""
    said = (*SAID_BY_THE_LOCK, *unless) if change.from_lock else unless
    return Hit(change.place, message, model=change.after.path, follows_from=said, level=Level.NOTE, identity=identity)


def quoted(names: Sequence[str]) -> str:
    """Names in a row, and how many more there are: "`a`, `b` and 3 more"."""
    said = [f"`{name}`" for name in names[:NAMES_SAID]]
    more = len(names) - len(said)
    return listed([*said, f"{more} more"] if more else said)
