"""Calls of local functions are followed within limits, and inlined in one place."""

from __future__ import annotations

from itertools import pairwise

import onnx.parser
import pytest

from onnxgate.model.local_functions import (
    MAX_CALL_DEPTH,
    explain_unfollowed_calls,
    inline_local_functions,
    list_called_functions,
)
from onnxgate.model.reading.view import ModelView

HEAD = '<ir_version: 10, opset_import: ["" : 17, "own" : 1]> g (float[2] x) => (float[2] y) { y = own.f0 (x) }'


def model(bodies: list[str]) -> ModelView:
    """Return a model that calls the first of these functions, which are named f0, f1 and so on."""
    functions = (
        f'<domain: "own", opset_import: ["" : 17, "own" : 1]> f{index} (a) => (b) {{ {body} }}'
        for index, body in enumerate(bodies)
    )
    return ModelView(onnx.parser.parse_model(" ".join((HEAD, *functions))))


def chain(length: int, calls: int = 1) -> list[str]:
    """Return bodies, each of which calls the next one this many times."""
    names = ["a", *(f"t{index}" for index in range(calls - 1)), "b"]
    bodies = [
        " ".join(f"{out} = own.f{index + 1} ({used})" for used, out in pairwise(names)) for index in range(length)
    ]
    return [*bodies, "b = Abs (a)"]


def test_functions_are_inlined() -> None:
    """Nested calls become nodes of the main graph."""
    assert [node.op_type for node in inline_local_functions(model(chain(2, 2))).proto.graph.node] == ["Abs"] * 4


@pytest.mark.parametrize(
    ("bodies", "reason"),
    [
        (["b = own.f1 (a)", "b = own.f0 (a)"], "calls itself"),
        (chain(MAX_CALL_DEPTH), "levels deep"),
        (chain(20, 2), "expand to more than"),
    ],
)
def test_calls_without_end_are_not_followed(bodies: list[str], reason: str) -> None:
    """Recursive, deeply nested and very large functions are kept, and the reason is named."""
    view = model(bodies)

    assert reason in explain_unfollowed_calls(view)
    assert inline_local_functions(view) is view


def test_functions_that_nothing_calls() -> None:
    """Functions are called from the main graph, directly or through others."""
    called = list_called_functions(model(["b = own.f1 (a)", "b = Abs (a)", "b = own.f1 (a)"]))

    assert [function.proto.name for function in called] == ["f0", "f1"]
