"""Input and output names of a model's graph, for engines that use their own names.

The file's wire format is read directly, since an engine's environment has no `onnx`.
Source: protocol buffers' encoding; the field numbers are those of `onnx.proto`.
"""

from __future__ import annotations

import mmap
from typing import Any, Dict, Iterator, List, Tuple

GRAPH = 7  # of ModelProto
INITIALIZER, INPUT, OUTPUT = 5, 11, 12  # of GraphProto
NAME = 1  # of ValueInfoProto
TENSOR_NAME = 8  # of TensorProto
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

Span = Tuple[int, int]


class IONames:
    """Names in the order of the graph; `inputs` without those that have an initializer."""

    def __init__(self, inputs: List[str], outputs: List[str]) -> None:
        self.inputs = inputs
        self.outputs = outputs


def read_io_names(path: str) -> IONames:
    """Read the names of the main graph of a model file.

    Raises:
        ValueError: the file is not a model, or is truncated.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        found: Dict[int, List[str]] = {INITIALIZER: [], INPUT: [], OUTPUT: []}
        for number, graph in _read_fields(data, (0, len(data))):
            if number == GRAPH:
                for part, span in _read_fields(data, graph):
                    if part in found:
                        found[part].append(_read_text(data, span, TENSOR_NAME if part == INITIALIZER else NAME))
    valued = set(found[INITIALIZER])
    return IONames([name for name in found[INPUT] if name not in valued], found[OUTPUT])


def _read_text(data: Any, span: Span, wanted: int) -> str:
    for number, (begin, end) in _read_fields(data, span):
        if number == wanted:
            return bytes(data[begin:end]).decode("utf-8", "replace")
    return ""


def _read_fields(data: Any, span: Span) -> Iterator[Tuple[int, Span]]:
    """Yield the fields of a message that contain bytes: number, and begin and end of the bytes."""
    position, end = span
    while position < end:
        key, position = _read_varint(data, position, end)
        kind = key & 7
        if kind == BYTES:
            length, position = _read_varint(data, position, end)
            yield key >> 3, (position, position + length)
            position += length
        elif kind == VARINT:
            _, position = _read_varint(data, position, end)
        elif kind in (FIXED32, FIXED64):
            position += 4 if kind == FIXED32 else 8
        else:
            raise ValueError("no model: a field of wire type %d" % kind)
    if position != end:
        raise ValueError("the model is cut off")


def _read_varint(data: Any, position: int, end: int) -> Tuple[int, int]:
    value = shift = 0
    while position < end and shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
    raise ValueError("the model is cut off")
