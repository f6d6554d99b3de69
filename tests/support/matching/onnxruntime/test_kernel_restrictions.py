"""Restrictions of kernels; each case was observed on wheels of ONNX Runtime."""

from __future__ import annotations

import math
import time

import onnx
import onnx.helper
import onnx.parser
import pytest

from onnxgate.model.reading.view import ModelView
from onnxgate.support.limits import get_limits
from onnxgate.support.matching.kernels import predict
from onnxgate.support.matching.onnxruntime.attribute_conditions import find_repeated_ngram
from onnxgate.support.matching.onnxruntime.kernel_restrictions import find_restriction
from onnxgate.support.matching.type_inference import infer_model_types
from onnxgate.support.operators import get_implementation
from tests.support.matching.test_kernels import prediction


def verdict(opset: int, body: str, release: str) -> str:
    """Return the predicted verdict for a graph of one opset."""
    return prediction(f'<ir_version: 8, opset_import: ["" : {opset}]> g {body}', release).verdict


def predict_model(model: onnx.ModelProto, release: str) -> str:
    """Return the predicted verdict for a model."""
    known = get_limits(release)
    assert known is not None
    return predict(infer_model_types(ModelView(model)), get_implementation(release), known).verdict


def attributes(operator: str, values: str) -> str:
    """Return a graph with one node that has these attributes."""
    inputs, arguments = {
        "Conv": ("float[1, 1, 4, 4] x, float[1, 1, 1, 1] w", "x, w"),
        "GRU": ("float[1, 1, 1] x, float[1, 3, 1] w, float[1, 3, 1] r", "x, w, r"),
        "RNN": ("float[1, 1, 1] x, float[1, 1, 1] w, float[1, 1, 1] r", "x, w, r"),
        "GridSample": ("float[1, 1, 4, 4] x, float[1, 2, 2, 2] g", "x, g"),
        "Pad": ("float[3] x, int64[2] p", "x, p"),
        "QuantizeLinear": ("float x, float s", "x, s"),
        "Resize": ("float[1, 1, 4, 4] x, float[0] r, float[4] s", "x, r, s"),
        "RoiAlign": ("float[1, 1, 4, 4] x, float[1, 4] r, int64[1] i", "x, r, i"),
    }.get(operator, ("float[1, 1, 4, 4] x", "x"))
    returned = "uint8 y" if operator == "QuantizeLinear" else "float y"
    return f"({inputs}) => ({returned}) {{ y = {operator} <{values}> ({arguments}) }}"


@pytest.mark.parametrize(
    ("opset", "operator", "values", "release", "expected"),
    [
        (13, "Conv", 'auto_pad = "WRONG"', "1.16.3", "refused"),
        (13, "Conv", 'auto_pad = ""', "1.16.3", "loads"),
        (13, "Pad", 'mode = "WRONG"', "1.31.1", "refused"),
        (13, "Pad", 'mode = "edge"', "1.31.1", "loads"),
        (13, "Resize", 'mode = "WRONG"', "1.31.1", "refused"),
        (13, "Resize", 'nearest_mode = "WRONG"', "1.31.1", "refused"),
        (13, "Resize", 'nearest_mode = "WRONG", mode = "linear"', "1.31.1", "loads"),
        (13, "Resize", "exclude_outside = 1", "1.31.1", "refused"),
        (13, "Resize", 'exclude_outside = 1, mode = "cubic"', "1.31.1", "loads"),
        (16, "GridSample", 'mode = "linear"', "1.18.1", "refused"),
        (20, "GridSample", 'mode = "linear"', "1.18.1", "loads"),
        (13, "MaxPool", "kernel_shape = [2, 2], storage_order = 2", "1.28.0", "loads"),
        (13, "MaxPool", "kernel_shape = [2, 2], storage_order = 2", "1.29.0", "refused"),
        (13, "MaxPool", "kernel_shape = [2, 2], pads = [0, 0, 2, 0]", "1.31.1", "refused"),
        (13, "MaxPool", "kernel_shape = [2, 2], pads = [0, 0, 2, 0]", "1.16.3", "refused"),
        (13, "MaxPool", "kernel_shape = [2, 2], strides = [1]", "1.16.3", "refused"),
        (13, "MaxPool", "kernel_shape = [2, 2], dilations = [1, 1, 1]", "1.16.3", "refused"),
        (13, "LpPool", "kernel_shape = [2, 2], strides = [1, 1]", "1.16.3", "loads"),
        (13, "AveragePool", "kernel_shape = [2, 2], pads = [1, 1]", "1.28.0", "unknown"),
        (13, "AveragePool", "kernel_shape = [2, 2], pads = [1, 1]", "1.29.0", "refused"),
        (13, "AveragePool", "kernel_shape = [2, 2], pads = [1, 1, 1, 1, 1]", "1.28.0", "loads"),
        (13, "AveragePool", "kernel_shape = [2, 2], pads = [1, 1, 1, 1, 1]", "1.29.0", "refused"),
        (13, "AveragePool", "kernel_shape = [2, 0]", "1.16.3", "refused"),
        (13, "AveragePool", "kernel_shape = [2, 2], strides = [0, 1]", "1.25.1", "loads"),
        (13, "AveragePool", "kernel_shape = [2, 2], strides = [0, 1]", "1.26.0", "refused"),
        (13, "LpPool", "kernel_shape = [2, 2], pads = [1, 1, 1, 1]", "1.16.3", "loads"),
        (13, "LRN", "size = 2", "1.31.1", "refused"),
        (13, "LRN", "size = 3, beta = nan", "1.31.1", "refused"),
        (13, "LRN", "size = 3", "1.31.1", "loads"),
        (13, "LRN", "size = 3, alpha = 0.0", "1.31.1", "refused"),
        (13, "Transpose", "perm = [0, 1, 2, 2]", "1.31.1", "refused"),
        (14, "GRU", "hidden_size = 0", "1.31.1", "refused"),
        (14, "RNN", "hidden_size = -1", "1.31.1", "loads"),
        (14, "RNN", 'hidden_size = 1, activations = ["relu"]', "1.31.1", "refused"),
        (14, "GRU", 'hidden_size = 1, activations = ["relu", "tanh"]', "1.31.1", "loads"),
        (14, "GRU", 'hidden_size = 1, activations = ["relu"]', "1.31.1", "refused"),
        (14, "GRU", "hidden_size = 1, layout = 2", "1.31.1", "refused"),
        (14, "GRU", "hidden_size = 1, clip = 0.0", "1.31.1", "refused"),
        (14, "GRU", "hidden_size = 1, clip = nan", "1.31.1", "refused"),
        (13, "MaxPool", "kernel_shape = [2, 2], pads = [0, 0, 2, 0, 0]", "1.16.3", "refused"),
        (2, "Split", "split = [-1]", "1.16.3", "refused"),
        (2, "Split", "split = [1]", "1.16.3", "loads"),
        (4, "Reshape", "consumed_inputs = [0]", "1.31.1", "refused"),
        (4, "Reshape", "shape = [16]", "1.31.1", "loads"),
        (18, "Resize", 'keep_aspect_ratio_policy = "WRONG"', "1.16.3", "refused"),
        (18, "Resize", 'keep_aspect_ratio_policy = "not_larger"', "1.16.3", "loads"),
        (16, "RoiAlign", "sampling_ratio = -1", "1.31.1", "refused"),
        (25, "QuantizeLinear", "precision = 5", "1.31.1", "loads"),
        (25, "QuantizeLinear", "precision = 5", "1.32.0", "refused"),
    ],
)
def test_kernels_reject_attribute_values(opset: int, operator: str, values: str, release: str, expected: str) -> None:
    """Kernels reject values that schemas allow; some only since a release."""
    assert expected == verdict(opset, attributes(operator, values), release)


@pytest.mark.parametrize(
    ("mode", "scales", "release", "expected"),
    [
        ("linear", "2.0, 1.0, 2.0, 2.0", "1.31.1", "refused"),
        ("linear", "1.0, 2.0, 2.0, 1.0", "1.16.3", "loads"),
        ("cubic", "1.0, 2.0, 2.0, 1.0", "1.21.1", "refused"),
        ("cubic", "1.0, 2.0, 2.0, 1.0", "1.22.0", "loads"),
        ("cubic", "1.0, 0.5, 0.5, 1.0", "1.31.1", "refused"),
        ("nearest", "2.0, 2.0, 2.0, 2.0", "1.31.1", "loads"),
        ("nearest", "1.0, 1.0, 0.0, 2.0", "1.31.1", "refused"),
    ],
)
def test_scales_must_suit_the_mode(mode: str, scales: str, release: str, expected: str) -> None:
    """Linear and cubic resizing is implemented for some axes only."""
    weights = f"<float[0] r = {{}}, float[4] s = {{{scales}}}>"
    body = f'(float[1, 4, 4, 4] x) => (float y) {weights} {{ y = Resize <mode = "{mode}"> (x, r, s) }}'

    assert expected == verdict(13, body, release)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("t = Transpose <perm = [1, 0]> (b) y = MatMul (a, t)", "refused"),
        ("t = Transpose <perm = [1, 0]> (b) u = Identity (t) y = MatMul (a, u)", "refused"),
        ("t = Transpose <perm = [0, 1]> (b) y = MatMul (a, t)", "refused"),
        ("t = Transpose <perm = [1, 0]> (b) u = Abs (t) y = MatMul (a, u)", "loads"),
        ("t = MatMul (a, b) y = Transpose <perm = [1, 0]> (t)", "loads"),
        ("c = Constant <value = double[2, 2] {1, 2, 3, 4}> () t = Transpose (c) y = MatMul (a, t)", "loads"),
    ],
)
def test_double_products_with_transposed_inputs(nodes: str, expected: str) -> None:
    """Releases up to 1.25 fuse MatMul of doubles with a Transpose before it, and have no kernel for the result."""
    body = f"(double[2, 2] a, double[2, 2] b) => (double y) {{ {nodes} }}"

    assert [expected, "loads"] == [verdict(17, body, release) for release in ("1.25.1", "1.26.0")]


_FLOAT8 = (
    "float8e4m3fn[4, 4] a, float8e4m3fn[4, 4] b, float s, float8e4m3fn z, float[4] v, float8e4m3fn[4] w, float[4] k"
)
_READ = "c = DequantizeLinear (a, s, z) d = DequantizeLinear (b, s, z) "


