"""Write a draft as one protobuf file, weight by weight, so that only a block of it is in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from onnx import ModelProto, TensorProto

from bench.corpora.draft import Draft, Weight

_LENGTH = 2
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
"""Fields of ModelProto, GraphProto and TensorProto. Source: onnx.proto."""
_BLOCK_BYTES = 16 * 1024
"""Size of the block that weights repeat; it fits in the window of git's compression, to keep the repository small."""
_BLOCKS_AT_ONCE = 64


def write_model(draft: Draft, path: Path, seed: int) -> int:
    """Write the model with random weights from `seed`; return its size in bytes."""
    model = draft.model()
    graph = model.graph.SerializeToString(deterministic=True)
    model.ClearField("graph")
    heads = [_head(weight) for weight in draft.weights]
    sizes = [len(head) + weight.size_bytes for head, weight in zip(heads, draft.weights, strict=True)]
    inside = len(graph) + sum(len(field_header(_INITIALIZER, size)) + size for size in sizes)
    with path.open("wb") as file:
        file.write(model.SerializeToString(deterministic=True) + field_header(_GRAPH, inside) + graph)
        for number, (head, size, weight) in enumerate(zip(heads, sizes, draft.weights, strict=True)):
            file.write(field_header(_INITIALIZER, size) + head)
            _write_data(file, weight, seed + number)
        return file.tell()


def whole_model(draft: Draft, seed: int) -> ModelProto:
    """Return the model with its weights in memory, for small models."""
    model = draft.model()
    for number, weight in enumerate(draft.weights):
        tensor = model.graph.initializer.add()
        tensor.CopyFrom(_tensor(weight))
        tensor.raw_data = b"".join(_data(weight, seed + number))
    return model


def _tensor(weight: Weight) -> TensorProto:
    return TensorProto(name=weight.name, data_type=weight.data_type, dims=weight.dims)


def _head(weight: Weight) -> bytes:
    return bytes(_tensor(weight).SerializeToString(deterministic=True)) + field_header(_RAW_DATA, weight.size_bytes)


def _write_data(file: BinaryIO, weight: Weight, seed: int) -> None:
    for piece in _data(weight, seed):
        file.write(piece)


def _data(weight: Weight, seed: int) -> Iterator[bytes]:
    left = weight.size_bytes
    block = np.random.default_rng(seed).random(_BLOCK_BYTES // 4, "float32").tobytes()
    pieces = block * min(_BLOCKS_AT_ONCE, left // _BLOCK_BYTES + 1)
    while left > 0:
        yield pieces[:left]
        left -= min(left, len(pieces))


def field_header(number: int, size_bytes: int) -> bytes:
    """Return the bytes in front of the content of a length-delimited field."""
    return _varint(number << 3 | _LENGTH) + _varint(size_bytes)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))
