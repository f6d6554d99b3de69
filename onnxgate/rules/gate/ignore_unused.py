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
        yield Hit(
            subject.place,
            f"{name} {_explain_unused(subject)}: done, remove it",
            fix=_suggest_fix(subject),
            level=Level.NOTE,
        )
    elif subject.stage_ran and subject.used and subject.resolved:
        yield Hit(
            subject.place,
            f"{name} lists {subject.listed} findings, of which {subject.resolved} {_conjugate(subject.resolved)} gone",
            fix="run `onnxgate check --write-ignores`, which takes them out",
            level=Level.NOTE,
            identity=f"{name} lists findings that are gone",
        )
    elif subject.stage_ran and not subject.used and not subject.expired:
        yield Hit(subject.place, f"{name} matches no finding", fix="remove the entry")


def _explain_unused(subject: IgnoreUse) -> str:
    if subject.sha256 and not subject.content_there:
        return "is of a content that no model has any more"
    return "matches no finding any more"


def _suggest_fix(subject: IgnoreUse) -> str:
    return "remove the entry, or run `onnxgate check --write-ignores`" if subject.listed else "remove the entry"


def _conjugate(count: int) -> str:
    return "is" if count == 1 else "are"
