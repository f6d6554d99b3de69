"""Each model was loaded on ONNX Runtime 1.16.3, 1.20.1, 1.24.4, 1.31.1 and 1.32.0, next to its data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from onnx import TensorProto, helper

from onnxgate.model.parsed_weights import list_parsed_weights
from onnxgate.model.reading.view import ModelView

REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def find_parsed(
    folder: Path, body: str, opset: int = 18, element: int = INT64, dims: Sequence[int] = (1,)
) -> frozenset[str]:
    """Return the parsed weights of a model whose initializer `w` consists of ones in external data."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {body}')
    tensor = model.graph.initializer.add(name="w", data_type=element, dims=dims)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    (folder / "w.bin").write_bytes(np.ones(dims, helper.tensor_dtype_to_np_dtype(element)).tobytes())
    return frozenset(list_parsed_weights(ModelView(model), folder / "m.onnx"))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("g (float[4] x) => (float[a, b] y) { y = Unsqueeze (x, w) }", True),
        ("g (float[4] x) => (float[a] y) { y = Reshape (x, w) }", True),
        ("g (float[4, 1] x) => (float[4] y) { y = Squeeze (x, w) }", True),
        ("g (float[4, 4] x) => (float[a, b] y, int64[a, b] z) { y, z = TopK (x, w) }", True),
        *((f"g (float[4, 4] x) => (float[a, b] y) {{ y = Reduce{name} (x, w) }}", True) for name in REDUCTIONS),
        ("g (float[4] x) => (float[1] y) { y = Gather (x, w) }", False),
        ("g (int64[4] x) => (int64[4] y) { y = Add (x, w) }", False),
        ("g (float[4] x, int64[1] w) => (float[a] y) { y = Reshape (x, w) }", False),
    ],
)
def test_shape_in_external_data(tmp_path: Path, body: str, expected: bool) -> None:
    """ONNX Runtime refuses external data that shape inference reads, unless callers can replace the tensor."""
    assert ({"w"} if expected else set()) == find_parsed(tmp_path, body)


@pytest.mark.parametrize(
    ("body", "opset", "element", "dims"),
    [
        ("g (float[2] x) => (float[1] y, float[1] z) { y, z = Split (x, w) }", 13, INT64, [2]),
        ("g (float[2, 2] x) => (float[a, b] y) { y = CenterCropPad (x, w) }", 18, INT64, [2]),
        ("g (float[1, 1, 1] x) => (float[a, b, c, d] y) { y = Col2Im (x, w, w) }", 18, INT64, [2]),
        ("g (float[1, 1] x) => (float[a, b] y) { y = Upsample (x, w) }", 9, FLOAT, [2]),
        ("g (int64[2] x, float[2] v) => (float[a, b] y) { y = OneHot (x, w, v) }", 11, INT64, []),
        ("g (int64[2] x, float[2] v) => (float[a, b] y) { y = OneHot (x, w, v) }", 11, FLOAT, []),
        ("g (float[1, 1] x) => (float[a, b] y) { y = Resize (x, , w) }", 13, FLOAT, [2]),
        ("g (float[1] x) => (float[a] y, float[1] z) { y = Range (w, w, w) z = Relu (x) }", 13, FLOAT, []),
        ("g (float[1] x) => (float[a] y, float[1] z) { y = HannWindow (w) z = Relu (x) }", 17, INT64, []),
    ],
)
def test_other_types_in_external_data(tmp_path: Path, body: str, opset: int, element: int, dims: list[int]) -> None:
    """Shape inference also reads numbers, and some floats."""
    assert {"w"} == find_parsed(tmp_path, body, opset, element, dims)
