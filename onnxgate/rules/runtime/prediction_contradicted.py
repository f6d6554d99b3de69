"""The rule `prediction-contradicted`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.evidence.faults import gravest
from onnxgate.evidence.runtime import ModelRuns
from onnxgate.findings import Hit, Level
from onnxgate.rules.registry import rule


@rule(ModelRuns, "prediction-contradicted", level=Level.WARNING, since="0.1.0")
def prediction_contradicted(subject: ModelRuns) -> Iterator[Hit]:
    """
    A model loads where the support stage said that it would be refused.

    The observation decides: the prediction's finding is dropped.

    ## Why it matters
    A static check of the same model, in a hook or without the runtime, says that it is broken. It is a fault of
    onnxgate's support data, or the runtime is a build of its own.

    ## What to do
    Report it to onnxgate with the model's operators, and run the runtime stage until it is repaired.
    """
    if not subject.predicted or not subject.attempts or gravest(subject):
        return
    named = ", ".join(f"`{each}`" for each in sorted(subject.predicted))
    yield Hit(
        subject.place,
        f"loads, though {named} said that it would be refused",
        model=subject.model,
        fix="report it to onnxgate: the observation decides, but a check without the runtime is wrong",
        runtime=subject.runtime,
        contradicts=tuple(sorted(subject.predicted)),
    )
