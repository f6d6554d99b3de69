"""The rule `engine-mismatch`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime
from onnxgate.core.relations import follows_from
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


@rule(Comparison, "engine-mismatch", level=Level.ERROR, since="0.1.0")
def engine_mismatch(subject: Comparison) -> Iterator[Hit]:
    """
    An engine other than ONNX Runtime computes a model otherwise than its source, or than the newest ONNX Runtime.

    The source decides where there is one. Without a source, and without an ONNX Runtime among the targets, the engines
    are held against one of them.

    ## Why it matters
    The model is evaluated on one engine and deployed on another. Each has kernels, fusions and a default precision of
    its own, and most say nothing about what they do not compute as the specification says.

    ## What to do
    The message says so where it is a known limit of the engine: then keep the model away from that target, or change
    the model. Else look at the first node that differs, replace it, narrow the target to releases that agree, or set
    `tolerance` in `onnxgate.toml` if the difference is accepted.
    """
    mismatches = find_mismatches(subject)
    if subject.pair != "engine" or not mismatches:
        return
    limit = f" ({subject.known_limit})" if subject.known_limit else ""
    yield Hit(
        find_first_place(subject),
        f"{describe_outputs(mismatches)} from {_name_reference(subject)}{describe_first_node(subject)}{limit}",
        model=subject.model,
        node=find_first_node(subject),
        fix="keep the model away from the target, narrow it to releases that agree, "
        f"or {suggest_acceptance(mismatches)}",
        on=OnRuntime(subject.runtime, describe_worst(subject) + describe_first_values(subject)),
        relations=follows_from("export-stale") if subject.reference == "the source" else (),
        identity=create_identity(subject),
    )


def _name_reference(subject: Comparison) -> str:
    return "what its source computes" if subject.reference == "the source" else f"that of {subject.reference}"
