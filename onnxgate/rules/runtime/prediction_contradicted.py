"""The rule `prediction-contradicted`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.errors import ISSUE_TRACKER_URL
from onnxgate.core.findings import Hit, HitReference, Level, OnRuntime, Place, contradicts
from onnxgate.evidence.runtime import ModelRuns
from onnxgate.rules.definition import rule


@rule(ModelRuns, "prediction-contradicted", level=Level.WARNING, since="0.1.0")
def prediction_contradicted(subject: ModelRuns) -> Iterator[Hit]:
    """
    A model or node loads although onnxgate predicted that it would not.

    ## Why it matters
    The predicted error is not reported if the runtime stage runs, but `onnxgate check --static` still reports it.
    Either the support data is wrong, or the runtime is a custom build.

    ## What to do
    - Report the problem at <https://github.com/onnxgate/onnxgate/issues>, with the operators of the model.
    - Until the problem is fixed, run checks without `--static`.
    """
    # The model must load at every optimization level, but may fail to run.
    loads = all(attempt.case.name or attempt.outcome == "completed" for attempt in subject.attempts)
    if subject.predicted and subject.attempts and loads:
        predictions = tuple(map(HitReference, sorted(set(subject.predicted))))
        named = ", ".join(f"`{prediction.rule}`" for prediction in predictions)
        message = f"loads, although {named} predicted that it would not"
        yield _create_hit(subject, message, predictions, identity=" ".join(sorted(set(subject.predicted))))
    for node in subject.alone:
        if node.rule and node.outcome == "loads":
            message = (
                f"`{node.operator}` loads in a single-node model, although `{node.rule}` predicted that it would not: "
                f"{node.words}"
            )
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
        fix=f"report the problem at {ISSUE_TRACKER_URL}; until the problem is fixed, run checks without `--static`",
        on=OnRuntime(subject.runtime),
        relations=contradicts(*predictions),
        identity=identity,
    )