@pytest.mark.parametrize(
    ("nodes", "returns", "expected"),
    [
        (_READ + "y = Gemm (c, d)", "float y", "refused"),
        (_READ + "t = MatMul (c, d) y = Relu (t)", "float y", "refused"),
        (_READ + "t = MatMul (c, d) y = Add (t, k)", "float y", "loads"),  # it is fused with Add before
        (_READ + "t = MatMul (c, d) u = Relu (t) y = QuantizeLinear (u, s, z)", "float8e4m3fn y", "loads"),
        (_READ + "y = Gemm (c, d, k)", "float y", "loads"),
        (_READ + "y = Add (c, d)", "float y", "loads"),
        (_READ + "t = Add (c, d) y = QuantizeLinear (t, s, z)", "float8e4m3fn y", "refused"),
        (_READ + "t = Add (c, d) y = QuantizeLinear (t, s, z)", "float8e4m3fn y, float t", "loads"),
        (_READ + "t = Concat <axis = 0> (c, d, c) y = QuantizeLinear (t, s, z)", "float8e4m3fn y", "refused"),
        (_READ + "t = Sigmoid (c) y = QuantizeLinear (t, s, z)", "float8e4m3fn y", "refused"),
        (_READ + "t = Tanh (c) y = QuantizeLinear (t, s, z)", "float8e4m3fn y", "loads"),
        (_READ + "e = DequantizeLinear <axis = 1> (b, v, w) y = Gemm (c, e)", "float y", "refused"),
        (_READ + "e = DequantizeLinear <axis = 1> (a, v, w) y = Gemm (e, d)", "float y", "loads"),
    ],
)
def test_fused_products_of_float8_values(nodes: str, returns: str, expected: str) -> None:
    """Releases up to 1.31 fuse nodes of dequantized values into quantized operators that do not accept float8."""
    body = f"({_FLOAT8}) => ({returns}) {{ {nodes} }}"

    assert [expected, "loads"] == [verdict(19, body, release) for release in ("1.31.0", "1.32.0")]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("d = DequantizeLinear (f, h, i) t = Sigmoid (d) y = QuantizeLinear (t, h, i)", "loads"),
        ("d = DequantizeLinear (a, h, i) t = Sigmoid (d) y = QuantizeLinear (t, h, i)", "refused"),
        ("d = DequantizeLinear (a, h, i) t = Tanh (d) y = QuantizeLinear (t, h, i)", "loads"),
        (
            "d = DequantizeLinear (a, h, i) e = DequantizeLinear (a, h, i) m = Mul (d, e) y = QuantizeLinear (m, h, i)",
            "refused",
        ),
    ],
)
def test_constant_and_equal_nodes_of_float8_values(nodes: str, expected: str) -> None:
    """Nodes of constants are computed, and equal nodes are merged, before nodes of dequantized values are fused."""
    body = f"""(float8e4m3fn[2] a) => (float8e4m3fn[2] y)
        <float8e4m3fn[2] f = {{48, 49}}, float h = {{0.5}}, float8e4m3fn i = {{0}}> {{ {nodes} }}"""

    assert [expected, "loads"] == [verdict(19, body, release) for release in ("1.31.1", "1.32.0")]


def test_only_the_cpu_provider_fuses_float8_values() -> None:
    """With another provider, the nodes may run as they are."""
    text = f'<ir_version: 8, opset_import: ["" : 19]> g ({_FLOAT8}) => (float y) {{ {_READ} y = Gemm (c, d) }}'
    verdicts = [prediction(text, "1.31.1", providers).verdict for providers in ((), ("CUDAExecutionProvider",))]

    assert verdicts == ["refused", "loads"]


@pytest.mark.parametrize(
    ("grid", "expected"), [("float[1, 2, 2, 2, 3]", "refused"), ("float[1, 2, 2, 2]", "loads"), ("float[]", "loads")]
)
def test_old_releases_sample_images_only(grid: str, expected: str) -> None:
    """ONNX Runtime 1.16 accepts only grids of 4 axes, also in opsets whose definition allows more."""
    body = f"(float[] x, {grid} g) => (float[] y) {{ y = GridSample (x, g) }}"

    assert [expected, "loads"] == [verdict(16, body, release) for release in ("1.16.3", "1.17.0")]


@pytest.mark.parametrize(("number", "expected"), [(1, "loads"), (2**32 + 1, "refused")])
def test_type_of_an_empty_sequence(number: int, expected: str) -> None:
    """Older releases compare the type without reducing it to 32 bits."""
    body = f"() => (int64 y) {{ s = SequenceEmpty <dtype = {number}> () y = SequenceLength (s) }}"

    assert [expected, "loads"] == [verdict(17, body, release) for release in ("1.26.0", "1.27.0")]


def test_the_first_attribute_is_the_value_of_a_constant() -> None:
    """ONNX Runtime reads the first attribute of Constant by its type and ignores names and other attributes."""
    usable = "(float[1] x) => (float[1] y) { c = Constant <value_ints = 1.0, unknown = 1> () y = Add (x, c) }"
    other = "(float[1] x) => (float[1] y) { c = Constant <value_float = 1> () y = Add (x, c) }"
    empty = "(float[1] x) => (float[1] y) { c = Constant () y = Add (x, c) }"

    assert ["loads", "refused", "refused"] == [verdict(17, body, "1.31.1") for body in (usable, other, empty)]


@pytest.mark.parametrize(
    ("opset", "operator", "release", "expected"),
    [
        (13, "Cast <to = 17>", "1.16.0", "loads"),  # float8e4m3fn, new in Cast(19)
        (13, "Cast <to = 22>", "1.22.1", "refused"),  # int4, new in Cast(21)
        (13, "Cast <to = 22>", "1.23.2", "loads"),
        (13, "Cast <to = 23>", "1.31.1", "refused"),  # float4e2m1: no kernel
        (15, "Bernoulli <dtype = 17>", "1.16.0", "loads"),
        (13, "EyeLike <dtype = 17>", "1.31.1", "refused"),
    ],
)
def test_only_kernels_limit_types_that_attributes_set(opset: int, operator: str, release: str, expected: str) -> None:
    """ONNX Runtime does not check whether the schema allows the output type that an attribute sets."""
    assert expected == verdict(opset, f"(float[2, 2] x) => (y) {{ y = {operator} (x) }}", release)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("(uint4[2] x) => (float y) { a = Identity (x) y = Cast <to = 1> (a) }", "loads"),
        ("(uint4[2] x) => (float y) { a = Identity (x) b = Identity (a) y = Cast <to = 1> (b) }", "loads"),
        ("(float[2] x) => (uint4 y) { a = Cast <to = 21> (x) y = Identity (a) }", "loads"),
        ("(uint4[2] x) => (uint4 y) { y = Identity (x) }", "refused"),
        ("(uint4[2] x) => (uint4 a, float y) { a = Identity (x) y = Cast <to = 1> (a) }", "refused"),
        (
            "(uint4[2] x, bool c) => (float y) { a = Identity (x) y = If (c) <then_branch = t () => (float b) "
            "{ b = Cast <to = 1> (a) }, else_branch = e () => (float d) { d = Cast <to = 1> (x) }> }",
            "refused",
        ),
        ("(float8e8m0[2] x) => (float y) { a = Identity (x) y = Cast <to = 1> (a) }", "refused"),
    ],
)
def test_identity_without_a_kernel_is_refused_if_it_stays(body: str, expected: str) -> None:
    """ONNX Runtime removes most Identity nodes before it selects kernels, of which none is for 4-bit integers."""
    assert expected == verdict(25 if "e8m0" in body else 23, body, "1.24.1")


@pytest.mark.parametrize(
    ("opset", "nodes", "expected"),
    [
        (13, "a = Dropout (x) y = Cast <to = 1> (a)", ["loads", "loads"]),
        (22, "a = Dropout (x) y = Cast <to = 1> (a)", ["refused", "loads"]),
        (13, "a, m = Dropout (x) y = Cast <to = 1> (a)", ["loads", "loads"]),
        (13, "a, m = Dropout (x) b = Cast <to = 1> (a) c = Cast <to = 1> (m) y = Add (b, c)", ["refused", "refused"]),
        (13, "r = Constant <value_float = 0.5> () a = Dropout (x, r) y = Cast <to = 1> (a)", ["refused", "refused"]),
        (13, "b = Cast <to = 16> (x) y = Dropout (b)", ["refused", "refused"]),
    ],
)
def test_dropout_of_bfloat16_is_refused_if_it_stays(opset: int, nodes: str, expected: list[str]) -> None:
    """ONNX Runtime removes Dropout without a ratio or mask before it selects kernels, of which none is for bfloat16."""
    body = f"(bfloat16[2] x) => (y) {{ {nodes} }}"

    assert expected == [verdict(opset, body, release) for release in ("1.24.4", "1.25.0")]


@pytest.mark.parametrize(
    ("opset", "scores", "labels", "expected"),
    [
        (13, "3, 5, 2", "[3, 2]", ["loads", "loads", "loads"]),
        (13, "3, 5, 2", "[N, 2]", ["loads", "loads", "loads"]),
        (13, "3, 5", "[3, 5]", ["loads", "loads", "refused"]),
        (14, "3, 5", "[3, 5]", ["loads", "refused", "refused"]),
        (14, "3, 5, 2", "[3, 4]", ["loads", "loads", "refused"]),
        (14, "N, 5, 2", "[3, 4]", ["loads", "loads", "loads"]),
        (13, "N, 5", "[3, 5]", ["loads", "loads", "loads"]),
        (14, "N, 5", "[3, 5]", ["loads", "refused", "refused"]),
        (13, "3, 5", "", ["refused", "refused", "refused"]),
        (13, "3", "[3]", ["refused", "refused", "refused"]),
        (13, "", "[3]", ["refused", "refused", "refused"]),
        (14, "3, 5, 2", "[0, 2]", ["loads", "loads", "refused"]),
    ],
)
def test_labels_of_a_loss(opset: int, scores: str, labels: str, expected: list[str]) -> None:
    """Older releases accept labels of a wrong rank or size, unless they are a scalar."""
    inputs = f"float{f'[{scores}]' if scores else ''} x, int64{labels} l"
    body = f"({inputs}) => (float y) {{ y = SoftmaxCrossEntropyLoss (x, l) }}"

    assert expected == [verdict(opset, body, release) for release in ("1.16.3", "1.23.2", "1.24.1")]


@pytest.mark.parametrize(
    ("scores", "weights", "expected"),
    [
        ("3, 5", "[5]", ["loads", "loads"]),
        ("3, 5", "[5, 1]", ["loads", "refused"]),
        ("3, 5", "[5, 3]", ["loads", "refused"]),
        ("3, 5", "[3, 5]", ["refused", "refused"]),
        ("3, 5", "", ["refused", "refused"]),
        ("N, 5", "[5, 3]", ["loads", "loads"]),
        ("3, C", "[5, 1]", ["loads", "loads"]),
        ("3, C", "[3, 5]", ["refused", "refused"]),
    ],
)
def test_weights_of_a_loss(scores: str, weights: str, expected: list[str]) -> None:
    """Newer releases refuse weights that are not a vector, and all refuse those that cannot be multiplied."""
    labels = scores.partition(",")[0]
    inputs = f"(float[{scores}] x, int64[{labels}] l, float{weights} w)"
    body = f"{inputs} => (float y) {{ y = SoftmaxCrossEntropyLoss (x, l, w) }}"

    assert expected == [verdict(13, body, release) for release in ("1.23.2", "1.24.1")]


