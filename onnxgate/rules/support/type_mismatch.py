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
    An operator receives types that its definition does not allow.

    ## Why it matters
    Loading fails with `Type Error: Type 'tensor(bool)' of input parameter (x) of operator (Abs)`. ONNX Runtime Web also
    refuses inputs and outputs of the model with types that JavaScript cannot represent, such as `tensor(bfloat16)`:
    `unsupported data type: 16`. OpenVINO and tract refuse models whose outputs depend on a sparse initializer.

    ## What to do
    - Cast the input to a type that the operator supports, or
    - export at an opset that allows the type.
    """
    default_fix = "cast the input to a type that the operator supports"
    if not subject.operator:
        default_fix = f"export the model with inputs and outputs of types that {subject.ways.required}"
        if subject.is_castable:
            default_fix = "change its type to `tensor(float)`, and cast it in the model"
        if subject.about.startswith("tensor ") and "`sparse_tensor(" in subject.problem:
            default_fix = "store the tensor in a dense initializer"
    yield from create_refusal_hits(subject, "type-mismatch", default_fix, causes=OPSET_RULES)
