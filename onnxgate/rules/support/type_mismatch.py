"""The rule `type-mismatch`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.support import OPSET_RULES, RefusedOperation
from onnxgate.rules.definition import rule
from onnxgate.rules.support._refusals import create_refusal_hits


@rule(RefusedOperation, "type-mismatch", level=Level.ERROR, since="0.1.0")
def type_mismatch(subject: RefusedOperation) -> Iterator[Hit]:
    """
    An operator is given types that its definition does not allow.

    ## Why it matters
    The runtime refuses the whole model when it is loaded. The types are those that follow from the model's inputs and
    weights; the definition is that of the imported opset, as this release has it.

    ## What to do
    Cast what is given to a type that the operator takes, or export at an opset whose definition takes it.
    """
    yield from create_refusal_hits(
        subject, "type-mismatch", "cast what is given to a type that the operator takes", causes=OPSET_RULES
    )
