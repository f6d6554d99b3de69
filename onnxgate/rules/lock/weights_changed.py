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
    A model has other weights than at the baseline.

    ## Why it matters
    A reviewer of a binary file cannot see whether a model was trained again or only written again. A change of the
    graph that moves no weight, or of a few weights by a rounding, is another thing than a new training.

    ## What to do
    Nothing, if it is meant. If only the code around the model was to change, look at the seed and at the checkpoint
    that was exported.
    """
    weights = subject.weights
    if weights is not None and (text := _describe_changes(weights)):
        yield create_note_hit(subject, f"has other weights than {subject.baseline}: {text}", "weights")


def _describe_changes(weights: WeightChanges) -> str:
    """Return "3 of 40 hold other values, by at most 0.013 (`fc.weight`); 1 is new"."""
    text = []
    if weights.changed:
        name = f" (`{weights.name}`)" if weights.name else ""
        largest = "" if weights.largest is None else f", by at most {weights.largest:.2g}{name}"
        verb = "holds" if weights.changed == 1 else "hold"
        text.append(f"{weights.changed} of {weights.of} {verb} other values{largest}")
    others = ((weights.added, "new"), (weights.removed, "gone"))
    text += [f"{count} {'is' if count == 1 else 'are'} {what}" for count, what in others if count]
    return "; ".join(text)
