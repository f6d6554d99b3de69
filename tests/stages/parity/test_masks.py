"""Which outputs a mask drops positions of: only where the graph, or the usual name, leaves no doubt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from onnxgate.core.jobs import InputCase
from onnxgate.model.reading.fact_extraction import read_model
from onnxgate.stages.parity.output_comparison import OutputMask, find_output_masks

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, time, 4] x, int64[MASKDIMS] NAME) => (float[batch, time, 4] y, float[batch, 4] pooled, float[n, t] z) {
  m = Cast<to = 1>(NAME)  y = Relu(x)  pooled = ReduceSum(x, m)  z = Relu(m) }"""


def outputs(tmp_path: Path, name: str, dims: str = "batch, time") -> list[str]:
    """The outputs that the mask is about."""
    path = tmp_path / "m.onnx"
    text = TEXT.replace("NAME", name).replace("MASKDIMS", dims)
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    case = InputCase(name="c", origin="generated", inputs={"x": "x.npy", name: "mask.npy"})
    return [output for _, output in find_output_masks(read_model(path, "m.onnx"), [case])]


@pytest.mark.parametrize(
    ("name", "dims", "expected"),
    [
        ("attention_mask", "batch, time", ["y"]),
        ("mask", "batch, time", []),
        ("attention_mask", "batch, other", []),
        ("attention_mask", "batch, 7", []),
        ("lengths", "batch, time", []),
    ],
)
def test_outputs_with_the_axes_of_the_mask(tmp_path: Path, name: str, dims: str, expected: list[str]) -> None:
    """Batch and time by name, as the first two; a mask of which only its name tells what it keeps is left alone."""
    assert outputs(tmp_path, name, dims) == expected


def test_kept_positions(tmp_path: Path) -> None:
    """Ones keep or drop; a mask that drops nothing, or is of another shape, leaves nothing out."""
    path = tmp_path / "mask.npy"
    np.save(path, np.array([[1, 0], [1, 1]]))
    keeping, dropping = OutputMask(str(path), ones_keep=True), OutputMask(str(path), ones_keep=False)
    found, turned = keeping.positions((2, 2, 1)), dropping.positions((2, 2))

    assert found is not None
    assert turned is not None
    assert (found[..., 0].tolist(), turned.tolist()) == ([[True, False], [True, True]], [[False, True], [False, False]])
    assert keeping.positions((2, 3)) is None
    np.save(path, np.ones((2, 2)))
    assert keeping.positions((2, 2)) is None
