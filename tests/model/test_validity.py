"""Validity checks of a model: the fault and its node."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxgate.model.reading.structure import read_structure, read_view
from onnxgate.model.reading.view import ModelView
from onnxgate.model.validity import ModelFault, explain_unchecked, find_fault, find_missing_operators
from tests.harness.models import make_external, parse, write
from tests.model.equality.test_model_comparison import BRANCHES, FUNCTION


def judged(tmp_path: Path, model: onnx.ModelProto | str, large_bytes: int = 10**9) -> ModelFault | None:
    """Return the fault of a model that is read from a file."""
    path = write(tmp_path / "model.onnx", model)
    return find_fault(read_view(path, large_bytes=large_bytes, small_bytes=64), path)


FUNCTION_HEAD = '<ir_version: 8, opset_import: ["": 18, "my": 1]>'
TWINS_IN_FUNCTION = """g (float[N] x) => (float[N] y) { y = Relu (x) }
<domain: "my", opset_import: ["": 18]> f (a) => (b) { [n] c = Relu (a) [n] b = Neg (c) }"""

VALID = {
    "plain": parse(),
    "branches": parse(BRANCHES),
    "local function": parse(FUNCTION, ""),
    "own domain": parse(
        "g (float[N] x) => (float[N] y) { y = my.Foo (x) }", '<ir_version: 8, opset_import: ["": 18, "my": 7]>'
    ),
    "node of the default domain's long name": parse("g (float[N] x) => (float[N] y) { y = ai.onnx.Relu (x) }"),
    "import of the default domain's long name": parse(head='<ir_version: 8, opset_import: ["ai.onnx": 18]>'),
    "both names of the default domain": parse(
        "g (float[N] x) => (float[N] y) { y = ai.onnx.Relu (x) }",
        '<ir_version: 8, opset_import: ["": 18, "ai.onnx": 18]>',
    ),
    "moments of the default axes": parse(
        "g (float[N, 3, 4, 4] x) => (float[N, 3, 4, 4] y) { y = MeanVarianceNormalization (x) }"
    ),
    "com.microsoft": parse("g (float[N] x) => (float[N] y) { y = com.microsoft.Gelu (x) }"),
    "loop around an operator of com.microsoft": parse(
        "g (float[N] x, int64 n, bool c) => (float[N] y) { z = com.microsoft.Gelu (x) w = Loop (n, c, x) <body = b "
        "(int64 i, bool d, float[N] a) => (bool e, o) { e = Identity (d) o = com.microsoft.Gelu (a) }> y = Relu (w) }"
    ),
    "scan around an operator of com.microsoft": parse(
        "g (float[2, N] x) => (float[2, N] y) { z = Scan <num_scan_inputs = 1, body = b (float[N] a) => (o) "
        "{ p = com.microsoft.Gelu (a) o = Neg (p) }> (x) y = Relu (z) }"
    ),
    "branch with an operator of com.microsoft": parse(
        "g (bool c, float[N] x) => (float[N] y) { z = If (c) <then_branch = t () => (a) { a = com.microsoft.Gelu (x) },"
        " else_branch = e () => (h) { h = Neg (x) }> y = Relu (z) }"
    ),
    "function that imports a domain that the model does not import": parse(
        "g (float[N] x) => (float[N] y) { y = my.f (x) } "
        '<domain: "my", opset_import: ["": 18]> f (a) => (b) { s = Shape (a) b = Reshape (a, s) }',
        '<ir_version: 8, opset_import: ["my": 1]>',
    ),
    "shape that a branch captures, and callers may replace": parse(
        "g (bool c, float[2, 2] x, int64[2] s) => (float[a, b] y) <int64[2] s = {-99, 2}> { y = If (c) <then_branch = "
        "t () => (float[d, e] o) { o = Reshape (x, s) }, else_branch = e () => (float[f, g] h) { h = Neg (x) }> }"
    ),
    "branches next to operators of com.microsoft": parse(
        "g (bool c, float[N] x) => (float[M] y, float[K] z) { u = com.microsoft.Gelu (x) y = If (c) <then_branch = t "
        "() => (a) { a = Neg (u) }, else_branch = e () => (h) { h = Neg (x) }> z = If (c) <then_branch = v () => (o) "
        "{ o = Add (x, y) }, else_branch = w () => (p) { q = Neg (x) p = com.microsoft.Gelu (q) }> }"
    ),
    "function that calls one with an operator of com.microsoft": parse(
        "g (float[N] x) => (float[M] y) { z = d.h (x) y = Concat <axis = 0> (z, x) } "
        '<domain: "d", opset_import: ["com.microsoft" : 1]> f (a) => (b) { b = com.microsoft.Gelu (a) } '
        '<domain: "d", opset_import: ["" : 18, "d" : 1]> h (a) => (b) { c = d.f (a) b = Relu (c) }',
        '<ir_version: 8, opset_import: ["" : 18, "d" : 1]>',
    ),
    "experimental": parse("g (float[N] x) => (float[N] y) { y = Affine (x) }"),
    "added by the runtime": parse(
        "g (float[N] x, float[1] s) => (float[N] y) { y = SimplifiedLayerNormalization (x, s) }"
    ),
    "newer opset": parse(
        "g (float[N] x) => (float[N] y) { y = NotYet (x) }", '<ir_version: 8, opset_import: ["": 99]>'
    ),
    "newer IR": parse(head='<ir_version: 99, opset_import: ["": 18]>'),
    "constants with the names of other nodes": parse(
        "g (float[N] x) => (float[N] y) { [n] a = Constant <value_float = 1.> () [n] b = Constant <value_int = 2> () "
        "[n] c = Add (x, a) [m] y = Pow (c, b) }"
    ),
    "nodes of branches with the names of outer nodes": parse(
        BRANCHES.replace("y = If", "[n] y = If").replace("a = Relu", "[n] a = Relu").replace("h = Neg", "[n] h = Neg")
    ),
    "function that is not called, with nodes of one name": parse(TWINS_IN_FUNCTION, FUNCTION_HEAD),
    "IR 3": parse(
        "g (float[N] x, float[1] w) => (float[N] y) <float[1] w = {1}> { y = Add (x, w) }",
        '<ir_version: 3, opset_import: ["": 7]>',
    ),
}


@pytest.mark.parametrize("name", VALID)
@pytest.mark.parametrize("large_bytes", [0, 10**9])
def test_valid(tmp_path: Path, name: str, large_bytes: int, capfd: pytest.CaptureFixture[str]) -> None:
    """Valid models have no fault, and nothing is printed."""
    actual = judged(tmp_path, VALID[name], large_bytes)

    assert (actual, capfd.readouterr()) == (None, ("", ""))


IR_3 = '<ir_version: 3, opset_import: ["": 9]>'
IR_4 = '<ir_version: 4, opset_import: ["": 9]>'
BIAS = "<float[1] w = {1}>"
ACCEPTED = {
    "unsorted nodes": (
        parse("g (float[N] x) => (float[N] y) { y = Relu (z) z = Neg (x) }"),
        "Nodes in a graph must be",
    ),
    "unsorted nodes with a branch": (
        parse(
            "g (bool c, float[2] x) => (float[2] y) { y = If (c) <then_branch = t () => (float[2] a) { a = Relu (z) }, "
            "else_branch = e () => (float[2] b) { b = Neg (x) }> z = Neg (x) }"
        ),
        "Nodes in a graph must be",
    ),
    "graph without a name": (parse("g (float[N] x) => (float[N] y) { y = Relu (x) }"), "Field 'name' of 'graph'"),
    "output without a type": (parse("g (float[N] x) => (float[N] y) { y = Relu (x) }"), "Field 'type' of 'value_info'"),
    "IR 3, weight that is not an input": (
        parse(f"g (float[N] x) => (float[N] y) {BIAS} {{ y = Add (x, w) }}", IR_3),
        "w in initializer but not in graph input",
    ),
    "two weights of one name": (
        parse(f"g (float[N] x) => (float[N] y) {BIAS} {{ y = Add (x, w) }}"),
        "two initializers are named `w`",
    ),
    "GroupNormalization before opset 21": (
        parse("g (float[1, 4] x, float[2] s) => (float[1, 4] y) { y = GroupNormalization <num_groups = 2> (x, s, s) }"),
        "Op registered for GroupNormalization is deprecated",
    ),
    "unused weight without a name": (parse(f"g (float[N] x) => (float[N] y) {BIAS} {{ y = Relu (x) }}"), "Tensor init"),
    "unused weight of a wrong size": (
        parse(f"g (float[N] x) => (float[N] y) {BIAS} {{ y = Relu (x) }}"),
        "tensor `w` has 1 value, but its shape and type require 3",
    ),
    **{
        f"unused constant with {count} values": (
            parse(
                f"g (float[N] x) => (float[N] y) {{ c = Constant <value = float[{count}] {values}> () y = Relu (x) }}"
            ),
            message,
        )
        for count, values, message in ((1, "{1}", "tensor `c` has 1 value"), (5, "{1, 2, 3, 4, 5}", "tensor `c` has 5"))
    },
}
"""Violations of the specification that ONNX Runtime 1.16–1.31 accept -> model and start of the message."""


def violate(name: str, model: onnx.ModelProto) -> onnx.ModelProto:
    """Add the violations that ONNX text cannot express."""
    match name:
        case "graph without a name":
            model.graph.name = ""
        case "output without a type":
            model.graph.output[0].ClearField("type")
        case "two weights of one name":
            model.graph.initializer.append(model.graph.initializer[0])
        case "unused weight without a name":
            model.graph.initializer[0].name = ""
        case "unused weight of a wrong size":
            model.graph.initializer[0].dims[0] = 3
        case "unused constant with 1 values" | "unused constant with 5 values":
            model.graph.node[0].attribute[0].t.dims[0] = 3
    return model


@pytest.mark.parametrize("outputs", [[], ["c", "d"]])
def test_constants_need_one_output(tmp_path: Path, outputs: list[str]) -> None:
    """Runtimes refuse a constant without exactly one output."""
    model = parse("g (float[N] x) => (float[N] y) { c = Constant <value_float = 1> () y = Relu (x) }")
    model.graph.node[0].output[:] = outputs
    fault = judged(tmp_path, model)

    assert fault is not None
    assert not fault.harmless


@pytest.mark.parametrize("use", ["y = Add (x, c)", "y = Relu (x) z = Identity (c)"])
def test_constants_of_a_wrong_size_are_refused_if_used(tmp_path: Path, use: str) -> None:
    """Runtimes read the values of a constant that a node uses."""
    text = f"g (float[N] x) => (float[N] y) {{ c = Constant <value = float[5] {{1, 2, 3, 4, 5}}> () {use} }}"
    fault = judged(tmp_path, violate("unused constant with 5 values", parse(text)))

    assert fault is not None
    assert not fault.harmless


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_violations(tmp_path: Path, name: str) -> None:
    """A violation of the specification that all runtimes accept is harmless."""
    model, message = ACCEPTED[name]
    fault = judged(tmp_path, violate(name, onnx.ModelProto.FromString(model.SerializeToString())))

    assert fault is not None
    assert (fault.harmless, fault.about, fault.message[: len(message)]) == (True, "accepted", message)


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_violations_hide_no_fault(tmp_path: Path, name: str) -> None:
    """A fault that runtimes refuse is reported, although an accepted violation comes first."""
    model = violate(name, onnx.ModelProto.FromString(ACCEPTED[name][0].SerializeToString()))
    model.graph.node.add(op_type="Nope", input=["x"], output=["nope"], name="n")
    fault = judged(tmp_path, model)

    assert fault is not None
    assert (fault.harmless, fault.about) == (False, "operator")


@pytest.mark.parametrize(
    ("head", "unknown"),
    [
        ('<ir_version: 8, opset_import: ["": 18]>', ""),
        ('<ir_version: 8, opset_import: ["": 18, "my": 99]>', ""),
        (
            '<ir_version: 8, opset_import: ["": 99, "ai.onnx.ml": 98]>',
            "opset 99 of `ai.onnx` and opset 98 of `ai.onnx.ml`",
        ),
        ('<ir_version: 97, opset_import: ["ai.onnx": 99]>', "IR version 97 and opset 99 of `ai.onnx`"),
    ],
)
def test_unchecked(head: str, unknown: str) -> None:
    """Versions that the installed onnx does not support are not checked, and the reason is reported."""
    reason = f"onnx {onnx.__version__} does not support {unknown}, so `onnx.checker` was skipped"

    assert (reason if unknown else "") == explain_unchecked(ModelView(parse(head=head)))


FAULTS = {
    "unknown operator": (
        "g (float[N] x) => (float[N] y) { [n] y = Nope (x) }",
        ModelFault("No Op registered for Nope with domain_version of 18", "n", about="operator"),
    ),
    "unknown attribute": (
        "g (float[N] x) => (float[N] y) { [n] y = Relu <a = 1> (x) }",
        ModelFault("Unrecognized attribute: a for operator Relu", "n", about="attribute"),
    ),
    "types": (
        "g (float[N] x, int64[N] i) => (float[N] y) { [n] y = Add (x, i) }",
        ModelFault("B has inconsistent type tensor(int64)", "n", about="type"),
    ),
    "shapes": (
        "g (float[2, 3] x, float[4, 5] z) => (float[2, 5] y) { [n] y = MatMul (x, z) }",
        ModelFault("Incompatible dimensions for matrix multiplication", "n"),
    ),
    "shapes beside an operator of com.microsoft": (
        "g (bool c, float[2, 3] x, float[4, 5] z) => (float[a, b] y) { [n] y = If (c) <then_branch = t () => (o) "
        "{ o = MatMul (x, z) }, else_branch = e () => (h) { h = com.microsoft.Gelu (x) }> }",
        ModelFault("Incompatible dimensions for matrix multiplication", "n"),
    ),
    "shapes after an operator of com.microsoft": (
        "g (int64 n, bool c, float[2] x) => (float[2] y) { y = Loop (n, c, x) <body = b (int64 i, bool d, float[2] a) "
        "=> (bool e, o) { e = Identity (d) p = Concat <axis = 7> (a, a) q = com.microsoft.Gelu (a) o = Relu (q) }> }",
        ModelFault("axis must be in [-rank, rank-1]."),
    ),
    **{
        f"shapes in a branch next to {what}": (
            "g (bool c, float[2, 3] x) => (float[a, b] y) { u = com.microsoft.Gelu (x) [n] y = If (c) "
            f"<then_branch = t () => (o) {{ o = MatMul (x, x) }}, else_branch = e () => (h) {{ {body} }}> }}",
            ModelFault("Incompatible dimensions for matrix multiplication", "n"),
        )
        for what, body in (
            ("an operator of com.microsoft that is used outside, too", "h = com.microsoft.Gelu (x)"),
            ("a value of unknown type", "h = Neg (u)"),
            (
                "a branch of unknown types",
                "h = If (c) <then_branch = v () => (p) { p = Neg (u) }, else_branch = w () => (q) { q = Neg (x) }>",
            ),
        )
    },
    "shape that a branch captures": (
        "g (bool c, float[2, 2] x) => (float[a, b] y) <int64[2] s = {-99, 2}> { [n] y = If (c) <then_branch = t () => "
        "(float[d, e] o) { o = Reshape (x, s) }, else_branch = e () => (float[f, g] h) { h = Neg (x) }> }",
        ModelFault("Invalid dimension value: -99", "n"),
    ),
    "opset of more than 32 bits": (
        parse("g (float[N] x) => (float[N] y) { y = Relu (x) }", f'<ir_version: 8, opset_import: ["": {2**32 + 17}]>'),
        ModelFault(f"it imports opset {2**32 + 17} of `ai.onnx`, which exceeds 32 bits"),
    ),
    "shapes that a local function computes": (
        parse(
            "g (float[2, 3] x) => (float[a, b] y) { s = my.f () y = Expand (x, s) } "
            '<domain: "my", opset_import: ["": 18]> f () => (b) { b = Constant <value_ints = [3, 3]> () }',
            FUNCTION_HEAD,
        ),
        ModelFault("Incompatible dimensions"),
    ),
    "undefined": (
        "g (float[N] x) => (float[N] y) { [n] y = Add (x, gone) }",
        ModelFault(
            "Nodes in a graph must be topologically sorted, however input 'gone' of node: name: n OpType: Add "
            "is not output of any previous nodes.",
            "n",
        ),
    ),
    "unsorted nodes in a branch": (
        "g (bool c, float[2] x) => (float[2] y) { [n] y = If (c) <then_branch = t () => (float[2] a) "
        "{ a = Relu (z) z = Neg (x) }, else_branch = e () => (float[2] b) { b = Neg (x) }> }",
        ModelFault(
            "Nodes in a graph must be topologically sorted, however input 'z' of node: name: OpType: Relu "
            "is not output of any previous nodes.",
            "n",
        ),
    ),
    "cycle": (
        "g (float[N] x) => (float[N] y) { [n] a = Add (x, b) b = Relu (a) y = Relu (b) }",
        ModelFault(
            "Nodes in a graph must be topologically sorted, however input 'b' of node: name: n OpType: Add "
            "is not output of any previous nodes.",
            "n",
        ),
    ),
    "declared shape": (
        "g (float[2] x) => (float[3] y) { [n] y = Relu (x) }",
        ModelFault("Inferred shape and existing shape differ in dimension 0: (2) vs (3)", "n", harmless=True),
    ),
    "no rank": (
        "g (float[N] x) => (float[] y) { [n] y = Relu (x) }",
        ModelFault("output `y` has no shape (unknown rank)", harmless=True, about="output shape"),
    ),
    "harm and no harm": (
        "g (float[2] x, float[2, 3] a, float[4, 5] b) => (float[3] y, float[2, 5] z)"
        " { [n] y = Relu (x) [m] z = MatMul (a, b) }",
        ModelFault("Incompatible dimensions for matrix multiplication", "m"),
    ),
    "node names": (
        "g (float[N] x) => (float[N] y) { [n] t = Relu (x) [n] y = Relu (t) }",
        ModelFault("two nodes are named `n`", "n", accepted_by=("openvino", "tract")),
    ),
    "node names in a called function": (
        parse(TWINS_IN_FUNCTION.replace("Relu (x)", "my.f (x)"), FUNCTION_HEAD),
        ModelFault("two nodes of its local function `my.f` are named `n`", "n"),
    ),
    "node names in a branch": (
        BRANCHES.replace("h = Neg (x) b = Abs (h)", "[n] h = Neg (x) [n] b = Abs (h)"),
        ModelFault("two nodes are named `n`", "n", accepted_by=("openvino", "tract")),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(tmp_path: Path, name: str) -> None:
    """Each fault has a message and its node."""
    text, expected = FAULTS[name]

    assert judged(tmp_path, text) == expected


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("graph", "it has no graph"),
        ("ir_version", "it has no IR version"),
        ("opset_import", "it does not import any opset"),
    ],
)
def test_missing_parts(tmp_path: Path, field: str, message: str) -> None:
    """A protobuf message without required fields of a model is invalid."""
    model = parse()
    model.ClearField(field)

    assert judged(tmp_path, model) == ModelFault(message)


def weighty(data: bytes) -> onnx.ModelProto:
    """Return a model with a weight of 40 floats and this data."""
    model = parse("g (float[N, 40] x) => (float[N, 40] y) { y = Add (x, w) }")
    model.graph.initializer.add(name="w", dims=[40], data_type=TensorProto.FLOAT, raw_data=data)
    return model


@pytest.mark.parametrize("large_bytes", [0, 10**9])
@pytest.mark.parametrize("size", [156, 160, 164])
def test_size_of_data(tmp_path: Path, size: int, large_bytes: int) -> None:
    """The data size must match shape and type, even if the data was omitted."""
    message = f"tensor `w` has {size} bytes, but its shape and type require 160"
    expected = None if size == 160 else ModelFault(message)

    assert judged(tmp_path, weighty(bytes(size)), large_bytes) == expected


@pytest.mark.parametrize("large_bytes", [0, 10**9])
def test_types_of_large_weights_are_judged(tmp_path: Path, large_bytes: int) -> None:
    """An omitted weight still has its type and shape."""
    model = weighty(bytes(160))
    model.graph.initializer[0].data_type = TensorProto.INT32

    assert judged(tmp_path, model, large_bytes) == ModelFault("B has inconsistent type tensor(int32)", about="type")


@pytest.mark.parametrize("away", [True, False])
def test_weights_that_are_inputs_of_another_type(tmp_path: Path, away: bool) -> None:
    """A weight and an input of the same name but another type, as after a faulty float16 conversion, are a fault."""
    model = weighty(bytes(160))
    model.graph.input.add(name="w", type=onnx.helper.make_tensor_type_proto(TensorProto.FLOAT16, [40]))
    findings = judged(tmp_path, model, 0 if away else 10**9)

    assert findings is not None
    assert not findings.harmless
    assert "has type tensor(float16)" in findings.message


@pytest.mark.parametrize("body", ["y = Relu (x)", "y = Relu (x) z = Neg (w)"])
@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ("float[2]", None),
        ("float[N]", None),
        ("int32[2]", "initializer `w` has type tensor(float), but input `w` has type tensor(int32)"),
        ("float[3]", "initializer `w` has shape (2), but input `w` has shape (3)"),
        ("float[N, 2]", "initializer `w` has shape (2), but input `w` has shape (?, 2)"),
    ],
)
def test_weights_that_contradict_inputs(tmp_path: Path, body: str, declared: str, message: str | None) -> None:
    """Releases compare a weight with the input of its name also if no node uses it."""
    fault = judged(tmp_path, f"g (float[N] x, {declared} w) => (float[N] y) <float[2] w = {{1, 2}}> {{ {body} }}")

    assert fault == (None if message is None else ModelFault(message))


@pytest.mark.parametrize(
    ("model", "is_harmless", "accepted_by"),
    [
        (
            "g (float[2] x) => (float[2] y) { y = Softmax <axis = 0> (x) }",
            False,
            ("onnxruntime 1.16", "onnxruntime 1.17"),
        ),
        ("g (float[2] x) => (float[2] y) { y = Softmax <axis = 7> (x) }", False, ()),
        ("g (float[2] x) => (float[2] y) { c = Constant <value_float = 1.0> () y = Add (x, c) }", True, ()),
        (
            TWINS_IN_FUNCTION.replace("Relu (x)", "my.f (x)").replace("Relu", "Softmax <axis = 0>").replace("[n]", ""),
            True,
            (),
        ),
    ],
)
def test_repeated_attributes(tmp_path: Path, model: str, is_harmless: bool, accepted_by: tuple[str, ...]) -> None:
    """The last one counts for releases that accept them, which depends on the operator and its place."""
    proto = parse(model, FUNCTION_HEAD)
    nodes = [node for holder in (*proto.functions, proto.graph) for node in holder.node]
    node = next(node for node in nodes if node.attribute)
    node.attribute.add().CopyFrom(node.attribute[0])
    fault = judged(tmp_path, proto)

    assert fault is not None
    assert "appeared multiple times" in fault.message
    assert (fault.harmless, fault.accepted_by) == (is_harmless, accepted_by)


ELSE = "else_branch = e () => (float[M] b) { b = Abs (x) }"
HEAD_WITH_FUNCTION = '<ir_version: 8, opset_import: ["" : 18, "here" : 1]>'
INCOMPATIBLE = "k = Neg (x) y = Add (k, x)"


@pytest.mark.parametrize(
    ("call", "declared", "accepted_by"),
    [
        ("y = here.either (c, x)", "float[3] a", ("onnxruntime 1.16",)),
        ("z = here.either (c, x) y = Neg (z)", "float[3] a", ()),
        ("y = here.either (c, x)", "float[N] a", None),
    ],
)
def test_contradicting_shapes_in_a_subgraph_of_a_local_function(
    tmp_path: Path, call: str, declared: str, accepted_by: tuple[str, ...] | None
) -> None:
    """Releases since 1.17 refuse them there, unlike in a subgraph of the main graph."""
    body = f"{{ y = If (c) <then_branch = t () => ({declared}) {{ a = Neg (x) }}, {ELSE}> }}"
    function = f'<domain: "here", opset_import: ["" : 18]> either (c, x) => (y) {body}'
    signature = "g (bool c, float[2] x) => (float[2] y)"
    inner = judged(tmp_path, parse(f"{signature} {{ {call} }} {function}", HEAD_WITH_FUNCTION))
    outer = judged(tmp_path, f"{signature} {body}")

    assert (inner and (inner.harmless, inner.accepted_by)) == (
        accepted_by if accepted_by is None else (False, accepted_by)
    )
    assert outer is None or outer.harmless


@pytest.mark.parametrize(
    "model",
    [
        f"g (float[2] x) => (float[2] y) <float[3] k> {{ {INCOMPATIBLE} }}",
        f"g (float[2] x) => (float[2] y, float[3] k) {{ {INCOMPATIBLE} }}",
        f"g (bool c, float[2] x) => (float[2] z) {{ z = If (c) <then_branch = t () => (float[N] y) <float[3] k>"
        f" {{ {INCOMPATIBLE} }}, {ELSE}> }}",
        "g (float[2] x) => (float[2] y) <float[3] k> { k = Neg (x) y = here.add (k, x) } "
        '<domain: "here", opset_import: ["" : 18]> add (k, x) => (y) { y = Add (k, x) }',
    ],
)
def test_errors_that_follow_from_a_wrong_declared_shape(tmp_path: Path, model: str) -> None:
    """Releases replace a declared shape that contradicts the inferred one, so that the next nodes are valid."""
    fault = judged(tmp_path, parse(model, HEAD_WITH_FUNCTION))
    wrong = judged(tmp_path, parse(model.replace("k = Neg (x)", "k = Concat <axis = 0> (x, x)"), HEAD_WITH_FUNCTION))

    assert fault is not None
    assert fault.harmless
    assert "existing shape differ in dimension 0: (2) vs (3)" in fault.message
    assert wrong is not None
    assert (wrong.message, wrong.harmless) == ("Incompatible dimensions", False)


@pytest.mark.parametrize(
    ("name", "message"), [("h", "value `h` has the unknown element type 99"), ("y", None), ("unknown", None)]
)
def test_unknown_element_type_of_a_value(tmp_path: Path, name: str, message: str | None) -> None:
    """Releases read the types of values that nodes compute, also of operators that onnx does not know."""
    model = parse("g (float[2] x) => (float[2] y) { h = com.microsoft.Gelu (x) y = Neg (h) }")
    model.opset_import.add(domain="com.microsoft", version=1)
    model.graph.value_info.add(name=name).type.tensor_type.elem_type = 99
    fault = judged(tmp_path, model)

    assert (fault and fault.message) == message


@pytest.mark.parametrize(
    "text",
    [
        "g (bool c) => (float[40] y) { y = If (c) <then_branch = t () => (float[40] a) { a = Constant () },"
        " else_branch = e () => (float[40] b) { b = Constant () }> }",
        "g () => (float[40] y) { y = Constant () }",
    ],
)
def test_large_constants(tmp_path: Path, text: str) -> None:
    """Omitted constants, also in branches, do not cause faults."""
    model = parse(text)
    values = numpy_helper.from_array(np.zeros(40, np.float32))
    for node in (model.graph.node[0], *(it for a in model.graph.node[0].attribute for it in a.g.node)):
        if node.op_type == "Constant":
            node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR, t=values)

    assert judged(tmp_path, model, 0) is None


@pytest.mark.parametrize("present", [True, False])
def test_external_data_are_not_judged_here(tmp_path: Path, present: bool) -> None:
    """Missing external data is reported by another rule; small tensors that shape inference needs are read."""
    model = parse("g (float[2, 3] x) => (float[6] y) <int64[1] shape = {6}> { y = Reshape (x, shape) }")
    data = make_external(model, "w.bin")
    if present:
        (tmp_path / "w.bin").write_bytes(data)

    assert judged(tmp_path, model) is None


def test_external_shapes_are_used(tmp_path: Path) -> None:
    """A wrong shape in external data is found."""
    model = parse("g (float[2, 3] x) => (float[6] y) <int64[1] shape = {5}> { [n] y = Reshape (x, shape) }")
    (tmp_path / "w.bin").write_bytes(make_external(model, "w.bin"))

    actual = judged(tmp_path, model)

    assert actual == ModelFault(
        "Inferred shape and existing shape differ in dimension 0: (5) vs (6)", "n", harmless=True
    )


def test_validation_does_not_modify_the_structure(tmp_path: Path) -> None:
    """The check does not modify the structure."""
    path = write(tmp_path / "model.onnx", weighty(bytes(160)))
    proto = read_structure(path, large_bytes=0, small_bytes=64)
    before = proto.SerializeToString(deterministic=True)

    find_fault(ModelView(proto), path)

    assert before == proto.SerializeToString(deterministic=True)


def test_large_weight_at_ir_3(tmp_path: Path) -> None:
    """A large weight that is already an input, as IR version 3 requires, is declared only once."""
    model = weighty(bytes(160))
    model.ir_version, model.opset_import[0].version = 3, 7
    model.graph.input.append(onnx.helper.make_tensor_value_info("w", TensorProto.FLOAT, [40]))

    assert judged(tmp_path, model, 0) is None


@pytest.mark.parametrize("large_bytes", [0, 10**9])
def test_large_sparse_weight(tmp_path: Path, large_bytes: int) -> None:
    """An omitted sparse weight is not a fault and does not hide other faults."""
    text = "g (float[99] x) => (float[99] y) { y = Add (x, w) }"
    wrong = text.replace("y = Add (x, w)", "a = Add (x, w) [n] y = Nope (a)")

    actual = [judged(tmp_path, with_sparse_weight(each), large_bytes) for each in (text, wrong)]

    assert actual == [None, ModelFault("No Op registered for Nope with domain_version of 18", "n", about="operator")]


def with_sparse_weight(text: str) -> onnx.ModelProto:
    """Return the model with a sparse `w` of 40 values."""
    model = parse(text)
    values = numpy_helper.from_array(np.ones(40, np.float32), "w")
    model.graph.sparse_initializer.append(
        onnx.helper.make_sparse_tensor(values, numpy_helper.from_array(np.arange(40)), [99])
    )
    return model


BRANCH = (
    "{ y = If (c) <then_branch: graph = t () => (float[A, B] a) DECLARED { NODES a = Reshape (x, s) },"
    " else_branch: graph = e () => (float[A, B] b) DECLARED { NODES b = Reshape (x, s) }> }"
)


@pytest.mark.parametrize(("sizes", "fault"), [("2, -1", ""), ("4, -1", "Dimension could not be inferred")])
@pytest.mark.parametrize(
    "body",
    [
        "<int64[2] s = {SIZES}> { y = Reshape (x, s) }",
        "{ s = Constant <value = int64[2] {SIZES}> () y = Reshape (x, s) }",
        BRANCH.replace("DECLARED", "<int64[2] s = {SIZES}>").replace("NODES", ""),
        BRANCH.replace("DECLARED", "").replace("NODES", "s = Constant <value = int64[2] {SIZES}> ()"),
        f"<int64[2] s = {{SIZES}}> {BRANCH}".replace("DECLARED", "").replace("NODES", ""),
    ],
)
def test_sparse_shape(body: str, sizes: str, fault: str, tmp_path: Path) -> None:
    """A shape in a sparse tensor is read. In branches, onnx takes sparse weights for values of other types.

    Source: these models; ONNX Runtime 1.16.3, 1.18.1, 1.20.1, 1.24.4, 1.31.1 and 1.32.0 load those without a fault.
    """
    model = parse(f"g (float[6] x, bool c) => (float[A, B] y) {body.replace('SIZES', sizes)}")
    make_sparse(model)

    actual = judged(tmp_path, model)

    assert (actual.message if actual else "")[: len(fault)] == fault
    assert bool(actual) == bool(fault)


def make_sparse(model: onnx.ModelProto) -> None:
    """Make all weights and constants of a model sparse."""
    for scope in ModelView(model).graphs:
        for tensor in scope.proto.initializer:
            scope.proto.sparse_initializer.append(to_sparse(tensor))
        scope.proto.ClearField("initializer")
        for attribute in (it for node in scope.nodes if node.operator[1] == "Constant" for it in node.attributes):
            attribute.name, attribute.type = "sparse_value", attribute.SPARSE_TENSOR
            attribute.sparse_tensor.CopyFrom(to_sparse(attribute.t))
            attribute.ClearField("t")


def to_sparse(tensor: TensorProto) -> onnx.SparseTensorProto:
    """Return a tensor of rank 1 without zeros as a sparse one."""
    indices = numpy_helper.from_array(np.arange(tensor.dims[0]))

    return onnx.helper.make_sparse_tensor(tensor, indices, tensor.dims)


def test_shape_that_is_not_there(tmp_path: Path) -> None:
    """A Reshape in a branch with a missing shape tensor is not checked; another rule reports the missing file."""
    model = parse(
        "g (bool c, float[6] x) => (float[2, 3] y) { y = If (c) <then_branch = t () => (float[2, 3] a)"
        " <int64[2] s = {2, 3}> { a = Reshape (x, s) }, else_branch = e () => (float[2, 3] b)"
        " <int64[2] z = {2, 3}> { b = Reshape (x, z) }> }"
    )
    for attribute in model.graph.node[0].attribute:
        branch = onnx.ModelProto(graph=attribute.g)
        make_external(branch, "gone.bin")
        attribute.g.CopyFrom(branch.graph)

    assert judged(tmp_path, model) is None


def test_stray_data_of_an_external_tensor(tmp_path: Path) -> None:
    """Inline data of a tensor is ignored if the tensor refers to external data."""
    model = weighty(bytes(8))
    model.graph.initializer[0].data_location = TensorProto.EXTERNAL
    model.graph.initializer[0].external_data.add(key="location", value="w.bin")

    assert judged(tmp_path, model) is None


@pytest.mark.parametrize(
    ("text", "place", "subject"),
    [
        ("g (float[2] x) => (float[2] y) { y = Abs (x) }", lambda graph: graph.input[0].type, "input `x`"),
        ("g (float[2] x) => (float[2] y) { y = Abs (x) }", lambda graph: graph.output[0].type, "output `y`"),
        ("g (seq(float[2]) x) => (int64 y) { y = SequenceLength (x) }", lambda graph: graph.input[0].type, "input `x`"),
    ],
)
def test_types_without_an_element_type(
    tmp_path: Path, text: str, place: Callable[[onnx.GraphProto], onnx.TypeProto], subject: str
) -> None:
    """Every runtime refuses a tensor or sequence without an element type, which `onnx.checker` accepts."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    value_type = place(model.graph)
    getattr(value_type, value_type.WhichOneof("value")).ClearField("elem_type")

    assert ModelFault(f"the type of {subject} has no element type") == judged(tmp_path, model)


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("y = Relu (x) z = Constant <value = float[1] {1}> ()", "z"),  # the type is that of the constant
        ("y = Relu (x) z = Neg (x)", "unused"),  # nothing computes the value
        ("y = Relu (x) z = Neg (x)", "y"),  # the output has a type
    ],
)
def test_types_that_runtimes_ignore(tmp_path: Path, body: str, name: str) -> None:
    """No runtime needs the declared types of constants and of values that no node computes."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (y, z) {{ {body} }}')
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    if name == "z":
        model.graph.output[1].type.tensor_type.shape.SetInParent()
    else:
        model.graph.output[1].type.tensor_type.elem_type = TensorProto.FLOAT
        model.graph.value_info.add(name=name).type.tensor_type.shape.SetInParent()

    fault = judged(tmp_path, model)
    assert fault is None or "has no element type" not in fault.message


@pytest.mark.parametrize("role", ["initializer", "input", "output"])
def test_unknown_element_types(tmp_path: Path, role: str) -> None:
    """Every runtime refuses a type that ONNX does not define, also of an input or initializer that no node uses."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x, float[2] u) => (float[2] y) { y = Abs (x) }'
    )
    model.graph.initializer.add(name="w", dims=[0], data_type=99 if role == "initializer" else TensorProto.FLOAT)
    if role != "initializer":
        getattr(model.graph, role)[-1].type.tensor_type.elem_type = 99
    name = {"initializer": "w", "input": "u", "output": "y"}[role]

    assert judged(tmp_path, model) == ModelFault(f"{role} `{name}` has the unknown element type 99")


