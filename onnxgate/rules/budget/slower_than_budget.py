"""The rule `slower-than-budget`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime
from onnxgate.evidence.policy import Raced
from onnxgate.rules.definition import rule


@rule(Raced, "slower-than-budget", level=Level.ERROR, since="0.1.0")
def slower_than_budget(subject: Raced) -> Iterator[Hit]:
    """
    A model takes longer than `slower-than-baseline` of its `budget` allows.

    Both are run in turn in one process, on one core of the newest locked runtime, with the same inputs: so the machine
    does not count. The figure is the median of the ratios, with the quarter of them below and above in brackets. It is
    a finding only where all of that is beyond the budget, by more than 5 %; where only the median is, the machine was
    too noisy to tell, and the check is undecided.

    ## Why it matters
    A model that is right and twice as slow misses the deadline that it was chosen for.

    ## What to do
    Compare the two with a profiler (`SessionOptions.enable_profiling`): a fusion that no longer applies, a `Cast` or a
    `QuantizeLinear` too many. If the model may take that long, raise `slower-than-baseline`.
    """
    if subject.measure == "time" and subject.verdict == "over":
        yield Hit(
            subject.place,
            f"is slower than its budget: it may take {subject.budget:g} times as long as {subject.baseline}",
            model=subject.model,
            fix="find what takes the time, or raise `slower-than-baseline` in its `budget`",
            on=OnRuntime(subject.runtime, f"takes {subject.figures} times as long"),
            identity="time",
        )
