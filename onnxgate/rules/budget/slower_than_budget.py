"""The rule `slower-than-budget`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime
from onnxgate.evidence.policy import Raced
from onnxgate.rules.definition import rule


@rule(Raced, "slower-than-budget", level=Level.ERROR, since="0.1.0")
def slower_than_budget(subject: Raced) -> Iterator[Hit]:
    """
    A model is slower than `slower-than-baseline` allows.

    ## Why it matters
    A slower model may exceed the latency that its users accept. The model and its baseline run alternately on one CPU
    core with the newest locked runtime. The finding is reported if the median and both quartiles of the time ratio
    exceed the budget by more than 5 %. If only the median exceeds the budget, the check is undecided.

    ## What to do
    - Profile both models (`SessionOptions.enable_profiling = True`), and look for missing fusions and additional `Cast`
      or `QuantizeLinear` nodes.
    - If this slowdown is acceptable, raise `slower-than-baseline`.
    """
    if subject.measure == "time" and subject.verdict == "over":
        yield Hit(
            subject.place,
            f"exceeds its time budget of {subject.budget:g} times the run time of {subject.baseline}",
            model=subject.model,
            fix="profile the model, or raise `slower-than-baseline` in its `budget`",
            on=OnRuntime(subject.runtime, f"takes {subject.figures} times as long"),
        )
