"""The rule `inputs-unusable`."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime
from onnxgate.core.text import join_quoted
from onnxgate.diagnostics.classification import shorten_failure
from onnxgate.evidence.runtime import (
    Attempt,
    ModelRuns,
    explain_unusable,
    has_guessed_sizes,
    has_refused_sizes,
    is_unusable,
    select_worst_attempts,
)
from onnxgate.rules.definition import rule

INPUTS_FIX = 'set `inputs = "samples/*.npz"` for the model in `onnxgate.toml`'


@rule(ModelRuns, "inputs-unusable", level=Level.WARNING, since="0.1.0")
def inputs_unusable(subject: ModelRuns) -> Iterator[Hit]:
    """
    One of the model's input sets cannot be used.

    ## Why it matters
    Possible reasons: the source fails or returns only NaN, an input value is invalid, or the guessed input sizes are
    invalid. If none of the input sets can be used, the check is undecided.

    ## What to do
    - Configure real inputs in `onnxgate.toml`: `inputs = "samples/*.npz"`, or
    - set sizes that the model supports: `sizes = { time = [16, 50] }`. If the model fails at these sizes, this is an
      error.
    """
    if select_worst_attempts(subject):
        return
    reasons: dict[str, list[Attempt]] = {}
    for attempt in subject.attempts:
        if is_unusable(attempt, subject) and not has_refused_sizes(attempt, subject):
            reasons.setdefault(explain_unusable(attempt), []).append(attempt)
    for reason, attempts in reasons.items():
        cases = dict.fromkeys(attempt.case.name for attempt in attempts)
        yield Hit(
            subject.place,
            f"cannot be checked with {_name_cases(cases)}: {reason}",
            model=subject.model,
            fix=_suggest_fix(attempts[0], subject),
            on=OnRuntime(subject.runtime, f"reports `{shorten_failure(attempts[0].refusal.failure)}`"),
            identity=" ".join(cases),
        )
    yield from _find_all_nan(subject)


def _find_all_nan(runs: ModelRuns) -> Iterator[Hit]:
    outputs: dict[str, dict[str, None]] = {}
    for attempt in runs.attempts:
        for output in attempt.outputs.blank:
            outputs.setdefault(output, {})[attempt.case.name] = None
    for output, cases in outputs.items():
        yield Hit(
            runs.place,
            f"output `{output}` cannot be checked with {_name_cases(cases)}: the source also returns only NaN",
            model=runs.model,
            fix=_suggest_real_inputs(runs, output),
            on=OnRuntime(runs.runtime),
            identity=f"output {output}",
        )


def _suggest_real_inputs(runs: ModelRuns, output: str) -> str:
    """Return the fix of an output that is NaN; inputs that the user has set are not suggested again."""
    attempt = next(attempt for attempt in runs.attempts if output in attempt.outputs.blank)
    return _suggest_fix(attempt, runs) if attempt.case.origin in ("user", "source") else INPUTS_FIX


def _suggest_fix(attempt: Attempt, runs: ModelRuns) -> str:
    if has_guessed_sizes(attempt, runs) and any(run.outcome == "completed" for run in runs.attempts):
        return "set `sizes` in `onnxgate.toml` if the model should support these sizes, or set `inputs`"
    if attempt.case.origin == "user":
        return f"correct the values in `{attempt.case.name}`, or remove it from the model's `inputs`"
    if attempt.case.origin == "source":
        return "correct the example inputs of the source"
    if attempt.case.sizes:
        return f"{INPUTS_FIX}, or set `sizes` that the model supports"
    return INPUTS_FIX


def _name_cases(names: Collection[str]) -> str:
    return f"{'case' if len(names) == 1 else 'cases'} {join_quoted(names)}"
