"""The rule `weights-changed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.evidence.breaks import plural, tells
from onnxgate.evidence.changes import ModelChange, MovedWeights
from onnxgate.findings import Hit, Level
from onnxgate.rules.registry import rule


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
    if weights is not None and (said := _said(weights)):
        yield tells(subject, f"{said}, against those {subject.baseline}", "weights")


def _said(weights: MovedWeights) -> str:
    """ "3 of 40 weights hold other values, by 0.013 at most, in `fc.weight`; 1 weight is new"."""
    said = []
    if weights.changed:
        holds = "holds" if weights.changed == 1 else "hold"
        said.append(f"{weights.changed} of {plural(weights.of, 'weight')} {holds} other values{_how_far(weights)}")
    said += [f"{plural(count, 'weight')} {'is' if count == 1 else 'are'} {what}" for count, what in _others(weights)]
    return "; ".join(said)


def _how_far(weights: MovedWeights) -> str:
    if weights.largest is None:
        return ""
    return f", by {weights.largest:.2g} at most{f', in `{weights.name}`' if weights.name else ''}"


def _others(weights: MovedWeights) -> list[tuple[int, str]]:
    return [(count, what) for count, what in ((weights.added, "new"), (weights.removed, "gone")) if count]