@pytest.mark.parametrize(("shape", "expected"), [("", "refused"), ("[4]", "refused"), ("[N, 4]", "loads")])
def test_rank_of_a_group_normalization(shape: str, expected: str) -> None:
    """GroupNormalization needs a batch and channels."""
    body = f"(float{shape} x, float[4] s) => (float y) {{ y = GroupNormalization <num_groups = 2> (x, s, s) }}"

    assert expected == verdict(21, body, "1.18.1")


@pytest.mark.parametrize(
    ("inputs", "constants", "options", "expected"),
    [
        ("", "float[4] c = {1, 1, 1, 1}, int64[2] s = {3, 7}", "", "refused"),
        ("", "float[4] c = {1, 1, 1, 1}, int64[2] s = {2, 2}", "", "loads"),
        ("", "float[4] c = {1, 1, 1, 1}, int64[2] s = {0, 2}", "", "refused"),
        ("", "float[4] c = {1, 1, 1, 1}, int64[2] s = {0, 1}", "", "loads"),
        ("", "float[4] c = {1, 1, 1, 1}, int64[2] s = {0, 4}", "<allowzero = 1>", "refused"),
        (", int64[2] s", "float[4] c = {1, 1, 1, 1}, int64[2] s = {3, 7}", "", "loads"),
        (", float[4] c", "int64[2] s = {3, 7}", "", "loads"),
    ],
)
def test_shape_of_a_constant(inputs: str, constants: str, options: str, expected: str) -> None:
    """A constant is reshaped when the model is loaded, or fails later, unless users may pass another value."""
    body = f"(float[1] x{inputs}) => (float y) <{constants}> {{ y = Reshape {options} (c, s) }}"
    later = "unknown" if expected == "refused" else "loads"

    assert (expected, later) == (verdict(17, body, "1.26.0"), verdict(17, body, "1.27.0"))


@pytest.mark.parametrize(
    ("channels", "scale", "bias", "expected"),
    [
        ("4", "[4]", "[4]", ["loads", "loads"]),
        ("4", "[2]", "[2]", ["unknown", "refused"]),
        ("4", "[8]", "[8]", ["unknown", "refused"]),
        ("4", "[1]", "[4]", ["loads", "loads"]),
        ("4", "[N]", "[N]", ["loads", "loads"]),
        ("1", "[4]", "[4]", ["loads", "loads"]),
        ("C", "[2]", "[2]", ["loads", "loads"]),
        ("-2", "[4]", "[4]", ["loads", "loads"]),
        ("C", "[2]", "[4]", ["refused", "refused"]),
    ],
)
def test_scale_of_a_group_normalization(channels: str, scale: str, bias: str, expected: list[str]) -> None:
    """The scale and the bias have a value for each channel since opset 21."""
    inputs = f"float[1, {channels}, 6] x, float{scale} s, float{bias} b"
    body = f"({inputs}) => (float y) {{ y = GroupNormalization <num_groups = 2> (x, s, b) }}"

    assert expected == [verdict(21, body, release) for release in ("1.23.2", "1.24.1")]


@pytest.mark.parametrize(
    ("size", "expected"),
    [("2", "must have a value per channel"), ("3", "must have the same size")],
)
def test_message_about_a_scale(size: str, expected: str) -> None:
    """The message is a sentence about the scale and the bias."""
    inputs = f"float[1, 4, 6] x, float[{size}] s, float[2] b"
    model = f'<ir_version: 8, opset_import: ["" : 21]> g ({inputs}) => (float y)'
    body = "{ y = GroupNormalization <num_groups = 2> (x, s, b) }"
    found = prediction(f"{model} {body}", "1.31.1").found

    assert [f"`GroupNormalization(21)`: scale and bias {expected}"] == [it.miss and it.miss.problem for it in found]


@pytest.mark.parametrize(
    ("size", "expected"), [("0", "refused"), ("2, 3", "refused"), ("2, 2", "loads"), ("1", "loads")]
)
def test_elements_of_a_scale(size: str, expected: str) -> None:
    """All elements count, whatever the number of axes; one element is used for all channels."""
    inputs = f"float[1, 4, 6] x, float[{size}] s, float[4] b"

    assert expected == verdict(
        21, f"({inputs}) => (float y) {{ y = GroupNormalization <num_groups = 2> (x, s, b) }}", "1.18.1"
    )


@pytest.mark.parametrize(
    ("inputs", "call", "expected"),
    [
        ("", '<axes = [-2, -1]> (x, "", s)', ["refused", "loads"]),
        ("", '<axes = [2, -1], mode = "linear"> (x, "", s)', ["refused", "loads"]),
        ("", '<axes = [2, 3]> (x, "", s)', ["loads", "loads"]),
        ("", '<axes = [-2, -1]> (x, "", "", n)', ["loads", "loads"]),
        (", float[2] s", '<axes = [-2, -1]> (x, "", s)', ["loads", "loads"]),
    ],
)
def test_negative_axes_of_resize(inputs: str, call: str, expected: list[str]) -> None:
    """Releases up to 1.26.0 apply constant scales to negative axes before they add the rank."""
    weights = "<float[2] s = {2, 2}, int64[2] n = {8, 8}>"
    body = f"(float[1, 1, 4, 4] x{inputs}) => (float y) {weights} {{ y = Resize {call} }}"

    assert expected == [verdict(18, body, release) for release in ("1.26.0", "1.27.0")]


@pytest.mark.parametrize("release", ["1.26.0", "1.29.0"])
def test_captured_scales_for_negative_axes(release: str) -> None:
    """Releases that refuse negative axes do not read scales that a branch captures."""
    branches = (
        'then_branch = t () => (float[B, C, H, W] a) { a = Resize <axes = [-2, -1]> (x, "", s) }, '
        "else_branch = e () => (float[B, C, H, W] b) { b = Neg (x) }"
    )
    body = f"(float[1, 1, 4, 4] x, bool c) => (float[] y) <float[2] s = {{2, 2}}> {{ y = If (c) <{branches}> }}"

    assert "loads" == verdict(18, body, release)


@pytest.mark.parametrize(("scales", "expected"), [("1.0, 1.0, 0.5, 0.5", "loads"), ("0.5, 1.0, 0.5, 2.0", "refused")])
def test_scales_with_antialias(scales: str, expected: str) -> None:
    """Antialiasing resizes the same axes."""
    body = f"(float[1, 4, 4, 4] x) => (float y) <float[4] s = {{{scales}}}>"
    node = 'y = Resize <mode = "linear", antialias = 1> (x, "", s)'

    assert [expected] * 2 == [verdict(18, f"{body} {{ {node} }}", release) for release in ("1.16.3", "1.32.0")]


@pytest.mark.parametrize(
    ("inputs", "stop", "expected"),
    [
        ("", "Cast <to = 1> (k)", "refused"),
        ("", "Squeeze (d)", "loads"),
        (", float[1] f", "Neg (f)", "loads"),
    ],
)
def test_computed_bounds_of_a_range(inputs: str, stop: str, expected: str) -> None:
    """Bounds that a release computes from constants must be scalars when it loads the model."""
    body = (
        f"(float x{inputs}) => (float[N] y) {{ k = Constant <value_ints = [3]> () d = Cast <to = 1> (k) "
        f"o = Constant <value_float = 1.0> () e = {stop} y = Range (o, e, o) }}"
    )

    assert [expected] * 2 == [verdict(17, body, release) for release in ("1.16.3", "1.32.0")]


LISTED = "k = Constant <value_ints = [3]> () d = Cast <to = 1> (k)"


@pytest.mark.parametrize(
    ("outside", "inside", "expected"),
    [
        (LISTED, "a = Range (o, d, o)", ["loads", "loads", "refused"]),
        (LISTED, "i = Identity (d) a = Range (o, i, o)", ["loads", "loads", "refused"]),
        (LISTED, "n = Neg (d) a = Range (o, n, o)", ["refused"] * 3),
        ("", f"{LISTED} a = Range (o, d, o)", ["refused"] * 3),
    ],
)
def test_computed_bounds_in_a_branch(outside: str, inside: str, expected: list[str]) -> None:
    """Older releases accept bounds with an axis that are computed outside of the branch."""
    branch = f"then_branch = t () => (float[N] a) {{ {inside} }}"
    other = "else_branch = e () => (float[N] b) { b = Abs (z) }"
    body = f"(bool c, float[N] z) => (float[N] y) <float o = {{1}}> {{ {outside} y = If (c) <{branch}, {other}> }}"

    assert expected == [verdict(17, body, release) for release in ("1.16.3", "1.26.0", "1.27.0")]


def test_computed_bounds_in_a_function() -> None:
    """Releases since 1.17 compute constants of local functions before they check the bounds."""
    function = f"o = Constant <value_float = 1.0> () {LISTED} y = Range (o, d, o)"
    model = (
        '<ir_version: 8, opset_import: ["" : 17, "d" : 1]> g (float x) => (float[N] y) { y = d.F (x) } '
        f'<domain: "d", opset_import: ["" : 17]> F (x) => (y) {{ {function} }}'
    )

    assert ["loads", "refused"] == [prediction(model, release).verdict for release in ("1.16.3", "1.17.0")]


@pytest.mark.parametrize(
    ("constant", "call", "expected"),
    [
        ("float[4] s = {1, 1, 0, 2}", "y = own.f (x, s)", ["refused", "refused"]),
        ("float[4] s = {1, 1, 2, 2}", "y = own.f (x, s)", ["loads", "loads"]),
        ("float[4] s = {1, 1, 0, 2}, float[4] t = {1, 1, 2, 2}", "z = own.f (x, s) y = own.f (x, t)", ["refused"] * 2),
        ("float[4] s = {1, 1, 0, 2}", "y = own.g (x, s)", ["refused", "refused"]),
        ("", "s = Constant <value = float[4] {1, 1, 0, 2}> () y = own.f (x, s)", ["refused", "refused"]),
        (
            "float[4] s = {1, 1, 0, 2}",
            "y = If (c) <then_branch = t () => (a) { a = own.g (x, s) }, else_branch = e () => (b) { b = Neg (x) }>",
            ["loads", "refused"],
        ),
    ],
)
def test_constants_of_callers(constant: str, call: str, expected: list[str]) -> None:
    """Kernels of a local function read the constants that a call passes; old ones not from outside of a branch."""
    head = '<domain: "own", opset_import: ["" : 9, "own" : 1]>'
    model = (
        f'<ir_version: 8, opset_import: ["" : 9, "own" : 1]> m (float[1,1,4,4] x, bool c) => (float[A,B,C,D] y) '
        f"<{constant}> {{ {call} }} {head} f (a, b) => (r) {{ r = Upsample (a, b) }} "
        f"{head} g (a, b) => (r) {{ r = own.f (a, b) }}"
    )

    assert expected == [prediction(model, release).verdict for release in ("1.28.0", "1.29.0")]


