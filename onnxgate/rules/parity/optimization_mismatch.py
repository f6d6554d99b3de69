"""The rule `optimization-mismatch`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.parity import Comparison
from onnxgate.rules.definition import rule
from onnxgate.rules.parity._mismatches import create_mismatch_hits


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
    fix = "lower the session's optimisation level"
    yield from create_mismatch_hits(subject, "optimization", "with optimisation `all` from that without", fix)
