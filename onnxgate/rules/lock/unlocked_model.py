"""The rule `unlocked-model`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.lock import ModelLockComparison
from onnxgate.rules.definition import rule


@rule(ModelLockComparison, "unlocked-model", level=Level.ERROR, since="0.1.0")
def unlocked_model(subject: ModelLockComparison) -> Iterator[Hit]:
    """
    A model of the project has no entry in `onnxgate.lock`.

    ## Why it matters
    The lock is what a reviewer sees of a binary file: interface, opsets, operators. Without an entry nobody has agreed
    to this model, and nobody will be told when it changes.

    ## What to do
    Run `onnxgate lock` with the model's path, and commit the lock together with the model. If the file is no model of
    the project (test data, say), take it out with `exclude` in `onnxgate.toml`.
    """
    if subject.entry is None:
        path = subject.facts.path
        yield Hit(
            subject.place,
            "is not locked",
            model=path,
            fix=f"run `onnxgate lock {shlex.quote(path)}` and commit the lock",
        )
