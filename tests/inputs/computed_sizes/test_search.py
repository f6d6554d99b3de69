"""Values of small inputs from which the graph computes sizes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from onnxgate.inputs.cases import CaseGenerator, InputGenerationError, generate_cases
from onnxgate.inputs.computed_sizes.search import FIRST_VALUES
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
    "columns and rows as 8-bit integers": (
        f"int8[2] s, float[1, 3, 36] x | {SPLIT} n = Concat<axis = 0>(one, three, h, w)  y = Reshape(x, n)",
        {"s": [12, 3]},
    ),
    "size of an unknown image": (
        "float[4] s, float[N, 3, 8, 8] x | i = Cast<to = 7>(s)  y = Resize(x, , , i)",
        {"s": [1, 3, 20, 24]},
    ),
    "shape that is declared in part": (
        "int64[3] s, float[12] x => float[a, 4, c] y | y = Reshape(x, s)",
        {"s": [3, 4, 1]},
    ),
    "factors of an image, whose sizes have other names": (
        "float[4] s, float[1, 3, 8, 8] x => float[a, b, c, d] y | y = Resize(x, , s)",
        {"s": [1, 1, 2, 2]},
    ),
    "reflected elements": (
        'int64[4] s, float[1, 9] x | y = Pad<mode = "reflect">(x, s)',
        {"s": [0, 2, 0, 2]},
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
    "part of a part": (
        "float[4] s, float[9, 9] x | c = Cast<to = 7>(s)  a, b, d, e = Split(c)"
        "  v = Slice(x, a, d, zero)  y = Slice(v, b, e, one)",
        {"s": [2, 2, 20, 24]},
    ),
    "part of an image as fractions": (
        "float[2] s, float[9, 4] x | n = Constant<value_float = 9.0>()  t = Mul(s, n)  c = Cast<to = 7>(t)"
        "  h = Slice(c, zero, one)  w = Slice(c, one, two)  y = Slice(x, h, w, zero)",
        {"s": [0.5, 16]},
    ),
    "ratio of elements": (
        "float[2] s, float[9, 9] x | n = Constant<value_float = 9.0>()  m = ReduceMax(s)  r = Div(n, m)"
        "  t = Mul(s, r)  c = Cast<to = 7>(t)  h = Slice(c, zero, one)  y = Slice(x, zero, h, zero)",
        {"s": [H, W]},
    ),
    "factors of an image of a dynamic size": (
        "float[2] s, float[N, 3, 8, 32] x | k = Constant<value_floats = [8.0, 32.0]>()  t = Mul(s, k)"
        "  c = Cast<to = 7>(t)  a = Shape<start = 0, end = 2>(x)  n = Concat<axis = 0>(a, c)  y = Resize(x, , , n)",
        {"s": [2, 2]},
    ),
    "length that is the last of sums": (
        "float[1] s, float[1] x | k = Constant<value_floats = [1.0, 1.0, 1.0]>()  t = Mul(s, k)"
        "  o = Constant<value_int = 0>()  c = CumSum(t, o)  q = Slice(c, two, three)"
        "  i = Cast<to = 7>(q)  y = Expand(x, i)",
        {"s": [12]},
    ),
    "end of a range of integers": (
        "int64 n, float[1] x | k = Constant<value_int = 0>()  d = Constant<value_int = 1>()  r = Range(k, n, d)"
        "  f = Cast<to = 1>(r)  y = Add(f, x)",
        {"n": [2]},
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
    "image": "float[1, 3, 8, 8] x | y = Resize(x, , scales)",
}


def _read(text: str, folder: Path) -> ParsedModel:
    head, _, nodes = text.partition("|")
    inputs, _, output = head.partition("=>")
    weights = f"<{CONSTANTS}, float[4] scales = {{1, 1, 2, 2}}>"
    model = onnx.parser.parse_model(f"{HEAD} g ({inputs}) => ({output or 'float[?] y'}) {weights} {{ {nodes} }}")
    onnx.save(model, folder / "m.onnx")
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


def test_counts_of_many_elements(tmp_path: Path) -> None:
    """The sum of many floats is a valid count if they are 1."""
    text = "float[9] d, float[1] x | r = Round(d)  c = Cast<to = 7>(r)  n = ReduceSum(c, zero)  y = Expand(x, n)"
    reading = _read(text, tmp_path)
    case, *_ = generate_cases(reading.facts, reading.view, {}, tmp_path / "cases")

    assert np.load(case.inputs["d"]).tolist() == [1] * 9


def test_integers_without_a_valid_value_are_guessed(tmp_path: Path) -> None:
    """Generated integers are kept if no value is valid; a failed run is then not an error."""
    text = "int64[1] n, float[9] x | m = Max(n, one)  d = Mul(m, n)  e = Mul(d, two)  y = Expand(x, e)"
    reading = _read(text, tmp_path)
    case, *_ = generate_cases(reading.facts, reading.view, {}, tmp_path / "cases")

    assert case.assumed == {"n": tuple(np.load(case.inputs["n"]).tolist())}


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
