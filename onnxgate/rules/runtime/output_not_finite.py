"""The rule `output-not-finite`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime
from onnxgate.evidence.runtime import ModelRuns, is_proven_fault, select_worst_attempts
from onnxgate.rules.definition import rule
from onnxgate.rules.runtime._failures import describe_level, name_outputs

FIX = (
    "use smaller values or a wider type in nodes that overflow, avoid undefined results such as `log(0)`, and export "
    "the model again"
)


@rule(ModelRuns, "output-not-finite", level=Level.ERROR, since="0.1.0")
def output_not_finite(subject: ModelRuns) -> Iterator[Hit]:
    """
    An output contains NaN or infinity.

    ## Why it matters
    NaN and infinity spread through the model. Typical causes are an overflow in float16, a logarithm of 0 and a softmax
    over masked values. If the inputs are generated and the model has no `source`, this is a warning.

    ## What to do
    - Use smaller values or a wider type, such as float32, in nodes that overflow, and avoid undefined results such as
      `log(0)`.
    - Configure real `inputs` in `onnxgate.toml` to find out whether the generated inputs are the cause.
    """
    attempts = [attempt for attempt in subject.attempts if attempt.outputs.not_finite]
    if not attempts or select_worst_attempts(subject):
        return
    faults = [attempt for attempt in attempts if is_proven_fault(attempt)]
    attempts = faults or attempts
    case = attempts[0].case
    inputs = "with generated inputs" if case.origin == "generated" else f"with `{case.name}`"
    if attempts[0].source == "finite":
        inputs = "in elements that are finite in the source"
    names = sorted({name for attempt in attempts for name in attempt.outputs.not_finite})
    outputs = f"{name_outputs(names)} {'contains' if len(names) == 1 else 'contain'}"
    yield Hit(
        subject.place,
        f"{outputs} NaN or infinity {inputs}",
        model=subject.model,
        fix=FIX
        if faults
        else "set `inputs` or `source` in `onnxgate.toml` to find out whether the generated inputs are the cause",
        on=OnRuntime(subject.runtime, f"is affected{at}" if (at := describe_level(attempts, subject)) else ""),
        level=None if faults else Level.WARNING,
        identity=" ".join(names),
    )
