"""The rule `deprecated-operator`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.support import OPSET_RULES, RefusedOperation
from onnxgate.rules.definition import rule
from onnxgate.rules.support._refusals import create_refusal_hits


@rule(RefusedOperation, "deprecated-operator", level=Level.ERROR, since="0.1.0")
def deprecated_operator(subject: RefusedOperation) -> Iterator[Hit]:
    """
    A model uses an operator that its own opset has abolished.

    ## Why it matters
    ONNX Runtime refuses such a model when it is loaded, although it still implements the operator at older opsets. It
    is most often a model whose opset was stamped up by hand.

    ## What to do
    Export at an opset that still has the operator, or use the operator that took its place: `Resize` for `Upsample`,
    `ScatterElements` for `Scatter`.
    """
    yield from create_refusal_hits(
        subject, "deprecated-operator", "use the operator that took its place", causes=OPSET_RULES
    )
