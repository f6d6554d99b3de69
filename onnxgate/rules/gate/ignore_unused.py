"""The rule `ignore-unused`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.evidence.ignores import IgnoreUse
from onnxgate.findings import Hit, Level
from onnxgate.rules.registry import rule


@rule(IgnoreUse, "ignore-unused", level=Level.WARNING, since="0.1.0")
def ignore_unused(subject: IgnoreUse) -> Iterator[Hit]:
    """
    An ignore matches no finding, although the stage that it is about ran on every model that it names.

    ## Why it matters
    It would hide the next such break without anybody having decided so.

    ## What to do
    Remove the entry.
    """
    if subject.stage_ran and not subject.used and not subject.expired:
        yield Hit(
            subject.place,
            f"the ignore of `{subject.rule}` for `{subject.model}` matches no finding",
            fix="remove the entry",
        )
