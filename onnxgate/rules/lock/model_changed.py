"""The rule `model-changed`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.core.text import join_quoted
from onnxgate.evidence.lock import ModelLockComparison
from onnxgate.rules.definition import rule

MAX_CHANGES = 6


@rule(ModelLockComparison, "model-changed", level=Level.ERROR, since="0.1.0")
def model_changed(subject: ModelLockComparison) -> Iterator[Hit]:
    """
    A model, or its external data, is not the content that `onnxgate.lock` has.

    ## Why it matters
    A model that changes without its lock changes without review: a diff of the binary file shows nothing, a diff of
    the lock shows which inputs, outputs, opsets and operators are others. A lock that says something else of a model
    than its file does shows the reviewer another model than the one that ships.

    ## What to do
    If the change is meant, run `onnxgate lock` with the model's path and commit both. If it is not, restore the file.
    """
    path = subject.facts.path
    if subject.misrecorded:
        keys = join_quoted(subject.misrecorded)
        yield Hit(
            subject.place,
            f"is the locked file, but the lock says something else of it: {keys}",
            model=path,
            fix=f"run `onnxgate lock {shlex.quote(path)}` and commit the lock",
            identity="misrecorded",
        )
    if not subject.changes:
        return
    text = list(subject.changes[:MAX_CHANGES])
    if len(subject.changes) > MAX_CHANGES:
        text.append(f"{len(subject.changes) - MAX_CHANGES} more changes")
    yield Hit(
        subject.place,
        f"changed since it was locked: {'; '.join(text)}",
        model=path,
        fix=f"run `onnxgate lock {shlex.quote(path)}` and commit the lock, or restore the model",
        identity="changed",
    )
