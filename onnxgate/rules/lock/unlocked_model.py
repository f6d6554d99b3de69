"""The rule `unlocked-model`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, follows_from
from onnxgate.core.text import quote_path
from onnxgate.evidence.lock import ModelLockComparison
from onnxgate.rules.definition import rule

UNLOCKABLE = ("external-data-missing", "external-data-escapes", "external-data-refused")
"""Rules about models that `onnxgate lock` refuses, because their facts would be incomplete."""


@rule(ModelLockComparison, "unlocked-model", level=Level.ERROR, since="0.1.0")
def unlocked_model(subject: ModelLockComparison) -> Iterator[Hit]:
    """
    A model has no entry in `onnxgate.lock`.

    ## Why it matters
    Changes to the model's inputs, outputs, opsets and operators go unnoticed.

    ## What to do
    - Run `onnxgate lock MODEL`, and commit the lock together with the model.
    - If the file should not be checked, add it to `exclude` in `onnxgate.toml`.
    """
    if subject.entry is None:
        path = subject.facts.path
        yield Hit(
            subject.place,
            "is not locked",
            model=path,
            fix=f"run `onnxgate lock {quote_path(path)}` and commit the lock",
            relations=follows_from(*UNLOCKABLE),
        )
