"""The rule `runtime-crashed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime
from onnxgate.evidence.runtime import ModelRuns, select_worst_attempts
from onnxgate.rules.definition import rule
from onnxgate.rules.runtime._failures import describe_level

FIX = (
    "narrow the target to releases that take the model, or leave the target out of the model's `targets`; "
    "report it to the runtime's project"
)


@rule(ModelRuns, "runtime-crashed", level=Level.ERROR, since="0.1.0")
def runtime_crashed(subject: ModelRuns) -> Iterator[Hit]:
    """
    A model makes a runtime's process die.

    ## Why it matters
    No exception can be caught: the whole service that loads the model ends. It is a bug of the runtime, or its end by
    the system for want of memory, and the model is what triggers it.

    ## What to do
    Narrow the target's range to releases that take the model, or leave the target out of the model's `targets`, and
    report the model to the runtime's project.
    """
    attempts = select_worst_attempts(subject)
    if not attempts or attempts[0].outcome != "crashed":
        return
    end, case = attempts[0].end, attempts[0].case.name
    phase = "when it is loaded" if end.during == "load" else f"during {end.during}"
    yield Hit(
        subject.place,
        f"makes the runtime's process die {f'when it runs on `{case}`' if case else phase}",
        model=subject.model,
        fix=FIX,
        on=OnRuntime(subject.runtime, f"ends with {end.signal}{describe_level(attempts, subject)}"),
    )
