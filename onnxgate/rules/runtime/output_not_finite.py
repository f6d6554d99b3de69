"""The rule `output-not-finite`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime
from onnxgate.evidence.runtime import ModelRuns, is_proven_fault, select_worst_attempts
from onnxgate.rules.definition import rule
from onnxgate.rules.runtime._failures import describe_level, name_outputs

FIX = "keep nodes that overflow in float32, avoid undefined results such as `log(0)`, and export it again"


@rule(ModelRuns, "output-not-finite", level=Level.ERROR, since="0.1.0")
def output_not_finite(subject: ModelRuns) -> Iterator[Hit]:
    """
    An output contains NaN or infinity.

    ## Why it matters
    An overflow in float16, a logarithm of 0 or a softmax over masked values spreads through the model. With generated
    inputs and no source, this is a warning.

    ## What to do
    - Keep nodes that overflow in float32, and avoid undefined results.
    - Configure real `inputs` in `onnxgate.toml` to see whether it happens in practice.
    """
    attempts = [attempt for attempt in subject.attempts if attempt.outputs.not_finite]
    if not attempts or select_worst_attempts(subject):
        return
    faults = [attempt for attempt in attempts if is_proven_fault(attempt)]
    attempts = faults or attempts
    case = attempts[0].case
    inputs = "on generated inputs" if case.origin == "generated" else f"on `{case.name}`"
    if attempts[0].source == "finite":
        inputs = "where the source is finite"
    names = sorted({name for attempt in attempts for name in attempt.outputs.not_finite})
    outputs = f"{name_outputs(names)} {'contains' if len(names) == 1 else 'contain'}"
    yield Hit(
        subject.place,
        f"{outputs} NaN or infinity {inputs}",
        model=subject.model,
        fix=FIX if faults else "set `inputs` or `source` in `onnxgate.toml` to see whether this happens in practice",
        on=OnRuntime(subject.runtime, f"is affected{at}" if (at := describe_level(attempts, subject)) else ""),
        level=None if faults else Level.WARNING,
        identity=" ".join(names),
    )