@pytest.mark.parametrize(
    ("shape", "message"), [("float[2]", None), ("float[3]", "(2) vs (3)"), ("float", "(1) vs (0)")]
)
def test_inputs_of_subgraphs_must_fit(tmp_path: Path, shape: str, message: str | None) -> None:
    """ONNX Runtime refuses a Scan whose subgraph declares another shape for an input than the value has."""
    body = f"b ({shape} s, float[2] n) => (float[K] so, float[J] zo) {{ so = Identity (s) zo = Identity (n) }}"
    nodes = f"y, z = Scan <num_scan_inputs = 1, body = {body}> (i, x)"
    text = f"g (float[2] i, float[3, 2] x) => (float[L] y, float[3, 2] z) {{ {nodes} }}"
    fault = judged(tmp_path, onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 16]> {text}'))

    assert (message is None) == (fault is None or fault.harmless)
    assert fault is None or message is None or message in fault.message


def test_operators_that_an_older_opset_lacks() -> None:
    """A model with such an operator cannot be converted, so `onnxgate fix` is not suggested."""
    names = ["Relu", "HardSwish", "com.microsoft.Gelu", "NotAnOperator"]

    assert find_missing_operators(names, 12) == ["HardSwish"]
    assert find_missing_operators(names, 14) == []


