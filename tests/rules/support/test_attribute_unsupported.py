"""Fixes of `attribute-unsupported` that fit what is wrong with the node."""

from __future__ import annotations

import pytest

from onnxgate.core.advice import Action, Advice
from onnxgate.core.findings import Place
from onnxgate.evidence.support import NodeGroup, RefusedOperation, WaysOut
from onnxgate.rules.support.attribute_unsupported import attribute_unsupported
from onnxgate.support.matching.operations import AttributeRemoval
from onnxgate.support.matching.probed.tract_dynamic_sizes import BOUNDS, DYNAMIC_SIZE

CORRECTION = (Action("correct the constant input of `Gather`, and export the model again", everywhere=True),)


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ("constants", CORRECTION),
        ("divisor", CORRECTION),
        ("Relu", "cast the inputs of `Gather` to `float`, and cast the result back (may lose precision)"),
        ("no bias", "add a bias of zeros to `LayerNormalization`"),
        (DYNAMIC_SIZE, "export the model with a fixed value of this size"),
        (BOUNDS, "set the input `axes` of `Slice` to a constant"),
        (
            "axis",
            "export the model with attributes and inputs that all required runtimes support, or with other operators",
        ),
    ],
)
def test_fix_depends_on_the_gap(about: str, expected: Advice) -> None:
    """Another opset changes neither constants, nor dynamic sizes, nor what the optimizer fuses."""
    subject = RefusedOperation(
        rule="attribute-unsupported",
        model="m.onnx",
        place=Place("m.onnx"),
        runtimes=("onnxruntime 1.24.4",),
        problem="`Gather(13)`: the index 9 is out of range",
        detail="",
        operator="Gather",
        nodes=NodeGroup("", "the node that makes `y`", ""),
        about=about,
    )

    assert [expected] == [hit.fix for hit in attribute_unsupported.judge(subject)]


@pytest.mark.parametrize(
    ("operator", "attribute", "expected"),
    [
        ("Resize", "axes", "add the rank of the input to negative `axes`"),
        ("GRU", "layout", "remove `layout`, and transpose inputs and outputs so that the time axis comes first"),
        ("Split", "num_outputs", "remove `num_outputs` if the result stays the same"),
    ],
)
def test_fix_of_an_attribute(operator: str, attribute: str, expected: str) -> None:
    """Without its axes, a Resize with fewer scales than axes is not valid."""
    subject = RefusedOperation(
        rule="attribute-unsupported",
        model="m.onnx",
        place=Place("m.onnx"),
        runtimes=("onnxruntime 1.24.4",),
        problem=f"`{operator}(18)`: `{attribute}`",
        detail="",
        operator=operator,
        nodes=NodeGroup("", "the node that makes `y`", ""),
        about=attribute,
        ways=WaysOut((AttributeRemoval(attribute),)),
    )

    assert [expected] == [hit.fix for hit in attribute_unsupported.judge(subject)]