@pytest.mark.parametrize(
    ("condition", "expected"), [("[0] c = {}", "refused"), ("[2] c = {1, 0}", "refused"), ("[1] c = {1}", "loads")]
)
def test_constant_conditions(condition: str, expected: str) -> None:
    """Releases since 1.17 read a constant condition, unless users may pass another one."""
    branches = "<then_branch = t () => (float a) { a = Neg (x) }, else_branch = e () => (float b) { b = Abs (x) }>"
    body = f"=> (float y) <bool{condition}> {{ y = If (c) {branches} }}"
    shape = condition.partition(" ")[0]

    assert ["loads", expected] == [verdict(13, f"(float x) {body}", release) for release in ("1.16.3", "1.17.0")]
    assert "loads" == verdict(13, f"(float x, bool{shape} c) {body}", "1.32.0")


BRANCHES = (
    "<then_branch = t () => (float a, float b) { a = Neg (x) b = Abs (x) }, "
    "else_branch = e () => (float d, float f) { d = Neg (x) f = Abs (x) }>"
)
ITERATION = (
    "<body = b (int64 i, bool k, float[2] v) => (bool l, float[2] w, float[2] s) "
    "{ l = Identity (k) w = Identity (v) s = Neg (v) }>"
)
STEP = "<num_scan_inputs = 1, body = b (float[2] v, float e) => (float[2] w, float s) { w = Identity (v) s = Neg (e) }>"


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ('"" = com.microsoft.Gelu (x) y = Neg (x)', "refused"),
        ('y, "" = Split (x)', "loads"),
        (f'"", y = If {BRANCHES} (c)', "refused"),
        (f'"", y = Loop {ITERATION} ("", c, x)', "loads"),
        (f'y, "" = Loop {ITERATION} ("", c, x)', "refused"),
        (f'"", y = Scan {STEP} (x, x)', "refused"),
    ],
)
def test_outputs_without_a_name(nodes: str, expected: str) -> None:
    """Only some outputs may be absent; onnx does not check this for operators that it does not know."""
    head = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
    model = f"{head} g (float[2] x, bool c) => (float[] y) {{ {nodes} }}"

    assert [expected] * 2 == [prediction(model, release).verdict for release in ("1.16.3", "1.32.0")]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ('QLinearAdd (a, s, z, a, s, z, s, "")', ("refused", "")),
        ("QLinearAdd (a, s, z, a, s, z, s)", ("loads", "")),
        ('QLinearAveragePool <kernel_shape = [1]> (a, s, "", s, z)', ("refused", "")),
        ("QLinearAveragePool <kernel_shape = [1]> (a, s, z, s)", ("loads", "")),
        ("QLinearSigmoid (a, s, z, s)", ("refused", "SIGABRT")),
        ('QLinearSigmoid (a, s, z, s, "")', ("loads", "")),
    ],
)
def test_zero_points_without_a_name(call: str, expected: tuple[str, str]) -> None:
    """Inference of types reads absent zero points."""
    head = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
    body = f"(uint8[1, 1, 2] a, float s, uint8 z) => (uint8[] y) {{ y = com.microsoft.{call} }}"
    found = prediction(f"{head} g {body}", "1.32.0")

    assert expected == (found.verdict, "".join(it.miss.signal for it in found.found if it.miss))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (f"{2**60}, 4, 2", "refused"),
        (f"{2**61}, 4, 0", "refused"),
        (f"{2**60}, 4, 1", "loads"),
        (f"N, 4, {2**62}, {2**62}", "loads"),
    ],
)
def test_sizes_of_a_group_normalization(shape: str, expected: str) -> None:
    """The body reshapes the result to the shape of the input, whose sizes releases since 1.28.0 multiply."""
    inputs = f"(float[{shape}] x, float[4] s)"
    body = f"{inputs} => (float[] y) {{ y = GroupNormalization <num_groups = 2> (x, s, s) }}"
    model = f'<ir_version: 10, opset_import: ["" : 21]> g {body}'

    assert ["loads", expected] == [prediction(model, release).verdict for release in ("1.27.0", "1.28.0")]


@pytest.mark.parametrize(("output", "expected"), [("c", "refused"), ("float[] c", "loads")])
def test_result_of_a_sequence_map(output: str, expected: str) -> None:
    """Releases make an empty sequence of the declared type."""
    node = f"SequenceMap (s) <body = b (float[2] a) => ({output}) {{ c = Neg (a) }}>"
    body = f"(seq(float[2]) s) => (seq(float[2]) y) {{ y = {node} }}"

    assert [expected] * 2 == [verdict(17, body, release) for release in ("1.16.3", "1.32.0")]


@pytest.mark.parametrize(
    ("inputs", "pads", "options", "expected"),
    [
        ("", "<int64[2] p = {0, 0}>", "", "loads"),
        ("", "<int64[1, 2] p = {0, 0}>", "", "loads"),
        ("", "<int64[2, 1] p = {0, 0}>", "", "refused"),
        ("", "<int64 p = {0}>", "", "refused"),
        (", int64 p", "<int64 p = {0}>", "", "loads"),
        ("", "<int64[2] p = {0, 0}>", '<mode = "wrap">', "loads"),
        ("", "<int64[2] p = {0, 0}>", '<mode = "">', "refused"),
    ],
)
def test_pads_of_com_microsoft(inputs: str, pads: str, options: str, expected: str) -> None:
    """Inference of shapes reads only constant pads."""
    head = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
    model = f"{head} g (float[N] x{inputs}) => (float[] y) {pads} {{ y = com.microsoft.Pad {options} (x, p) }}"

    assert [expected] * 2 == [prediction(model, release).verdict for release in ("1.16.3", "1.32.0")]


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("Neg <__g = g () => (float q) { q = Constant <value = float {1}> () }> (x)", "unknown"),
        ("HardSwish <__g = g () => (float q) { q = Constant <value = float {1}> () }> (x)", "loads"),
        ("Neg <__g = 1> (x)", "loads"),
    ],
)
def test_subgraph_of_an_operator_without_one(node: str, expected: str) -> None:
    """Releases before 1.31 may crash, and newer ones refuse the node unless they remove or replace it."""
    assert [expected] * 2 == [
        verdict(17, f"(float x) => (float y) {{ y = {node} }}", it) for it in ("1.16.3", "1.32.0")
    ]


@pytest.mark.parametrize(
    ("segments", "expected"),
    [(("i", "w", "s", "z"), "loads"), (('""', '""', '""', '""'), "loads"), (("i", "w", "s", '""'), "refused")],
)
def test_segments_of_a_quantized_embedding(segments: tuple[str, str, str, str], expected: str) -> None:
    """Since 1.30.0, all inputs for segments must be present or absent."""
    ids, embedding, scale, zero = segments
    call = f'(i, {ids}, w, w, {embedding}, g, g, "", s, s, {scale}, s, s, z, z, {zero}, z, z)'
    head = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
    inputs = "int32[1, 8] i, uint8[10, 4] w, uint8[4] g, float s, uint8 z"
    model = f"{head} g ({inputs}) => (float[] y, int32[] m) {{ y, m = com.microsoft.QEmbedLayerNormalization {call} }}"

    assert ["loads", expected] == [prediction(model, release).verdict for release in ("1.29.0", "1.30.0")]


@pytest.mark.parametrize(
    ("inputs", "constants", "nodes", "expected"),
    [
        ("", "<int64[0] d = {}>", "", [("refused", ""), ("refused", "SIGABRT"), ("refused", "SIGABRT")]),
        ("", "<int64[0] k = {}>", "d = Identity (k)", [("refused", "")] * 3),
        (", int64[0] d", "", "", [("refused", "")] * 3),
        (", int64[0] d", "<int64[0] d = {}>", "", [("refused", "")] * 3),
        (", int64[M] d", "", "", [("loads", "")] * 3),
        ("", "<int64[1] d = {3}>", "", [("loads", "")] * 3),
        ("", "<int64 d = {3}>", "", [("loads", "")] * 3),
    ],
)
def test_depth_without_elements(inputs: str, constants: str, nodes: str, expected: list[tuple[str, str]]) -> None:
    """Releases from 1.21 on crash if the depth of a OneHot is constant and has no elements."""
    body = f"(int64[N] i, float[2] v{inputs}) => (float[] y) {constants} {{ {nodes} y = OneHot (i, d, v) }}"
    model = f'<ir_version: 8, opset_import: ["" : 17]> g {body}'
    found = [prediction(model, release) for release in ("1.20.1", "1.21.0", "1.31.1")]

    assert expected == [(it.verdict, "".join(each.miss.signal for each in it.found if each.miss)) for it in found]
    assert "loads" == prediction(model, "1.32.0").verdict


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("c = Equal (two, one)", "refused"),
        ("k = Shape (x) c = Equal (k, one)", "refused"),
        ("k = Shape (z) c = Equal (k, one)", "loads"),
        ("k = Gather (two, one) c = Equal (k, one)", "loads"),
        ("k = Cast <to = 1> (two) c = Greater (k, k)", "refused"),
        ("k = Cast <to = 10> (two) c = Greater (k, k)", "loads"),
        ("c = Equal (given, two)", "loads"),
    ],
)
@pytest.mark.parametrize("is_outside", [True, False])
def test_computed_conditions(node: str, expected: str, is_outside: bool) -> None:
    """Releases since 1.17 compute a condition from constants, also outside of the branch that uses it."""
    branches = "<then_branch = t () => (float a) { a = Neg (r) }, else_branch = e () => (float b) { b = Abs (r) }>"
    inner = f"y = If (c) {branches}" if is_outside else f"{node} y = If (c) {branches}"
    outer = (
        f"o = If (d) <then_branch = u () => (float y) {{ {inner} }}, else_branch = v () => (float n) {{ n = Abs (r) }}>"
    )
    inputs = "(bool d, float r, float[3, 4] x, float[N, 4] z, int64[2] given)"
    weights = "<int64[2] two = {1, 2}, int64 one = {1}>"
    body = f"{inputs} => (float o) {weights} {{ {node if is_outside else ''} {outer} }}"

    assert ["loads", expected] == [verdict(13, body, release) for release in ("1.16.3", "1.17.0")]


@pytest.mark.parametrize(
    ("opset", "node", "expected"),
    [
        (8, "Softmax (c)", "refused"),
        (8, "Softmax <axis = 0> (c)", "loads"),
        (13, "Softmax (c)", "loads"),
        (8, "ReduceMax <axes = [0, 1]> (c)", "refused"),
        (8, "ReduceMax <axes = [0]> (c)", "loads"),
        (8, "Squeeze <axes = [1]> (c)", "refused"),
        (8, "LpNormalization <axis = 1> (c)", "refused"),
    ],
)
def test_axis_of_a_constant(opset: int, node: str, expected: str) -> None:
    """onnx does not check these axes; releases that compute the node do."""
    body = f"(float x) => (float[] y, float z) <float[1] c = {{1}}> {{ y = {node} z = Neg (x) }}"
    later = "unknown" if expected == "refused" else "loads"

    assert (expected, later) == (verdict(opset, body, "1.26.0"), verdict(opset, body, "1.27.0"))


