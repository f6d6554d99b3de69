"""The rule `inputs-unusable`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime
from onnxgate.core.text import join_quoted
from onnxgate.diagnostics.classification import shorten_failure
from onnxgate.evidence.runtime import (
    Attempt,
    ModelRuns,
    explain_unusable,
    has_guessed_sizes,
    is_unusable,
    select_worst_attempts,
)
from onnxgate.rules.definition import rule


@rule(ModelRuns, "inputs-unusable", level=Level.WARNING, since="0.1.0")
def inputs_unusable(subject: ModelRuns) -> Iterator[Hit]:
    """
    The inputs of a case cannot be run, or give no numbers, and that is no fault of the model.

    The source fails on them too, or gives NaN everywhere as the model does; a generated value is outside of what the
    model knows, or nobody told the sizes that they have, and nothing proves that the model is meant to take them.

    ## Why it matters
    Nothing is known of the model at these inputs: whether it runs there and agrees. Where no inputs at all can be run,
    the check is undecided.

    ## What to do
    Give real inputs as `.npz` files with `inputs`, or sizes that the model takes with `sizes`, in `onnxgate.toml`. If
    it is meant to take sizes that were a guess, `sizes` with these makes the failure an error.
    """
    if select_worst_attempts(subject):
        return
    reasons: dict[str, list[Attempt]] = {}
    for attempt in subject.attempts:
        if is_unusable(attempt, subject):
            reasons.setdefault(explain_unusable(attempt), []).append(attempt)
    for why, attempts in reasons.items():
        cases = join_quoted(dict.fromkeys(attempt.case.name for attempt in attempts))
        yield Hit(
            subject.place,
            f"the inputs of {cases} cannot be run: {why}",
            model=subject.model,
            fix=_suggest_fix(attempts[0], subject),
            on=OnRuntime(subject.runtime, f"says `{shorten_failure(attempts[0].refusal.failure)}`"),
        )
    yield from _find_all_nan(subject)


def _find_all_nan(runs: ModelRuns) -> Iterator[Hit]:
    """Yield outputs that are NaN everywhere on both sides, which proves no agreement."""
    outputs: dict[str, dict[str, None]] = {}
    for attempt in runs.attempts:
        for output in attempt.outputs.blank:
            outputs.setdefault(output, {})[attempt.case.name] = None
    for output, cases in outputs.items():
        reason = f"tell nothing of output `{output}`: its source gives NaN everywhere, too"
        yield Hit(
            runs.place,
            f"the inputs of {join_quoted(cases)} {reason}",
            model=runs.model,
            fix='give real inputs (`inputs = "samples/*.npz"`)',
            on=OnRuntime(runs.runtime),
        )


def _suggest_fix(attempt: Attempt, runs: ModelRuns) -> str:
    if has_guessed_sizes(attempt, runs) and any(run.outcome == "completed" for run in runs.attempts):
        return "give `sizes` if the model is meant to take these, or `inputs`"
    if attempt.case.sizes:
        return 'give real inputs (`inputs = "samples/*.npz"`), or sizes that the model takes (`sizes`)'
    return 'give real inputs (`inputs = "samples/*.npz"`)'
