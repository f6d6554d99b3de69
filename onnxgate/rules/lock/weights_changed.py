"""The rule `weights-changed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.lock import ModelChange
from onnxgate.model.diff.result import WeightChanges
from onnxgate.rules.definition import rule
from onnxgate.rules.lock._changes import create_note_hit


@rule(ModelChange, "weights-changed", level=Level.NOTE, since="0.1.0")
def weights_changed(subject: ModelChange) -> Iterator[Hit]:
    """
    The weights have changed since the baseline.

    ## Why it matters
    A binary diff does not show whether a model was retrained or only exported again.

    ## What to do
    No action is required if the change is intended. If only the code should have changed, check the random seed and the
    checkpoint.
    """
    weights = subject.weights
    if weights is not None and (text := _describe_changes(weights)):
        yield create_note_hit(subject, f"weights differ from those {subject.baseline}: {text}")


def _describe_changes(weights: WeightChanges) -> str:
    """Describe the changes to weights, such as "3 of 40 changed, by at most 0.013 (`fc.weight`); 1 added"."""
    text = []
    if weights.changed:
        name = f" (`{weights.name}`)" if weights.name else ""
        largest = "" if weights.largest is None else f", by at most {weights.largest:.2g}{name}"
        text.append(f"{weights.changed} of {weights.of} changed{largest}")
    others = ((weights.added, "added"), (weights.removed, "removed"))
    text += [f"{count} {change}" for count, change in others if count]
    return "; ".join(text)
