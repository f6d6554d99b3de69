"""Equal nodes, and nodes that do nothing, before the optimizer fuses nodes; each case was loaded on the releases."""

from __future__ import annotations

import pytest

from tests.support.matching.test_kernels import prediction


def list_verdicts(graph: str, *releases: str, opset: int = 17) -> list[str]:
    """Return the predicted verdicts of releases for a graph."""
    return [prediction(f'<ir_version: 8, opset_import: ["" : {opset}]> g {graph}', it).verdict for it in releases]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("a = Gemm (x, x) b = Gemm (x, x) c = Sigmoid (a) d = Relu (b) y = Mul (c, d)", "loads"),
        ("a = Gemm (x, x) b = Gemm (x, x) c = Sigmoid (a) d = Sigmoid (b) y = Mul (c, d)", "refused"),
        ("a = Gemm (x, x) c = Sigmoid (a) d = Sigmoid (a) y = Mul (c, d)", "refused"),
        ("a = Gemm (x, x) b = Gemm (x, x) c = Sigmoid (a) y = Add (b, c)", "loads"),
        ("a = Gemm (x, x) b = Gemm (x, x) y = Sigmoid (a)", "refused"),
        ("a = Gemm (x, z) b = Gemm (z, x) c = Sigmoid (a) y = Add (b, c)", "refused"),
        ("a = Gemm <alpha = 1.0> (x, x) b = Gemm (x, x, ) c = Sigmoid (a) y = Add (b, c)", "loads"),
        ("a = Gemm <alpha = 2.0> (x, x) b = Gemm (x, x) c = Sigmoid (a) y = Add (b, c)", "refused"),
        ("e = Neg (x) f = Neg (x) a = Gemm (e, x) b = Gemm (f, x) c = Sigmoid (a) y = Add (b, c)", "loads"),
        ("i = Identity (x) a = Gemm (i, x) b = Gemm (x, x) c = Sigmoid (a) y = Add (b, c)", "loads"),
        ("a = Gemm (x, x, k) b = Gemm (x, x, l) c = Sigmoid (a) y = Add (b, c)", "loads"),
        ("a = Gemm (x, x, k) b = Gemm (x, x, m) c = Sigmoid (a) y = Add (b, c)", "refused"),
        ("a = Gemm (x, x, p) b = Gemm (x, x, q) c = Sigmoid (a) y = Add (b, c)", "refused"),
        ("a = Gemm (x, x) s = Add (a, zero) y = Relu (s)", "refused"),
        ("a = Gemm (x, x) s = Mul (one, a) y = Relu (s)", "refused"),
        ("a = Gemm (x, x) s = Add (a, one) y = Relu (s)", "loads"),
        ("a = Gemm (x, x) s = Sub (zero, a) y = Relu (s)", "loads"),
        ("a = Gemm (x, x) s = Add (a, nil) y = Relu (s)", "loads"),
        ("a = Gemm (x, x) r = Relu (a) y = CastLike (r, a)", "refused"),
        ("a = Gemm (x, x) r = Relu (a) h = Shape (a) y = Reshape (r, h)", "refused"),
        ("a = Gemm (w, w) y = Relu (a)", "loads"),
    ],
)
def test_products_with_activations(nodes: str, expected: str) -> None:
    """Releases before 1.18.0 merge equal nodes before they fuse Gemm and an activation."""
    many = ", ".join(["1.0"] * 4)
    graph = f"""(double[2, 2] x, double[2, 2] z) => (double[2, 2] y)
        <double[2] k = {{1, 2}}, double[2] l = {{1, 2}}, double[2] m = {{2, 1}},
        double zero = {{0}}, double one = {{1}},
        double[2, 2] w = {{{many}}}, double[1] p = {{1}}, double[1, 1] q = {{1}}, double[1, 1, 1] nil = {{0}}>
        {{ {nodes} }}"""

    assert list_verdicts(graph, "1.16.3", "1.17.3", "1.18.1") == [expected, expected, "loads"]


def test_fusion_in_a_local_function() -> None:
    """Nodes of local functions are fused like others."""
    text = """<ir_version: 8, opset_import: ["" : 17, "l" : 1]> g (double[2, 2] x) => (double[2, 2] y) { y = l.f (x) }
        <domain: "l", opset_import: ["" : 17]> f (v) => (w) { a = Gemm (v, v) w = Relu (a) }"""

    assert [prediction(text, it).verdict for it in ("1.16.3", "1.17.3", "1.18.1")] == ["refused", "refused", "loads"]


