"""The rule `ignore-expired`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.policy import IgnoreUse
from onnxgate.rules.definition import rule


@rule(IgnoreUse, "ignore-expired", level=Level.ERROR, since="0.1.0")
def ignore_expired(subject: IgnoreUse) -> Iterator[Hit]:
    """
    An ignore's end date has passed.

    ## Why it matters
    What was accepted for a while is no longer accepted; the finding that it hid counts again.

    ## What to do
    Repair the finding and remove the entry, or set a new `until` with a reason that holds. An entry with `sha256` or
    `fingerprints` that has nothing left to accept is `ignore-unused`, whatever its date.
    """
    if subject.expired and not subject.is_spent:
        yield Hit(
            subject.place,
            f"the ignore of `{subject.rule}` for `{subject.model}` ended on {subject.until}",
            fix="remove the entry, or give it a new date and a reason that holds",
        )
