"""The rule `prediction-contradicted`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, HitReference, Level, OnRuntime, Place, contradicts
from onnxgate.evidence.runtime import ModelRuns
from onnxgate.rules.definition import rule


@rule(ModelRuns, "prediction-contradicted", level=Level.WARNING, since="0.1.0")
def prediction_contradicted(subject: ModelRuns) -> Iterator[Hit]:
    """
    A model loads where the support stage said that it would be refused, or one of its nodes does.

    The observation decides: the prediction's finding is dropped. Of a model that is refused, each node that was
    predicted to be is loaded alone; where it loads, and the model is refused for something else that is known, the
    prediction about this node is contradicted.

    ## Why it matters
    A static check of the same model, in a hook or without the runtime, says that it is broken. It is a fault of
    onnxgate's support data, or the runtime is a build of its own.

    ## What to do
    Report it to onnxgate with the model's operators, and run the runtime stage until it is repaired.
    """
    # It loads if it loads at every level, whatever happens when it is run.
    loads = all(attempt.case.name or attempt.outcome == "completed" for attempt in subject.attempts)
    if subject.predicted and subject.attempts and loads:
        predictions = tuple(map(HitReference, sorted(set(subject.predicted))))
        named = ", ".join(f"`{prediction.rule}`" for prediction in predictions)
        yield _create_hit(subject, f"loads, though {named} said that it would be refused", predictions)
    for node in subject.alone:
        if node.rule and node.outcome == "loads":
            message = f"`{node.operator}` loads alone, though `{node.rule}` said that it would be refused: {node.words}"
            identity = f"{node.rule} {node.operator}"
            yield _create_hit(subject, message, (HitReference(node.rule, node.claim),), node.place, node.node, identity)


def _create_hit(
    subject: ModelRuns,
    message: str,
    predictions: tuple[HitReference, ...],
    place: Place | None = None,
    node: str = "",
    identity: str = "",
) -> Hit:
    return Hit(
        place or subject.place,
        message,
        model=subject.model,
        node=node,
        fix="report it to onnxgate: the observation decides, but a check without the runtime is wrong",
        on=OnRuntime(subject.runtime),
        relations=contradicts(*predictions),
        identity=identity,
    )
