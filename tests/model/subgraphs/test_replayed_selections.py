"""Models that select given items, on the reference implementation of ONNX."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from onnxgate.model.subgraphs.replayed_selections import inline_suppressions, list_selections, replay_selections
from tests.harness.models import parse

DETECTOR = """g (float[3, 6] x, float[6, 2] boxes) => (float[3, 2] v, float[3, 2, 2] y) {
  k = Constant<value_ints = [2]>()
  v, i = TopK<axis = 1>(x, k)
  y = Gather(boxes, i) }"""
Array = np.ndarray


def run(path: Path, folder: Path, indices: Array) -> dict[str, Array]:
    """Run a model with replayed indices."""
    random = np.random.default_rng(0)
    feeds = {"x": random.random((3, 6), np.float32), "boxes": random.random((6, 2), np.float32)}
    proto = onnx.load(path)
    (selection,) = list_selections(proto)
    feeds[selection.replayed] = indices
    model = ReferenceEvaluator(str(replay_selections(path, proto, [selection], folder)))
    return dict(zip(model.output_names, map(np.asarray, model.run(None, feeds)), strict=True))


@pytest.mark.parametrize("name", ["v", ""])
def test_given_items_are_selected(name: str, tmp_path: Path) -> None:
    """All later values belong to the given items; the node's own selection is an output too."""
    path, proto = tmp_path / "m.onnx", parse(DETECTOR)
    if not name:  # the values of the node are not used
        proto.graph.node[1].output[0] = name
        del proto.graph.output[0]
    onnx.save(proto, path)
    indices = np.array([[0, 1], [5, 5], [3, 0]])
    replayed = run(path, tmp_path / "replayed", indices)
    (selection,) = list_selections(onnx.load(path))
    random = np.random.default_rng(0)
    scores, boxes = random.random((3, 6), np.float32), random.random((6, 2), np.float32)

    assert np.array_equal(boxes[indices], replayed["y"])
    assert np.array_equal(np.take_along_axis(scores, indices, 1), replayed[selection.values])
    assert np.array_equal(-np.sort(-scores, 1)[:, :2], replayed[selection.own])
    assert not name or np.array_equal(replayed[selection.values], replayed[name])


def test_old_opsets_cannot_select_given_items() -> None:
    """Before opset 11, no operator can gather the scores of the items."""
    model = parse(DETECTOR)
    model.opset_import[0].version = 10

    assert list_selections(model) == ()


@pytest.mark.parametrize("opset", [12, 17])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_given_extremes_are_selected(keepdims: int, opset: int, tmp_path: Path) -> None:
    """The replayed indices of `ArgMin` have the reduced axis, which the node may remove."""
    path = tmp_path / "m.onnx"
    node = f"ArgMin<axis = 1, keepdims = {keepdims}>(x)"
    model = parse(f"g (float[3, 6] x, float[6, 2] boxes) => (int64[N] y) {{ y = {node} }}")
    model.opset_import[0].version = opset
    onnx.save(model, path)
    indices = np.array([[0], [5], [3]])
    replayed = run(path, tmp_path / "replayed", indices)
    (selection,) = list_selections(model)
    scores = np.random.default_rng(0).random((3, 6), np.float32)

    assert np.array_equal(indices if keepdims else indices[:, 0], replayed["y"])
    assert np.array_equal(np.take_along_axis(scores, indices, 1), replayed[selection.values])
    assert np.array_equal(scores.min(axis=1, keepdims=True), replayed[selection.own])


BRANCH = """agraph (float[1, N, 4] boxes, float[1, 1, N] scores) => (int64[m, 3] y) {
  n = Size(scores)  zero = Constant<value = int64 {0}>()  is_empty = Equal(n, zero)  zero2 = Identity(zero)
  y = If(is_empty)<then_branch = a () => (int64[m, 3] k) { k = Constant<value = int64[0, 3] {}>() },
    else_branch = b () => (int64[m, 3] k) {
      zero = Shape<start = 2>(scores)  limit = Constant<value_floats = [0.5]>()
      k = NonMaxSuppression(boxes, scores, zero, limit) }> }"""


def test_a_suppressing_branch_is_inlined(tmp_path: Path) -> None:
    """The values of the branch get unused names; the condition says when the copy computes the same."""
    model, path = parse(BRANCH), tmp_path / "m.onnx"
    onnx.save(model, path)
    inlined = inline_suppressions(path, model, tmp_path / "inlined")
    boxes, scores = np.random.default_rng(0).random((1, 5, 4), np.float32), np.zeros((1, 1, 5), np.float32)
    feeds = {"boxes": boxes, "scores": scores}

    made = [name for node in inlined.proto.graph.node for name in node.output]

    assert inlined.conditions == {"is_empty": False}
    assert len(made) == len(set(made))
    assert "If" not in {node.op_type for node in inlined.proto.graph.node}
    assert np.array_equal(*(ReferenceEvaluator(str(it)).run(["y"], feeds)[0] for it in (path, inlined.path)))


@pytest.mark.parametrize(
    "change",
    [
        ("k = Constant<value = int64[0, 3] {}>()", "k = NonMaxSuppression(boxes, scores, n)"),
        ("NonMaxSuppression", "Foo"),
    ],
)
def test_other_branches_remain(change: tuple[str, str], tmp_path: Path) -> None:
    """A branch is only inlined if it suppresses boxes, and the other one does not."""
    model, path = parse(BRANCH.replace(*change)), tmp_path / "m.onnx"
    onnx.save(model, path)
    inlined = inline_suppressions(path, model, tmp_path / "inlined")

    assert (path, {}) == (inlined.path, inlined.conditions)


def test_suppressions_with_centers_cannot_be_replayed() -> None:
    """PyTorch has no such boxes."""
    node = "NonMaxSuppression<center_point_box = {}>(b, s)"
    text = f"g (float[1, N, 4] b, float[1, 1, N] s) => (int64[m, 3] y) {{{{ y = {node} }}}}"

    assert [len(list_selections(parse(text.format(center)))) for center in (0, 1)] == [1, 0]
