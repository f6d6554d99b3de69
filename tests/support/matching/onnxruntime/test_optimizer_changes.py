"""Nodes that the optimizer fuses with their neighbors; each case was loaded on the releases."""

from __future__ import annotations

import pytest

from tests.support.matching.test_kernels import prediction


def list_verdicts(graph: str, *releases: str, opset: int = 17) -> list[str]:
    """Return the predicted verdicts of releases for a graph."""
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> g {graph}'
    return [prediction(text, release).verdict for release in releases]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("s = Sigmoid (x) y = Mul (x, s)", "refused"),
        ("a = Mul (k, x) s = Sigmoid (a) y = Mul (s, x)", "refused"),
        ("i = Identity (x) s = Sigmoid (i) y = Mul (x, s)", "refused"),
        ("d = Dropout (x) s = Sigmoid (x) y = Mul (d, s)", "refused"),
        ("s = Sigmoid (x) c = Cast <to = 11> (s) y = Mul (x, c)", "refused"),
        ("s = Sigmoid (x) e = Exp (s) y = Mul (x, e)", "loads"),
        ("s = Sigmoid (x) y = Mul (z, s)", "loads"),
        ("s = Sigmoid (x) y = Mul (s, s)", "loads"),
        ("s = Sigmoid (x) t = Mul (x, s) y = Add (s, t)", "loads"),
        ("a = Mul (x, v) s = Sigmoid (a) y = Mul (x, s)", "loads"),
        ("a = Mul (x, k) s = Sigmoid (a) t = Mul (x, s) y = Add (a, t)", "loads"),
    ],
)
def test_quick_gelu_of_doubles(nodes: str, expected: str) -> None:
    """Releases before 1.31.0 replace x * Sigmoid (x) by an operator without a kernel for doubles."""
    graph = f"""(double[2, 2] x, double[2, 2] z) => (double[2, 2] y)
        <double[1] k = {{2.0}}, double[2] v = {{1.0, 2.0}}> {{ {nodes} }}"""

    assert list_verdicts(graph, "1.16.0", "1.30.0", "1.31.0") == [expected, expected, "loads"]


@pytest.mark.parametrize(
    ("value_type", "nodes", "expected"),
    [
        ("double", "r = Relu (x) y = Clip (r, low)", "refused"),
        ("int32", "r = Relu (x) y = Clip (r, low)", "refused"),
        ("double", "r = Relu (x) d = Dropout (r) y = Clip (d, low)", "refused"),
        ("float", "r = Relu (x) y = Clip (r, low)", "loads"),
        ("double", "r = Relu (x) y = Clip (r, m)", "loads"),
        ("double", "r = Relu (x) y = Clip (r, , low)", "loads"),
        ("double", "r = Relu (x) c = Clip (r, low) y = Add (r, c)", "loads"),
    ],
)
def test_clipped_relu(value_type: str, nodes: str, expected: str) -> None:
    """All releases fail to fuse Relu and Clip if the constant minimum is neither float nor float16."""
    graph = f"({value_type}[2] x, {value_type} m) => ({value_type}[2] y) <{value_type} low = {{1}}> {{ {nodes} }}"

    assert list_verdicts(graph, "1.16.3", "1.32.0") == [expected, expected]