@pytest.mark.parametrize(
    "text",
    [
        f"g (float[N] x) => (float[N] y) {BIAS} {{ y = Relu (x) }}",
        "g (bool c, float[1] x) => (float[1] y) { y = If (c) <then_branch = t () => (float[1] a) <float[1] w = {1}> "
        "{ a = Add (x, w) }, else_branch = e () => (float[1] b) { b = Neg (x) }> }",
        f"g (bool c, float[1] x) => (float[1] y) {BIAS} {{ y = If (c) <then_branch = t () => (float[1] a) "
        "{ a = Add (x, w) }, else_branch = e () => (float[1] b) { b = Neg (x) }> }",
    ],
)
def test_weights_that_old_versions_do_not_accept(tmp_path: Path, text: str) -> None:
    """At IR version 3, weights that no node of the main graph takes must be inputs; this was observed on 6 releases."""
    faults = [find_fault(ModelView(parse(text, header)), tmp_path / "m.onnx") for header in (IR_3, IR_4)]

    assert faults[0] is not None
    assert (False, None) == (faults[0].harmless, faults[1])


@pytest.mark.parametrize(
    "body",
    [
        "y = Relu (x) w = Neg (x)",
        "y = Relu (x) w = Constant <value_float = 2.0> ()",
        "y = If (c) <then_branch = t () => (float[1] a) { w = Neg (x) a = Abs (w) }, "
        "else_branch = e () => (float[1] b) { b = Neg (x) }>",
    ],
)
def test_unused_weights_named_as_other_values(tmp_path: Path, body: str) -> None:
    """Unused weights are ignored, but not that a node gives their name to another value."""
    fault = judged(tmp_path, f"g (float[1] x, bool c) => (float[1] y) {BIAS} {{ {body} }}")

    assert fault is not None
    assert (False, "Graph must be in single static assignment") == (fault.harmless, fault.message[:41])


