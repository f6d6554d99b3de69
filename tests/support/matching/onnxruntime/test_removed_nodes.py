"""Nodes without kernels that the optimizer may remove or fuse; each case was loaded on the releases."""

from __future__ import annotations

import pytest

from tests.support.matching.test_kernels import prediction

LAYER = """m = ReduceMean <axes = [-1]> (x) d = Sub (x, m) p = Pow (d, two) v = ReduceMean <axes = [-1]> (p)
    e = Add (v, two) s = Sqrt (e) q = Div (d, s) n = Mul (q, w)"""


def list_verdicts(graph: str, *releases: str, opset: int = 17) -> list[str]:
    """Return the predicted verdicts of releases for a graph."""
    return [prediction(f'<ir_version: 8, opset_import: ["" : {opset}]> g {graph}', it).verdict for it in releases]


@pytest.mark.parametrize(
    ("nodes", "opset", "expected"),
    [
        (f"{LAYER} y = Add (n, w)", 17, "unknown"),
        (f"{LAYER} y = Add (n, w)", 16, "refused"),
        (f"{LAYER} y = Transpose (n)", 17, "refused"),
        (f"{LAYER.replace('Sqrt', 'Identity')} y = Add (n, w)", 17, "refused"),
        (f"{LAYER.replace('(q, w)', '(c, w)')} c = Cast <to = 16> (q) y = Add (n, w)", 17, "unknown"),
        ("y = Add (x, w)", 17, "refused"),
    ],
)
def test_layer_normalization(nodes: str, opset: int, expected: str) -> None:
    """Releases since 1.30.0 fuse a decomposed LayerNormalization of bfloat16 into one with a function body."""
    graph = f"""(bfloat16[2, 2] x) => (bfloat16[2, 2] y)
        <bfloat16 two = {{16384}}, bfloat16[2] w = {{16256, 16256}}> {{ {nodes} }}"""

    verdicts = list_verdicts(graph, "1.29.0", "1.30.0", "1.32.0", opset=opset)

    assert verdicts == ["refused", expected, expected]


@pytest.mark.parametrize(
    ("condition", "branch", "expected"),
    [
        ("c = Constant <value = bool {1}> ()", "else", "unknown"),
        ("c = Constant <value = bool {1}> ()", "then", "refused"),
        ("c = Constant <value = bool {0}> ()", "then", "unknown"),
        ("c = Not (on)", "then", "unknown"),
        ("s = Shape (x) e = Gather (s, i) c = Equal (e, i)", "then", "unknown"),
        ("s = Shape (z) e = Gather (s, i) c = Equal (e, i)", "then", "refused"),
        ("c = Not (replaceable)", "then", "refused"),
    ],
)
def test_branch_of_constant_condition(condition: str, branch: str, expected: str) -> None:
    """Releases since 1.17.0 remove the branch of an If that a constant condition does not choose."""
    one, other = ("Erf", "Neg") if branch == "then" else ("Neg", "Erf")
    graph = f"""(double[2, 2] x, double[n, 2] z, bool replaceable) => (double[2, 2] y)
        <bool on = {{1}}, bool replaceable = {{1}}, int64 i = {{0}}> {{
        {condition}
        y = If (c) <then_branch = a () => (double[2, 2] o) {{ o = {one} (x) }},
            else_branch = b () => (double[2, 2] t) {{ t = {other} (x) }}> }}"""

    assert list_verdicts(graph, "1.16.3", "1.17.0", "1.32.0") == ["refused", expected, expected]


def test_function_called_in_removed_branch() -> None:
    """Nodes of a local function are removed with the branch that calls it, and stay where another node calls it."""
    text = """<ir_version: 8, opset_import: ["" : 17, "l" : 1]> g (double[2, 2] x) => (double[2, 2] y) {
        c = Constant <value = bool {1}> ()
        %s
        y = If (c) <then_branch = a () => (double[2, 2] o) { o = Neg (x) },
            else_branch = b () => (double[2, 2] t) { t = l.f (x) }> }
        <domain: "l", opset_import: ["" : 17]> f (v) => (w) { w = Erf (v) }"""

    assert prediction(text % "", "1.32.0").verdict == "unknown"
    assert prediction(text % "z = l.f (x)", "1.32.0").verdict == "refused"


@pytest.mark.parametrize(
    ("shape", "nodes", "expected"),
    [
        ("2, 2", "a = Erf (x) s = Shape (a) y = Neg (s)", "unknown"),
        ("2, 2", "a = Erf (x) b = Erf (a) c = Add (a, b) y = Shape (c)", "unknown"),
        ("2, 2", "a = Erf (x) s = Shape (a) c = Cast <to = 7> (a) y = Add (s, c)", "refused"),
        ("2, 2", "a = Erf (x) z = Neg (x) y = Shape (z)", "refused"),
        ("n, 2", "a = Erf (x) s = Shape (a) y = Neg (s)", "refused"),
    ],
)
def test_nodes_before_fixed_shapes(shape: str, nodes: str, expected: str) -> None:
    """Releases remove nodes if only the shape of their output is used, and all sizes are known."""
    graph = f"(double[{shape}] x) => (int64[r] y) {{ {nodes} }}"

    assert list_verdicts(graph, "1.16.3", "1.32.0") == [expected, expected]


@pytest.mark.parametrize(
    ("sizes", "target", "expected"),
    [
        ("2, 2", "1, 1", "unknown"),
        ("2, 2", "2, 2", "unknown"),
        ("1, 2", "2, 2", "refused"),
        ("n, m", "1, 1", "unknown"),
    ],
)
def test_expand_to_the_same_shape(sizes: str, target: str, expected: str) -> None:
    """Releases remove an Expand that does not change the shape; they have no kernel for bfloat16."""
    graph = f"""(bfloat16[{sizes}] x) => (bfloat16[a, b] y) <int64[2] t = {{{target}}}> {{
        p = Transpose (x) q = Expand (p, t) y = Transpose (q) }}"""

    assert list_verdicts(graph, "1.16.3", "1.32.0") == [expected, expected]
