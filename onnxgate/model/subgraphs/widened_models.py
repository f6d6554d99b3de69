"""Copies of float16 models that compute in float32 with the same weights, and therefore with less rounding."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, numpy_helper

from onnxgate.model.facts import required_bytes
from onnxgate.model.onnx_functions import OnnxError, load_external_data
from onnxgate.model.reading.external_data import is_external
from onnxgate.model.reading.tensor_data import read_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

MAX_MODEL_BYTES = 1 << 29
"""Maximum size of a float16 model in bytes; the copy is twice as large, and at most 2 GiB."""

MAX_ROWS = 4096
"""Maximum number of rows or columns of a weight that are hashed, as in `torch_eager.py` of the worker."""

_EXACT_BITS = 0b111111
"""Lowest bits of a float16 number. They are 0 in constants that float16 represents exactly, such as 0.5, 3 or 100, but
not in the square root of 2, whose lowest 3 bits are 0."""


_HEAD_SIZES = (2, *range(8, 257, 8))
_KNOWN_CONSTANTS = np.array(
    [1.702, 0.044715, (2 / np.pi) ** 0.5, *(size**power for size in _HEAD_SIZES for power in (0.5, -0.5, 0.25, -0.25))]
)
"""Constants of approximations of GELU, and roots of the sizes of attention heads."""


ROUNDED_ONCE = 0.5
"""Maximum change in float16 steps of a number that was rounded once."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """Change of rounded weights and constants by up to `steps` float16 steps.

    Those whose SHA-256 is in `rounded_once` change by at most half a step.
    """

    steps: float
    seed: int
    rounded_once: Collection[str] = ()


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
        load_external_data(proto, model.parent)
    except (OnnxError, DecodeError) as error:
        raise ValueError(str(error)) from error
    return proto


def write_widened_model(
    model: Path,
    path: Path,
    exact: Collection[str] = (),
    *,
    restore: bool = False,
    rounding: Rounding | None = None,
    replaced: Mapping[tuple[str, str], Array] | None = None,
) -> bool:
    """Write a copy of a float16 model that computes in float32; return False if the model is too large.

    `exact` contains the SHA-256 of weights of the source. Other weights and constants were computed and rounded by a
    tool. With `restore`, those that are a rounded usual constant, such as the square root of 2, are replaced by it.
    With `rounding`, all others are changed, and the weights in `exact` by one float32 step, to show the effect of
    rounding. Weights whose name and SHA-256 are in `replaced` are replaced by these arrays.

    Raises:
        OSError: the model cannot be read, or the disk is full.
        ValueError: the external data cannot be read.
    """
    proto = load_with_weights(model, MAX_MODEL_BYTES)
    if proto is None:
        return False
    _Widening(exact, restore, rounding, replaced or {}).widen(proto)
    path.write_bytes(proto.SerializeToString())
    return True


class _Widening:
    """Replaces the type float16 with float32 in the types, weights and attributes of a model."""

    def __init__(
        self,
        exact: Collection[str],
        restore: bool,
        rounding: Rounding | None,
        replaced: Mapping[tuple[str, str], Array],
    ) -> None:
        self._exact = exact
        self._restore = restore
        self._rounding = rounding
        self._replaced = replaced

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
        values = read_array(tensor) if tensor.data_type == TensorProto.FLOAT16 else None
        if values is None:
            return
        wide, is_exact = values.astype(np.float32), contains_weight(self._exact, values)
        known = _find_known_constant(values) if self._restore and not is_exact else None
        other = self._replaced.get((tensor.name, hash_values(values))) if self._replaced else None
        if other is not None and other.shape == values.shape:
            wide = other.astype(np.float32)
        elif known is not None:
            wide = np.full_like(wide, known)
        elif self._rounding is not None:
            wide = _change_last_bit(wide, self._rounding) if is_exact else _change_rounding(values, self._rounding)
        tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))

    def _nodes(self, nodes: Iterable[NodeProto]) -> None:
        for attribute in (attribute for node in nodes for attribute in node.attribute):
            if attribute.name in ("to", "dtype") and attribute.i == TensorProto.FLOAT16:
                attribute.i = TensorProto.FLOAT
            if attribute.type == AttributeProto.TENSOR:
                self._tensor(attribute.t)
            for graph in (*attribute.graphs, *([attribute.g] if attribute.type == AttributeProto.GRAPH else [])):
                self._graph(graph)


def hash_half_weights(model: Path) -> tuple[str, ...]:
    """Return the SHA-256 of each float16 weight and constant of a model, and of its rows and columns.

    Raises:
        OSError: the model cannot be read.
        ValueError: the model or its external data is invalid.
    """
    proto = load_with_weights(model, MAX_MODEL_BYTES)
    hashes: set[str] = set()
    for tensor in list_tensors(proto.graph) if proto is not None else ():
        values = read_array(tensor) if tensor.data_type == TensorProto.FLOAT16 else None
        hashes |= hash_weight(values) if values is not None else set()
    return tuple(sorted(hashes))


def hash_weight(values: Array) -> set[str]:
    """Return the SHA-256 of a float16 weight, and of its rows and columns."""
    return {hash_values(values), *map(hash_values, _list_rows(values)), *map(hash_values, _list_columns(values))}


def list_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Yield the weights and the constants of a graph and its subgraphs."""
    yield from graph.initializer
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        if attribute.type == AttributeProto.TENSOR:
            yield attribute.t
        for subgraph in (*attribute.graphs, *([attribute.g] if attribute.type == AttributeProto.GRAPH else [])):
            yield from list_tensors(subgraph)


