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
    A model computes something else than the source that it is exported from.

    The source is run eagerly on the same inputs. `|a - b| <= atol + rtol * |b|` must hold for every element, b being
    the source's; the tolerance is the config's, else the one that `onnxgate lock --measure` recorded, else a default
    for the type.

    ## Why it matters
    What was evaluated is not what is deployed. If every runtime differs alike, the export is wrong or stale; if one
    does, that release computes the model wrongly.

    ## What to do
    Where the default for the type decided, `onnxgate lock --measure` puts the source's own rounding in its place. Else
    export the model again; look for branches on values or on "am I being exported", and for modules in training mode.
    If the difference is accepted, say so with `tolerance` in `onnxgate.toml`; for integers and booleans, by the name of
    the output: `tolerance = { argmax = { rtol = 0, atol = 20 } }`.
    """
    mismatches = find_mismatches(subject)
    not_finite = ["output-not-finite"] if all(mismatch.metric == "not finite" for mismatch in mismatches) else []
    relations = follows_from("export-stale", *not_finite)
    fix = _suggest_fix(subject, mismatches)
    yield from create_mismatch_hits(subject, "source", "from what its source computes", fix, relations=relations)


def _suggest_fix(subject: Comparison, mismatches: Sequence[Difference]) -> str:
    """Suggest measuring first if a default bound is exceeded: the source may differ from itself as much."""
    if subject.at_no_node:
        return "make the source compute the same where it is exported"
    if subject.first is not None and subject.first.detail:  # another weight is not rounding
        return "export it again"
    if not any(mismatch.metric == "worst_abs" and mismatch.bound_from == "type" for mismatch in mismatches):
        return "export it again"
    measured = f"`onnxgate lock --measure {shlex.quote(subject.model)}`"
    return f"run {measured} to hold it to what its source's own rounding allows; if it is beyond that, export it again"
