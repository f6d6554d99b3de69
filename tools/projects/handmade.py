"""Handmade models in ONNX text format, and their external data."""

from __future__ import annotations

import onnx
import onnx.parser
from onnx import numpy_helper

IR_VERSION = 8
OPSETS = '"": 18'


def model(graph: str, opsets: str = OPSETS, ir_version: int = IR_VERSION) -> onnx.ModelProto:
    """Return a model with a graph in ONNX text format."""
    return onnx.parser.parse_model(f"<ir_version: {ir_version}, opset_import: [{opsets}]> {graph}")


def scaled(factor: float) -> onnx.ModelProto:
    """Return a minimal valid model, which multiplies an input of shape (N, 4) by a factor."""
    return model(
        f"g (float[batch, 4] rows) => (float[batch, 4] scaled) <float factor = {{{factor}}}> {{"
        " [scale] scaled = Mul(rows, factor) }"
    )


def with_external(location: str) -> onnx.ModelProto:
    """Return a valid model with 32 floats as external data."""
    made = model(
        "g (float[batch, 32] rows) => (float[batch, 32] shifted) <float[32] shift = {"
        + ", ".join(["0.0"] * 32)
        + "}> { [add_shift] shifted = Add(rows, shift) }"
    )
    shift = made.graph.initializer[0]
    shift.ClearField("float_data")
    shift.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": "0", "length": str(len(EXTERNAL))}.items():
        shift.external_data.add(key=key, value=value)
    return made


EXTERNAL = bytes(numpy_helper.from_array(numpy_helper.to_array(scaled(1).graph.initializer[0]).repeat(32)).raw_data)
"""The 32 floats, in 128 bytes."""


def pointer(oid: str, size: int) -> bytes:
    """Return a Git LFS pointer."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n".encode()
