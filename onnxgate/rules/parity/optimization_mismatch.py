"""The rule `optimization-mismatch`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime
from onnxgate.evidence.parity import Comparison, find_mismatches
from onnxgate.rules.definition import rule
from onnxgate.rules.parity._mismatches import (
    create_identity,
    describe_first_node,
    describe_first_values,
    describe_outputs,
    describe_worst,
    find_first_node,
    find_first_place,
    suggest_acceptance,
)


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
    mismatches = find_mismatches(subject)
    if subject.pair != "optimization" or not mismatches:
        return
    yield Hit(
        find_first_place(subject),
        f"{describe_outputs(mismatches)} with optimisation `all` from that without{describe_first_node(subject)}",
        model=subject.model,
        node=find_first_node(subject),
        fix=f"lower the session's optimisation level, or {suggest_acceptance(mismatches)}",
        on=OnRuntime(subject.runtime, describe_worst(subject) + describe_first_values(subject)),
        identity=create_identity(subject),
    )
