"""Copies of float16 models that compute in float32 with the same weights, and therefore with less rounding."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.external_data_helper
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, numpy_helper

from onnxgate.model.facts import required_bytes
from onnxgate.model.reading.external_data import is_external

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

MAX_MODEL_BYTES = 1 << 29
"""Maximum size of a float16 model in bytes; the copy is twice as large, and at most 2 GiB."""

_EXACT_BITS = 0b111111
"""Lowest bits of a float16 number. They are 0 in constants that float16 represents exactly, such as 0.5, 3 or 100, but
not in the square root of 2, whose lowest 3 bits are 0."""


def load_with_weights(model: Path, max_bytes: int) -> ModelProto | None:
    """Load a model with its external data; return None if both together are larger than `max_bytes`.

    Raises:
        OSError: the model cannot be read.
        ValueError: the model or its external data is invalid.
    """
    try:
        proto = onnx.load(model, load_external_data=False)
        tensors = [tensor for tensor in proto.graph.initializer if is_external(tensor)]
        if model.stat().st_size + sum(required_bytes(tensor) or 0 for tensor in tensors) > max_bytes:
            return None
        onnx.external_data_helper.load_external_data_for_model(proto, str(model.parent))
    except (onnx.checker.ValidationError, DecodeError) as error:
        raise ValueError(str(error)) from error
    return proto


def write_widened_model(model: Path, path: Path, exact: Collection[str] | None = None) -> bool:
    """Write a copy of a float16 model that computes in float32; return False if the model is too large.

    `exact` contains the SHA-256 of weights of the source. If given, the numbers in other weights and in constants,
    which exporters compute and round, are replaced by neighboring float16 numbers. This shows the effect of rounding.

    Raises:
        OSError: the model cannot be read, or the disk is full.
        ValueError: the external data cannot be read.
    """
    proto = load_with_weights(model, MAX_MODEL_BYTES)
    if proto is None:
        return False
    _Widening(exact).widen(proto)
    path.write_bytes(proto.SerializeToString())
    return True


class _Widening:
    """Replaces the type float16 with float32 in the types, weights and attributes of a model."""

    def __init__(self, exact: Collection[str] | None) -> None:
        self._exact = exact

    def widen(self, proto: ModelProto) -> None:
        self._graph(proto.graph)
        for function in proto.functions:
            self._nodes(function.node)
            self._types(function.value_info)

    def _graph(self, graph: GraphProto) -> None:
        self._types((*graph.input, *graph.output, *graph.value_info))
        for tensor in graph.initializer:
            self._tensor(tensor)
        self._nodes(graph.node)

    def _types(self, values: Iterable[ValueInfoProto]) -> None:
        for value in values:
            if value.type.tensor_type.elem_type == TensorProto.FLOAT16:
                value.type.tensor_type.elem_type = TensorProto.FLOAT

    def _tensor(self, tensor: TensorProto) -> None:
        if tensor.data_type != TensorProto.FLOAT16:
            return
        values = numpy_helper.to_array(tensor)
        if self._exact is not None and not _is_exact(values, self._exact):
            values = _change_rounding(values)
        tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float32), tensor.name))

    def _nodes(self, nodes: Iterable[NodeProto]) -> None:
        for attribute in (attribute for node in nodes for attribute in node.attribute):
            if attribute.name in ("to", "dtype") and attribute.i == TensorProto.FLOAT16:
                attribute.i = TensorProto.FLOAT
            if attribute.type == AttributeProto.TENSOR:
                self._tensor(attribute.t)
            for graph in (*attribute.graphs, *([attribute.g] if attribute.type == AttributeProto.GRAPH else [])):
                self._graph(graph)


def _is_exact(values: Array, exact: Collection[str]) -> bool:
    """Return whether the source contains the weight, or each of its rows, such as the positions of an embedding."""
    rows = values.reshape(-1, values.shape[-1]) if values.ndim > 1 and values.size else ()
    return _hash(values) in exact or (len(rows) > 0 and all(_hash(row) in exact for row in rows))


def _hash(values: Array) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()


def _change_rounding(values: Array) -> Array:
    """Replace numbers that may be rounded by one of their two neighbors."""
    target = np.random.default_rng(0).choice(np.array([np.inf, -np.inf], np.float16), values.shape)
    with np.errstate(over="ignore"):
        neighbor = np.nextafter(values, target)
    is_rounded = (values.view(np.uint16) & _EXACT_BITS) != 0
    return np.asarray(np.where(is_rounded & np.isfinite(neighbor), neighbor, values))
