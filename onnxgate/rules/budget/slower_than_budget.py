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
    A slower model may miss its deadline. Model and baseline run alternately on one core of the newest locked runtime.
    The rule applies if median and quartiles of the ratio exceed the budget by more than 5 %; if only the median does,
    the check is undecided.

    ## What to do
    - Profile both models (`SessionOptions.enable_profiling = True`), and look for lost fusions and extra `Cast` or
      `QuantizeLinear` nodes.
    - If the model may be that slow, raise `slower-than-baseline`.
    """
    if subject.measure == "time" and subject.verdict == "over":
        yield Hit(
            subject.place,
            f"exceeds its time budget, {subject.budget:g} times that of {subject.baseline}",
            model=subject.model,
            fix="profile it, or raise `slower-than-baseline` in its `budget`",
            on=OnRuntime(subject.runtime, f"takes {subject.figures} times as long"),
        )
