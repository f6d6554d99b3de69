"""Numeric traits of a model, derived from its operators and types."""

from __future__ import annotations

import time
from pathlib import Path

import onnx
import onnx.parser
import pytest

from campaigns.fuzz.extreme_models import function, model_of, node
from onnxgate.model import numeric_traits
from onnxgate.model.numeric_traits import NumericTraits, detect_numeric_traits
from onnxgate.model.reading.fact_extraction import read_facts, read_model
from onnxgate.model.reading.structure import read_structure
from onnxgate.model.reading.view import ModelView

Y = frozenset({"y"})


def _of(tmp_path: Path, text: str) -> NumericTraits:
    path = tmp_path / "m.onnx"
    onnx.save(
        onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1, "f" : 1]> ' + text), path
    )
    reading = read_model(path, "m.onnx")
    return detect_numeric_traits(reading.facts, reading.view)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("g (float[N] x) => (float[N] y) { y = Relu(x) }", NumericTraits()),
        ("g (float[N] x) => (float[N] y) { h = Cast<to = 10>(x)  y = Cast<to = 1>(h) }", NumericTraits()),
        (
            "g (float[N] x) => (float[N] y) { h = Cast<to = 10>(x)  e = Exp(h)  y = Cast<to = 1>(e) }",
            NumericTraits(half=True),
        ),
        (
            "g (float[N] x) => (float[N] y, float16[N] h) { h = Cast<to = 10>(x)  y = Cast<to = 1>(h) }",
            NumericTraits(half=True),
        ),
        ("g (float16[N] x) => (float16[N] y) <float16 w = {1}> { y = Add(x, w) }", NumericTraits(half=True)),
        (
            "g (float[N] x) => (float[N] y) { y = RandomNormalLike(x) }",
            NumericTraits(random=("RandomNormalLike",), random_outputs=Y),
        ),
        (
            "g (float[N] x) => (float[N] y) <float r = {0.5}, bool t = {1}> { y = Dropout(x, r, t) }",
            NumericTraits(random=("Dropout",), random_outputs=Y),
        ),
        ("g (float[N] x) => (float[N] y) <float r = {0.5}, bool t = {0}> { y = Dropout(x, r, t) }", NumericTraits()),
        ("g (float[N] x) => (float[N] y) { y = Dropout(x) }", NumericTraits()),
        (
            "g (float[N] x) => (uint8[N] y) <float s = {0.1}, uint8 z = {0}> { y = QuantizeLinear(x, s, z) }",
            NumericTraits(quantized=("QuantizeLinear",)),
        ),
        (
            "g (float[N, 4] x) => (float[N, 2] y) { y = com.microsoft.MatMulNBits<K = 4, N = 2>(x, x, x) }",
            NumericTraits(quantized=("com.microsoft.MatMulNBits",), low_bits=True),
        ),
        (
            "g (float[N, 4] x) => (float[N, 2] y) { y = com.microsoft.MatMulNBits<K = 4, N = 2, bits = 8>(x, x, x) }",
            NumericTraits(quantized=("com.microsoft.MatMulNBits",)),
        ),
        (
            "g (float[N, 1] x) => (float[N, 1] y) <int8[1, 1] q = {3}, float s = {0.1}> "
            "{ d = DequantizeLinear(q, s)  w = Transpose(d)  y = MatMul(x, w) }",
            NumericTraits(quantized=("DequantizeLinear",), weights_only=True, has_quantized_factors=True),
        ),
        (
            "g (float[N, 1, 8] x) => (float[N, 1, 8] y) <int8[1, 1, 1] q = {3}, float s = {0.1}> "
            "{ w = DequantizeLinear(q, s)  y = Conv(x, w) }",
            NumericTraits(quantized=("DequantizeLinear",), weights_only=True),
        ),
        ("g (int8[N] x, float s) => (float[N] y) { y = DequantizeLinear(x, s) }", NumericTraits()),
        (
            "g (float[N, 1] x) => (float[N, 1] y) <int8[1, 1] q = {3}, float s = {0.1}, int8 z = {0}> "
            "{ w = DequantizeLinear(q, s)  a = QuantizeLinear(x, s, z)  b = DequantizeLinear(a, s, z) "
            "y = MatMul(b, w) }",
            NumericTraits(quantized=("QuantizeLinear",)),
        ),
    ],
)
def test_comparability(tmp_path: Path, text: str, expected: NumericTraits) -> None:
    """Random operators, training mode, quantization and 16-bit types are detected."""
    assert _of(tmp_path, text) == expected


def test_training_flag_that_was_left_in_the_file(tmp_path: Path) -> None:
    """A training flag too large to be read, which no runtime accepts, does not stop the check."""
    values = ", ".join(["1"] * 5000)
    text = f"g (float[N] x) => (float[N] y) <float r = {{0.5}}, bool[5000] t = {{{values}}}> {{ y = Dropout(x, r, t) }}"
    _of(tmp_path, text)
    reading = ModelView(read_structure(tmp_path / "m.onnx", large_bytes=0))

    assert detect_numeric_traits(read_facts(tmp_path / "m.onnx", "m.onnx"), reading).random == ()