def contains_weight(hashes: Collection[str], values: Array) -> bool:
    """Return whether the source contains the weight, or each of its rows or columns, such as rows of an embedding.

    `hashes` contains the SHA-256 of its float16 weights and of their rows and columns.
    """
    return hash_values(values) in hashes or any(
        len(parts) > 0 and all(hash_values(part) in hashes for part in parts)
        for parts in (_list_rows(values), _list_columns(values))
    )


def _list_rows(values: Array) -> Sequence[Array]:
    if values.ndim < 2 or not values.size or values.size // values.shape[-1] > MAX_ROWS:
        return ()
    return list(values.reshape(-1, values.shape[-1]))


def _list_columns(values: Array) -> Sequence[Array]:
    return _list_rows(values.T) if values.ndim == 2 else ()


def hash_values(values: Array) -> str:
    """Return the SHA-256 of the elements of an array."""
    return hashlib.sha256(values.tobytes()).hexdigest()


def _find_known_constant(values: Array) -> float | None:
    """Return the constant that a tensor with one element is rounded from."""
    if values.size != 1:
        return None
    known = _KNOWN_CONSTANTS[_KNOWN_CONSTANTS.astype(np.float16) == values.reshape(())]
    return float(known[0]) if known.size else None


def _change_rounding(values: Array, rounding: Rounding) -> Array:
    """Return float32 numbers that may have been rounded to these float16 numbers."""
    with np.errstate(over="ignore", invalid="ignore"):
        step = np.abs(np.spacing(values)).astype(np.float32)
    is_rounded = ((values.view(np.uint16) & _EXACT_BITS) != 0) & np.isfinite(step)
    most = min(rounding.steps, ROUNDED_ONCE) if contains_weight(rounding.rounded_once, values) else rounding.steps
    change = np.random.default_rng(rounding.seed).uniform(-most, most, values.shape)
    return values.astype(np.float32) + np.where(is_rounded, step * change.astype(np.float32), np.float32(0))


def _change_last_bit(values: Array, rounding: Rounding) -> Array:
    """Replace each number except 0 by one of its two neighbors."""
    target = np.random.default_rng(rounding.seed).choice(np.array([np.inf, -np.inf], values.dtype), values.shape)
    return np.where(values == 0, values, np.nextafter(values, target))
