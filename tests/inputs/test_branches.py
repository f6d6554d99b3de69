"""Evaluation of the conditions that choose a branch."""

from __future__ import annotations

import onnx.parser
import pytest

from onnxgate.inputs.branches import BranchGraph
from onnxgate.model.reading.view import ModelView


@pytest.mark.parametrize(("size", "known"), [(1 << 16, True), (1 << 18, False), (1 << 40, False)])
def test_created_values_are_bounded(size: int, known: bool) -> None:
    """A value is unknown if its evaluation would create a large value from a small one."""
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 18]> g () => (float[n] y)
        {{ n = Constant <value = int64[1] {{{size}}}> () y = ConstantOfShape (n) }}
    """)
    graph = BranchGraph(ModelView(model))

    value = graph.evaluate({}, lambda _: None).value("y", graph.main)

    assert (value is not None) is known
