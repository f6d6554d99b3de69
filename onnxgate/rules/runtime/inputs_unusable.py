"""The rule `inputs-unusable`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.evidence.faults import gravest, is_unusable, words
from onnxgate.evidence.runtime import ModelRuns
from onnxgate.findings import Hit, Level
from onnxgate.rules.registry import rule


@rule(ModelRuns, "inputs-unusable", level=Level.WARNING, since="0.1.0")
def inputs_unusable(subject: ModelRuns) -> Iterator[Hit]:
    """
    The inputs of a case cannot be run, and that is no fault of the model.

    The source fails on them too, or a generated index points outside of what it selects from.

    ## Why it matters
    Nothing is known of the model at these inputs: whether it runs there and agrees is undecided.

    ## What to do
    Give real inputs as `.npz` files with `inputs`, or sizes that the model takes with `sizes`, in `onnxgate.toml`.
    """
    attempts = [attempt for attempt in subject.attempts if is_unusable(attempt, subject)]
    if not attempts or gravest(subject):
        return
    first = attempts[0]
    cases = ", ".join(f"`{case}`" for case in dict.fromkeys(attempt.case for attempt in attempts))
    why = "its source fails on them too" if first.reference_failed else "an index is out of bounds"
    yield Hit(
        subject.place,
        f"the inputs of {cases} cannot be run: {why}",
        model=subject.model,
        fix='give real inputs (`inputs = "samples/*.npz"`), or sizes that the model takes (`sizes`)',
        runtime=subject.runtime,
        detail=f"says `{words(first.failure)}`",
    )
