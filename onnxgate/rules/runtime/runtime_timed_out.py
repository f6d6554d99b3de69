"""The rule `runtime-timed-out`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime
from onnxgate.evidence.runtime import ModelRuns, select_worst_attempts
from onnxgate.rules.definition import rule
from onnxgate.rules.runtime._failures import describe_level


@rule(ModelRuns, "runtime-timed-out", level=Level.ERROR, since="0.1.0")
def runtime_timed_out(subject: ModelRuns) -> Iterator[Hit]:
    """
    A model does not finish within the time limit.

    ## Why it matters
    Loading or running the model is very slow or never ends, for example because of a `Loop` whose condition stays true.

    ## What to do
    - If the model may take longer, raise `time-s` in `[limits]`.
    - If the tested inputs are too large, set smaller `sizes`.
    - Otherwise, check whether the conditions of its loops can become false.
    """
    attempts = select_worst_attempts(subject)
    if not attempts or attempts[0].outcome != "timed-out":
        return
    first = attempts[0]
    doing = f"running with `{first.case.name}`" if first.case.name else "loading"
    yield Hit(
        subject.place,
        f"does not finish {doing} within {first.end.limit_s:g} s",
        model=subject.model,
        fix="raise `time-s` in `[limits]` if the model may take longer; otherwise, set smaller `sizes`, or check "
        "whether its loops end",
        on=OnRuntime(subject.runtime, f"times out{at}" if (at := describe_level(attempts, subject)) else ""),
        identity=first.case.name,
    )
