"""The rule `memory-over-budget`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime
from onnxgate.evidence.policy import Raced
from onnxgate.rules.definition import rule


@rule(Raced, "memory-over-budget", level=Level.ERROR, since="0.1.0")
def memory_over_budget(subject: Raced) -> Iterator[Hit]:
    """
    A model uses more memory than `memory-over-baseline` allows.

    ## Why it matters
    A process that exceeds the memory of its container or device is killed. Peak memory is measured in new processes
    on the newest locked runtime. An excess of up to 5 % or 4 MiB is tolerated.

    ## What to do
    - Look for duplicated weights and large intermediate values.
    - If this memory usage is acceptable, raise `memory-over-baseline`.
    """
    if subject.measure == "memory" and subject.verdict == "over":
        yield Hit(
            subject.place,
            f"exceeds its memory budget of {subject.budget:g} times the memory of {subject.baseline}",
            model=subject.model,
            fix="reduce the model's peak memory, or raise `memory-over-baseline` in its `budget`",
            on=OnRuntime(subject.runtime, f"uses {subject.figures} times as much"),
        )