def test_axis_of_a_constant_without_elements() -> None:
    """Newer releases do not check the axis of such a reduction."""
    body = "(float x) => (int64[] y, float z) <float[0] c = {}> { y = ArgMax <axis = 1> (c) z = Neg (x) }"

    assert "loads" == verdict(8, body, "1.24.4")


@pytest.mark.parametrize(("shape", "expected"), [("", "refused"), ("[2]", "loads")])
def test_labels_without_an_axis(shape: str, expected: str) -> None:
    """NegativeLogLikelihoodLoss needs labels with an axis, whatever the rank of the scores is."""
    body = f"(double[] x, int64{shape} l) => (double[] y) {{ y = NegativeLogLikelihoodLoss (x, l) }}"

    assert expected == verdict(13, body, "1.16.3")


@pytest.mark.parametrize(("arguments", "expected"), [("x", "refused"), ("x, , s", "loads")])
def test_resize_needs_a_size(arguments: str, expected: str) -> None:
    """All inputs except the first one are optional, but scales or sizes are required."""
    assert expected == verdict(13, f"(float[] x, float[4] s) => (float[] y) {{ y = Resize ({arguments}) }}", "1.31.1")


@pytest.mark.parametrize(
    ("element", "arguments", "expected"),
    [
        ("float", 'x, s, ""', ["refused", "refused"]),
        ("float", "x, s", ["loads", "loads"]),
        ("float16", 'x, s, ""', ["loads", "refused"]),
        ("double", 'x, s, ""', ["loads", "loads"]),
    ],
)
def test_empty_bias_of_a_layer_normalization(element: str, arguments: str, expected: list[str]) -> None:
    """The process ends with SIGSEGV; without the third input, the model loads."""
    node = f"y = LayerNormalization ({arguments})"
    body = f"({element}[N, 4] x, {element}[4] s) => ({element}[N, 4] y) {{ {node} }}"

    assert expected == [verdict(17, body, release) for release in ("1.16.3", "1.32.0")]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("i = Neg (x) y = Add (i, c)", ["loads", "refused", "refused", "loads"]),
        ("i = Neg (x) y = Div (i, c)", ["loads", "refused", "refused", "loads"]),
        ("i = Neg (x) y = Div (c, i)", ["loads"] * 4),
        ("i = Neg (x) k = Add (i, c) y = Abs (k)", ["loads"] * 4),
    ],
)
def test_constants_without_elements(nodes: str, expected: list[str]) -> None:
    """Releases remove the node, and with it the output of the model."""
    body = f"(float[1, 3] x) => (float[N, 3] y) <float[0, 3] c = {{}}> {{ {nodes} }}"

    assert expected == [verdict(17, body, release) for release in ("1.23.0", "1.23.1", "1.26.0", "1.27.0")]


def test_computed_values_without_elements() -> None:
    """Both operands have no elements; the constant is removed."""
    body = "(float[0, 3] x) => (float[0, 3] y) <float[0, 3] c = {}> { i = Neg (x) y = Add (i, c) }"

    assert "refused" == verdict(17, body, "1.24.4")


@pytest.mark.parametrize(
    ("options", "outputs", "expected"),
    [
        ("", "e", ["SIGABRT", "refused"]),
        ("", "e, m", ["loads", "loads"]),
        ("<mask_index_type = 0>", "e", ["loads", "loads"]),
    ],
)
def test_embeddings_without_a_mask_index(options: str, outputs: str, expected: list[str]) -> None:
    """Older releases crash if the second output is absent."""
    head = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
    inputs = "int32[1, 8] i, float[10, 4] w, float[4] g"
    node = f'{outputs} = com.microsoft.EmbedLayerNormalization {options} (i, "", w, w, "", g, g)'
    model = f"{head} g ({inputs}) => (float[1, 8, 4] e) {{ {node} }}"
    found = [prediction(model, release) for release in ("1.16.3", "1.28.0")]
    signals = [[problem.miss.signal for problem in it.found if problem.miss] for it in found]

    assert expected == [it.verdict if not any(own) else own[0] for it, own in zip(found, signals, strict=True)]


@pytest.mark.parametrize(
    ("options", "accepted"), [("", "uint32"), ("<positive = 1>", "uint32"), ("<positive = 0>", "int32")]
)
@pytest.mark.parametrize("declared", ["int32", "uint32"])
def test_result_of_a_hash(options: str, accepted: str, declared: str) -> None:
    """The attribute determines the type."""
    head = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
    model = f"{head} g (int64[2] x) => ({declared}[2] y) {{ y = com.microsoft.MurmurHash3 {options} (x) }}"

    assert ("loads" if declared == accepted else "refused") == prediction(model, "1.24.4").verdict


def test_limits_of_clip_that_are_not_numbers() -> None:
    """A NaN is not in order with any other limit."""
    model = onnx.parser.parse_model(
        '<ir_version: 4, opset_import: ["" : 10]> g (float[2] x) => (float[2] y) {y = Clip (x)}'
    )
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("max", math.nan))

    (node,) = infer_model_types(ModelView(model)).nodes

    assert find_restriction(node.operation, 6, "1.31.1") is not None


def test_declared_type_of_a_constant() -> None:
    """The type of a Constant is that of its tensor, whatever type is declared for its value."""
    body = "(bool c) => (bool y, complex64[1] z) { y = Not (c) z = Constant <value = float[1] {1}> () }"

    assert verdict(13, body, "1.31.1") == "loads"


FAULTY_CONSTANTS = {
    "an absent input": ("float[2] a = {1, 2}", 'Concat <axis = 0> (a, "")'),
    "an index": ("float[2] a = {1, 2}, int64[1] i = {2}", "Gather (a, i)"),
    "a negative index": ("float[2, 2] a = {1, 2, 3, 4}, int64 i = {-3}", "Gather <axis = 1> (a, i)"),
    "an index of an element": ("float[2] a = {1, 2}, int64[1] i = {2}", "GatherElements (a, i)"),
    "an index of a row": ("float[2, 1] a = {1, 2}, int64[1, 1] i = {2}", "GatherND (a, i)"),
    "an index to write": ("float[2] a = {1, 2}, int64[1] i = {2}", "ScatterElements (a, i, a)"),
    "a place to write": ("float[2] a = {1, 2}, int64[1, 1] i = {2}, float[1] u = {1}", "ScatterND (a, i, u)"),
    "axes to remove": ("float[1, 2] a = {1, 2}, int64 i = {0}", "Squeeze (a, i)"),
    "axes to add": ("float[1, 2] a = {1, 2}, int64[1, 1] i = {0}", "Unsqueeze (a, i)"),
    "axes of a sum": ("float[2] a = {1, 2}, int64 i = {0}", "ReduceSum (a, i)"),
    "starts": ("float[2] a = {1, 2}, int64 i = {0}", "Slice (a, i, i)"),
    "a shape": ("float[1] a = {1}, int64 i = {1}", "Reshape (a, i)"),
    "a scalar": ("float[2] a = {1, 2}, int64[0] i = {}", "Reshape (a, i)"),
    "too many elements": ("int64[2] i = {4611686018427387904, 4}", "ConstantOfShape (i)"),
    "too many elements before none": ("int64[3] i = {1099511627776, 1099511627776, 0}", "ConstantOfShape (i)"),
    "too many copies": ("float[1] a = {1}, int64[1] i = {9223372036854775807}", "Expand (a, i)"),
    "too many repeats": ("float[2] a = {1, 2}, int64[1] i = {140737488355328}", "Tile (a, i)"),
    "too many steps": ("float a = {0}, float l = {140737488355328}, float d = {1}", "Range (a, l, d)"),
    "a negative size": ("float[1] a = {1}, int64[1] i = {-1}", "Expand (a, i)"),
    "a size": ("int64 i = {1}", "ConstantOfShape (i)"),
    "a step": ("float a = {1}, float d = {0}", "Range (a, a, d)"),
    "an axis": ("float[2] a = {1, 2}, int64 i = {3}", "CumSum (a, i)"),
    "channels of a weight": ("float[1, 1, 1] a = {1}, float[1, 2, 1] w = {1, 2}", "Conv (a, w)"),
    "filters of a weight": ("float[1, 1, 1] a = {1}, float[2, 1, 1] w = {1, 2}", "ConvTranspose (a, w)"),
    "channels of a block": ("float[1, 3, 1, 1] a = {1, 2, 3}", "DepthToSpace <blocksize = 2> (a)"),
    "the size of a block": ("float[1, 1, 1, 1] a = {1}", "SpaceToDepth <blocksize = 2> (a)"),
}


@pytest.mark.parametrize("name", FAULTY_CONSTANTS)
def test_constants_that_cannot_be_computed(name: str) -> None:
    """Older releases compute nodes of constants when they load a model, and refuse it if this fails."""
    constants, call = FAULTY_CONSTANTS[name]
    body = f"(float[1] x) => (float y) <{constants}> {{ y = {call} }}"

    assert ["refused", "unknown"] == [verdict(17, body, release) for release in ("1.26.0", "1.27.0")]


@pytest.mark.parametrize("place", ["main", "function"])
@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("z = Constant <value_int = 0> () y = Div (x, z)", ["refused", "refused"]),
        ("z = Constant <value_int = 2> () y = Div (x, z)", ["loads", "loads"]),
        (
            "k = Constant <value_floats = [1.0, 2.0]> () i = Constant <value_int = 5> () y = Gather (k, i)",
            ["refused", "unknown"],
        ),
        (
            "k = Constant <value_floats = [1.0, 2.0]> () i = Constant <value_int = 1> () y = Gather (k, i)",
            ["loads"] * 2,
        ),
        (
            "k = Constant <value_float = 1.0> () z = Constant <value_float = 0.0> () y = Range (k, k, z)",
            ["refused", "unknown"],
        ),
        ("k = Constant <value_float = 1.0> () y = Range (k, k, k)", ["loads"] * 2),
    ],
)
def test_constants_in_attributes(place: str, nodes: str, expected: list[str]) -> None:
    """Exporters also write constants as numbers or lists of numbers."""
    inner = f"(x) => (y) {{ {nodes} }}"
    called = f'(int64[2] x) => (y) {{ y = here.f (x) }} <domain: "here", opset_import: ["" : 17]> f {inner}'
    head = '<ir_version: 8, opset_import: ["" : 17, "here" : 1]> g'
    text = f"{head} {called if place == 'function' else inner.replace('(x)', '(int64[2] x)', 1)}"

    assert expected == [prediction(text, release).verdict for release in ("1.26.0", "1.31.1")]