@pytest.mark.parametrize(
    ("outputs", "nodes", "expected"),
    [
        ("y", "a = Neg (x) b = Neg (x) s = Sigmoid (a) y = Mul (b, s)", "refused"),
        ("y", "s = Sigmoid (x) r = Sigmoid (x) u = Mul (x, s) v = Neg (r) y = Add (u, v)", "loads"),
        ("y, r", "s = Sigmoid (x) r = Sigmoid (x) y = Mul (x, s)", "refused"),
        ("y, a", "a = Neg (x) b = Neg (x) s = Sigmoid (a) y = Mul (b, s)", "refused"),
        ("y, a", "a = Neg (x) b = Neg (x) s = Sigmoid (b) y = Mul (a, s)", "loads"),
        ("y", "s = Sigmoid (x) v = Mul (x, s) w = Mul (x, s) y = Identity (v)", "loads"),
        ("y, v", "v = Abs (x) y = Identity (v) s = Sigmoid (v) w = Mul (v, s)", "refused"),
        ("y", "a = RandomNormalLike (x) b = RandomNormalLike (x) s = Sigmoid (a) y = Mul (b, s)", "loads"),
        ("y", "a = Pow (x, k) b = Pow (x, l) s = Sigmoid (a) y = Mul (b, s)", "refused"),
        ("y", "a = Pow (x, k) b = Pow (x, d) s = Sigmoid (a) y = Mul (b, s)", "loads"),
        ("y", "a = Pow (x, m) b = Pow (x, n) s = Sigmoid (a) y = Mul (b, s)", "loads"),
        ("y", "c = Sigmoid (k) s = Sigmoid (c) u = Mul (c, s) y = Add (x, u)", "loads"),
        ("y", "a = Mul (x, one) s = Sigmoid (a) y = Mul (x, s)", "loads"),
    ],
)
def test_quick_gelu(outputs: str, nodes: str, expected: str) -> None:
    """The first of equal nodes stays, in the order of the optimizer; others stay if the graph returns their output."""
    declared = ", ".join(f"double[N, 9] {name}" for name in outputs.split(", "))
    nine = ", ".join(["2.0"] * 9)
    graph = f"""(double[N, 9] x, double d) => ({declared}) <double k = {{2}}, double l = {{2}}, double d = {{2}},
        double[1, 1] one = {{2}}, double[9] m = {{{nine}}}, double[9] n = {{{nine}}}> {{ {nodes} }}"""

    assert list_verdicts(graph, "1.16.3", "1.26.0", "1.31.1") == [expected, expected, "loads"]


@pytest.mark.parametrize(
    ("node", "opset", "expected"),
    [
        ("Softmax <axis = 1> (x)", 11, "refused"),
        ("Softmax <axis = -1> (x)", 11, "loads"),
        ("Softmax <axis = 1> (x)", 13, "loads"),
        ("Softmax <axis = -1> (x)", 13, "refused"),
    ],
)
def test_default_attributes_of_each_version(node: str, opset: int, expected: str) -> None:
    """A node with a default attribute equals one without it; defaults depend on the version of the operator."""
    graph = f"(double[2, 9] x) => (double[2, 9] y) {{ a = Softmax (x) b = {node} s = Sigmoid (a) y = Mul (b, s) }}"

    assert list_verdicts(graph, "1.16.3", "1.26.0", opset=opset) == [expected, expected]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("r = Relu (x) c = Clip (r, low) d = Clip (r, low) y = Add (c, d)", "refused"),
        ("r = Relu (x) s = Relu (x) c = Clip (r, low) y = Add (s, c)", "refused"),
        ("r = Relu (x) s = Add (r, low) y = Clip (s, low)", "refused"),
    ],
)
def test_clipped_relu(nodes: str, expected: str) -> None:
    """All releases fuse Relu and Clip before and after they merge equal nodes."""
    graph = f"(int32[2] x) => (int32[2] y) <int32 low = {{0}}> {{ {nodes} }}"

    assert list_verdicts(graph, "1.16.3", "1.32.0") == [expected, expected]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("t = Transpose (x) u = Transpose (x) y = MatMul (t, u)", ["refused", "loads", "loads"]),
        ("t = Transpose (x) y = MatMul (t, t)", ["refused", "loads", "loads"]),
        ("t = Transpose (x) u = Transpose (z) y = MatMul (t, u)", ["refused", "refused", "refused"]),
        ("t = Transpose <perm = [0, 2, 1]> (x) u = Transpose <perm = [1, 0, 2]> (t) y = MatMul (u, z)", ["loads"] * 3),
    ],
)
def test_products_of_transposed(nodes: str, expected: list[str]) -> None:
    """Releases from 1.22.0 on do not fuse a product of a transposed value with itself."""
    nodes = nodes.replace("Transpose (", "Transpose <perm = [0, 2, 1]> (")
    graph = f"(double[2, 2, 2] x, double[2, 2, 2] z) => (double[2, 2, 2] y) {{ {nodes} }}"

    verdicts = list_verdicts(graph, "1.21.1", "1.22.1", "1.25.1")

    assert expected == verdicts if "1, 0, 2" not in nodes else "refused" not in verdicts


