"""The rule `optimization-mismatch`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.evidence.beginnings import first_figure, first_node, first_place, said_first
from onnxgate.evidence.mismatches import accepting, figure, identity_of, mismatches, said_outputs
from onnxgate.evidence.parity import Comparison
from onnxgate.findings import Hit, Level
from onnxgate.rules.registry import rule


@rule(Comparison, "optimization-mismatch", level=Level.ERROR, since="0.1.0")
def optimization_mismatch(subject: Comparison) -> Iterator[Hit]:
    """
    A runtime's graph optimiser changes what a model computes.

    It speaks for models without a source; where there is one, each level is held against the source instead.

    ## Why it matters
    Optimisation is on by default. A fusion that is wrong for this model is deployed wherever the model is.

    ## What to do
    Lower the optimisation level of the session, narrow the target to releases whose optimiser is right, or set
    `tolerance` in `onnxgate.toml` if the difference is accepted.
    """
    found = mismatches(subject)
    if subject.pair != "optimization" or not found:
        return
    yield Hit(
        first_place(subject),
        f"{said_outputs(found)} with optimisation `all` from that without{said_first(subject)}",
        model=subject.model,
        node=first_node(subject),
        fix=f"lower the session's optimisation level, or {accepting(found)}",
        runtime=subject.runtime,
        detail=figure(subject) + first_figure(subject),
        identity=identity_of(subject),
    )
