"""The rule `runtime-mismatch`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.evidence.beginnings import first_figure, first_node, first_place, said_first
from onnxgate.evidence.mismatches import accepting, figure, identity_of, mismatches, said_outputs
from onnxgate.evidence.parity import Comparison
from onnxgate.findings import Hit, Level
from onnxgate.rules.registry import rule


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
    found = mismatches(subject)
    if subject.pair != "runtime" or not found:
        return
    yield Hit(
        first_place(subject),
        f"{said_outputs(found)} from that of {subject.reference}{said_first(subject)}",
        model=subject.model,
        node=first_node(subject),
        fix=f"narrow the target to releases that agree, or {accepting(found)}",
        runtime=subject.runtime,
        detail=figure(subject) + first_figure(subject),
        identity=identity_of(subject),
    )