@pytest.mark.parametrize(
    ("constants", "call"),
    [
        ("float[2] a = {1, 2}", "Concat <axis = 0> (a, a)"),
        ("float[2] a = {1, 2}, int64[2] i = {1, -2}", "Gather (a, i)"),
        ("float[2] a = {1, 2}, int64[2] i = {1, -2}", "GatherElements (a, i)"),
        ("float[2, 3] a = {1, 2, 3, 4, 5, 6}, int64[2, 2] i = {1, 2, -2, -3}", "GatherND (a, i)"),
        ("float[1, 2] a = {1, 2}, int64 i = {0}", "Unsqueeze (a, i)"),
        ("float a = {1}, float d = {-1}", "Range (a, a, d)"),
        ("float[2] a = {1, 2}, int64 i = {-1}", "CumSum (a, i)"),
        ("float[1, 2, 1] a = {1, 2}, float[2, 1, 1] w = {1, 2}", "Conv <group = 2> (a, w)"),
        ("float[1, 2, 1] a = {1, 2}, float[2, 1, 1] w = {1, 2}", "ConvTranspose <group = 2> (a, w)"),
        ("float[1, 4, 1, 1] a = {1, 2, 3, 4}", "DepthToSpace <blocksize = 2> (a)"),
        ("float[2] a = {1, 2}, int64[1] i = {2}", "Gather (x, i)"),
        ("float[2] a = {1, 2}", 'Concat <axis = 0> (x, "", a)'),
        ("int64[1, 2] i = {2, 3}", "ConstantOfShape (i)"),
        ("int64[2] i = {0, 9223372036854775807}", "ConstantOfShape (i)"),
        ("float[4] a = {1, 2, 3, 4}, int64[1] i = {-1}", "Expand (a, i)"),
        ("float[1, 1] a = {1}, int64[0] i = {}", "Reshape (a, i)"),
    ],
)
def test_constants_that_can_be_computed(constants: str, call: str) -> None:
    """Indices in range, axes of the right form and values that are not constant are no reason to refuse a model."""
    body = f"(float[1] x) => (float y) <{constants}> {{ y = {call} }}"

    assert ["loads", "loads"] == [verdict(17, body, release) for release in ("1.26.0", "1.27.0")]


@pytest.mark.parametrize(
    ("inputs", "node", "expected"),
    [
        ("", "y = Gather (a, q)", ["refused", "unknown"]),
        ("", "w = Identity (a) r = Identity (q) y = Gather (w, r)", ["refused", "unknown"]),
        (", int64[1] i", "y = Gather (a, q)", ["loads", "loads"]),
        ("", "y = Gather (x, q)", ["loads", "loads"]),
    ],
)
def test_constants_behind_identity(inputs: str, node: str, expected: list[str]) -> None:
    """Releases remove Identity before they compute nodes of constants."""
    constants = "<float[2] a = {1, 2}, int64[1] i = {2}>"
    body = f"(float[3] x{inputs}) => (float[] y) {constants} {{ q = Identity (i) {node} }}"

    assert expected == [verdict(17, body, release) for release in ("1.26.0", "1.27.0")]


@pytest.mark.parametrize(
    ("shape", "scales", "expected"),
    [
        ("[1, 1, 2, 2]", "{1, 1, 2, 2}", "loads"),
        ("[1, 1, 2, 2]", "{1, 1, 0, 2}", "refused"),
        ("[1, 1, 2, 2]", "{1, 1, 2}", "refused"),
        ("[]", "{1, 1, 2}", "loads"),
    ],
)
def test_scales_behind_identity(shape: str, scales: str, expected: str) -> None:
    """onnx does not infer the scales, so that it does not compare their number with the rank."""
    count = scales.count(",") + 1
    inputs = f"(float{shape} x) => (float[] y) <float[{count}] s = {scales}>"
    body = f'{inputs} {{ q = Identity (s) y = Resize (x, "", q) }}'

    assert [expected] * 2 == [verdict(17, body, release) for release in ("1.16.3", "1.32.0")]


@pytest.mark.parametrize(
    ("element", "bounds"),
    [
        ("int64", "int64 a = {0}, int64 l = {9223372036854775807}, int64 d = {1}"),
        ("double", "double a = {-1e308}, double l = {1e308}, double d = {1}"),
        ("double", "double a = {1e308}, double l = {-1e308}, double d = {1}"),
        ("double", "double a = {0}, double l = {1e308}, double d = {1e-300}"),
    ],
)
def test_range_with_an_overflow(element: str, bounds: str) -> None:
    """The number of elements overflows, so that the result is empty when releases compute it."""
    assert "loads" == verdict(17, f"(float x) => ({element}[] y) <{bounds}> {{ y = Range (a, l, d) }}", "1.24.4")


@pytest.mark.parametrize(
    ("size", "call", "expected"),
    [
        (2**31, "ConstantOfShape (k)", ["refused", "refused", "loads"]),
        (2**31, "Expand (x, k)", ["refused", "refused", "loads"]),
        (2**31, "Reshape (x, k)", ["loads", "refused", "loads"]),
        (2**31 - 1, "Expand (x, k)", ["loads", "loads", "loads"]),
        (2**31, "Tile (x, k)", ["loads", "loads", "loads"]),
    ],
)
def test_length_of_a_shape(size: int, call: str, expected: list[str]) -> None:
    """Releases up to 1.31.1 add a size to the inferred shape for each element of the list."""
    body = f"(float[1] x, int64[{size}] k) => (float[] y) {{ y = {call} }}"

    assert expected == [verdict(17, body, release) for release in ("1.16.3", "1.17.3", "1.32.0")]


def test_constants_in_functions() -> None:
    """Since release 1.17, nodes of local functions are computed when the model is loaded."""
    function = '<domain: "own", opset_import: ["" : 17]> f (x) => (y) { c = Constant <value = float[1] {1}> ()'
    body = f'(float[1] x) => (float y) {{ y = own.f (x) }} {function} y = Concat <axis = 0> (c, "") }}'
    model = f'<ir_version: 8, opset_import: ["" : 17, "own" : 1]> g {body}'

    assert ["unknown", "refused", "refused", "unknown"] == [
        prediction(model, release).verdict for release in ("1.16.3", "1.17.0", "1.26.0", "1.27.0")
    ]


@pytest.mark.parametrize(
    ("inputs", "count", "expected"),
    [("", 4, "refused"), ("", 6, "refused"), ("", 3, "loads"), (", int64[5] s", 4, "loads")],
)
def test_constants_around_a_branch(inputs: str, count: int, expected: str) -> None:
    """A branch may use constants of the graph around it."""
    outputs = ", ".join(f"o{index}" for index in range(count))
    branches = f"""
        then_branch = t () => (int64[M] a) {{ a = Identity (s) }},
        else_branch = e () => (int64[M] o0) {{ {outputs} = Split <num_outputs = {count}> (s) }}
    """
    body = f"(bool c{inputs}) => (int64[M] y) <int64[5] s = {{1, 2, 3, 4, 5}}> {{ y = If (c) <{branches}> }}"

    assert expected == verdict(18, body, "1.26.0")


@pytest.mark.parametrize(("size", "expected"), [("2", "refused"), ("N", "loads")])
def test_absent_input_after_computed_constants(size: str, expected: str) -> None:
    """The shape of an input with fixed sizes is a constant, too, as are values that are computed from it."""
    body = f'(float[{size}] x) => (int64[M] y) {{ s = Shape (x) t = Neg (s) y = Concat <axis = 0> (t, "") }}'

    assert expected == verdict(17, body, "1.26.0")


@pytest.mark.parametrize(
    ("inputs", "divisor", "expected"),
    [
        ("", "int64[2] d = {1, 0}", "refused"),
        ("", "int32 d = {0}", "refused"),
        ("", "uint8[2] d = {1, 0}", "refused"),
        ("", "int16[2] d = {1, 0}", "refused"),
        ("", "uint64[2] d = {1, 0}", "refused"),
        ("", "int8[2] d = {1, 2}", "loads"),
        ("", "int64[2] d = {1, 2}", "loads"),
        ("", "float[2] d = {1, 0}", "loads"),
        (", int64[2] d", "int64[2] d = {1, 0}", "loads"),
    ],
)
def test_division_by_zero(inputs: str, divisor: str, expected: str) -> None:
    """Newer releases check constant divisors of integers when they load a model; older ones crash when they divide."""
    element = divisor.split("[")[0].split()[0]
    older = "unknown" if expected == "refused" else expected
    for name in ("Div", "Mod") if element != "float" else ("Div",):
        body = f"({element}[2] x{inputs}) => ({element}[2] y) <{divisor}> {{ y = {name} (x, d) }}"

        assert [older, expected] == [verdict(17, body, release) for release in ("1.24.4", "1.25.0")]


@pytest.mark.parametrize(
    ("inputs", "dividend", "divisor", "expected"),
    [
        ("", "x", "{1, 0}", ["loads", "loads", "refused"]),
        ("", "k", "{1, 0}", ["refused", "refused", "refused"]),
        ("", "x", "{1, 2}", ["loads", "loads", "loads"]),
        (", int64[2] d", "x", "{1, 0}", ["loads", "loads", "loads"]),
    ],
)
def test_division_by_zero_in_a_branch(inputs: str, dividend: str, divisor: str, expected: list[str]) -> None:
    """Divisors of the graph around a branch are checked since 1.29.0, and earlier if the dividend is constant, too."""
    branches = f"then_branch = t () => (int64[2] a) {{ a = Div ({dividend}, d) }},"
    branches += " else_branch = e () => (int64[2] b) { b = Identity (x) }"
    weights = f"<int64[2] k = {{4, 2}}, int64[2] d = {divisor}>"
    body = f"(int64[2] x, bool c{inputs}) => (int64[2] y) {weights} {{ y = If (c) <{branches}> }}"

    assert expected == [verdict(17, body, release) for release in ("1.24.4", "1.28.0", "1.29.0")]


@pytest.mark.parametrize(
    ("shape", "values", "expected"),
    [
        ("", "int64[2] k = {4, 2}", "refused"),
        (" c = Neg (k)", "int64[2] k = {4, 2}", "refused"),
        ("", "int64[0] k = {}", "unknown"),
    ],
)
def test_constant_divided_by_zero(shape: str, values: str, expected: str) -> None:
    """If the dividend is constant, too, older releases divide it when they load the model, and crash."""
    dividend = "c" if shape else "k"
    body = f"(int64[2] x) => (int64 y) <{values}, int64[1] d = {{0}}> {{{shape} y = Div ({dividend}, d) }}"
    model = f'<ir_version: 8, opset_import: ["" : 17]> g {body}'

    assert [expected, "refused"] == [verdict(17, body, release) for release in ("1.24.4", "1.25.0")]
    gaps = [(it.miss.detail, it.miss.signal) for it in prediction(model, "1.24.4").found if it.miss is not None]
    assert [("ends with SIGFPE when the model is loaded", "SIGFPE")] * (expected == "refused") == gaps


def test_shape_in_an_attribute() -> None:
    """The shape may be a list of a Constant node."""
    body = "(float[1] x) => (float y) <float[4] c = {1, 1, 1, 1}> { s = Constant <value_ints = [3, 7]> () "

    assert verdict(17, body + "y = Reshape (c, s) }", "1.26.0") == "refused"


