"""Values of a model for the comparison with its float model; weights are read one at a time."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxgate.gate.execution.parity.float_comparison import ModelValues
from onnxgate.model.reading.structure import read_structure
from tests.harness.models import parse

LARGE = 600_000
"""Elements of a weight that is written to a file."""


def open_values(folder: Path, tensors: list[TensorProto], *, external: bool = False) -> ModelValues:
    """Save a model with these initializers, and return its values; it is read without large weights."""
    model, path = parse(), folder / "m.onnx"
    model.graph.initializer.extend(tensors)
    onnx.save(model, path, save_as_external_data=external, location="m.data", size_threshold=0)
    proto = read_structure(path, large_bytes=0)
    (folder / "values").mkdir()
    names = iter(range(100))
    weights = {tensor.name: tensor for tensor in proto.graph.initializer}
    return ModelValues({}, weights, path, lambda: folder / "values" / str(next(names)))


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("count", [3, LARGE])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "bool"])
def test_weights_are_read_correctly(tmp_path: Path, dtype: str, count: int, external: bool) -> None:
    """Weights are read correctly whatever their size, inside the model or as external data."""
    expected = np.random.default_rng(0).normal(size=(1, count)).astype(dtype)
    values = open_values(tmp_path, [numpy_helper.from_array(expected, "w")], external=external)

    assert values["w"].dtype == expected.dtype
    assert np.array_equal(values["w"], expected)
    assert list(values) == ["w"]


def test_weights_in_fields_of_their_type(tmp_path: Path) -> None:
    """Weights may be stored in `float_data` instead of `raw_data`."""
    values = open_values(tmp_path, [helper.make_tensor("w", TensorProto.FLOAT, [LARGE], np.arange(LARGE))])

    assert np.array_equal(values["w"], np.arange(LARGE, dtype=np.float32))


def test_computed_values_come_first(tmp_path: Path) -> None:
    """A computed value takes precedence, because an input may have the name of a weight, its default."""
    values = open_values(tmp_path, [numpy_helper.from_array(np.ones(3, np.float32), "w")])
    np.save(tmp_path / "w.npy", np.zeros(2))

    assert replace(values, files={"w": tmp_path / "w.npy"})["w"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("count", [3, LARGE])
def test_weights_that_cannot_be_read_are_absent(tmp_path: Path, count: int) -> None:
    """A weight is absent if its data is missing or does not match its shape."""
    wrong = numpy_helper.from_array(np.ones(count, np.float32), "wrong")
    wrong.dims[:] = [count - 1]
    values = open_values(tmp_path, [numpy_helper.from_array(np.ones(count, np.float32), "w"), wrong])
    (tmp_path / "other").mkdir()
    missing = open_values(tmp_path / "other", [numpy_helper.from_array(np.ones(count, np.float32), "w")], external=True)
    (tmp_path / "other" / "m.data").unlink()

    assert (values.get("wrong"), missing.get("w"), values.get("unknown")) == (None, None, None)
    assert values["w"].size == count


def test_one_large_weight_is_in_memory(tmp_path: Path) -> None:
    """Only one large weight is in memory at a time, and values that were read earlier remain valid."""
    weights = [numpy_helper.from_array(np.full(8 * LARGE, index, np.float32), f"w{index}") for index in range(4)]
    values = open_values(tmp_path, weights)
    del weights
    tracemalloc.start()
    try:
        first = values["w0"]
        sums = [float(values[name].max()) for name in values]
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert sums == [0.0, 1.0, 2.0, 3.0]
    assert float(first.max()) == 0.0
    assert len(list((tmp_path / "values").iterdir())) == 1
    assert peak_bytes < 16 * 2**20  # one weight has 18 MiB
