"""Scales that contradict each other, and scales that only look like it."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

from onnxgate.model.quantization_consistency import find_inconsistencies
from onnxgate.model.reading.view import ModelView

HEAD = (
    '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> g (float[2, 2, 1, 1] x) => (float[a, b, c, d] y)\n'
)
CONVOLUTION = (
    "<float s = {{0.02}}, uint8 z = {{128}}, float t = {{{read}}}, int8[2, 2, 1, 1] w = {{1, 2, {third}, 4}}, "
    "float[2] k = {{0.5, {scale}}}, int8[2] p = {{0, {point}}}, float o = {{0.05}}> "
    "{{ q = QuantizeLinear(x, s, z) m = MaxPool<kernel_shape = [1, 1]>(q) "
    "[conv] r = QLinearConv(m, t, z, w, k, p, o, z) y = DequantizeLinear(r, o, z) }}"
)


def describe(tmp_path: Path, text: str) -> list[str]:
    """Return the descriptions of the inconsistencies."""
    path = tmp_path / "m.onnx"
    model = onnx.parser.parse_model(HEAD + text)
    path.write_bytes(model.SerializeToString())
    return [fault.what for fault in find_inconsistencies(ModelView(model), path)]


def convolution(*, read: float = 0.02, third: int = 3, scale: float = 0.5, point: int = 0) -> str:
    """Return a quantized convolution with two output channels."""
    return CONVOLUTION.format(read=read, third=third, scale=scale, point=point)


def test_consistent_scales_pass(tmp_path: Path) -> None:
    """A value is read with the scale that it was quantized with, also after nodes that keep its scale."""
    assert describe(tmp_path, convolution()) == []


def test_value_is_read_with_the_scale_it_was_quantized_with(tmp_path: Path) -> None:
    """A scale that is 5 % off is found at the node that reads the value."""
    assert describe(tmp_path, convolution(read=0.021)) == ["its `t` is 0.021, but its input was quantized with 0.02"]


@pytest.mark.parametrize(("third", "point", "faults"), [(4, 4, 0), (4, 0, 1), (0, 4, 1)])
def test_scale_of_zero_needs_a_channel_of_zeros(tmp_path: Path, third: int, point: int, faults: int) -> None:
    """A channel may have the scale 0 if all its values are 0, that is, equal to its zero point."""
    found = describe(tmp_path, convolution(third=third, scale=0.0, point=point))

    assert ["its `k` is 0 for channel 1, whose values are not 0"] * faults == found


def test_scales_after_a_computation_are_independent(tmp_path: Path) -> None:
    """The scales before and after a node that computes new values are not compared."""
    text = (
        "<float s = {0.02}, float t = {0.05}, uint8 z = {128}> { q = QuantizeLinear(x, s, z) "
        "a = DequantizeLinear(q, s, z) b = Mul(a, a) c = QuantizeLinear(b, t, z) y = DequantizeLinear(c, t, z) }"
    )

    assert describe(tmp_path, text) == []


@pytest.mark.parametrize(
    ("factors", "scale", "faults"),
    [("alpha = 1.0", 0.002, 0), ("alpha = 0.5", 0.001, 0), ("alpha = 0.5", 0.002, 1), ("beta = 2.0", 0.001, 0)],
)
def test_scale_of_a_bias_includes_alpha(tmp_path: Path, factors: str, scale: float, faults: int) -> None:
    """The scale of a fused bias includes `alpha`. Runtimes do not fuse `Gemm` if `beta` is not 1."""
    text = (
        f"<float s = {{0.02}}, uint8 z = {{128}}, int8[1, 2] w = {{1, 2}}, float t = {{0.1}}, int32[2] b = {{5, 6}}, "
        f"float u = {{{scale}}}> {{ f = Flatten<axis = 3>(x) q = QuantizeLinear(f, s, z) d = DequantizeLinear(q, s, z) "
        f"e = DequantizeLinear(w, t) c = DequantizeLinear(b, u) y = Gemm<{factors}>(d, e, c) }}"
    )

    what = "its `x_scale` is not the product of `alpha` and the scales of input and weight of the `Gemm` node, "
    assert describe(tmp_path, text) == [f"{what}which runtimes use if they fuse these nodes"] * faults


BIASED_CONVOLUTION = (
    "<float s = {{0.02}}, uint8 z = {{128}}, int8[2, 2, 1, 1] w = {{1, 2, 3, 4}}, float[2] k = {{0.5, 0.25}}, "
    "int32[2] b = {{{values}}}, float[2] u = {{0.04, 0.02}}, float t = {{0.05}}, uint8 o = {{{point}}}, "
    "int64[4] n = {{1, 2, 1, 4}}> "
    "{{ q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) e = DequantizeLinear<axis = 0>(w, k) "
    "f = DequantizeLinear<axis = 0>(b, u) c = {operator}(d, e, f) {rest} }}"
)
QUANTIZED = "p = QuantizeLinear({}, t, o) y = DequantizeLinear(p, t, o)"


@pytest.mark.parametrize(
    ("values", "faults"),
    [("5, 6", 1), ("0, 6", 1), ("0, 0", 0)],
    ids=["numbers", "one zero", "zeros"],
)
def test_scale_of_zeros_has_no_effect(tmp_path: Path, values: str, faults: int) -> None:
    """A bias of zeros is the same with each scale, also if only one node uses it."""
    text = BIASED_CONVOLUTION.format(values=values, point=0, operator="Conv", rest=QUANTIZED.format("c"))

    assert faults == len(describe(tmp_path, text))


@pytest.mark.parametrize(
    ("rest", "point", "is_fused"),
    [
        (QUANTIZED.format("c"), 0, True),
        ("r = Relu(c) " + QUANTIZED.format("r"), 0, True),
        ("r = Relu(c) " + QUANTIZED.format("r"), 128, False),
        (
            "r = Reshape(c, n) r2 = Transpose(r) r3 = MaxPool<kernel_shape = [1, 1]>(r2) " + QUANTIZED.format("r3"),
            0,
            True,
        ),
        ("r = Sigmoid(c) " + QUANTIZED.format("r"), 0, False),
        ("r = Flatten(c) " + QUANTIZED.format("r"), 0, False),
        ("y = Relu(c)", 0, False),
        (QUANTIZED.format("c") + " v = Neg(c)", 0, False),
    ],
    ids=["quantized", "relu", "relu within the range", "moved", "sigmoid", "flatten", "float", "two users"],
)
def test_scale_of_a_bias_matters_if_runtimes_fuse_the_convolution(
    tmp_path: Path, rest: str, point: int, is_fused: bool
) -> None:
    """A `Conv` whose output is not quantized computes with the stored scale of its bias."""
    text = BIASED_CONVOLUTION.format(values="5, 6", point=point, operator="Conv", rest=rest)

    assert is_fused == bool(describe(tmp_path, text))


def test_transposed_convolutions_are_not_fused(tmp_path: Path) -> None:
    """Runtimes do not fuse `ConvTranspose`, so it computes with the stored scale of its bias."""
    text = BIASED_CONVOLUTION.format(values="5, 6", point=0, operator="ConvTranspose", rest=QUANTIZED.format("c"))

    assert describe(tmp_path, text) == []


@pytest.mark.parametrize(
    ("rest", "is_fused"),
    [
        ("y = Relu(c)", True),
        (QUANTIZED.format("c"), True),
        (QUANTIZED.format("c") + " v = Neg(c)", False),
        ("y = Relu(c) v = Neg(c)", True),
    ],
    ids=["float", "quantized", "both", "two users"],
)
def test_products_with_float_outputs_are_fused(tmp_path: Path, rest: str, is_fused: bool) -> None:
    """A `Gemm` is fused except if its output is used as a float and also quantized."""
    text = (
        "<float s = {0.02}, uint8 z = {128}, int8[1, 2] w = {1, 2}, float t = {0.1}, uint8 o = {0}, "
        "int32[2] b = {5, 6}, float u = {0.008}> { f = Flatten<axis = 3>(x) q = QuantizeLinear(f, s, z) "
        f"d = DequantizeLinear(q, s, z) e = DequantizeLinear(w, t) g = DequantizeLinear(b, u) c = Gemm(d, e, g) {rest} "
        "}"
    )

    assert is_fused == bool(describe(tmp_path, text))