@pytest.mark.parametrize(
    ("counts", "pool", "weights", "expected"),
    [
        ("0, 4", "1, 2, 3, 4, 5, 6", "1.0, 1.0, 1.0, 1.0, 1.0", "loads"),
        ("0, 4", "1, 2, 3, 4, 5", "1.0, 1.0, 1.0, 1.0, 1.0", "refused"),
        ("0, 8", "1, 2, 3, 4, 5, 6", "1.0, 1.0, 1.0, 1.0, 1.0", "refused"),
        ("4, 2", "1, 2, 3, 4, 5, 6", "1.0, 1.0, 1.0, 1.0, 1.0", "refused"),
        ("-1, 4", "1, 2, 3, 4, 5, 6", "1.0, 1.0, 1.0, 1.0, 1.0", "refused"),
        ("1, 4", "1, 2, 3, 4, 5, 6", "1.0, 1.0, 1.0, 1.0, 1.0", "loads"),
        ("0, 4", "1, 2, 3, 4, 5, 6", "1.0", "refused"),
        ("0, 4", '1, 2, 3, 4, 5, 6], pool_strings = ["a", "b", "c", "d", "e"', "1.0, 1.0, 1.0, 1.0, 1.0", "refused"),
        ("0, 4", '1, 2, 3, 4, 5], pool_strings = ["a", "b", "c", "d", "e", "f"', "1.0, 1.0, 1.0, 1.0, 1.0", "loads"),
    ],
)
def test_ngrams_of_a_vectorizer(counts: str, pool: str, weights: str, expected: str) -> None:
    """The pool contains complete 1-grams and 2-grams, each with a weight."""
    values = (
        'mode = "TF", min_gram_length = 1, max_gram_length = 2, max_skip_count = 0, ngram_indexes = [0, 1, 2, 3, 4]'
    )
    node = f"TfIdfVectorizer <{values}, ngram_counts = [{counts}], pool_int64s = [{pool}], weights = [{weights}]> (x)"

    assert expected == verdict(9, f"(int64[N] x) => (float y) {{ y = {node} }}", "1.16.3")


@pytest.mark.parametrize(("name", "expected"), [("pool_strings", "refused"), ("pool_int64s", "loads")])
def test_empty_pool_of_a_vectorizer(name: str, expected: str) -> None:
    """An empty list of texts hides that of numbers."""
    values = 'mode = "TF", min_gram_length = 1, max_gram_length = 1, max_skip_count = 0, ngram_indexes = [0, 1]'
    other = "pool_int64s = [1, 2]" if name == "pool_strings" else 'pool_strings = ["a", "b"]'
    node = f"TfIdfVectorizer <{values}, ngram_counts = [0], {other}> (x)"
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 9]> g (int64[N] x) => (float y) {{ y = {node} }}'
    )
    kind = onnx.AttributeProto.STRINGS if name == "pool_strings" else onnx.AttributeProto.INTS
    model.graph.node[0].attribute.add(name=name, type=kind)

    assert expected == predict_model(model, "1.31.1")


@pytest.mark.parametrize(
    ("lengths", "counts", "pool", "expected"),
    [
        ((1, 1), "0", 'pool_strings = ["a", "b", "a"]', '`"a"`'),
        ((1, 1), "0", 'pool_strings = ["", "b", ""]', '`""`'),
        ((1, 1), "0", "pool_int64s = [1, 2, 1]", "`1`"),
        ((1, 1), "0", 'pool_strings = ["a", "b"], pool_int64s = [1, 1]', ""),
        ((1, 1), "1", 'pool_strings = ["a", "a"]', ""),
        ((1, 2), "0, 2", 'pool_strings = ["a", "b", "a", "b", "a", "b"]', '`"a" "b"`'),
        ((1, 2), "0, 2", 'pool_strings = ["a", "b", "a", "b", "b", "b"]', ""),
        ((2, 2), "0, 2", 'pool_strings = ["a", "a", "a", "b"]', ""),
        ((1, 1), "0", f"pool_int64s = {[*range(5000), 7]}", "`7`"),
    ],
)
def test_ngrams_that_repeat(lengths: tuple[int, int], counts: str, pool: str, expected: str) -> None:
    """A pool contains each n-gram of the lengths that the node looks for once."""
    values = f'mode = "TF", min_gram_length = {lengths[0]}, max_gram_length = {lengths[1]}, max_skip_count = 0'
    node = f"TfIdfVectorizer <{values}, ngram_counts = [{counts}], ngram_indexes = [0], {pool}> (x)"
    model = f'<ir_version: 8, opset_import: ["" : 9]> g (int64[N] x) => (float y) {{ y = {node} }}'
    problems = [found.miss.problem for found in prediction(model, "1.32.0").found if found.miss]

    assert ([f"`TfIdfVectorizer(9)`: the pool contains the n-gram {expected} twice"] if expected else []) == problems


@pytest.mark.parametrize("count", [5, 5000])
def test_lists_of_equal_length(count: int) -> None:
    """The lengths of lists are compared even if the lists are too long to be read."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]> g (int64[N] x) => (float[M] y, int64[N] z)'
        ' { y = TfIdfVectorizer <mode = "TF", min_gram_length = 1, max_gram_length = 1, max_skip_count = 0,'
        " ngram_counts = [0]> (x)  z = ai.onnx.ml.LabelEncoder (x) }"
    )
    vectorizer, encoder = model.graph.node
    names = {"pool_int64s": vectorizer, "ngram_indexes": vectorizer, "weights": vectorizer, "keys_int64s": encoder}
    for name, node in {**names, "values_int64s": encoder}.items():
        kind = float if name == "weights" else int
        node.attribute.append(onnx.helper.make_attribute(name, [*map(kind, range(count))]))

    def list_refused() -> list[str]:
        operations = [node.operation for node in infer_model_types(ModelView(model)).nodes]
        return [it.name for it in operations if find_restriction(it, 9, "1.31.1") is not None]

    assert list_refused() == []
    vectorizer.attribute[-1].CopyFrom(onnx.helper.make_attribute("weights", [1.0] * 4))
    encoder.attribute[-1].CopyFrom(onnx.helper.make_attribute("values_int64s", [1] * 4))
    assert list_refused() == ["TfIdfVectorizer", "LabelEncoder"]


@pytest.mark.parametrize(("opset", "expected"), [(0, "refused"), (1, "loads")])
def test_opset_zero_has_no_operators(opset: int, expected: str) -> None:
    """ONNX Runtime's own LayerNormalization exists since opset 1."""
    body = "(float[2, 3] x, float[3] s, float[3] b) => (float y) { y = LayerNormalization (x, s, b) }"

    assert expected == verdict(opset, body, "1.31.1")


def test_axis_of_a_scalar() -> None:
    """ArgMax of a scalar and LayerNormalization over a missing axis are refused."""
    largest = "(float x) => (int64 y) { y = ArgMax (x) }"
    normal = "(float[2, 3] x, float[3] s) => (float y) { y = LayerNormalization <axis = 2> (x, s) }"

    assert "refused" == verdict(13, largest, "1.18.1")
    assert ["loads", "refused"] == [verdict(17, normal, release) for release in ("1.30.0", "1.31.0")]


def test_a_squeeze_without_outputs_is_judged() -> None:
    """A node without outputs violates its schema, and is not an error of onnxgate."""
    model = onnx.parser.parse_model('<ir_version: 4, opset_import: ["" : 9]> g (float[N] x) => () { y = Squeeze (x) }')
    model.graph.node[0].ClearField("output")

    (node,) = infer_model_types(ModelView(model)).nodes

    assert () == node.operation.outputs


SINGLE_TEXTS = (
    ("string", "int64", 'keys_tensor: tensor = string[1] {"a"}, values_int64s = [1]'),
    ("int64", "string", 'keys_int64s = [1], values_tensor: tensor = string[1] {"a"}'),
    ("int64", "string", 'keys_int64s = [1, 2], values_strings = ["a", "b"], default_tensor: tensor = string[1] {"c"}'),
)
TEXTS = ("string", "int64", 'keys_tensor: tensor = string[2] {"a", "b"}, values_int64s = [1, 2]')


@pytest.mark.parametrize(
    ("encoder", "release", "expected"),
    [
        *((encoder, "1.24.4", "loads") for encoder in SINGLE_TEXTS),
        *((encoder, "1.25.0", "refused") for encoder in SINGLE_TEXTS),
        *((encoder, "1.26.0", "refused") for encoder in SINGLE_TEXTS),
        *((encoder, "1.27.0", "loads") for encoder in SINGLE_TEXTS),
        (TEXTS, "1.26.0", "loads"),
    ],
)
def test_single_string_of_a_label_encoder(encoder: tuple[str, str, str], release: str, expected: str) -> None:
    """Some releases fail if an attribute is a tensor with a single string, because they compare such nodes."""
    takes, returns, values = encoder
    header = '<ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 4]>'
    model = f"{header} g ({takes}[2] x) => ({returns}[2] y) {{ y = ai.onnx.ml.LabelEncoder <{values}> (x) }}"

    assert expected == prediction(model, release).verdict


@pytest.mark.parametrize(
    ("arguments", "returned", "expected"),
    [
        ("q, k, v, pk, , s, t", "y, a, b", ["loads", "refused", "refused"]),
        ("q, k, v, pk, , s, t", "y", ["refused", "refused", "loads"]),
        ("q, k, v, , , s, t", "y, a, b", ["loads", "loads", "loads"]),
    ],
)
def test_past_keys_without_values(arguments: str, returned: str, expected: list[str]) -> None:
    """Releases since 1.25.0 refuse GroupQueryAttention with `past_key` only if it returns the present values.

    Releases before 1.26.0 require all outputs.
    """
    outputs = ", ".join(f"float {name}" for name in returned.split(", "))
    text = f"""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[1, 2, 32] q, float[1, 2, 16] k, float[1, 2, 16] v, float[1, 2, 4, 8] pk, int32[1] s, int32 t)
        => ({outputs})
        {{ {returned} = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2> ({arguments}) }}"""

    assert expected == [prediction(text, release).verdict for release in ("1.24.4", "1.25.0", "1.32.0")]


@pytest.mark.parametrize(
    ("value_type", "options", "expected"),
    [
        ("float", "qk_matmul_output_mode = 3, softmax_precision = 11", ["refused", "refused", "loads"]),
        ("float", "qk_matmul_output_mode = 3, softmax_precision = 1", ["loads", "loads", "loads"]),
        ("float", "qk_matmul_output_mode = 2, softmax_precision = 11", ["loads", "loads", "loads"]),
        ("float16", "qk_matmul_output_mode = 1, softmax_precision = 1", ["refused", "loads", "loads"]),
    ],
)
def test_fourth_output_of_attention(value_type: str, options: str, expected: list[str]) -> None:
    """Older function bodies return the probabilities in another type, and do not return a cast of the products."""
    inputs = ", ".join(f"{value_type}[1, 2, 2, 2] {name}" for name in "qkv")
    mask = "float16" if value_type == "float" else "float"
    text = f"""<ir_version: 8, opset_import: ["" : 23]>
        g ({inputs}, {mask}[2, 2] m) => ({value_type} y, {value_type} w)
        {{ y, , , w = Attention <{options}> (q, k, v, m) }}"""
    releases = ("1.27.0", "1.31.1" if value_type == "float" else "1.28.0", "1.32.0")

    assert expected == [prediction(text, release).verdict for release in releases]


