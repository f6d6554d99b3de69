"""The rule `size-grew`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.lock import ModelChange
from onnxgate.model.facts import ModelFacts
from onnxgate.rules.definition import rule
from onnxgate.rules.lock._changes import create_note_hit

MIB = 2**20
KIB = 2**10


@rule(ModelChange, "size-grew", level=Level.NOTE, since="0.1.0")
def size_grew(subject: ModelChange) -> Iterator[Hit]:
    """
    A model has grown by at least 10 % and 1 KiB since the baseline.

    ## Why it matters
    Common causes are a higher precision and duplicated weights.

    ## What to do
    No action is required if the change is intended. To enforce a limit, set `size-mib` in the model's `budget`.
    """
    was, now = total_size_bytes(subject.before), total_size_bytes(subject.after)
    if was and now and 10 * now >= 11 * was and now - was >= KIB:
        grew = f"{100 * (now - was) // was} % larger" if now < 10 * was else f"{now // was} times as large"
        yield create_note_hit(
            subject, f"is {_format_size(now)}; it was {_format_size(was)} {subject.baseline} ({grew})"
        )


def _format_size(size_bytes: int) -> str:
    """Format a size in bytes, such as "1.5 MiB", "640 KiB" or "812 bytes"."""
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.3g} {name}" if size_bytes < 1000 * unit else f"{size_bytes / unit:.0f} {name}"
    return f"{size_bytes} bytes"


def total_size_bytes(facts: ModelFacts) -> int | None:
    """Return the size of a model including external data; None if some external data is missing."""
    return None if facts.unread else facts.size_bytes + sum(file.size_bytes for file in facts.external)
