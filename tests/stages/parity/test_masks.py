"""Masked outputs: only those whose mask is certain from the graph or from the usual name."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from numpy.typing import NDArray

from onnxgate.core.jobs import InputCase
from onnxgate.evidence.parity import Difference
from onnxgate.model.numeric_traits import NumericTraits
from onnxgate.model.reading.fact_extraction import read_model
from onnxgate.numerics import streams
from onnxgate.numerics.streams import load_array
from onnxgate.stages.parity import output_comparison
from onnxgate.stages.parity.output_comparison import OutputMask, ParityModel, find_output_masks, measure_difference
from tests.harness.recorded_runs import PLACE

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, time, 4] x, int64[MASKDIMS] NAME) => (float[batch, time, 4] y, float[batch, 4] pooled, float[n, t] z) {
  m = Cast<to = 1>(NAME)  y = Relu(x)  pooled = ReduceSum(x, m)  z = Relu(m) }"""


def outputs(tmp_path: Path, name: str, dims: str = "batch, time") -> list[str]:
    """Return the outputs that the mask applies to."""
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
    """The first two axes must have the mask's names, and the meaning of the mask must be known."""
    assert outputs(tmp_path, name, dims) == expected


def test_kept_positions(tmp_path: Path) -> None:
    """Ones either keep or drop positions; a mask that drops nothing or has another shape is ignored."""
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


def measure(mask: Path, candidate: NDArray[Any], reference: NDArray[Any]) -> Difference:
    """Compare one output with a mask in which ones keep positions."""
    masks = {("c", "y"): OutputMask(str(mask), ones_keep=True)}
    model = ParityModel("m.onnx", PLACE, NumericTraits(), None, None, masks=masks)
    return measure_difference(model, ("c", "y"), "all", "runtime", candidate, reference)


@pytest.mark.parametrize("spoils_kept", [False, True])
@pytest.mark.parametrize(
    ("dtype", "other"),
    [
        *((dtype, dtype) for dtype in ("float16", "float32", "float64", "int8", "int64", "uint64", "bool", "U3")),
        *(("float32", "float64"), ("int64", "uint64"), ("complex64", "complex64")),
    ],
)
def test_large_outputs_have_the_figures_of_small_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, other: str, spoils_kept: bool
) -> None:
    """Chunks may begin and end inside a position; both kept and dropped positions contain NaN and infinities."""
    draw = np.random.default_rng(0)
    mask = np.array([[1, 1, 0], [1, 0, 0]])
    np.save(tmp_path / "mask.npy", mask)
    values = draw.integers(1, 100, (2, 3, 5))
    candidate, reference = values.astype(dtype), values.astype(other)
    spoilt = (mask != 0) if spoils_kept else (mask == 0)
    candidate[spoilt] = np.zeros(()).astype(dtype)
    if candidate.dtype.kind == "f":
        for array in (candidate, reference):
            special = draw.choice(30, 8, replace=False)
            array.reshape(-1)[special] = [np.nan, np.inf, -np.inf, 0, -0.0, np.nan, np.inf, 1]

    whole = measure(tmp_path / "mask.npy", candidate, reference)
    monkeypatch.setattr(output_comparison, "MAPPED_BYTES", 0)
    monkeypatch.setattr(streams, "CHUNK_ELEMENTS", 4)
    parts = measure(tmp_path / "mask.npy", candidate, reference)

    dropped = candidate[mask == 0] != reference[mask == 0]
    told = {figure.metric: figure.value for figure in parts.figures}
    assert (parts.agrees, parts.metric, parts.value, parts.bound, parts.detail) == (
        (whole.agrees, whole.metric, whole.value, whole.bound, whole.detail)
    )
    assert told == pytest.approx({figure.metric: figure.value for figure in whole.figures}, nan_ok=True)
    assert told["masked elements"] == dropped.sum()


def test_masked_comparison_of_large_outputs_needs_little_memory(tmp_path: Path) -> None:
    """Outputs of 64 MiB that differ only in masked positions are compared in less memory than one of them takes."""
    paths = tmp_path / "candidate.npy", tmp_path / "reference.npy"
    values = np.random.default_rng(0).normal(size=(1, 1024, 1024)).astype(np.float32).repeat(16, axis=0)
    np.save(paths[1], values)
    values[:, 512:] += 1
    np.save(paths[0], values)
    del values
    np.save(tmp_path / "mask.npy", (np.arange(1024) < 512)[None].repeat(16, axis=0).astype(np.int64))
    tracemalloc.start()
    try:
        actual = measure(tmp_path / "mask.npy", *map(load_array, paths))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert actual.agrees
    assert [(figure.metric, figure.value) for figure in actual.figures] == [("masked elements", 8.0 * 2**20)]
    assert peak_bytes < 45 * 2**20


def test_masked_elements_are_counted_in_little_memory() -> None:
    """Counting must not create one boolean per element, which would take as much memory as the output."""
    candidate, reference = np.zeros((2, 16, 2**20), np.uint8), np.zeros((2, 16, 2**20), np.uint8)
    positions = np.broadcast_to(np.array([[True, False] * 8] * 2)[..., None], candidate.shape)
    candidate[0, :2, 7:9] = 1
    tracemalloc.start()
    try:
        count = output_comparison._count_masked_differences(positions, candidate, reference)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert count == 2
    assert peak_bytes < 8 * 2**20
