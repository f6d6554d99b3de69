"""The rule `attribute-unsupported`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.advice import Advice, correct_constant
from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.support import OPSET_RULES, RefusedOperation
from onnxgate.rules.definition import rule
from onnxgate.rules.support._refusals import create_refusal_hits


@rule(RefusedOperation, "attribute-unsupported", level=Level.ERROR, since="0.1.0")
def attribute_unsupported(subject: RefusedOperation) -> Iterator[Hit]:
    """
    A runtime does not support the attributes or inputs of an operator.

    ## Why it matters
    Loading fails, for example with `Unrecognized attribute: num_outputs for operator Split`. Either the opset does not
    define the attribute, or the kernel does not implement its value, such as `layout = 1` of `LSTM`. OpenVINO and tract
    also refuse some inputs that are not constant, such as `axes` of `Unsqueeze`.

    ## What to do
    - Correct the constant if the finding is about one, because other releases also fail, or
    - make the input a constant if the finding names one that is not, for example with a fixed size in the export, or
    - remove the attribute if it has its default value, or
    - export at an opset that defines the attribute, or
    - use other operators.
    """
    fixes: dict[str, Advice] = {
        "omitted axes": f"set `axes` of `{subject.operator}`, for example with `squeeze(dim)` in PyTorch",
        "constants": correct_constant(subject.operator),
        "divisor": correct_constant(subject.operator),
    }
    default_fix = f"export the model with attributes and inputs that {subject.ways.required}, or with other operators"
    fix = fixes.get(subject.about, default_fix)
    yield from create_refusal_hits(subject, "attribute-unsupported", fix, causes=OPSET_RULES)
