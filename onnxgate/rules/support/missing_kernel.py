"""The rule `missing-kernel`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.support import RefusedOperation
from onnxgate.rules.definition import rule
from onnxgate.rules.support._refusals import create_refusal_hits


@rule(RefusedOperation, "missing-kernel", level=Level.ERROR, since="0.1.0")
def missing_kernel(subject: RefusedOperation) -> Iterator[Hit]:
    """
    A locked runtime knows an operator, and has no kernel for the types or the version that a model needs.

    ## Why it matters
    The runtime refuses the whole model when it is loaded, and names one such node at a time; here are all of them.
    ONNX's own check is content, since the operator and its types are allowed. Operators that ONNX defines by a function
    of others are looked at in that form, and float16 is fine where the runtime casts to float by itself.

    ## What to do
    One of the ways that the message names: each of them is implemented by every locked runtime.
    """
    yield from create_refusal_hits(
        subject, "missing-kernel", "export it with types that all its runtimes implement, or as other operators"
    )
