"""The rule `runtime-crashed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.advice import Advice, correct_constant
from onnxgate.core.findings import Hit, Level, OnRuntime, explained_by
from onnxgate.evidence.runtime import ModelRuns, WrongConstant, is_avoided_crash, select_worst_attempts
from onnxgate.rules.definition import rule
from onnxgate.rules.runtime._failures import describe_level, format_sizes, suggest_sizes

FIX = "report the crash to the runtime's project, and export the model without the operation that crashes"
GUESSED_FIX = f"set `sizes` in `onnxgate.toml` if the model is only used with other sizes; otherwise, {FIX}"


@rule(ModelRuns, "runtime-crashed", level=Level.ERROR, since="0.1.0")
def runtime_crashed(subject: ModelRuns) -> Iterator[Hit]:
    """
    A model crashes the process of a runtime.

    ## Why it matters
    A crash ends the whole application, because it cannot be caught. The cause is a bug in the runtime or insufficient
    memory.

    ## What to do
    - Export the model without the operation that crashes, or change the target as the finding suggests.
    - If the finding names a wrong constant, correct it: other releases refuse the model or crash as well. If the
      constant is only a possible cause, another node may divide by 0, or the node may not have run.
    - Report the crash to the project that develops the runtime.
    - If onnxgate guessed the size of an axis, and the model is only used with other sizes, set `sizes`.

    If the sizes were guessed, and onnxgate found others at which the model runs, this is a warning. To accept that,
    configure these sizes: `sizes = { height = [32] }`.
    """
    attempts = select_worst_attempts(subject)
    if not attempts:
        yield from _find_crashing_sizes(subject)
        return
    if attempts[0].outcome != "crashed":
        return
    end, case = attempts[0].end, attempts[0].case.name
    wrong, because = end.wrong_constant, ""
    if wrong is not None:
        possibly = "" if wrong.is_certain else ", possibly"
        because = f"{possibly} because {wrong.fault} (`{wrong.operator}`, {wrong.words})"
    blamed = wrong if wrong is not None and wrong.is_certain else None
    is_guessed = bool(attempts[0].case.guessed) and attempts[0].source in ("none", "failed")
    phase = "when loaded" if end.during == "load" else f"during {end.during}"
    yield Hit(
        (blamed.place if blamed is not None else None) or subject.place,
        f"crashes the runtime {f'when run with `{case}`' if case else phase}{because}",
        model=subject.model,
        node=blamed.node if blamed is not None else "",
        fix=_suggest_fix(wrong, is_guessed=is_guessed),
        on=OnRuntime(subject.runtime, f"ends with {end.signal}{describe_level(attempts, subject)}"),
        relations=explained_by(*subject.predicted_crashes),
        identity=case or end.during,
    )


def _suggest_fix(wrong: WrongConstant | None, *, is_guessed: bool) -> Advice:
    other = GUESSED_FIX if is_guessed else FIX
    if wrong is None:
        return other
    if wrong.is_certain:
        return correct_constant(wrong.operator)
    return f"correct the constant input of `{wrong.operator}`; if the model still crashes, {other}"


def _find_crashing_sizes(subject: ModelRuns) -> Iterator[Hit]:
    """Yield a hit for guessed sizes that crash the runtime, while it runs the model at other sizes."""
    attempt = next(filter(is_avoided_crash, subject.attempts), None)
    good = next((it for it in subject.attempts if it.outcome == "completed" and it.case.sizes), None)
    if attempt is None:
        return
    axes = [axis for axis in attempt.case.refused if good is None or axis in good.case.sizes]
    fails_at, runs_at = ({axis: it.case.sizes[axis] for axis in axes} if it else {} for it in (attempt, good))
    accepting = f"; to accept it, {suggest_sizes(runs_at)}" if good else ""
    yield Hit(
        subject.place,
        f"{f'runs at {format_sizes(runs_at)} but ' if good else ''}crashes the runtime at {format_sizes(fails_at)}",
        model=subject.model,
        fix=f"leave these releases out of the target, and report the crash to the runtime's project{accepting}",
        on=OnRuntime(subject.runtime, f"ends with {attempt.end.signal}"),
        level=Level.WARNING,
        identity=f"sizes {' '.join(axes)}",
    )
