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
    A model uses an operator that a runtime does not have at the imported opset.

    ## Why it matters
    Loading fails. ONNX Runtime reports `No Op registered for Gelu with domain_version of 18`, OpenVINO reports `No
    conversion rule found for operations: Bernoulli-22`, and tract reports `Unimplemented(Bernoulli)`.

    ## What to do
    - Export at an opset that has the operator, or
    - use other operators, or
    - raise the target's `runtime`, and run `onnxgate lock`.
    """
    default_fix = f"export the model with operators that {subject.ways.required}"
    yield from create_refusal_hits(subject, "unknown-operator", default_fix, causes=OPSET_RULES)
