"""Shapes that a subgraph declares for values of outer graphs."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxgate.model.reading.view import ModelView
from onnxgate.model.validity import ModelFault, find_fault
from tests.harness.models import parse

HEAD = '<ir_version: 8, opset_import: ["" : 18, "here" : 1]>'
ELSE = "else_branch = e () => (float[M] b) { b = Abs (x) }"
THREE = "a subgraph declares `x` with shape (3) instead of (2)"
ON_FIRST = ("openvino", "onnxruntime 1.16")


def judge(text: str) -> ModelFault | None:
    """Return the fault of a model."""
    return find_fault(ModelView(parse(text, HEAD)), Path("model.onnx"))


def branch(declared: str, nodes: str = "a = Neg (x)") -> str:
    """Return an If whose first branch declares values."""
    return f"If (c) <then_branch = t () => (float[A] a) <{declared}> {{ {nodes} }}, {ELSE}>"


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ("float[2] x", None),
        ("float[N] x", None),
        ("float[3] unused", None),
        ("float[3] x", THREE),
        ("float[N, 3] x", "a subgraph declares `x` with shape (?, 3) instead of (2)"),
        ("float[3] w", "a subgraph declares `w` with shape (3) instead of (2)"),
        ("int64[2] w", "a subgraph declares `w` with type tensor(int64) instead of tensor(float)"),
    ],
)
def test_inputs_and_weights(declared: str, message: str | None) -> None:
    """Releases compare the declared type of a value that a branch captures with that in the main graph."""
    body = f"{{ y = {branch(declared, 'p = Neg (w) a = Cast <to = 1> (x)')} z = Neg (unused) }}"
    fault = judge(f"g (bool c, float[2] x, float[2] unused) => (float[2] y) <float[2] w = {{1, 2}}> {body}")

    assert fault == (None if message is None else ModelFault(message, accepted_by=("openvino",)))


@pytest.mark.parametrize("declared", ["float[2] x", "float[3] x"])
@pytest.mark.parametrize(
    "nodes",
    [
        "x = Neg (i) y = {if}",
        "s = Shape (i) x = Reshape (i, s) y = {if}",
        "x = here.negate (i) y = {if}",
        "x = Neg (i) y = If (c) <then_branch = o () => (float[O] q) {{ q = {if} }}, {else}>",
        'y = Loop ("", c, i) <body = l (int64 n, bool k, float[2] v) => (bool m, float[2] w)'
        " {{ m = Identity (k) x = Neg (v) w = {if} }}>",
    ],
)
def test_computed_values(nodes: str, declared: str) -> None:
    """Releases infer the types of values that nodes compute, also in subgraphs."""
    nodes = nodes.replace("{if}", branch(declared)).replace("{else}", ELSE).replace("{{", "{").replace("}}", "}")
    function = '<domain: "here", opset_import: ["" : 18]> negate (i) => (y) { y = Neg (i) }'
    fault = judge(f"g (bool c, float[2] i) => (float[2] y) {{ {nodes} }} {function}")

    assert fault == (ModelFault(THREE, accepted_by=("openvino",)) if "3" in declared else None)


@pytest.mark.parametrize(
    ("outer", "nodes", "accepted_by"),
    [
        ("<float[2] x>", "x = Reshape (i, s)", ("openvino",)),
        ("", "x = Reshape (i, s)", None),
        ("<float[4] x>", "x = Neg (i)", None),
        ("", "x = MeanVarianceNormalization <axes = [0]> (i)", None),
        ("<int64[1] s = {2}>", "x = Reshape (i, s)", None),
    ],
)
def test_known_and_unknown_shapes(outer: str, nodes: str, accepted_by: tuple[str, ...] | None) -> None:
    """A declared shape counts if none is inferred, and a shape that contradicts it makes the size dynamic."""
    fault = judge(
        f"g (bool c, float[2] i, int64[1] s) => (float[N] y) {outer} {{ {nodes} y = {branch('float[3] x')} }}"
    )

    assert accepted_by == (fault.accepted_by if fault and not fault.harmless else None)


STORED = (
    "float[1] o = {1}, int64[1] l = {2}, int64[1] k = {1}, int64[1] z = {0}, "
    "int64 i = {0}, int64 e = {2}, int64 d = {1}"
)
LISTED = "a subgraph declares `x` with shape (3) instead of (2)"


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("x = ConstantOfShape (l)", LISTED),
        ("j = Identity (l) x = Expand (o, j)", LISTED),
        ("m = Mul (l, k) x = ConstantOfShape (m)", None),
        ("s = Shape (v) m = Mul (s, k) n = Expand (o, m) x = Neg (n)", None),
        ("s = Shape (v) m = Mul (s, k) x = Reshape (v, m)", LISTED),
        ("r = Range (i, e, d) x = Cast <to = 1> (r)", LISTED),
        ("m = Mul (e, d) r = Range (i, m, d) x = Cast <to = 1> (r)", None),
        ("h = OneHot (l, l, v) x = Squeeze (h, z)", None),
    ],
)
def test_results_computed_when_a_model_is_loaded(nodes: str, message: str | None) -> None:
    """Most releases replace a computed result by a constant before they know its shape, and do not compare it."""
    inner = branch("float[3] x", "a = Abs (x)")
    fault = judge(f"g (bool c, float[2] v) => (float[N] y) <{STORED}> {{ {nodes} y = {inner} }}")

    assert fault == (ModelFault(message, accepted_by=("openvino",)) if message else None)


def test_the_rank_of_a_computed_value() -> None:
    """1.16 infers fewer ranks than newer releases, but all types."""
    inner = branch("float[3, 1] x", "a = Identity (x)")
    fault = judge(f"g (bool c, float[2] i, int64[1] s) => (float[N] y) {{ x = Reshape (i, s) y = {inner} }}")

    other = branch("int64[N] x", "a = Cast <to = 1> (x)")
    of_other_type = judge(f"g (bool c, float[2] i, int64[1] s) => (float[N] y) {{ x = Reshape (i, s) y = {other} }}")

    message = "a subgraph declares `x` with shape (3, 1) instead of (?)"
    assert fault == ModelFault(message, accepted_by=ON_FIRST)
    assert of_other_type is not None
    assert of_other_type.accepted_by == ("openvino",)


@pytest.mark.parametrize(
    ("call", "declared", "accepted_by"),
    [
        ("y = here.either (c, x)", "float[2] f", None),
        ("y = here.either (c, x)", "float[3] f", None),  # `f` is renamed to `x`, but not where it is declared
        ("y = here.either (c, x)", "float[3] x", ("openvino",)),
        ("f = Neg (x) y = here.either (c, f)", "float[3] f", ("openvino",)),
        ("y = here.either (c, w)", "float[3] w", ON_FIRST),
        ("y = Neg (x)", "float[3] x", None),
    ],
)
def test_local_functions(call: str, declared: str, accepted_by: tuple[str, ...] | None) -> None:
    """A function is inlined before its subgraphs are compared, without renaming the values that they declare."""
    branches = f"then_branch = t () => (a) <{declared}> {{ a = Neg (f) }}, else_branch = e () => (b) {{ b = Abs (f) }}"
    function = f'<domain: "here", opset_import: ["" : 18]> either (c, f) => (y) {{ y = If (c) <{branches}> }}'
    fault = judge(f"g (bool c, float[2] x) => (float[2] y) <float[2] w = {{1, 2}}> {{ {call} }} {function}")

    assert (fault and fault.accepted_by) == accepted_by


def test_only_the_subgraph_that_uses_a_value_counts() -> None:
    """Releases ignore the type in a branch if only a branch inside of it uses the value."""
    inner = f"a = If (c) <then_branch = i () => (float[B] d) {{ d = Neg (x) }}, {ELSE.replace(' b', ' h')}>"
    body = f"{{ x = Neg (v) y = {branch('float[3] x', inner)} }}"

    assert judge(f"g (bool c, float[2] v) => (float[2] y) {body}") is None


def test_a_subgraph_can_declare_a_dynamic_size() -> None:
    """A shape that a subgraph declares for a value counts for the subgraphs in it."""
    inner = branch("float[2] x", "d = Neg (x)").replace("float[A] a", "float[B] d").replace(" b", " h")
    body = f"{{ y = {branch('float[3] x', f'p = Neg (x) a = {inner}')} }}"
    fault = judge(f"g (bool c, float[N] x) => (float[N] y) {body}")

    assert fault == ModelFault("a subgraph declares `x` with shape (2) instead of (3)", accepted_by=("openvino",))


def test_subgraph_of_a_custom_operator() -> None:
    """An operator of another domain may have a subgraph, whatever its name."""
    own = "here.Einsum <inner = t () => (float[A] a) { a = Neg (x) }> (x)"
    body = f"{{ p = {own} y = {branch('float[2] x')} }}"

    assert judge(f"g (bool c, float[2] x) => (float[M] y) {body}") is None
