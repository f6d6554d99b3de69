"""The rule `runtime-mismatch`."""

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
    mismatches = find_mismatches(subject)
    if subject.pair != "runtime" or not mismatches:
        return
    yield Hit(
        find_first_place(subject),
        f"{describe_outputs(mismatches)} from that of {subject.reference}{describe_first_node(subject)}",
        model=subject.model,
        node=find_first_node(subject),
        fix=f"narrow the target to releases that agree, or {suggest_acceptance(mismatches)}",
        on=OnRuntime(subject.runtime, describe_worst(subject) + describe_first_values(subject)),
        identity=create_identity(subject),
    )
