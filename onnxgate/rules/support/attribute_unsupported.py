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
    An operator has attributes or a number of arguments that a locked runtime does not take.

    ## Why it matters
    The runtime refuses the whole model when it is loaded. Either the definition of the imported opset has no such
    attribute, as this release has it, or the kernel does not implement a value: `layout` = 1 of `LSTM` is valid ONNX,
    and no release implements it.

    ## What to do
    Leave the attribute out where it says what is the default anyway, write what it does as operators of its own, or
    export at an opset whose definition has it.
    """
    yield from create_refusal_hits(
        subject,
        "attribute-unsupported",
        "export it as the definition of the imported opset has it",
        causes=OPSET_RULES,
    )
