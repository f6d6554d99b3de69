"""The rule `memory-over-budget`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime
from onnxgate.evidence.policy import Raced
from onnxgate.rules.definition import rule


@rule(Raced, "memory-over-budget", level=Level.ERROR, since="0.1.0")
def memory_over_budget(subject: Raced) -> Iterator[Hit]:
    """
    A model takes more memory at its peak than `memory-over-baseline` of its `budget` allows.

    Each is loaded and run in fresh processes of the newest locked runtime. What counts is the most that they occupied,
    less what a process occupies that only imports the runtime. It is a finding only where every such process is beyond
    the budget, by more than 5 % and by more than 4 MiB.

    ## Why it matters
    The container, the function or the phone has a fixed amount; the first request beyond it ends the process.

    ## What to do
    Look for weights that are kept twice (an initializer in two types, a folded constant) and for large intermediate
    values. If the model may take that much, raise `memory-over-baseline`.
    """
    if subject.measure == "memory" and subject.verdict == "over":
        yield Hit(
            subject.place,
            f"takes more memory than its budget: it may take {subject.budget:g} times that of {subject.baseline}",
            model=subject.model,
            fix="find what takes the memory, or raise `memory-over-baseline` in its `budget`",
            on=OnRuntime(subject.runtime, f"takes {subject.figures} times as much at its peak"),
            identity="memory",
        )
