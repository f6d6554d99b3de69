"""The rule `policy-changed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.policy import PolicyChange
from onnxgate.rules.definition import rule


@rule(PolicyChange, "policy-changed", level=Level.NOTE, since="0.1.0")
def policy_changed(subject: PolicyChange) -> Iterator[Hit]:
    """
    The config or the lock changed since the baseline, without checking less.

    ## Why it matters
    A reviewer sees which targets, pins and settings a pull request changes. Changes that check less are reported by
    [`policy-weakened`](policy-weakened.md).

    ## What to do
    Nothing, if the change is intended.
    """
    if not subject.is_weaker:
        yield Hit(subject.place, subject.message, fix=subject.fix, identity=subject.identity)
