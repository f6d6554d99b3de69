"""Models that select given items, on the reference implementation of ONNX."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from onnxgate.model.subgraphs.replayed_selections import list_selections, replay_selections
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
    model = ReferenceEvaluator(str(replay_selections(path, proto, folder)))
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
