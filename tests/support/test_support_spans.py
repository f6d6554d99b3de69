"""The release since which something works, and until which it worked."""

from __future__ import annotations

import onnx.parser
import pytest

from onnxgate.model.reading.view import ModelView
from onnxgate.support import operators
from onnxgate.support.limits import find_support_span
from onnxgate.support.matching.type_inference import infer_model_types
from onnxgate.support.suggestions.search import find_implemented_span

RELEASES = ("1.8.0", "1.9.0", "1.10.0", "1.11.0")


@pytest.mark.parametrize(
    ("works", "expected"),
    [
        ("yyyy", ("", "")),
        ("nnnn", ("", "")),
        ("nnyy", ("1.10.0", "")),
        ("yynn", ("", "1.9.0")),
        ("ynny", ("1.11.0", "1.8.0")),
        ("nyyn", ("", "")),
    ],
)
def test_span(works: str, expected: tuple[str, str]) -> None:
    """There is a first release only if the newest one works, and a last one only if the oldest one works."""
    assert find_support_span(RELEASES, [each == "y" for each in works]) == expected


@pytest.mark.parametrize(("opset", "expected"), [(18, "1.30.0"), (21, "")])
def test_releases_that_lack_the_opset_do_not_support_the_operation(opset: int, expected: str) -> None:
    """The last release that worked supports the imported opset, and not only an older version of the operator."""
    inputs, call = "float[1, 4, 6] x, float[2] s", "GroupNormalization <num_groups = 2> (x, s, s)"
    if opset < 21:
        inputs, call = "float[2, 3] x, float[3] s", "LayerNormalization <axis = 2> (x, s)"
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g ({inputs}) => (float y) {{ y = {call} }}'
    )
    operations = [node.operation for node in infer_model_types(ModelView(model)).nodes]
    releases = [*filter(None, map(operators.get_implementation, operators.list_known_releases()))]

    assert find_implemented_span(operations, releases) == ("", expected)
