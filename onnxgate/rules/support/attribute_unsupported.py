"""The rule `attribute-unsupported`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.support import OPSET_RULES, RefusedOperation
from onnxgate.rules.definition import rule
from onnxgate.rules.support._refusals import create_refusal_hits


@rule(RefusedOperation, "attribute-unsupported", level=Level.ERROR, since="0.1.0")
def attribute_unsupported(subject: RefusedOperation) -> Iterator[Hit]:
    """
    A required runtime does not support an operator's attributes or inputs.

    ## Why it matters
    The runtime refuses to load the model. Either the imported opset does not define the attribute, or the kernel does
    not implement its value: `layout = 1` of `LSTM` is valid ONNX, but no release implements it.

    ## What to do
    - Remove the attribute if it has the default value.
    - Express it with other operators, or export at an opset that defines it.
    """
    yield from create_refusal_hits(
        subject,
        "attribute-unsupported",
        "export it as the imported opset defines it",
        causes=OPSET_RULES,
    )