@pytest.mark.parametrize(("dims", "is_harmless"), [([[2], [2]], True), ([[2], [1]], False), ([[2], [1], [2]], True)])
def test_initializers_of_one_name(tmp_path: Path, dims: list[list[int]], is_harmless: bool) -> None:
    """ONNX Runtime compares the first and the last of them."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N, 2] x) => (float[N, 2] y) { y = Add (x, k) }'
    )
    for sizes in dims:
        model.graph.initializer.append(helper.make_tensor("k", onnx.TensorProto.FLOAT, sizes, [1.0] * sizes[0]))
    fault = judged(tmp_path, model)

    assert fault is not None
    assert is_harmless == fault.harmless


@pytest.mark.parametrize(
    ("declared", "dense", "sparse", "faulty"),
    [
        ("", [2], 2, False),
        ("", [3], 2, True),
        ("", [2], 3, True),
        ("float[2] w", [2], 2, False),
        ("float[2] w", [3], 2, False),  # only the last one counts
        ("float[2] w", [2], 3, True),
        ("float[N] w", [3], 2, False),
        ("float[2] w", [3, 2], None, False),
        ("float[2] w", [2, 3], None, True),
    ],
)
def test_several_initializers_and_an_input(
    tmp_path: Path, declared: str, dense: list[int], sparse: int | None, faulty: bool
) -> None:
    """The last one counts, which is a sparse one if there is one; it is compared with the input, or with the first one.

    Source: these models, loaded on ONNX Runtime 1.16.3, 1.18.1, 1.20.1, 1.24.4, 1.31.1 and 1.32.0, which refuse the
    faulty ones.
    """
    model = parse(f"g (float[2] x{declared and ', ' + declared}) => (float[2] y) {{ y = Relu (x) z = Neg (w) }}")
    for size in dense:
        model.graph.initializer.append(numpy_helper.from_array(np.ones(size, np.float32), "w"))
    if sparse is not None:
        model.graph.sparse_initializer.append(to_sparse(numpy_helper.from_array(np.ones(sparse, np.float32), "w")))

    fault = judged(tmp_path, model)

    assert (fault is not None and not fault.harmless) == faulty


def test_sparse_weight_that_a_subgraph_declares(tmp_path: Path) -> None:
    """The shape of a captured sparse weight is compared with the one that a subgraph declares for it."""
    branch = "<float[3] w> { p = Neg (w) a = Neg (x) }"
    branches = f"then_branch = t () => (float[A] a) {branch}, else_branch = e () => (float[B] b) {{ b = Abs (x) }}"
    model = parse(f"g (bool c, float[2] x) => (float[2] y) <float[2] w = {{1, 2}}> {{ y = If (c) <{branches}> }}")
    make_sparse(model)

    assert judged(tmp_path, model) == ModelFault(
        "a subgraph declares `w` with shape (3) instead of (2)", accepted_by=("openvino",)
    )


def test_many_initializers_of_one_name(tmp_path: Path) -> None:
    """Each is compared once: 4,000 pairs take about 0.1 s."""
    model = parse()
    for index in range(8000):
        model.graph.initializer.add(name=str(index % 4000), data_type=onnx.TensorProto.FLOAT, dims=[0])
    view, start = ModelView(model), time.process_time()

    assert (fault := find_fault(view, tmp_path / "m.onnx")) is not None
    assert fault.harmless
    assert time.process_time() - start < 1
