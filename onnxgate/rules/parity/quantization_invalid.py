"""The rule `quantization-invalid`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, follows_from, mask_numbers
from onnxgate.evidence.file import ModelFile
from onnxgate.rules.definition import rule


@rule(ModelFile, "quantization-invalid", level=Level.ERROR, since="0.1.0")
def quantization_invalid(subject: ModelFile) -> Iterator[Hit]:
    """
    A scale or a zero point of a quantized operator cannot be right.

    What the file itself holds is judged, without running it: a scale that is 0, infinite or NaN, a zero point of
    another type than its value, and as many of them as fit neither the value's axis nor its blocks.

    ## Why it matters
    A division by 0 makes every value the largest or the smallest step, and a scale of 0 makes every weight 0: the
    runtime says nothing, and the model answers. Counts that do not fit are refused, by some releases only when the
    model is run.

    ## What to do
    Quantize the model again, with calibration data that reach the node concerned. Where a tensor was 0 throughout the
    calibration, leave its node in float.
    """
    for bad in subject.graph.quantization:
        node = f"`{bad.operator}` node `{bad.node}`" if bad.node else f"a `{bad.operator}` node"
        yield Hit(
            bad.place or subject.place,
            f"{node} is quantized by what cannot be right: {bad.what}",
            model=subject.path,
            node=bad.node,
            fix="quantize the model again with data that reach this node, or leave the node in float",
            relations=() if bad.kind == "value" else follows_from("invalid-model"),
            identity=f"{bad.operator} {mask_numbers(bad.node)} {bad.kind}",
        )
