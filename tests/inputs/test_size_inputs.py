"""Values of small inputs from which the graph computes sizes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from onnxgate.inputs.cases import CaseGenerator, InputGenerationError, generate_cases
from onnxgate.inputs.size_inputs import FIRST_VALUES
from onnxgate.model.reading.fact_extraction import ParsedModel, read_model

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
H, W, *_ = FIRST_VALUES
CONSTANTS = "int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}, int64[1] eight = {8}"
SPLIT = "c = Cast<to = 7>(s)  h = Slice(c, zero, one)  w = Slice(c, one, two) "
MODELS: dict[str, tuple[str, Mapping[str, list[float]]]] = {
    "size of an image as floats": (
        f"float[2] s, float[1, 3, 8, 8] x | {SPLIT} n = Concat<axis = 0>(one, three, c)  y = Resize(x, , , n)",
        {"s": [H, W]},
    ),
    "size of an image, and a part of it": (
        f"float[2] s, float[1, 3, 64, 64] x | {SPLIT} k = Constant<value_float = 64.0>()  m = ReduceMax(s)"
        "  r = Div(k, m)  t = Mul(s, r)  f = Floor(t)  i = Cast<to = 7>(f)  q = Slice(i, zero, one)"
        "  p = Slice(x, zero, q, two)  a = Shape(p)  b = Slice(a, zero, two)  n = Concat<axis = 0>(b, c)"
        "  y = Resize(p, , , n)",
        {"s": [H, W]},
    ),
    "size of an unknown image": (
        "float[4] s, float[N, 3, 8, 8] x | i = Cast<to = 7>(s)  y = Resize(x, , , i)",
        {"s": [1, 3, 20, 24]},
    ),
    "factors of an image": (
        "float h, float w, float[1, 3, 8, 8] x | i = Constant<value_ints = [1]>()  a = Reshape(h, i)"
        "  b = Reshape(w, i)  o = Constant<value_floats = [1.0, 1.0]>()  f = Concat<axis = 0>(o, a, b)"
        "  y = Resize(x, , f)",
        {"h": [2], "w": [2]},
    ),
    "columns and rows": (
        f"float[2] s, float[1, 3, 64] x | {SPLIT} n = Concat<axis = 0>(one, three, h, w)  y = Reshape(x, n)",
        {"s": [4, 16]},
    ),
    "sizes in patches": (
        f"int64[2] s, float[1, 3, 1, 1] x | {SPLIT} d = Div(c, eight)  n = Concat<axis = 0>(one, three, d)"
        "  y = Expand(x, n)",
        {"s": [8, 8]},
    ),
    "part of an image": (
        f"float[2] s, float[9, 4] x | {SPLIT} y = Slice(x, h, w, zero)",
        {"s": [2, 16]},
    ),
    "end of a range": (
        "float n, float[1] x | k = Constant<value_float = 0.0>()  d = Constant<value_float = 1.0>()"
        "  r = Range(k, n, d)  y = Add(r, x)",
        {"n": [12]},
    ),
    "number of repetitions, less one": (
        "int64 n, float[1] x | u = Unsqueeze(n, zero)  m = Sub(u, one)  y = Tile(x, m)",
        {"n": [2]},
    ),
    "parts of a known sum": (
        "float[2] n, float[9] x | c = Cast<to = 7>(n)  y, z = Split(x, c)",
        {"n": [8, 1]},
    ),
}
UNCHANGED = {
    "threshold of data": (
        "float t, float[8] x | g = Greater(x, t)  c = Cast<to = 7>(g)  m = ReduceSum<keepdims = 1>(c)"
        "  e = Add(m, one)  y = Expand(t, e)"
    ),
    "valid integers": "int64 n, float[1] x | u = Unsqueeze(n, zero)  m = Add(u, one)  y = Tile(x, m)",
    "factor": "float t, float[8] x | y = Mul(x, t)",
    "image": "float[1, 3, 8, 8] x | y = Resize(x, , k)",
}


def _read(text: str, folder: Path) -> ParsedModel:
    inputs, _, nodes = text.partition("|")
    weights = f"<{CONSTANTS}, float[4] k = {{1, 1, 2, 2}}>"
    onnx.save(
        onnx.parser.parse_model(f"{HEAD} g ({inputs}) => (float[?] y) {weights} {{ {nodes} }}"), folder / "m.onnx"
    )
    return read_model(folder / "m.onnx", "m.onnx")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", [0, 1])
def test_values_that_give_valid_sizes(name: str, seed: int, tmp_path: Path) -> None:
    """Inputs from which sizes are computed are whole numbers with which all sizes are valid, for all seeds."""
    text, expected = MODELS[name]
    reading = _read(text, tmp_path)
    case, *_ = generate_cases(reading.facts, reading.view, {}, tmp_path / "cases", seed=seed)

    assert expected == {name: np.load(case.inputs[name]).reshape(-1).tolist() for name in expected}
    assert {name: tuple(values) for name, values in expected.items()} == case.assumed


@pytest.mark.parametrize("name", UNCHANGED)
def test_other_inputs_keep_their_values(name: str, tmp_path: Path) -> None:
    """Thresholds and factors of data, and integers that are valid, are generated as before."""
    reading = _read(UNCHANGED[name], tmp_path)
    case, *_ = generate_cases(reading.facts, reading.view, {}, tmp_path / "cases")

    assert case.assumed == {}


def test_sizes_that_cannot_be_valid(tmp_path: Path) -> None:
    """An input for which no value is valid is not generated."""
    text = "float[2] n, float[9] x | c = Cast<to = 7>(n)  d = Mul(c, two)  y = Reshape(x, d)"
    reading = _read(text, tmp_path)

    with pytest.raises(InputGenerationError, match="`n` cannot be generated"):
        generate_cases(reading.facts, reading.view, {}, tmp_path / "cases")


def test_values_to_try_next(tmp_path: Path) -> None:
    """Other values of these inputs are tried if the model does not run."""
    reading = _read(MODELS["end of a range"][0], tmp_path)

    assert CaseGenerator(reading.facts, reading.view, {}).list_uncertain_numbers() == ("n",)
