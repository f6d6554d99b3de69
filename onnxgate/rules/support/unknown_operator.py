"""The rule `unknown-operator`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.support import OPSET_RULES, RefusedOperation
from onnxgate.rules.definition import rule
from onnxgate.rules.support._refusals import create_refusal_hits


@rule(RefusedOperation, "unknown-operator", level=Level.ERROR, since="0.1.0")
def unknown_operator(subject: RefusedOperation) -> Iterator[Hit]:
    """
    A model uses an operator that a locked runtime does not have at the imported opset.

    ## Why it matters
    The runtime refuses the whole model when it is loaded. Patch releases differ, too: ONNX Runtime 1.25.1 has
    `com.microsoft.LinearAttention`, and 1.25.0 does not.

    ## What to do
    Export at an opset that has the operator and that every locked runtime implements, write it as operators that they
    have, or raise the target's version.
    """
    yield from create_refusal_hits(
        subject, "unknown-operator", "export it as operators that all its runtimes have", causes=OPSET_RULES
    )