def test_random_operator_in_a_branch_counts(tmp_path: Path) -> None:
    """Random operators in subgraphs are detected."""
    text = """g (float[N] x, bool c) => (float[N] y)
        { y = If(c) <then_branch = a () => (z) { z = Bernoulli(x) }, else_branch = b () => (w) { w = Relu(x) }> }"""

    assert _of(tmp_path, text).random == ("Bernoulli",)


@pytest.mark.parametrize(
    ("text", "random", "outputs"),
    [
        ("g (float[N] x) => (float[N] y, float[N] z) { y = Bernoulli(x)  z = Relu(x) }", ("Bernoulli",), {"y"}),
        ("g (float[N] x) => (float[N] y) { r = RandomNormalLike(x)  y = Relu(x) }", (), set()),
        ("g (float[N] x) => (int64[1] y) { r = RandomNormalLike(x)  y = Shape(r) }", (), set()),
        (
            "g (float[N] x) => (float y, float[N] z)"
            " { r = RandomNormalLike(x)  s = Add(x, r)  z = Neg(s)  y = Abs(x) }",
            ("RandomNormalLike",),
            {"z"},
        ),
        (
            """g (float[N] x, bool c) => (float[N] y, float[N] z) { r = Bernoulli(x)  z = Relu(x)
            y = If(c) <then_branch = a () => (t) { t = Neg(r) }, else_branch = b () => (e) { e = Relu(x) }> }""",
            ("Bernoulli",),
            {"y"},
        ),
        (
            """g (float[N] x) => (float[N] y, float[N] z) { y = f.outer(x)  z = f.still(x) }
            <domain: "f", opset_import: ["" : 17, "f" : 1]> outer (a) => (b) { b = f.inner(a) }
            <domain: "f", opset_import: ["" : 17]> inner (a) => (b) { b = Bernoulli(a) }
            <domain: "f", opset_import: ["" : 17]> still (a) => (b) { b = Relu(a) }""",
            ("Bernoulli",),
            {"y"},
        ),
    ],
)
def test_random_operators_concern_the_outputs_that_they_reach(
    tmp_path: Path, text: str, random: tuple[str, ...], outputs: set[str]
) -> None:
    """Only outputs whose values depend on a random operator are listed, through branches and functions."""
    actual = _of(tmp_path, text)

    assert (actual.random, actual.random_outputs) == (random, outputs)
    assert all(actual.is_random(f"{name} (layout)") for name in outputs)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("s = Shape(x) y = ConstantOfShape(s)", Y),
        ("s = Shape(x) c = ConstantOfShape(s) y = Mul(x, c)", frozenset()),
        ("c = Constant<value = float[2] {0, 0}>() y = Identity(c)", Y),
        ("y = RandomNormal<shape = [2]>()", frozenset()),
        (
            "t = Constant<value = bool {1}>() y = If(t) <then_branch = a () => (float[N] p) { p = Neg(x) }, "
            "else_branch = b () => (float[N] q) { q = Constant<value = float[2] {0, 0}>() }>",
            frozenset(),
        ),
    ],
    ids=["shape", "values", "constant", "random", "branch"],
)
def test_constant_outputs_do_not_depend_on_input_values(tmp_path: Path, body: str, expected: frozenset[str]) -> None:
    """The shape of an input may affect a constant output."""
    text = f"g (float[N] x) => (float[N] y) {{ {body} }}"

    assert expected == _of(tmp_path, text).constant_outputs


def test_chain_of_functions_is_searched_in_linear_time() -> None:
    """Functions that call later ones are not searched again for each function of the chain."""
    count = 1000
    model = model_of([node("f0", ["x"], ["y"], "local")])
    for index in range(count - 1):
        function(model, f"f{index}", [node(f"f{index + 1}", ["a"], ["b"], "local")])
    function(model, f"f{count - 1}", [node("RandomNormalLike", ["a"], ["b"])])
    before = time.process_time()

    found = numeric_traits._find_random_functions(ModelView(model), frozenset())

    assert time.process_time() - before < 0.5
    assert set(found.values()) == {frozenset({"RandomNormalLike"})}
    assert len(found) == count


def test_flag_with_contradictory_shape(tmp_path: Path) -> None:
    """A flag whose data does not fit its shape is unknown, so that the model can still be checked."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> '
        "g (float[N] x) => (float[N] y) <float r = {0.5}, bool t = {1}> { y = Dropout(x, r, t) }"
    )
    model.graph.initializer[1].int32_data.append(1)
    onnx.save(model, tmp_path / "m.onnx")
    reading = read_model(tmp_path / "m.onnx", "m.onnx")

    assert detect_numeric_traits(reading.facts, reading.view) == NumericTraits()
