"""The rule `engine-mismatch`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, follows_from
from onnxgate.evidence.parity import Comparison
from onnxgate.rules.definition import rule
from onnxgate.rules.parity._mismatches import create_mismatch_hits


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
    by_source = subject.reference == "the source"
    yield from create_mismatch_hits(
        subject,
        "engine",
        f"from {'what its source computes' if by_source else f'that of {subject.reference}'}",
        "keep the model away from the target, narrow it to releases that agree",
        note=f" ({subject.known_limit})" if subject.known_limit else "",
        relations=follows_from("export-stale") if by_source else (),
    )
