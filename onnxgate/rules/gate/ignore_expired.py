"""The rule `ignore-expired`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.policy import IgnoreUse
from onnxgate.rules.definition import rule


@rule(IgnoreUse, "ignore-expired", level=Level.ERROR, since="0.1.0")
def ignore_expired(subject: IgnoreUse) -> Iterator[Hit]:
    """
    The `until` date of an `[[ignore]]` entry has passed.

    ## Why it matters
    The findings that the entry accepted are reported again.

    ## What to do
    - Fix the finding and remove the entry, or
    - set a later `until` with a current `reason`.
    """
    if subject.expired and not subject.is_spent:
        yield Hit(
            subject.place,
            f"the `[[ignore]]` entry of `{subject.rule}` for `{subject.model}` expired on {subject.until}",
            fix="remove the entry, or set a later `until` with a current `reason`",
            identity=f"{subject.rule} {subject.model} {subject.sha256}",
        )
