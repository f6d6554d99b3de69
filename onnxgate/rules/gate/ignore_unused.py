"""The rule `ignore-unused`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.policy import IgnoreUse
from onnxgate.rules.definition import rule


@rule(IgnoreUse, "ignore-unused", level=Level.WARNING, since="0.1.0")
def ignore_unused(subject: IgnoreUse) -> Iterator[Hit]:
    """
    An `[[ignore]]` entry matches no finding.

    ## Why it matters
    The entry could hide a future finding. If the entry has `sha256` or `fingerprints`, this is a note.

    ## What to do
    Remove the entry, or run `onnxgate check --write-ignores`, which removes unused entries that it has created.
    """
    identity = f"{subject.rule} {subject.model} {subject.sha256}"
    name = f"the `[[ignore]]` entry of `{subject.rule}` for `{subject.model}`"
    if subject.is_spent:
        reason = "no longer matches a finding"
        if subject.sha256 and not subject.content_there:
            reason = "applies to a `sha256` that no model has"
        fix = "remove the entry, or run `onnxgate check --write-ignores`" if subject.listed else "remove the entry"
        yield Hit(subject.place, f"{name} {reason}", fix=fix, level=Level.NOTE, identity=identity)
    elif subject.stage_ran and subject.used and subject.resolved:
        verb = "exists" if subject.resolved == 1 else "exist"
        yield Hit(
            subject.place,
            f"{name} lists {subject.listed} findings, of which {subject.resolved} no longer {verb}",
            fix="run `onnxgate check --write-ignores` to remove outdated fingerprints",
            level=Level.NOTE,
            identity=f"{identity} listed",
        )
    elif subject.stage_ran and not subject.used and not subject.expired:
        yield Hit(subject.place, f"{name} matches no finding", fix="remove the entry", identity=identity)
