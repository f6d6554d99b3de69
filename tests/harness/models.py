"""Models as ONNX text, written to files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx
import onnx.parser

from onnxgate.evidence.file import ModelFile
from onnxgate.project.config.project import SelectedModel
from onnxgate.project.lock.types import Lock
from onnxgate.stages.file import add_known_state, find_repository_root, inspect_file

HEAD = '<ir_version: 8, opset_import: ["" : 18]>\n'
RELU = "g (float[N, 4] x) => (float[N, 4] y) { [act] y = Relu (x) }"


def parse(text: str = RELU, head: str = HEAD) -> onnx.ModelProto:
    """Parse a model from ONNX text; `head` contains its IR version and opsets."""
    return onnx.parser.parse_model(head + text)


def write(path: Path, model: onnx.ModelProto | str = RELU) -> Path:
    """Write a model to a file, parsing it first if it is text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    proto = parse(model) if isinstance(model, str) else model
    path.write_bytes(proto.SerializeToString(deterministic=True))
    return path


def make_external(model: onnx.ModelProto, location: str, *, with_length: bool = True) -> bytes:
    """Move all initializers to external data; return the content for the file at `location`."""
    data = b""
    for tensor in model.graph.initializer:
        raw = onnx.numpy_helper.to_array(tensor).tobytes()
        for name in ("float_data", "int64_data", "int32_data", "double_data", "raw_data"):
            tensor.ClearField(name)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)
        tensor.external_data.add(key="offset", value=str(len(data)))
        if with_length:
            tensor.external_data.add(key="length", value=str(len(raw)))
        data += raw
    return data


def inspect_files(models: Sequence[SelectedModel], lock: Lock | None) -> tuple[ModelFile, ...]:
    """Return the file stage's evidence for each model, in the same order."""
    locked = lock.models if lock is not None else {}
    return tuple(
        add_known_state(model, locked.get(model.path), inspect_file(model).file, find_repository_root(model))
        for model in models
    )
