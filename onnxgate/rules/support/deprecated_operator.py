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
    A model uses an operator that is deprecated at the imported opset.

    ## Why it matters
    Loading fails with `Op registered for Upsample is deprecated in domain_version of 10`. Usually, the opset was
    changed manually without converting the nodes.

    ## What to do
    - Export at an opset that has the operator, or
    - use its replacement: `Resize` for `Upsample`, `ScatterElements` for `Scatter`.
    """
    yield from create_refusal_hits(
        subject, "deprecated-operator", "use the operator that replaces the deprecated operator", causes=OPSET_RULES
    )
