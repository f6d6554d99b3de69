"""The rule `model-changed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, HitReference, Level, Relation, follows_from
from onnxgate.core.text import join_quoted, quote_path
from onnxgate.evidence.lock import ModelLockComparison
from onnxgate.project.lock.comparison import describe_renames, entry_from_facts
from onnxgate.rules.definition import rule
from onnxgate.rules.lock._changes import REVISION

MAX_CHANGES = 6


@rule(ModelLockComparison, "model-changed", level=Level.ERROR, since="0.1.0")
def model_changed(subject: ModelLockComparison) -> Iterator[Hit]:
    """
    A model or its external data differs from `onnxgate.lock`.

    ## Why it matters
    A diff of a binary file is unreadable. The diff of `onnxgate.lock` shows which inputs, outputs, opsets and operators
    have changed.

    ## What to do
    - If the change is intended, run `onnxgate lock MODEL` and commit both files.
    - Otherwise, restore the model.
    """
    path = subject.facts.path
    if subject.misrecorded:
        keys = join_quoted(subject.misrecorded)
        yield Hit(
            subject.place,
            f"has the locked content, but its entry in the lock is wrong: {keys}",
            model=path,
            fix=f"run `onnxgate lock {quote_path(path)}` and commit the lock",
            identity="misrecorded",
        )
    if not subject.changes:
        return
    text = list(subject.changes[:MAX_CHANGES])
    if len(subject.changes) > MAX_CHANGES:
        text.append(f"{len(subject.changes) - MAX_CHANGES} more changes")
    yield Hit(
        subject.place,
        f"has changed since it was locked: {'; '.join(text)}",
        model=path,
        fix=f"run `onnxgate lock {quote_path(path)}` and commit the lock, or restore the model",
        relations=_relate_to_renames(subject),
        identity="changed",
    )


def _relate_to_renames(subject: ModelLockComparison) -> tuple[Relation, ...]:
    if subject.entry is None:
        return ()
    renames = describe_renames(subject.entry, entry_from_facts(subject.facts))
    if any(change not in renames for change in subject.changes):
        return ()
    return follows_from(HitReference("input-renamed", REVISION), HitReference("output-renamed", REVISION))
