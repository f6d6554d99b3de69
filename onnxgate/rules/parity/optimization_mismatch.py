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
    The graph optimizer of a runtime changes the outputs.

    ## Why it matters
    Optimization is enabled by default, so an incorrect fusion affects every deployment. If the model has a `source`,
    each optimization level is compared with the source instead.

    ## What to do
    - Lower the optimization level of the session, or
    - narrow the target to the releases that the finding names, or
    - set the model's `tolerance` if the difference is acceptable.
    """
    fix = "lower the session's optimization level"
    yield from create_mismatch_hits(subject, "optimization", "between optimization levels `all` and `disabled`", fix)
