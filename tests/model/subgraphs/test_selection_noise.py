"""Models with noise in the scores of their selections."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnx.reference import ReferenceEvaluator

from onnxgate.model.subgraphs.instrumented_models import SELECTION_NOISE, add_selection_noise

TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[b, n] x) => (float[b, m] v, int64[b, m] i) {
  s = Sigmoid(x)  k = Constant<value_ints = [5]>()  v, i = TopK(s, k) }"""


def write(folder: Path, text: str) -> Path:
    """Write a model."""
    onnx.save(onnx.parser.parse_model(text), str(folder / "m.onnx"))
    return folder / "m.onnx"


def test_scores_get_noise(tmp_path: Path) -> None:
    """Only the selection reads the scores with noise, and the size of the noise is an input."""
    path = add_selection_noise(write(tmp_path, TEXT), tmp_path / "noisy", seed=1)

    assert path is not None
    model = onnx.load(str(path))
    onnx.checker.check_model(model, full_check=True)
    assert [value.name for value in model.graph.input] == ["x", SELECTION_NOISE]
    assert [list(node.input) for node in model.graph.node if node.op_type == "TopK"] == [["s with noise", "k"]]


def test_float16_scores_get_noise(tmp_path: Path) -> None:
    """Noise of float16 scores decides between equal ones, of which runtimes may select others than the source."""
    text = TEXT.replace("float[b, n] x", "float16[b, n] x").replace("float[b, m] v", "float16[b, m] v")
    path = add_selection_noise(write(tmp_path, text), tmp_path / "noisy", seed=1)

    assert path is not None
    onnx.checker.check_model(onnx.load(str(path)), full_check=True)
    inputs = {"x": np.zeros((1, 64), np.float16), SELECTION_NOISE: np.array(0.01, np.float32)}
    values, indices = ReferenceEvaluator(str(path)).run(None, inputs)
    assert values.dtype == np.float16
    assert indices.tolist() != [[0, 1, 2, 3, 4]]


def test_noise_decides_between_equal_integers(tmp_path: Path) -> None:
    """The selected values are the same as without noise."""
    text = TEXT.replace("float[b, n] x", "int64[b, n] x").replace("float[b, m] v", "int64[b, m] v")
    text = text.replace("Sigmoid", "Identity").replace("TopK", "TopK<axis = 1>")
    path = add_selection_noise(write(tmp_path, text), tmp_path / "noisy", seed=1)

    assert path is not None
    onnx.checker.check_model(onnx.load(str(path)), full_check=True)
    inputs = {"x": np.array([[*[7] * 60, 9, 9, 9]]), SELECTION_NOISE: np.array(1e-6, np.float32)}
    values, indices = ReferenceEvaluator(str(path)).run(None, inputs)
    assert values.tolist() == [[9, 9, 9, 7, 7]]
    assert {*indices[0, :3]} == {60, 61, 62}
    assert indices[0, 3:].tolist() != [0, 1]


def test_model_without_selected_scores(tmp_path: Path) -> None:
    """A model without a selection by scores does not get noise."""
    path = write(
        tmp_path, TEXT.replace("k = Constant<value_ints = [5]>()  v, i = TopK(s, k)", "v = Neg(s) i = Shape(s)")
    )

    assert add_selection_noise(path, tmp_path / "noisy", seed=1) is None
