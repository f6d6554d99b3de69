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
    A runtime has no kernel for the types or version of an operator.

    ## Why it matters
    Loading fails although the model is valid ONNX. ONNX Runtime reports `Could not find an implementation for …`, and
    OpenVINO and tract name a type that they do not support.

    ## What to do
    Apply the fix shown in the finding. Usually, this is a different opset, a cast to a supported type, or a newer
    runtime.
    """
    default_fix = f"export the model with types that {subject.ways.required}, or with other operators"
    yield from create_refusal_hits(subject, "missing-kernel", default_fix)
