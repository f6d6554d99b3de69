"""Axes of inputs that are initial states of recurrent operators."""

from __future__ import annotations

import onnx.parser
import pytest

from onnxgate.inputs.axis_sizes import StateAxes, list_size_settings
from onnxgate.inputs.dataflow import DataflowGraph
from onnxgate.inputs.recurrent_states import find_state_axes
from onnxgate.model.facts import ValueInfo
from onnxgate.model.reading.fact_extraction import read_value_infos
from onnxgate.model.reading.view import ModelView

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
WEIGHTS = "float[1, 12, 2] w, float[1, 12, 4] r"
STATES = {
    "as it is": (
        "float[a, b, c] h",
        "s = Identity(h)",
        StateAxes(("N", "b"), {"a": 1, "c": 4}, frozenset({"T", "a", "c"})),
    ),
    "one layer of several": (
        "float[a, b, 4] h",
        "zero = Constant<value_ints = [0]>() one = Constant<value_ints = [1]>() s = Slice(h, zero, one, zero)",
        StateAxes(("N", "b"), {}, frozenset({"T", "a"})),
    ),
    "a single layer": (
        "float[a, b, 4] h",
        "i = Constant<value_int = 0>() p = Gather(h, i) o = Constant<value_ints = [0]>() s = Unsqueeze(p, o)",
        StateAxes(("N", "b"), {}, frozenset({"T", "a"})),
    ),
    "batch first": (
        "float[b, a, 4] h",
        "s = Transpose<perm = [1, 0, 2]>(h)",
        StateAxes(("N", "b"), {"a": 1}, frozenset({"T", "a"})),
    ),
    "without layers": (
        "float[b, c] h",
        "o = Constant<value_ints = [0]>() s = Unsqueeze(h, o)",
        StateAxes(("N", "b"), {"c": 4}, frozenset({"T", "c"})),
    ),
    "through a branch": (
        "float[a, b, 4] h, bool t",
        """s = If(t) <then_branch = p () => (float[1, b, 4] u) { u = Tanh(h) },
                      else_branch = q () => (float[1, b, 4] v) { v = Identity(h) }>""",
        StateAxes(("N", "b"), {"a": 1}, frozenset({"T", "a"})),
    ),
    "computed": ("float[a, b, c] h", "s = Add(h, h)", StateAxes(("N",), {}, frozenset({"T"}))),
}


def _find(declared: str, nodes: str) -> tuple[tuple[ValueInfo, ...], StateAxes]:
    text = f"""{HEAD}g (float[T, N, 2] x, {declared}) => (float[T, 1, N, 4] y) <{WEIGHTS}>
        {{ {nodes} y = GRU<hidden_size = 4>(x, w, r, , , s) }}"""
    model = onnx.parser.parse_model(text)
    inputs = read_value_infos(model.graph.input)
    return tuple(inputs), find_state_axes(inputs, DataflowGraph(ModelView(model)))


@pytest.mark.parametrize("name", STATES)
def test_state_takes_the_sizes_of_its_operator(name: str) -> None:
    """The batch axis varies with the batch; the number of directions and the hidden size are fixed."""
    declared, nodes, expected = STATES[name]

    assert _find(declared, nodes)[1] == expected


def test_unnamed_state_axes_do_not_take_the_size_of_the_sequence() -> None:
    """Unnamed axes at the same position have one size, unless one of them is a batch axis of a state."""
    inputs = (ValueInfo("x", "tensor(float)", ("?", "?")), ValueInfo("h", "tensor(float)", (2, "?", 4)))
    settings = list_size_settings(inputs, {}, StateAxes(("h[1]",)))

    assert settings == (
        {"x[0]": 1, "x[1]": 1600, "h[1]": 1},
        {"x[0]": 3, "x[1]": 1600, "h[1]": 3},
        {"x[0]": 1, "x[1]": 2400, "h[1]": 1},
    )


def test_required_sizes_do_not_vary() -> None:
    """Sizes that the operator requires are the same in all settings."""
    inputs, states = _find("float[a, b, c] h", "s = Identity(h)")

    assert [(each["a"], each["b"], each["c"]) for each in list_size_settings(inputs, {}, states)] == [
        (1, 1, 4),
        (1, 3, 4),
        (1, 1, 4),
    ]


def test_sequence_takes_the_sizes_of_its_operator() -> None:
    """The number of features is fixed by the weights, and the first axis is the time, which is not a batch axis."""
    text = f"""{HEAD}g (float[T, N, F] x) => (float[T, 1, N, 4] y) <{WEIGHTS}>
        {{ y = GRU<hidden_size = 4>(x, w, r) }}"""
    model = onnx.parser.parse_model(text)
    inputs = read_value_infos(model.graph.input)
    states = find_state_axes(inputs, DataflowGraph(ModelView(model)))

    assert list_size_settings(inputs, {}, states) == (
        {"T": 64, "N": 1, "F": 2},
        {"T": 64, "N": 3, "F": 2},
        {"T": 96, "N": 1, "F": 2},
    )
