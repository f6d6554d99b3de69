"""The rule `source-mismatch`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from onnxgate.core.findings import Hit, Level, follows_from
from onnxgate.evidence.parity import Comparison, Difference, find_mismatches
from onnxgate.rules.definition import rule
from onnxgate.rules.parity._mismatches import create_mismatch_hits


@rule(Comparison, "source-mismatch", level=Level.ERROR, since="0.1.0")
def source_mismatch(subject: Comparison) -> Iterator[Hit]:
    """
    The outputs differ from those of the source.

    ## Why it matters
    The deployed model is not the one that was evaluated. If all runtimes differ, the export is wrong or stale; if one
    differs, that release is wrong.

    ## What to do
    - With the default tolerance, measure the source's rounding: `onnxgate lock --measure MODEL`.
    - Export the model again; look for branches on values and modules in training mode.
    - To accept the difference, set `tolerance = { rtol = 0, atol = 1e-3 }` for the model.
    """
    mismatches = find_mismatches(subject)
    not_finite = ["output-not-finite"] if all(mismatch.metric == "not finite" for mismatch in mismatches) else []
    relations = follows_from("export-stale", *not_finite)
    fix = _suggest_fix(subject, mismatches)
    yield from create_mismatch_hits(subject, "source", "from the source", fix, relations=relations)


def _suggest_fix(subject: Comparison, mismatches: Sequence[Difference]) -> str:
    """Suggest measuring first if a default bound is exceeded: the difference may be the source's own rounding."""
    if subject.at_no_node:
        return "make the source compute the same during export"
    if subject.first is not None and subject.first.detail:  # another weight is not rounding
        return "export it again"
    if not any(mismatch.metric == "worst_abs" and mismatch.bound_from == "type" for mismatch in mismatches):
        return "export it again"
    measured = f"`onnxgate lock --measure {shlex.quote(subject.model)}`"
    return f"run {measured} to measure the rounding of its source; if the difference is larger, export it again"
