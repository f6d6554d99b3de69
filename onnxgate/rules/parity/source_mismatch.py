"""The rule `source-mismatch`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxgate.core.findings import Hit, Level, follows_from
from onnxgate.core.text import quote_path
from onnxgate.evidence.parity import Comparison, Difference, find_mismatches
from onnxgate.rules.definition import rule
from onnxgate.rules.parity._mismatches import create_mismatch_hits


@rule(Comparison, "source-mismatch", level=Level.ERROR, since="0.1.0")
def source_mismatch(subject: Comparison) -> Iterator[Hit]:
    """
    The outputs of a model differ from the outputs of its source.

    ## Why it matters
    The deployed model behaves differently from the model that was evaluated. If the outputs of all runtimes differ, the
    export is wrong or stale. If the outputs of only one runtime differ, the cause is that runtime.

    ## What to do
    - If the rounding errors could not be measured in this check, measure them: `onnxgate lock --measure MODEL`.
    - Export the model again, and look for branches that depend on tensor values and for modules in training mode.
    - To accept the difference, set `tolerance = { rtol = 0, atol = 1e-3 }` for the model.
    """
    mismatches = find_mismatches(subject)
    not_finite = ["output-not-finite"] if all(mismatch.metric == "not finite" for mismatch in mismatches) else []
    relations = follows_from("export-stale", *not_finite)
    fix = _suggest_fix(subject, mismatches)
    yield from create_mismatch_hits(subject, "source", "from the source", fix, relations=relations)


def _suggest_fix(subject: Comparison, mismatches: Sequence[Difference]) -> str:
    """Suggest a fix. If a default tolerance is exceeded, suggest measuring the rounding errors of the source."""
    if subject.at_no_node:
        return "change the source so that it computes the same values during export as in normal use"
    if subject.first is not None and subject.first.detail:  # a weight differs, which is not a rounding error
        return "export the model again"
    if not any(mismatch.metric == "worst_abs" and mismatch.bound_from == "type" for mismatch in mismatches):
        return "export the model again"
    measured = f"`onnxgate lock --measure {quote_path(subject.model)}`"
    return (
        f"run {measured} to measure the rounding errors of the source; "
        "if the difference exceeds these errors, export the model again"
    )
