"""Evaluation of the conditions that choose a branch."""

from __future__ import annotations

import onnx.parser
import pytest

from onnxgate.inputs.branches import BranchGraph
from onnxgate.model.reading.view import ModelView


@pytest.mark.parametrize(("size", "known"), [(1 << 16, True), (1 << 18, False), (1 << 40, False)])
def test_created_values_are_bounded(size: int, known: bool) -> None:
    """A condition is unknown if its evaluation would create a large value from a small one."""
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 18]> g (float[2] x) => (float[2] y)
        {{
            n = Constant <value = int64[1] {{{size}}}> ()
            z = ConstantOfShape <value = int64[1] {{1}}> (n)
            m = ReduceMax <keepdims = 0> (z)
            c = Cast <to = 9> (m)
            y = If (c) <then_branch = t () => (float[2] p) {{ p = Relu (x) }},
                        else_branch = e () => (float[2] q) {{ q = Abs (x) }}>
        }}
    """)

    choices = BranchGraph(ModelView(model)).evaluate({"x": (2,)}, lambda _: None).choose()

    assert (len(choices.chosen), len(choices.unknown)) == ((1, 0) if known else (0, 1))
