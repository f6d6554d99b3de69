"""The rule `runtime-crashed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime
from onnxgate.evidence.runtime import ModelRuns, select_worst_attempts
from onnxgate.rules.definition import rule
from onnxgate.rules.runtime._failures import describe_level

FIX = "report the crash to the runtime's project, and remove the target from the model's `targets`"
GUESSED_FIX = f"set `sizes` in `onnxgate.toml` if the model is only used with other sizes; otherwise, {FIX}"


@rule(ModelRuns, "runtime-crashed", level=Level.ERROR, since="0.1.0")
def runtime_crashed(subject: ModelRuns) -> Iterator[Hit]:
    """
    A model crashes the process of a runtime.

    ## Why it matters
    A crash ends the whole application, because it cannot be caught. The cause is a bug in the runtime or insufficient
    memory.

    ## What to do
    - Narrow the target to the releases that the finding names, or remove the target from the model's `targets`.
    - Report the crash to the project that develops the runtime.
    - If onnxgate guessed the size of an axis, and the model is only used with other sizes, set `sizes`.
    """
    attempts = select_worst_attempts(subject)
    if not attempts or attempts[0].outcome != "crashed":
        return
    end, case = attempts[0].end, attempts[0].case.name
    is_guessed = bool(attempts[0].case.guessed) and attempts[0].source in ("none", "failed")
    phase = "when loaded" if end.during == "load" else f"during {end.during}"
    yield Hit(
        subject.place,
        f"crashes the runtime {f'when run with `{case}`' if case else phase}",
        model=subject.model,
        fix=GUESSED_FIX if is_guessed else FIX,
        on=OnRuntime(subject.runtime, f"ends with {end.signal}{describe_level(attempts, subject)}"),
        identity=case or end.during,
    )
