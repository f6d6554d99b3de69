"""The rule `output-not-finite`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime
from onnxgate.evidence.runtime import ModelRuns, is_proven_fault, select_worst_attempts
from onnxgate.rules.definition import rule
from onnxgate.rules.runtime._failures import describe_level, name_outputs

FIX = "keep in single precision what overflows, or guard what has no value there, and export it again"


@rule(ModelRuns, "output-not-finite", level=Level.ERROR, since="0.1.0")
def output_not_finite(subject: ModelRuns) -> Iterator[Hit]:
    """
    A model gives NaN or infinity where it should give numbers.

    It is an error where the model's source gives numbers at the same place, and where the inputs are real ones. On
    generated inputs of a model without source it is a warning: they may lie where the model is not meant to be used.

    ## Why it matters
    An overflow in half precision, a logarithm of zero or a softmax over nothing spreads through all that follows.

    ## What to do
    Keep the nodes that overflow in single precision, or subtract the maximum before an exponential. Give real inputs
    with `inputs` in `onnxgate.toml` to know whether it happens in use.
    """
    attempts = [attempt for attempt in subject.attempts if attempt.outputs.not_finite]
    if not attempts or select_worst_attempts(subject):
        return
    faults = [attempt for attempt in attempts if is_proven_fault(attempt)]
    attempts = faults or attempts
    case = attempts[0].case
    inputs = "on generated inputs" if case.origin == "generated" else f"on `{case.name}`"
    if attempts[0].source == "finite":
        inputs = "where its source gives numbers"
    names = sorted({name for attempt in attempts for name in attempt.outputs.not_finite})
    outputs = f"{name_outputs(names)} {'holds' if len(names) == 1 else 'hold'}"
    yield Hit(
        subject.place,
        f"{outputs} NaN or infinity {inputs}",
        model=subject.model,
        fix=FIX if faults else "give real inputs with `inputs`, or a `source`, to know whether this happens in use",
        on=OnRuntime(subject.runtime, f"gives them{at}" if (at := describe_level(attempts, subject)) else ""),
        level=None if faults else Level.WARNING,
        identity=outputs,
    )
