"""OpenVINO refuses some sequences because of the nodes around them."""

from __future__ import annotations

import onnx.parser
import pytest

from onnxgate.model.reading.view import ModelView
from onnxgate.support.limits import get_limits
from onnxgate.support.matching.kernels import predict
from onnxgate.support.matching.operations import Prediction
from onnxgate.support.matching.type_inference import infer_model_types
from onnxgate.support.operators import get_implementation

EMPTY = "e = SequenceEmpty ()"
INSERT = f"{EMPTY} q = SequenceInsert (e, a)"
CONSTRUCT = "q = SequenceConstruct (a, b)"
CONCAT = "y = ConcatFromSequence <axis = 0> (q)"
AT = "i = Constant <value_int = 0> () y = SequenceAt (q, i)"


def predict_on(nodes: str, release: str, engine: str = "openvino") -> Prediction:
    """Return the prediction of a release for a model with these nodes."""
    inputs = "float[2, 3] a, float[2, 3] b, float[N, 3] c, int64 n, int64 k, bool is"
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => (float[] y) {{ {nodes} }}'
    model = infer_model_types(ModelView(onnx.parser.parse_model(text)))
    limits = get_limits(release, engine)
    assert limits is not None
    return predict(model, get_implementation(release, engine), limits)


def loop(body: str, after: str = CONCAT, before: str = "s = SequenceEmpty ()") -> str:
    """Return nodes with a Loop that computes a sequence."""
    state = "seq(float[2, 3])"
    return (
        f"{before} q = Loop (n, , s) <body = body (int64 it, bool more, {state} si) => (bool again, {state} so)"
        f" {{ again = Identity (more) {body} }}> {after}"
    )


def branch(inside: str) -> str:
    """Return an If that concatenates a sequence in one branch."""
    return (
        f"y = If (is) <then_branch = then () => (float[M, 3] t) {{ {inside} }},"
        " else_branch = otherwise () => (float[M, 3] u) { u = Identity (a) }>"
    )


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (f"{CONSTRUCT} {CONCAT}", "loads loads"),
        (f"{CONSTRUCT} {AT}", "loads loads"),
        (f"{INSERT} {CONCAT}", "refused loads"),
        (branch(f"{INSERT} t = ConcatFromSequence <axis = 0> (q)"), "refused loads"),
        (branch(f"{CONSTRUCT} t = ConcatFromSequence <axis = 0> (q)"), "loads loads"),
        (f"{CONSTRUCT} {branch('t = ConcatFromSequence <axis = 0> (q)')}", "refused refused"),
        (branch("z = Constant <value_int = 0> () q = SequenceConstruct (a) t = SequenceAt (q, z)"), "unknown unknown"),
        (f"{INSERT} y = Add (a, b)", "loads loads"),
        (f"{INSERT} {branch('z = SequenceLength (q) t = Relu (a)')}", "loads loads"),
        (f"{CONSTRUCT} y = SequenceAt (q, k)", "refused loads"),
        ("p = SequenceConstruct (a, b) q = Identity (p) " + AT, "refused loads"),
        ("p = SequenceConstruct (a, b) q = Identity (p) " + CONCAT, "refused refused"),
        ("p = SequenceConstruct (a, b) q = SequenceInsert (p, a, k) " + CONCAT, "refused refused"),
        ("q = SplitToSequence <axis = 0> (a) " + CONCAT, "loads loads"),
        ("q = SplitToSequence <axis = 0> (c) " + CONCAT, "refused refused"),
        ("q = SplitToSequence <axis = 1> (c) " + CONCAT, "loads loads"),
        ("s = Constant <value_ints = [1, 1]> () q = SplitToSequence <axis = 0> (c, s) " + CONCAT, "loads loads"),
        ("q = SplitToSequence <axis = 0> (a, k) " + CONCAT, "refused refused"),
        ("r = Relu (c) q = SplitToSequence <axis = 0> (r) " + CONCAT, "unknown unknown"),
    ],
)
def test_sequences_in_graphs(nodes: str, expected: str) -> None:
    """2026.3.0 knows more patterns; a node is refused if no release that has its operator accepts the pattern."""
    assert expected == " ".join(predict_on(nodes, release).verdict for release in ("2026.1.0", "2026.4.1"))


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (loop("so = SequenceInsert (si, a)"), "loads loads"),
        (loop("m = SequenceInsert (si, a) so = SequenceInsert (m, b)"), "loads loads"),
        (loop("m = Identity (si) so = SequenceInsert (m, a)"), "loads loads"),
        (loop("e = SequenceEmpty () so = SequenceInsert (e, a)"), "loads loads"),
        (loop("so = SequenceInsert (si, a)", AT), "refused unknown"),
        (loop("z = Constant <value_int = 0> () so = SequenceInsert (si, a, z)"), "unknown unknown"),
        (loop("so = Identity (si)"), "unknown unknown"),
        (loop("so = SequenceConstruct (a, b)"), "unknown unknown"),
        (loop("so = SequenceInsert (si, a)", before=f"{EMPTY} s = SequenceInsert (e, b)"), "unknown loads"),
        (loop("v = ConcatFromSequence <axis = 0> (si) so = SequenceInsert (si, v)"), "refused refused"),
        (loop("so = SequenceInsert (so, a)"), "unknown unknown"),
    ],
)
def test_sequences_in_loops(nodes: str, expected: str) -> None:
    """A Loop may append tensors to a sequence; whether it may do more is unknown."""
    assert expected == " ".join(predict_on(nodes, release).verdict for release in ("2026.1.0", "2026.4.1"))


def test_the_refused_node_is_named() -> None:
    """Each insertion outside of a Loop is a problem."""
    found = predict_on(f"{INSERT} {CONCAT}", "2026.2.1").found

    assert ["`SequenceInsert` is refused outside of `Loop`"] == [it.miss.problem for it in found if it.miss]
    assert [it.node.operation.name for it in found] == ["SequenceInsert"]


def test_other_engines_accept_all_patterns() -> None:
    """ONNX Runtime has sequences."""
    assert predict_on(f"{INSERT} {CONCAT}", "1.31.1", "onnxruntime").verdict == "loads"
