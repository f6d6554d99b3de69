"""Outputs that depend on a selection, and the axis of their items."""

from __future__ import annotations

import onnx.parser
import pytest

from onnxgate.model.ranked_outputs import RankedOutputs, find_ranked_outputs
from onnxgate.model.reading.view import ModelView

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g (float[b, n] x, float[b, n, 4] boxes) => '
TOP = "k = Constant<value_ints = [5]>() v, i = TopK(x, k) "


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(float[b, n] y) { y = Relu(x) }", ()),
        (f"(float[b, m] v, int64[b, m] i) {{ {TOP} }}", (RankedOutputs({"v": -1, "i": -1}),)),
        (
            f"(float[b, m] v) {{ {TOP.replace('TopK', 'TopK<sorted = 0>')} }}",
            (RankedOutputs({"v": -1}, is_ordered=False),),
        ),
        (f"(float[b, m] v, float[b, n] y) {{ {TOP} y = Relu(x) }}", (RankedOutputs({"v": -1}),)),
        (
            f"(float[b, m] v, float[b, m] j) {{ {TOP} t = Transpose<perm = [1, 0]>(i) j = Cast<to = 1>(t) }}",
            (RankedOutputs({"v": -1, "j": -2}),),
        ),
        (f"(float[b] y) {{ {TOP} y = ReduceMax<axes = [1], keepdims = 0>(v) }}", (RankedOutputs({"y": None}, True),)),
        ("(int64[b] y) { y = ArgMax<axis = 1, keepdims = 0>(x) }", (RankedOutputs({"y": None}, True),)),
        ("(int64[r, m] y) { y = NonZero(x) }", (RankedOutputs({"y": -1}),)),
        ("(int64[r] y) { s = Shape(x) k = NonZero(s) y = Shape(k) }", ()),
        (
            "(float[b, m, 4] y, int64[m, 3] s) { u = Unsqueeze(x, a) s = NonMaxSuppression(boxes, u) "
            "c = Constant<value_int = 2>() j = Gather<axis = 1>(s, c) y = Gather<axis = 1>(boxes, j) }",
            (RankedOutputs({"y": None, "s": -2}),),
        ),
    ],
)
def test_selections(text: str, expected: tuple[RankedOutputs, ...]) -> None:
    """Outputs of one selection form a group; reductions and shapes of items do not list items."""
    assert find_ranked_outputs(ModelView(onnx.parser.parse_model(HEAD + text))) == expected


def test_selection_in_a_function() -> None:
    """Local functions are inlined."""
    text = """<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
    g (float[b, n] x) => (float[b, m] v) { v = own.Best(x) }
    <domain: "own", opset_import: ["" : 17]> Best (a) => (o) { k = Constant<value_ints = [5]>() o, i = TopK(a, k) }"""

    assert find_ranked_outputs(ModelView(onnx.parser.parse_model(text))) == (RankedOutputs({"v": -1}),)
