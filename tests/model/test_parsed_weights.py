"""Each model was loaded on ONNX Runtime 1.16.3, 1.20.1, 1.24.4, 1.31.1 and 1.32.0, next to its data."""

from __future__ import annotations

from pathlib import Path

import onnx.parser
import pytest

from onnxgate.model.parsed_weights import list_parsed_weights
from onnxgate.model.reading.view import ModelView


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("g (float[4] x) => (float[a, b] y) { y = Unsqueeze (x, w) }", True),
        ("g (float[4] x) => (float[a] y) { y = Reshape (x, w) }", True),
        ("g (float[1, 4] x) => (float[4] y) { y = Squeeze (x, w) }", False),
        ("g (float[4] x) => (float[1] y) { y = Gather (x, w) }", False),
        ("g (float[4] x, int64[1] w) => (float[a] y) { y = Reshape (x, w) }", False),
    ],
)
def test_shape_in_external_data(tmp_path: Path, body: str, expected: bool) -> None:
    """ONNX Runtime refuses external data that shape inference reads, unless callers can replace the tensor."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {body}')
    tensor = model.graph.initializer.add(name="w", data_type=onnx.TensorProto.INT64, dims=[1])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    (tmp_path / "w.bin").write_bytes(bytes(8))

    assert ({"w"} if expected else set()) == list_parsed_weights(ModelView(model), tmp_path / "m.onnx")
