"""Evaluation of the conditions that choose a branch."""

from __future__ import annotations

from typing import NoReturn

import onnx.parser
import pytest

from onnxgate.core.process_pool import CallFailure, FailedCallError
from onnxgate.inputs import branches
from onnxgate.inputs.branches import BranchGraph
from onnxgate.model.local_functions import inline_local_functions
from onnxgate.model.onnx_functions import record_failed_calls
from onnxgate.model.ranked_outputs import find_ranked_outputs
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


DOUBLING = """<ir_version: 8, opset_import: ["" : 18, "local" : 1]>
    g (float[N, M] x, int64[1] k) => (float[A, B] y, int64[A, B] i)
    { r = Relu (x) a = local.f40 (r) y, i = TopK (a, k) }
    <domain: "local", opset_import: ["" : 18]> f0 (i) => (o) { o = Relu (i) }
""" + "".join(
    f"""<domain: "local", opset_import: ["" : 18, "local" : 1]> f{depth} (i) => (o)
        {{ m = local.f{depth - 1} (i) o = local.f{depth - 1} (m) }}
    """
    for depth in range(1, 41)
)
"""A model of 4 KB that a function expands to 2 ** 40 nodes, which inference in onnx would all visit."""


def test_functions_with_too_many_nodes() -> None:
    """Inference does not follow their calls, which would take longer than its time limit for each input size."""
    model = inline_local_functions(ModelView(onnx.parser.parse_model(DOUBLING)))

    assert model.functions
    assert BranchGraph(model).infer_shapes({"x": (2, 3)})["r"] == (2, 3)
    assert [set(it.axes) for it in find_ranked_outputs(model)] == [{"y", "i"}]


def test_failed_inference_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """After inference reached its time limit, it is not tried with other input sizes."""
    calls = []

    def fail(*_: object, **__: object) -> NoReturn:
        calls.append(1)
        raise FailedCallError(CallFailure("timed-out", "60 s"))

    monkeypatch.setattr(branches, "infer_shapes", fail)
    graph = BranchGraph(
        ModelView(
            onnx.parser.parse_model(
                '<ir_version: 8, opset_import: ["" : 18]> g (float[N] x) => (float[N] y) { y = Relu (x) }'
            )
        )
    )

    reasons: dict[str, str] = {}
    with record_failed_calls(reasons):
        shapes = [graph.infer_shapes({"x": (size,)}) for size in (1, 2)]

    assert [{}, {}] == shapes
    assert len(calls) == len(reasons) == 1
