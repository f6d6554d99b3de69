"""The rule `runtime-mismatch`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.parity import Comparison
from onnxgate.rules.definition import rule
from onnxgate.rules.parity._mismatches import create_mismatch_hits


@rule(Comparison, "runtime-mismatch", level=Level.ERROR, since="0.1.0")
def runtime_mismatch(subject: Comparison) -> Iterator[Hit]:
    """
    A model computes one thing on one runtime and another on the newest one.

    It speaks for models without a source; where there is one, each runtime is held against the source instead.

    ## Why it matters
    An upgrade, or a rollback, changes what is computed, without any error. Kernels and fusions change between
    releases; some releases compute an operator wrongly.

    ## What to do
    Narrow the target to releases that agree, replace the operator concerned, or set `tolerance` in `onnxgate.toml` if
    the difference is accepted. With a `source` in the config, the message says which side is right.
    """
    fix = "narrow the target to releases that agree"
    yield from create_mismatch_hits(subject, "runtime", f"from that of {subject.reference}", fix)
