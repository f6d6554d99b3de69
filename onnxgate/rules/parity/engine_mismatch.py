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
    The outputs of an engine differ from the outputs of the source or ONNX Runtime.

    ## Why it matters
    Accuracy that was measured with the reference does not apply to this engine. Without a `source`, the reference is
    the newest ONNX Runtime release in the targets or, if there is none, another engine.

    ## What to do
    - Replace the node at which outputs start to differ, or narrow the target to the releases that the
      finding names.
    - If the finding names a known limitation of the engine, list only the other targets in the model's `targets`.
    - To accept the difference, set the model's `tolerance`.
    """
    by_source = subject.reference == "the source"
    yield from create_mismatch_hits(
        subject,
        "engine",
        f"from {'the source' if by_source else subject.reference}",
        note=f" ({subject.known_limit})" if subject.known_limit else "",
        relations=follows_from("export-stale") if by_source else (),
    )