@pytest.mark.parametrize(
    ("perms", "expected"),
    [
        (([1, 0], [1, 0]), "refused"),
        (([1, 0], [0, 1]), "refused"),
        (([0, 1, 2],), "refused"),
        (([0, 2, 1], [0, 2, 1]), "loads"),
        (([0, 2, 1], [0, 2, 1], [0, 1, 2]), "refused"),
        (([2, 0, 1], [2, 0, 1]), "refused"),
        (([2, 0, 1], [1, 2, 0]), "loads"),
    ],
)
def test_products_after_transposes_in_sequence(perms: tuple[list[int], ...], expected: str) -> None:
    """Transpose nodes are joined before MatMul is fused with them, and removed if they change nothing together."""
    nodes = "".join(f"t{i + 1} = Transpose <perm = {perm}> (t{i}) " for i, perm in enumerate(perms))
    value = f"double[{', '.join('2' for _ in perms[0])}]"
    graph = f"({value} t0, {value} z) => ({value} y) {{ {nodes} y = MatMul (t{len(perms)}, z) }}"

    assert list_verdicts(graph, "1.16.3", "1.21.1", "1.25.1") == [expected] * 3


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("t = Transpose (f) c = Cast <to = 11> (t) y = MatMul (z, c)", "refused"),
        ("t = Transpose (f) z2 = Cast <to = 11> (t) y = MatMul (z, z2)", "refused"),
        ("t = Transpose (f) c = Cast <to = 10> (t) d = Cast <to = 11> (c) y = MatMul (z, d)", "loads"),
        ("g = Gemm (f, f) t = Transpose (g) c = Cast <to = 11> (t) y = MatMul (z, c)", "loads"),
    ],
)
def test_products_after_a_cast(nodes: str, expected: str) -> None:
    """MatMul is also fused with a Transpose before a Cast."""
    more = ", double[2, 2] z2" if "z2" in nodes else ""
    graph = f"(double[2, 2] z, float[2, 2] f) => (double[2, 2] y{more}) {{ {nodes} }}"

    assert list_verdicts(graph, "1.16.3", "1.21.1", "1.25.1") == [expected] * 3


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("g = Gemm (x, x) t = Transpose (g) y = MatMul (x, t)", "loads"),
        ("g = Gemm (x, x) t = Transpose (g) u = Transpose (g) y = MatMul (u, t)", "loads"),
        ("g = Gemm (x, x, x) t = Transpose (g) y = MatMul (x, t)", "refused"),
        ("g = Gemm (x, x) t = Transpose (g) m = MatMul (x, t) y = Add (g, m)", "refused"),
    ],
)
def test_products_of_a_transposed_gemm(nodes: str, expected: str) -> None:
    """Transpose is fused with a Gemm without a bias before it, so that MatMul is not fused with it."""
    graph = f"(double[2, 2] x) => (double[2, 2] y) {{ {nodes} }}"

    assert list_verdicts(graph, "1.16.3", "1.21.1", "1.25.1") == [expected] * 3


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (
            "a = Neg (x) b = Neg (x) v = LayerNormalization (a, s) u = LayerNormalization (b, s) y = Add (u, v)",
            "refused",
        ),
        ("v = LayerNormalization (x, s) y = CastLike (v, v)", "loads"),
        ("v = LayerNormalization (t, s) y = Add (v, v)", "loads"),
    ],
)
def test_layer_normalization(nodes: str, expected: str) -> None:
    """Releases before 1.19.0 count the uses of a LayerNormalization after they merged equal nodes."""
    graph = f"""(float[2, 2] x) => (float[2, 2] y) <float[2, 2] t = {{1, 2, 3, 4}}, float[2] s = {{1, 2}}>
        {{ {nodes} }}"""

    verdicts = list_verdicts(graph, "1.16.3", "1.18.1", "1.19.2")

    assert verdicts == [expected, expected, "loads"] or (expected == "loads" and "refused" not in verdicts)


@pytest.mark.parametrize(
    "nodes",
    [
        "a = Neg (x) c = CastLike (a, x) d = CastLike (a, x) y = MatMul (c, c) n = LayerNormalization (d, s)",
        "a = Erf (x) c = CastLike (a, x) y = CastLike (a, x)",
    ],
)
def test_equal_casts_of_float16(nodes: str) -> None:
    """A cast of float16 has the neighbors of all equal ones."""
    graph = f"(float16[2, 2] x) => (float16[2, 2] y) <float16[2] s = {{1, 2}}> {{ {nodes} }}"

    assert "refused" not in list_verdicts(graph, "1.17.3", "1.22.1", "1.26.0")


def test_relu_without_a_kernel_before_clip() -> None:
    """Releases remove a Relu before Clip, so that it needs no kernel."""
    graph = "(int64[2] x) => (int64[2] y) <int64 high = {{9}}> {{ r = Relu (x) y = Clip (r, , high) {} }}"

    assert list_verdicts(graph.format(""), "1.16.3", "1.32.0") == ["unknown", "unknown"]
    assert list_verdicts(graph.format("n = Neg (r)"), "1.16.3", "1.32.0") == ["refused", "refused"]
