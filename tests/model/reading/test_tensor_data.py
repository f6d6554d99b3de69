"""Small sparse tensors are read as dense ones."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import SparseTensorProto, TensorProto, helper

from onnxgate.model.reading.tensor_data import read_small_sparse_data


def sparse(
    dims: list[int], indices: list[int], shape: list[int], element: int = TensorProto.FLOAT
) -> SparseTensorProto:
    """Return a sparse tensor of ones at these indices, whose tensor has this shape."""
    ones = helper.make_tensor("w", element, [shape[0]], [1] * shape[0])
    return helper.make_sparse_tensor(ones, helper.make_tensor("", TensorProto.INT64, shape, indices), dims)


@pytest.mark.parametrize(
    ("dims", "indices", "shape", "expected"),
    [
        ([4], [1, 3], [2], [0, 1, 0, 1]),
        ([4], [1, 3], [2, 1], [0, 1, 0, 1]),
        ([2, 2], [1, 2], [2], [0, 1, 1, 0]),
        ([2, 2], [0, 1, 1, 0], [2, 2], [0, 1, 1, 0]),
        ([3], [], [0], [0, 0, 0]),
        ([], [0], [1], [1]),
        ([0], [], [0], []),
        ([4], [3, 1], [2], None),  # not in order
        ([4], [1, 1], [2], None),
        ([4], [4], [1], None),
        ([4], [-1], [1], None),
        ([2, 2], [0, 2], [1, 2], None),
        ([2, 2], [0, 1, 1], [1, 3], None),
        ([65], [1], [1], None),  # too many elements
        ([2**40], [1], [1], None),
        ([2**40, 2**40], [1], [1], None),
    ],
)
def test_small_sparse_tensor(dims: list[int], indices: list[int], shape: list[int], expected: list[int] | None) -> None:
    """Indices are places or coordinates; a tensor with invalid ones, or with many elements, is not read."""
    actual = read_small_sparse_data(sparse(dims, indices, shape))

    assert actual == (None if expected is None else np.array(expected, "<f4").tobytes())


@pytest.mark.parametrize(
    ("element", "dtype"), [(TensorProto.INT64, "<i8"), (TensorProto.BOOL, "u1"), (TensorProto.DOUBLE, "<f8")]
)
def test_types_of_sparse_tensors(element: int, dtype: str) -> None:
    """Elements of other sizes are read, too."""
    assert read_small_sparse_data(sparse([3], [1], [1], element)) == np.array([0, 1, 0], dtype).tobytes()


def test_sparse_tensor_without_data() -> None:
    """A tensor whose data is absent or external is not read."""
    absent, external = sparse([3], [1], [1]), sparse([3], [1], [1])
    absent.ClearField("indices")
    external.values.data_location = TensorProto.EXTERNAL
    external.values.external_data.add(key="location", value="w.bin")
    strings = sparse([3], [], [0], TensorProto.STRING)

    assert [read_small_sparse_data(it) for it in (absent, external, strings)] == [None, None, None]
