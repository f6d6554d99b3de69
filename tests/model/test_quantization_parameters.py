"""Invalid scales and zero points, and valid ones that look similar."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

from onnxgate.model.quantization_parameters import find_output_steps, find_quantization_faults
from onnxgate.model.reading.view import ModelView

Q = '<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]> g (float[N, 4] x) => (float[N, 4] y)\n'
ACTIVATION = (
    "<float s = {{{scale}}}, uint8 z = {{3}}> {{ q = QuantizeLinear(x, s, z) [d] y = DequantizeLinear(q, s, z) }}"
)
WEIGHT = (
    "<int8[4, 4] w = {{1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}}, {weights}> "
    "{{ f = DequantizeLinear{axis}(w, s, z) y = MatMul(x, f) }}"
)


def describe_faults(tmp_path: Path, body: str, opset: int = 17, **values: str) -> list[str]:
    """Return the descriptions of the faults."""
    text = Q.format(opset=opset) + body.format(**values).replace("[d] ", "")
    path = tmp_path / "m.onnx"
    model = onnx.parser.parse_model(text)
    path.write_bytes(model.SerializeToString())
    return [quantization_fault.what for quantization_fault in find_quantization_faults(ModelView(model), path)]


@pytest.mark.parametrize("scale", ["0.5", "1e-30", "-0.5"])
def test_scales_that_divide(tmp_path: Path, scale: str) -> None:
    """Small and negative scales are valid."""
    assert describe_faults(tmp_path, ACTIVATION, scale=scale) == []


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        ("0.0", "contains 0, which is too small"),
        ("1e-40", "contains 1e-40, which is too small"),
        ("-inf", "contains -inf"),
    ],
)
def test_scales_that_do_not(tmp_path: Path, scale: str, message: str) -> None:
    """Zero, subnormal and non-finite scales are invalid."""
    what = describe_faults(tmp_path, ACTIVATION, scale=scale)

    assert len(what) == 1
    assert message in what[0]


@pytest.mark.parametrize(
    ("weights", "axis", "opset"),
    [
        ("float s = {0.5}, int8 z = {0}", "", 17),
        ("float[1] s = {0.5}, int8[1] z = {0}", "", 17),
        ("float[4] s = {0.5,0.5,0,1}, int8[4] z = {0,0,0,0}", "<axis=0>", 17),
        ("float[4] s = {0.5,0.5,2,1}, int8[4] z = {0,0,0,0}", "<axis=-1>", 17),
        ("float[2, 4] s = {1,1,1,1,1,1,1,1}, int8[2, 4] z = {0,0,0,0,0,0,0,0}", "<axis=0, block_size=2>", 21),
    ],
)
def test_scales_of_weights_that_fit(tmp_path: Path, weights: str, axis: str, opset: int) -> None:
    """Valid scales are per tensor, per index of the axis, or per block; single channels may have scale 0."""
    body = WEIGHT.replace("{weights}", weights.replace("{", "{{").replace("}", "}}")).replace("{axis}", axis)

    assert describe_faults(tmp_path, body, opset) == []


@pytest.mark.parametrize(
    ("weights", "axis", "opset", "message"),
    [
        ("float[3] s = {1,1,1}, int8[3] z = {0,0,0}", "<axis=0>", 17, "has 3 values, but axis 0 of `x` has size 4"),
        ("float[4] s = {1,1,1,1}, int8[4] z = {0,0,0,0}", "<axis=2>", 17, "for axis 2, but `x` has 2 axes"),
        ("float[4] s = {1,1,1,1}, int8[2] z = {0,0}", "<axis=0>", 17, "has 2 values, but `x_scale` has 4"),
        ("float[4] s = {1,1,1,1}, uint8[4] z = {0,0,0,0}", "<axis=0>", 17, "has type uint8, but `x` has type int8"),
        ("float[4] s = {0,0,0,0}, int8[4] z = {0,0,0,0}", "<axis=0>", 17, "contains only zeros"),
        ("float[4] s = {1,1,1,1}, int8[4] z = {0,0,0,0}", "", 10, "in opset 10, it can have only 1"),
        ("float[3, 4] s = {1,1,1,1,1,1,1,1,1,1,1,1}", "<axis=0, block_size=2>", 21, "it must be [2, 4]"),
        ("float[4] s = {1,1,1,1}", "<axis=0, block_size=2>", 21, "but `x` has 2 axes"),
    ],
)
def test_scales_of_weights_that_do_not_fit(tmp_path: Path, weights: str, axis: str, opset: int, message: str) -> None:
    """Wrong counts, axes, types and blocks are reported as one fault each."""
    body = WEIGHT.replace("{weights}", weights.replace("{", "{{").replace("}", "}}")).replace("{axis}", axis)
    what = describe_faults(tmp_path, body if " z = " in weights else body.replace("(w, s, z)", "(w, s)"), opset)

    assert len(what) == 1
    assert message in what[0]


def test_operators_of_their_own(tmp_path: Path) -> None:
    """Scales of contributed operators are found at their own positions, and transposed weights have another axis."""
    head = (
        "<uint8[N, 4] a = {{1,2,3,4}}, float s = {{1}}, uint8 z = {{0}}, int8[3, 4] b = {{1,1,1,1,1,1,1,1,1,1,1,1}}, "
    )
    scales = "float[{n}] t = {{{ones}}}, int8[{n}] u = {{{zeros}}}> "
    call = "{{ y = com.microsoft.QGemm <transB={turned}> (a, s, z, b, t, u) }}"
    body = head.replace("[N, 4]", "[1, 4]") + scales + call

    assert describe_faults(tmp_path, body, n="3", ones="1,1,1", zeros="0,0,0", turned="1") == []
    assert describe_faults(tmp_path, body, n="4", ones="1,1,1,1", zeros="0,0,0,0", turned="0") == []
    assert "has size 4" in describe_faults(tmp_path, body, n="3", ones="1,1,1", zeros="0,0,0", turned="0")[0]


@pytest.mark.parametrize(("count", "expected"), [(4, []), (3, ["its `s` has"])])
def test_blocks_of_a_few_bits(tmp_path: Path, count: int, expected: list[str]) -> None:
    """One scale per column and block is required; single scales may be 0 or negative."""
    ones = ",".join(["0", "-1", "1", "1"][:count])
    body = (
        f"<uint8[4, 1, 8] w = {{{{{','.join(['1'] * 32)}}}}}, float[{count}] s = {{{{{ones}}}}}> "
        "{{ y = com.microsoft.MatMulNBits <K=16, N=4, bits=4, block_size=16> (x, w, s) }}"
    )

    assert len(describe_faults(tmp_path, body)) == len(expected)


def test_float_models_have_no_faults(tmp_path: Path) -> None:
    """A float model has no quantization faults."""
    assert describe_faults(tmp_path, "{{ y = Relu(x) }}") == []


def test_steps_of_outputs(tmp_path: Path) -> None:
    """The scale of the last DequantizeLinear is used, even if Relu follows it."""
    text = Q.format(opset=17) + (
        "<float s = {0.25}, uint8 z = {3}> { q = QuantizeLinear(x, s, z) f = DequantizeLinear(q, s, z) y = Relu(f) }"
    )
    model = onnx.parser.parse_model(text)
    plain = onnx.parser.parse_model(Q.format(opset=17) + "{ y = Relu(x) }")

    assert find_output_steps(ModelView(model), tmp_path / "m.onnx") == {"y": 0.25}
    assert find_output_steps(ModelView(plain), tmp_path / "m.onnx") == {}