@pytest.mark.parametrize(
    ("shape", "nodes", "expected"),
    [
        ("2, 2, 2", "m = MatMul (x, w) y = BatchNormalization (m, b, b, b, b)", "refused"),
        ("2, 2, 2", "m = MatMul (x, w) t = Transpose (m) y = BatchNormalization (t, b, b, b, b)", "refused"),
        ("2, 2", "m = MatMul (x, w) y = BatchNormalization (m, b, b, b, b)", "loads"),
        ("2, 2, 2", "m = MatMul (x, b) y = BatchNormalization (m, b, b, b, b)", "loads"),
        ("2, 2, 2", "m = MatMul (x, s) y = BatchNormalization (m, b, b, b, b)", "refused"),
        ("2, 2, 2", "m = MatMul (w, x) y = BatchNormalization (m, b, b, b, b)", "loads"),
        ("2, 2, 2", "m = MatMul (x, w) n = BatchNormalization (m, b, b, b, b) y = Add (m, n)", "loads"),
        ("2, 2, 2", "m = MatMul (x, v) y = BatchNormalization (m, b, b, b, b)", "loads"),
        ("2, 2, 2", "m = MatMul (x, u) y = BatchNormalization (m, b, b, b, b)", "refused"),
        (
            "2, 2, 2",
            "m = MatMul (x, w) t = Transpose (m) p = Transpose (t) y = BatchNormalization (p, b, b, b, b)",
            "refused",
        ),
        (
            "2, 2, 2",
            "m = MatMul (x, w) n = MatMul (x, w) o = BatchNormalization (m, b, b, b, b) y = Add (n, o)",
            "refused",
        ),
        (
            "2, 2, 2",
            "m = MatMul (x, w) n = MatMul (x, w) i = Identity (m) p = BatchNormalization (i, b, b, b, b) "
            "y = Add (n, p)",
            "loads",
        ),
    ],
)
def test_normalized_products_of_batches(shape: str, nodes: str, expected: str) -> None:
    """Releases from 1.17.0 to 1.20.1 replace MatMul and BatchNormalization by Gemm, even if there are more axes."""
    graph = f"""(float[{shape}] x) => (float y) <float[2, 2] w = {{1, 2, 3, 4}},
        float[2, 3] v = {{1, 2, 3, 4, 5, 6}}, float[1, 2, 3] u = {{1, 2, 3, 4, 5, 6}},
        float[1, 2, 2] s = {{1, 2, 3, 4}}, float[2] b = {{1, 2}}> {{ {nodes} }}"""

    verdicts = list_verdicts(graph, "1.16.3", "1.17.0", "1.20.1", "1.21.0")

    assert verdicts == ["loads", expected, expected, "loads"]


@pytest.mark.parametrize(
    ("value_type", "nodes", "expected"),
    [
        ("double", "m = Gemm (x, x) y = Relu (m)", "refused"),
        ("double", "m = Gemm (x, x) d = Dropout (m) y = Relu (d)", "refused"),
        ("double", "m = Gemm (x, x) c = Cast <to = 11> (m) i = Identity (c) y = Tanh (i)", "refused"),
        ("double", "m = Gemm (x, x) c = Cast <to = 1> (m) d = Cast <to = 11> (c) y = Tanh (d)", "loads"),
        ("double", "m = Gemm (x, x) d = Dropout (m) r = Relu (d) y = Add (m, r)", "loads"),
        ("float", "m = Gemm (x, x) y = Relu (m)", "loads"),
        ("double", "m = Gemm (x, x) y = Exp (m)", "loads"),
        ("double", "m = Gemm (x, x) r = Relu (m) y = Add (m, r)", "loads"),
        ("double", "m = Gemm (x, x) t = Transpose (m) y = Relu (t)", "refused"),
        ("double", "m = Gemm (x, x) t = Transpose (m) u = Transpose <perm = [0, 1]> (t) y = Relu (u)", "refused"),
        ("double", "m = Gemm (x, x, x) t = Transpose (m) y = Relu (t)", "loads"),
        ("double", "m = Gemm (x, x) t = Transpose (m) r = Relu (t) y = Add (t, r)", "loads"),
    ],
)
def test_gemm_of_doubles_with_an_activation(value_type: str, nodes: str, expected: str) -> None:
    """Releases before 1.18.0 replace both by an operator without a kernel for doubles."""
    graph = f"({value_type}[2, 2] x) => ({value_type}[2, 2] y) {{ {nodes} }}"

    assert list_verdicts(graph, "1.17.3", "1.18.0") == [expected, "loads"]


def test_cycle_after_gemm() -> None:
    """Models with cycles are read to the end."""
    graph = "(double[2, 2] x) => (double[2, 2] y) { m = Gemm (x, x) m = Identity (m) y = Neg (x) }"

    assert "refused" not in list_verdicts(graph, "1.17.3")


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("s = Sigmoid (x) y = Mul (x, s)", "`Mul(14)` is fused with `Sigmoid` into `com.microsoft.QuickGelu`"),
        ("m = Gemm (x, x) y = Relu (m)", "`Gemm(13)` is fused with its activation into `com.microsoft.FusedGemm`"),
        (
            "t = Transpose (x) y = MatMul (t, x)",
            "`MatMul(13)` is fused with `Transpose` into `com.microsoft.FusedMatMul`",
        ),
    ],
)
def test_problem_of_a_fused_node(nodes: str, expected: str) -> None:
    """The problem is not that nodes are fused, but that the result has no kernel."""
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (double[2, 2] x) => (double[2, 2] y) {{ {nodes} }}'

    (found,) = prediction(text, "1.17.1").found

    assert found.miss is not None
    assert found.miss.problem == f"{expected}, which has no kernel for `tensor(double)`"