@pytest.mark.parametrize(
    ("opset", "operator", "values", "expected"),
    [
        (13, "GRU", "hidden_size = 2147483647", ["loads", "loads", "loads"]),
        (13, "GRU", "hidden_size = 2147483648", ["refused", "refused", "refused"]),
        (13, "GRU", "hidden_size = 1, linear_before_reset = 2147483648", ["refused", "refused", "refused"]),
        (13, "RNN", 'hidden_size = 1, activations = ["Tanh", "Tanh"]', ["loads", "loads", "loads"]),
        (13, "RNN", 'hidden_size = 1, activations = ["Tanh", "Tanh", "Tanh"]', ["refused", "refused", "refused"]),
        (13, "RNN", "hidden_size = 1, activation_alpha: floats = []", ["refused", "loads", "loads"]),
        (13, "RNN", "hidden_size = 1, activations: strings = []", ["refused", "refused", "refused"]),
    ],
)
def test_sizes_and_lists(opset: int, operator: str, values: str, expected: list[str]) -> None:
    """Sizes are 32-bit numbers. Releases before 1.17 refuse empty lists, newer ones only empty activations."""
    graph = attributes(operator, values)

    assert expected == [verdict(opset, graph, release) for release in ("1.16.3", "1.17.3", "1.32.0")]


@pytest.mark.parametrize(("scale", "expected"), [(math.inf, ["loads", "refused"]), (math.nan, ["refused", "refused"])])
def test_infinite_scales(scale: float, expected: list[str]) -> None:
    """Scales must be finite since 1.28.0."""
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float y) { y = Resize (x, , s) }'
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.helper.make_tensor("s", onnx.TensorProto.FLOAT, [1], [scale]))

    assert expected == [predict_model(model, release) for release in ("1.27.0", "1.28.0")]


@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize(("last", "expected"), [(2.0, "loads"), (-1.0, "refused"), (0.0, "refused")])
def test_scales_in_a_sparse_tensor(last: float, expected: str, is_constant: bool) -> None:
    """Kernels read the values of sparse tensors, and zeros in place of absent ones."""
    text = "g (float[1, 1, 4, 4] x) => (float y) { y = Resize (x, , s) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 13]> {text}')
    count = 4 if last else 3
    values = onnx.helper.make_tensor("s", onnx.TensorProto.FLOAT, [count], [1.0, 1.0, 2.0, last][:count])
    indices = onnx.helper.make_tensor("", onnx.TensorProto.INT64, [count], range(count))
    sparse = onnx.helper.make_sparse_tensor(values, indices, [4])
    if is_constant:
        model.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["s"], sparse_value=sparse))
    else:
        model.graph.sparse_initializer.append(sparse)

    assert {predict_model(model, release) for release in ("1.16.3", "1.24.4", "1.32.0")} == {expected}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Add (x, w)", ["refused", "loads"]),
        ("y = Mul (w, x)", ["refused", "loads"]),
        ("y = Sub (w, x)", ["loads", "loads"]),
        ("a = Relu (x) b = Add (a, w) y = Relu (b)", ["loads", "loads"]),
    ],
)
def test_constant_without_elements(body: str, expected: list[str]) -> None:
    """Releases before 1.27.0 fail to remove a node that combines it with an input of the model."""
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (float[M] y) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [0], []))

    assert expected == [predict_model(model, release) for release in ("1.26.0", "1.27.0")]


def test_epsilon() -> None:
    """Contributed normalizations refuse a negative epsilon, and NaN."""
    text = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[N, 2, 4] x, float[4] s) => (float y)
        { y = com.microsoft.SkipLayerNormalization <epsilon = 0.0> (x, x, s) }"""
    model = onnx.parser.parse_model(text)
    verdicts = []
    for epsilon in (0.0, -1.0, math.nan):
        model.graph.node[0].attribute[0].f = epsilon
        verdicts.append(predict_model(model, "1.31.1"))

    assert ["loads", "refused", "refused"] == verdicts


@pytest.mark.parametrize(("release", "expected"), [("1.18.1", "loads"), ("1.19.2", "refused"), ("1.32.0", "refused")])
def test_block_size(release: str, expected: str) -> None:
    """Releases since 1.19 refuse negative block sizes."""
    text = "(int8[4] x, float s) => (float y) { y = DequantizeLinear <block_size = -1> (x, s) }"

    assert expected == verdict(21, text, release)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("branch", ["refused", "refused"]),
        ("main", ["loads", "refused"]),
        ("input", ["loads", "loads"]),
    ],
)
def test_scales_of_a_branch(place: str, expected: list[str]) -> None:
    """Constants around a branch count since 1.29.0, and constants that callers can replace never do."""
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[1, 1, 4, 4] x, bool c{", float[4] s" if place == "input" else ""}) => (float[i, j, k, l] y) {{
            y = If (c) <
                then_branch = t () => (float[m, n, o, p] a) {{ a = Resize (x, , s) }},
                else_branch = e () => (float[1, 1, 4, 4] b) {{ b = Identity (x) }}
            >
        }}"""
    model = onnx.parser.parse_model(text)
    branch = next(attribute.g for attribute in model.graph.node[0].attribute if attribute.name == "then_branch")
    graph = branch if place == "branch" else model.graph
    graph.initializer.append(onnx.helper.make_tensor("s", onnx.TensorProto.FLOAT, [4], [1.0, 1.0, -1.0, 2.0]))

    assert expected == [predict_model(model, release) for release in ("1.28.0", "1.29.0")]


@pytest.mark.parametrize(
    ("inputs", "body", "expected"),
    [
        ("", "o = Optional (w)", ["refused", "loads"]),
        ("", "c = Identity (w) o = Optional (c)", ["refused", "loads"]),
        ("", "s = SequenceConstruct (w, w) o = Optional (s)", ["loads", "loads"]),
        ("float[2] w", "o = Optional (w)", ["loads", "loads"]),
    ],
)
def test_optional_constant(inputs: str, body: str, expected: list[str]) -> None:
    """Releases before 1.27.0 compute an optional value of a constant tensor, but cannot store it."""
    text = f"""<ir_version: 8, opset_import: ["" : 18]> g ({inputs}) => (bool y)
        {{ {body} y = OptionalHasElement (o) }}"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [2], [1.0, 2.0]))

    assert expected == [predict_model(model, release) for release in ("1.26.0", "1.27.0")]


@pytest.mark.parametrize(("to", "result", "expected"), [(1, "float", "unknown"), (11, "double", "refused")])
def test_cast_to_the_same_type(to: int, result: str, expected: str) -> None:
    """The optimizer may remove the node before its kernel checks the attributes."""
    body = f'a = Relu (x) b = Cast <to = {to}, round_mode = "linear"> (a) y = Neg (b)'

    assert expected == verdict(24, f"(float[N] x) => ({result}[N] y) {{ {body} }}", "1.31.1")


@pytest.mark.parametrize(
    ("inputs", "call", "expected"),
    [
        ("float[1, 1, 4, 4] x, float[1, 2, 2, 2] g", 'GridSample <mode = "linear"> (x, g)', ["refused"] * 2),
        ("float[1, 1, 4, 4] x, float[1, 2, 2, 2] g", "GridSample (x, g)", ["loads"] * 2),
        ("float[1, 4, 4] x, float[1, 2, 2, 2] g", "GridSample (x, g)", ["refused"] * 2),
        ("float[] x, float[1, 2, 2, 2] g", "GridSample (x, g)", ["loads"] * 2),
        ("float[2, 2] x, float[2, 2] g", 'FusedGemm <activation = "Relu"> (x, g)', ["loads"] * 2),
        ("float[2, 2] x, float[2, 2] g", 'FusedGemm <activation = "Gelu"> (x, g)', ["refused"] * 2),
        ("float[] z, float x, float[4] g", "SkipLayerNormalization (x, x, g)", ["loads", "refused"]),
        ("float[1, 1, 4] x, float[4] g", "SkipLayerNormalization (x, x, g)", ["loads"] * 2),
        ("float[1, 1, 4] x, float[4] g", "MultiHeadAttention <num_heads = 0> (x)", ["refused"] * 2),
        ("float[1, 1, 4] x, float[4] g", "MultiHeadAttention <num_heads = 2> (x)", ["loads"] * 2),
        ("uint8[] x, float s, uint8 g", "QLinearAdd (x, s, g, x, s, , s)", ["refused"] * 2),
        ("uint8[] x, float s, uint8 g", "QLinearAdd (x, s, g, x, s, g, s)", ["loads"] * 2),
    ],
)
def test_operators_of_com_microsoft(inputs: str, call: str, expected: list[str]) -> None:
    """Shape inference and kernels of these operators reject ranks and attributes, which `onnx.checker` accepts."""
    head = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
    element = inputs.partition("[")[0]
    model = f"{head} g ({inputs}) => ({element}[] y) {{ y = com.microsoft.{call} }}"

    assert expected == [prediction(model, release).verdict for release in ("1.16.3", "1.28.0")]


@pytest.mark.parametrize(
    ("options", "outputs", "expected"),
    [
        ("scan_output_directions = [1]", "f, y", "loads"),
        ("scan_output_directions = [0, 0]", "f, y", "refused"),
        ("scan_input_directions = [1]", "f, y", "loads"),
        ("scan_input_directions = [4294967296]", "f, y", "loads"),
        ("scan_input_directions = [0, 0]", "f, y", "refused"),
        ("scan_input_directions = [2]", "f, y", "refused"),
    ],
)
def test_directions_of_scan(options: str, outputs: str, expected: str) -> None:
    """Each scanned input and output has a direction, of which releases read 32 bits."""
    body = "body = b (float[2] a, float[2] i) => (float[2] c, float[2] d) { c = Add (a, i) d = Identity (c) }"
    scan = f"{outputs} = Scan <num_scan_inputs = 1, {options}, {body}> (s, x)"

    assert expected == verdict(16, f"(float[2] s, float[5, 2] x) => (float[2] f, float[5, 2] y) {{ {scan} }}", "1.31.1")


def test_parts_of_a_pool_that_overlap_are_not_compared() -> None:
    """Comparing 8,000 parts of 8,000 numbers took 0.7 s, and four times as many numbers would take 16 times as long."""
    count = 8000
    lists = {"ngram_counts": [0, count] * (count // 2), "pool_int64s": range(count)}
    node = onnx.helper.make_node("TfIdfVectorizer", ["x"], ["y"], min_gram_length=1, max_gram_length=count, **lists)
    started = time.process_time()

    assert find_repeated_ngram(node.attribute) == ""
    assert time.process_time() - started < 0.3
