"""Validation of scales and zero points of quantized operators.

Only stored tensors are checked. Scales that are computed or come from inputs are not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from onnxgate.core.text import pluralize
from onnxgate.model.facts import DEFAULT_DOMAIN, canonical_domain, count_tensor_elements, element_name, required_bytes
from onnxgate.model.reading.fact_extraction import format_operator_name, read_opsets
from onnxgate.model.reading.tensor_data import UnreadableWeightError, decode_elements, read_chunks
from onnxgate.model.reading.view import ModelView

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import NodeProto, TensorProto, ValueInfoProto

    Array = NDArray[Any]

MAX_SCALE_BYTES = 64 * 1024 * 1024
"""Maximum size in bytes of a tensor of scales or zero points. Larger tensors are not read."""


class QuantizationFault(msgspec.Struct, frozen=True):
    """An invalid scale or zero point of a node."""

    node: NodeProto
    what: str  # such as "its `y_scale` is 0"
    kind: Literal["value", "shape", "type"]


class QuantizedInput(msgspec.Struct, frozen=True):
    """Indices of the node inputs that contain a quantized value, its scale and its zero point; -1 if there is none.

    `axis` is the axis that may have one scale per index, or None if there must be a single scale. `divides` means that
    the operator divides by the scale, which therefore must not be 0.
    """

    data: int
    scale: int
    zero: int
    axis: int | None = None
    divides: bool = True


_BINARY_INPUTS = (QuantizedInput(0, 1, 2), QuantizedInput(3, 4, 5), QuantizedInput(-1, 6, 7))
_CONVOLUTION = (QuantizedInput(0, 1, 2), QuantizedInput(3, 4, 5, axis=0, divides=False), QuantizedInput(-1, 6, 7))

QUANTIZED_INPUTS: dict[str, tuple[QuantizedInput, ...]] = {
    "QLinearConv": _CONVOLUTION,
    "QLinearMatMul": (
        QuantizedInput(0, 1, 2, axis=-2),
        QuantizedInput(3, 4, 5, axis=-1, divides=False),
        QuantizedInput(-1, 6, 7, axis=-2),
    ),
    "ConvInteger": (QuantizedInput(0, -1, 2), QuantizedInput(1, -1, 3, axis=0)),
    "MatMulInteger": (QuantizedInput(0, -1, 2, axis=-2), QuantizedInput(1, -1, 3, axis=-1)),
    "com.microsoft.QLinearConv": _CONVOLUTION,
    "com.microsoft.QGemm": (
        QuantizedInput(0, 1, 2),
        QuantizedInput(3, 4, 5, axis=-1, divides=False),
        QuantizedInput(-1, 7, 8),
    ),
    "com.microsoft.QLinearAdd": _BINARY_INPUTS,
    "com.microsoft.QLinearMul": _BINARY_INPUTS,
    "com.microsoft.QLinearWhere": (QuantizedInput(1, 2, 3), QuantizedInput(4, 5, 6), QuantizedInput(-1, 7, 8)),
    **{
        f"com.microsoft.QLinear{name}": (QuantizedInput(0, 1, 2), QuantizedInput(-1, 3, 4))
        for name in ("LeakyRelu", "Sigmoid", "Softmax", "AveragePool", "GlobalAveragePool", "ReduceMean")
    },
    "com.microsoft.DynamicQuantizeMatMul": (QuantizedInput(1, 2, 3, axis=-1, divides=False),),
    "com.microsoft.MatMulIntegerToFloat": (
        QuantizedInput(0, 2, 4, axis=-2, divides=False),
        QuantizedInput(1, 3, 5, axis=-1, divides=False),
    ),
    "com.microsoft.QAttention": (QuantizedInput(0, 3, 6), QuantizedInput(1, 4, 7, axis=-1, divides=False)),
    "com.microsoft.DynamicQuantizeLSTM": (
        QuantizedInput(1, 8, 9, axis=None, divides=False),
        QuantizedInput(2, 10, 11, axis=None, divides=False),
    ),
}
"""Quantized inputs of each operator. Source: operator specifications of ONNX 1.21 and ONNX Runtime 1.31."""

INPUT_NAMES = {
    "QuantizeLinear": ("x", "y_scale", "y_zero_point"),
    "DequantizeLinear": ("x", "x_scale", "x_zero_point"),
}

_QUANTIZED_OPERATORS = {*QUANTIZED_INPUTS, "com.microsoft.MatMulNBits"}
_QUANTIZED_NAMES = {name.rpartition(".")[2] for name in _QUANTIZED_OPERATORS}
_FLOATS = (1, 10, 11, 16)
_INT32 = 6


def find_quantization_faults(model: ModelView, path: Path) -> Iterator[QuantizationFault]:
    """Yield every invalid scale and zero point, in node order."""
    nodes = [
        node.proto
        for node in model.nodes()
        if (name := node.operator[1]) in INPUT_NAMES
        or (name in _QUANTIZED_NAMES and format_operator_name(node.proto) in _QUANTIZED_OPERATORS)
    ]
    if nodes:
        checker = _QuantizationChecker(model, path)
        for node in nodes:
            yield from checker.node(node)


def find_output_steps(model: ModelView, path: Path) -> dict[str, float]:
    """Map each graph output that is dequantized with a stored scale to its largest quantization step."""
    proto, stored = model.proto, StoredTensors(model, path)
    makers = {name: node for node in proto.graph.node for name in node.output}
    steps = {}
    for output in proto.graph.output:
        maker = _find_producer(output.name, makers)
        if maker is not None and maker.op_type == "DequantizeLinear" and len(maker.input) > 1:
            scale = stored.floats(maker.input[1])
            if scale is not None and scale.size:
                steps[output.name] = float(abs(scale).max())
    return steps


def _find_producer(name: str, makers: Mapping[str, NodeProto]) -> NodeProto | None:
    """Return the node that computes a value, skipping nodes that only move data; None for a graph input or a cycle."""
    followed: set[str] = set()
    while (maker := makers.get(name)) is not None and format_operator_name(maker) in VALUE_PRESERVING_OPERATORS:
        if name in followed or not maker.input:
            return None
        followed.add(name)
        name = maker.input[0]
    return maker


VALUE_PRESERVING_OPERATORS = frozenset(
    {"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Slice", "Relu"}
)
"""Operators that keep each value unchanged or set it to 0."""


class StoredTensors:
    """Tensors of a model by name. A name that refers to different tensors in different graphs is skipped."""

    def __init__(self, model: ModelView, path: Path) -> None:
        self._path = path
        self._tensors: dict[str, TensorProto | None] = {}
        for name, tensor in model.tensors:
            self._tensors[name] = None if name in self._tensors else tensor
        self._floats: dict[str, Array | None] = {}

    def get(self, name: str) -> TensorProto | None:
        """Return the stored tensor with this name."""
        return self._tensors.get(name)

    def tensor(self, node: NodeProto, position: int) -> TensorProto | None:
        """Return the stored tensor at an input of a node."""
        return self._tensors.get(node.input[position]) if 0 <= position < len(node.input) else None

    def content(self, tensor: TensorProto) -> tuple[bytes, ...]:
        """Return the data of a tensor in chunks; empty if it is too large or does not match its shape and type."""
        needed = required_bytes(tensor)
        if needed is None or needed > MAX_SCALE_BYTES:
            return ()
        try:
            chunks = tuple(read_chunks(tensor, self._path))
        except (UnreadableWeightError, OSError):
            return ()
        return chunks if sum(map(len, chunks)) == needed else ()

    def values(self, tensor: TensorProto) -> Array | None:
        """Decode the elements of a stored numeric tensor; None if its data cannot be read."""
        chunks = self.content(tensor)
        return decode_elements(b"".join(chunks), tensor.data_type) if chunks else None

    def floats(self, name: str) -> Array | None:
        """Decode the stored floating-point tensor with this name; None if there is no such tensor."""
        tensor = self._tensors.get(name)
        if tensor is None or tensor.data_type not in _FLOATS:
            return None
        if name not in self._floats:
            self._floats[name] = decode_elements(b"".join(self.content(tensor)), tensor.data_type)
        return self._floats[name]

    def floats_of(self, node: NodeProto, position: int) -> Array | None:
        """Decode the stored floating-point tensor at an input of a node."""
        return self.floats(node.input[position]) if 0 <= position < len(node.input) else None


class _QuantizationChecker:
    """Checks the scales and zero points in one model."""

    def __init__(self, model: ModelView, path: Path) -> None:
        proto = model.proto
        self._opset = read_opsets(proto).get(DEFAULT_DOMAIN, 0)
        self._stored = StoredTensors(model, path)
        self._reported: set[str] = set()
        values = (*proto.graph.input, *proto.graph.value_info, *proto.graph.output)
        self._values: Mapping[str, ValueInfoProto] = {value.name: value for value in values}

    def node(self, node: NodeProto) -> Iterator[QuantizationFault]:
        name = format_operator_name(node)
        if node.op_type in INPUT_NAMES:
            yield from self._linear(node)
        elif name == "com.microsoft.MatMulNBits":
            yield from self._bits(node)
        else:
            is_counted = name != "com.microsoft.DynamicQuantizeLSTM"  # its scales have a different layout
            for slot in QUANTIZED_INPUTS[name]:
                yield from self._slot(node, slot, counted=is_counted)

    # Kinds of nodes

    def _linear(self, node: NodeProto) -> Iterator[QuantizationFault]:
        block, axis = get_int_attribute(node, "block_size", 0), get_int_attribute(node, "axis", 1)
        quantizes = node.op_type == "QuantizeLinear"
        divides = quantizes and not block
        yield from self._scale(node, 1, divides=divides, tolerant=block > 0)
        yield from self._zero(node, 0 if not quantizes else -1, 1, 2)
        scale, shape = self._stored.tensor(node, 1), self._shape(node, 0)
        if scale is None or count_tensor_elements(scale) < 2:
            return
        if block:
            yield from _check_blocks(node, tuple(scale.dims), shape, axis, block)
        elif len(scale.dims) > 1 and canonical_domain(node.domain) == DEFAULT_DOMAIN:
            problem = f"its `{_input_name(node, 1)}` has {len(scale.dims)} axes"
            yield QuantizationFault(node, f"{problem}; without `block_size`, it can have at most 1", "shape")
        elif self._opset < 13 and canonical_domain(node.domain) == DEFAULT_DOMAIN:
            problem = f"its `{_input_name(node, 1)}` has {count_tensor_elements(scale)} values"
            yield QuantizationFault(node, f"{problem}; in opset {self._opset}, it can have only 1", "shape")
        elif shape is not None:
            yield from _check_axis_size(node, 1, 0, count_tensor_elements(scale), shape, axis)

    def _slot(self, node: NodeProto, slot: QuantizedInput, *, counted: bool) -> Iterator[QuantizationFault]:
        if slot.scale >= 0:
            yield from self._scale(node, slot.scale, divides=slot.divides, tolerant=False)
        yield from self._zero(node, slot.data, slot.scale, slot.zero)
        if not counted:
            return
        for position in (slot.scale, slot.zero):
            tensor = self._stored.tensor(node, position)
            if tensor is None or count_tensor_elements(tensor) < 2 or len(tensor.dims) != 1:
                continue
            if slot.axis is None:
                problem = f"its `{_input_name(node, position)}` has {count_tensor_elements(tensor)} values"
                yield QuantizationFault(node, f"{problem} instead of 1", "shape")
            elif slot.data >= 0 and (shape := self._shape(node, slot.data)) is not None:
                turned = slot.axis == -1 and bool(get_int_attribute(node, "transB", 0))
                yield from _check_axis_size(
                    node, position, slot.data, count_tensor_elements(tensor), shape, -2 if turned else slot.axis
                )
                break

    def _bits(self, node: NodeProto) -> Iterator[QuantizationFault]:
        """Check a node with block-quantized weights. A scale may be negative, or 0 if its block contains only zeros."""
        yield from self._scale(node, 2, divides=False, tolerant=True)
        columns, rows = get_int_attribute(node, "N", 0), get_int_attribute(node, "K", 0)
        block, bits = get_int_attribute(node, "block_size", 0), get_int_attribute(node, "bits", 4)
        if min(columns, rows, block, bits) < 1:
            return
        blocks = math.ceil(rows / block)
        zeros = self._stored.tensor(node, 3)
        packed = zeros is not None and element_name(zeros.data_type) == "uint8"
        zero_count = columns * (math.ceil(blocks * bits / 8) if packed else blocks)
        tensors = (self._stored.tensor(node, 2), "scales", columns * blocks), (zeros, "zero_points", zero_count)
        for tensor, name, needed in tensors:
            if tensor is not None and count_tensor_elements(tensor) != needed:
                what = f"its `{name}` have {pluralize(count_tensor_elements(tensor), 'value')}; "
                what += f"{columns} columns of {blocks} blocks require {needed}"
                yield QuantizationFault(node, what, "shape")

    # Scales and zero points

    def _scale(self, node: NodeProto, position: int, *, divides: bool, tolerant: bool) -> Iterator[QuantizationFault]:
        values = self._stored.floats(node.input[position]) if position < len(node.input) else None
        if values is None or not values.size or node.input[position] in self._reported:
            return
        if problem := _find_wrong_scale(values, divides, tolerant):
            self._reported.add(node.input[position])  # report a shared scale once
            yield QuantizationFault(node, f"its `{_input_name(node, position)}` {problem}", "value")

    def _zero(self, node: NodeProto, data: int, scale: int, zero: int) -> Iterator[QuantizationFault]:
        point = self._stored.tensor(node, zero)
        if point is None:
            return
        subject = f"its `{_input_name(node, zero)}`"
        holder = self._stored.tensor(node, data)
        if holder is not None and holder.data_type != point.data_type:
            own, needed = element_name(point.data_type), element_name(holder.data_type)
            compared = f"but `{_input_name(node, data)}` has type {needed}"
            yield QuantizationFault(node, f"{subject} has type {own}, {compared}", "type")
        scales = self._stored.tensor(node, scale)
        if scales is not None and count_tensor_elements(scales) != count_tensor_elements(point):
            counts = count_tensor_elements(point), count_tensor_elements(scales)
            compared = f"but `{_input_name(node, scale)}` has {counts[1]}"
            yield QuantizationFault(node, f"{subject} has {pluralize(counts[0], 'value')}, {compared}", "shape")
        if point.data_type == _INT32 and any(any(chunk) for chunk in self._stored.content(point)):
            yield QuantizationFault(node, f"{subject} must contain only zeros, because its type is int32", "value")

    def _shape(self, node: NodeProto, position: int) -> tuple[int, ...] | None:
        """Return the size of each axis of a value, with -1 for a dynamic axis; None if the rank is unknown."""
        if position >= len(node.input):
            return None
        name = node.input[position]
        tensor, value = self._stored.get(name), self._values.get(name)
        if tensor is not None:
            return tuple(tensor.dims)
        if value is None or not value.type.tensor_type.HasField("shape"):
            return None
        dims = value.type.tensor_type.shape.dim
        return tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in dims)


def _find_wrong_scale(values: Array, divides: bool, tolerant: bool) -> str:
    """Describe what is invalid about the values of a scale; "" if all are valid."""
    import numpy as np

    non_finite = ~np.isfinite(values)
    if non_finite.any():
        return f"contains {values[non_finite][0]:g}"
    if tolerant:
        return ""
    least = float(abs(values).min())
    if divides and least < np.finfo(values.dtype).tiny:  # division by a subnormal number loses precision
        return f"contains {least:.3g}, which is too small to divide by"
    return "" if values.any() else "contains only zeros, so all dequantized values are 0"


def _check_axis_size(
    node: NodeProto, position: int, data: int, count: int, shape: tuple[int, ...], axis: int
) -> Iterator[QuantizationFault]:
    subject = f"its `{_input_name(node, position)}` has {pluralize(count, 'value')}"
    name, axes = _input_name(node, data), pluralize(len(shape), "axis", "axes")
    if len(shape) == 1:  # the attribute is ignored for a single axis
        axis = 0
    if not -len(shape) <= axis < len(shape):
        yield QuantizationFault(node, f"{subject} for axis {axis}, but `{name}` has {axes}", "shape")
    elif shape[axis] not in (-1, count):
        yield QuantizationFault(node, f"{subject}, but axis {axis} of `{name}` has size {shape[axis]}", "shape")


def _check_blocks(
    node: NodeProto, scale: tuple[int, ...], shape: tuple[int, ...] | None, axis: int, block: int
) -> Iterator[QuantizationFault]:
    if shape is None:
        return
    subject = f"its `{_input_name(node, 1)}` has shape {list(scale)}"
    name, axes = _input_name(node, 0), pluralize(len(shape), "axis", "axes")
    if len(scale) != len(shape):
        yield QuantizationFault(node, f"{subject}, but `{name}` has {axes}", "shape")
        return
    if not -len(shape) <= axis < len(shape):
        yield QuantizationFault(node, f"its block axis is {axis}, but `{name}` has {axes}", "shape")
        return
    needed = [
        math.ceil(size / block) if index == axis % len(shape) and size > 0 else size for index, size in enumerate(shape)
    ]
    if any(size not in (-1, tensor) for size, tensor in zip(needed, scale, strict=True)):
        yield QuantizationFault(
            node,
            f"{subject}; for blocks of {block} elements along axis {axis} of `{name}`, it must be {needed}",
            "shape",
        )


def get_int_attribute(node: NodeProto, name: str, default: int) -> int:
    """Return an integer attribute of a node, or the default."""
    return next((attribute.i for attribute in node.attribute if attribute.name == name), default)


def _input_name(node: NodeProto, position: int) -> str:
    """Return the name of an input in the operator specification; if it is unknown, return the name of the value."""
    names = INPUT_NAMES.get(node.op_type, ())
    return names[position] if 0 <= position < len(names) else str(node.input[position])