@pytest.mark.parametrize(
    ("value_type", "nodes", "expected"),
    [
        ("float", "v = LayerNormalization (x, s) y = Add (v, v)", "refused"),
        ("double", "v = LayerNormalization (x, s) a = Neg (v) b = Abs (v) y = Add (a, b)", "refused"),
        ("float16", "v = LayerNormalization (x, s) a = Neg (v) b = Abs (v) y = Add (a, b)", "loads"),
        ("float", "v = LayerNormalization (x, s, s) y = Add (v, v)", "loads"),
        ("float", "v = LayerNormalization (x, s) y = Neg (v)", "loads"),
        ("float", "v = LayerNormalization (x, s) a = Neg (v) b = Neg (v) y = Add (a, b)", "loads"),
        ("float", "v = LayerNormalization (x, s) y = Sum (v, v, v, v, v, v)", "refused"),
        ("float", "v = LayerNormalization (x, s) y = Sum (v, v, v, v, v, v, v)", "loads"),
        ("float", "v = LayerNormalization (x, s) a = Neg (v) h = Shape (v) y = Reshape (a, h)", "loads"),
        ("float", "v = LayerNormalization (x, s) y = Mul (v, v)", "unknown"),
        ("float", "v = LayerNormalization (x, s) a = Identity (v) b = Abs (v) y = Add (a, b)", "refused"),
        ("float", "v = LayerNormalization (x, s) a = Conv (v, t) b = Conv (v, t) y = Add (a, b)", "loads"),
        ("float", "v = LayerNormalization (x, s) y = HardSwish (v)", "unknown"),
        ("float", "v = LayerNormalization (x, s) a = Cast <to = 1> (v) b = Abs (v) y = Add (a, b)", "refused"),
        ("float", "v = LayerNormalization (x, s) i = Identity (v) a = Neg (i) b = Abs (i) y = Add (a, b)", "refused"),
        ("float", "v = LayerNormalization (x, s) a = Relu (v) b = Clip (a) c = Relu (v) y = Add (b, c)", "unknown"),
        (
            "float",
            """v = LayerNormalization (x, s) n = Size (x) c = Equal (n, n) y = If (c)
            <then_branch = t () => (float a) { a = Neg (v) }, else_branch = e () => (float b) { b = Abs (v) }>""",
            "unknown",
        ),
        ("float", "v = LayerNormalization (x, s) a = Sigmoid (v) y = Mul (v, a)", "unknown"),
        ("float", "v = LayerNormalization (x, s) a = MatMul (v, x) b = Exp (v) y = Neg (a)", "unknown"),
        ("float", "v = LayerNormalization (x, s) a = Cast <to = 1> (v) b = Cast <to = 11> (v) y = Neg (a)", "unknown"),
        ("float", "v = LayerNormalization (x, s) a = MatMul (v, x) b = MatMul (v, t) y = Add (a, b)", "refused"),
        ("float", "v = LayerNormalization (x, s) a = Mul (v, s) y = Neg (a)", "loads"),
    ],
)
def test_layer_normalization_without_a_bias(value_type: str, nodes: str, expected: str) -> None:
    """Releases before 1.19.0 crash if 2 to 6 inputs take its output: they look for an attention, and read the bias.

    If the optimizer may change the number, it is unknown.
    """
    graph = f"({value_type}[2, 2] x, {value_type}[2, 2] t, {value_type}[2] s) => ({value_type}[2, 2] y) {{ {nodes} }}"

    assert list_verdicts(graph, "1.16.0", "1.18.1", "1.19.0") == [expected, expected, "loads"]


@pytest.mark.parametrize(
    ("value_type", "options", "expected"),
    [
        ("float[2, 2]", "axis = 0", "refused"),
        ("float[2, 2]", "axis = -1", "refused"),
        ("float[N, 2]", "axis = 0", "loads"),
        ("float[2, N]", "axis = 0", "refused"),
        ("float[]", "axis = 0", "loads"),
        ("float[2, 2]", "num_outputs = 2", "loads"),
    ],
)
def test_split_of_a_known_size_needs_a_number_of_outputs(value_type: str, options: str, expected: str) -> None:
    """Since opset 18, Split requires the sizes of its outputs or their number, but only a known size is checked."""
    graph = f"({value_type} x) => (float y, float z) {{ y, z = Split <{options}> (x) }}"

    assert list_verdicts(graph, "1.16.0", "1.32.0", opset=18) == [expected, expected]
