"""The rule `ignore-unused`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.policy import IgnoreUse
from onnxgate.rules.definition import rule


@rule(IgnoreUse, "ignore-unused", level=Level.WARNING, since="0.1.0")
def ignore_unused(subject: IgnoreUse) -> Iterator[Hit]:
    """
    An ignore matches no finding, although what it is about was judged in every model that it names.

    An entry that holds for one content (`sha256`), or for findings that it lists (`fingerprints`), can hide nothing
    new: of these it is a note that the entry has done its work, or how many of its findings are gone.

    ## Why it matters
    It would hide the next such break without anybody having decided so.

    ## What to do
    Remove the entry. What `onnxgate check --write-ignores` wrote, it also takes out when it is run again.
    """
    name = f"the ignore of `{subject.rule}` for `{subject.model}`"
    if subject.is_spent:
        why = "matches no finding any more"
        if subject.sha256 and not subject.content_there:
            why = "is of a content that no model has any more"
        fix = "remove the entry, or run `onnxgate check --write-ignores`" if subject.listed else "remove the entry"
        yield Hit(subject.place, f"{name} {why}: done, remove it", fix=fix, level=Level.NOTE)
    elif subject.stage_ran and subject.used and subject.resolved:
        verb = "is" if subject.resolved == 1 else "are"
        yield Hit(
            subject.place,
            f"{name} lists {subject.listed} findings, of which {subject.resolved} {verb} gone",
            fix="run `onnxgate check --write-ignores`, which takes them out",
            level=Level.NOTE,
            identity=f"{name} lists findings that are gone",
        )
    elif subject.stage_ran and not subject.used and not subject.expired:
        yield Hit(subject.place, f"{name} matches no finding", fix="remove the entry")
