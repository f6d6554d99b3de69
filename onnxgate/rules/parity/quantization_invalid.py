"""The rule `quantization-invalid`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, follows_from, mask_numbers
from onnxgate.evidence.file import ModelFile
from onnxgate.rules.definition import rule


@rule(ModelFile, "quantization-invalid", level=Level.ERROR, since="0.1.0")
def quantization_invalid(subject: ModelFile) -> Iterator[Hit]:
    """
    A scale or zero point of a quantized operator is invalid.

    ## Why it matters
    A scale of 0 destroys all values without an error, also if it applies to only one channel. This rule also reports
    scales that are infinite or NaN, scales and zero points of a wrong type, a wrong number of scales, values that are
    read with another scale or zero point than they were quantized with, and a bias whose scale is not the product of
    the scales of input and weight, if runtimes use that product instead.

    ## What to do
    - Quantize the model again with realistic calibration data.
    - If the tensor is always 0, keep the node in float.
    """
    for bad in subject.graph.quantization:
        node = f"`{bad.operator}` node `{bad.node}`" if bad.node else f"a `{bad.operator}` node"
        yield Hit(
            bad.place or subject.place,
            f"{node} has invalid quantization: {bad.what}",
            model=subject.path,
            node=bad.node,
            fix="quantize the model again with realistic calibration data, or keep the node in float",
            relations=() if bad.kind == "value" else follows_from("invalid-model"),
            identity=f"{bad.operator} {mask_numbers(bad.node)} {bad.kind}",
        )
