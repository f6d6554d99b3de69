"""Consistency of the quantization parameters of connected nodes.

A quantized value has the same scale and zero point at the node that computes it and at each node that reads it. The
scale of a bias is the product of the scales of the input and the weight, which fused operators use instead of the
stored scale. It has no effect if the bias contains only zeros. A scale of 0 belongs to a channel of zeros.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.model.quantization_parameters import (
    INPUT_NAMES,
    QUANTIZED_INPUTS,
    QuantizationFault,
    QuantizedInput,
    StoredTensors,
    get_int_attribute,
)
from onnxgate.model.quantized_ranges import ACTIVATIONS, read_limits, read_range
from onnxgate.model.reading.fact_extraction import format_operator_name
from onnxgate.model.reading.view import ModelView

if TYPE_CHECKING:
    from onnx import NodeProto

QUANTIZER, DEQUANTIZER = QuantizedInput(-1, 1, 2), QuantizedInput(0, 1, 2)
UNCHANGED = frozenset({"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Slice", "MaxPool"})
"""Operators whose output has the scale of their first input."""
BIASED = frozenset({"Conv", "Gemm"})
"""Operators whose third input is a bias. Runtimes fuse them with `DequantizeLinear` into a quantized operator.

Source: ONNX Runtime 1.17 to 1.26 fuses them and ignores the stored scale of the bias; since 1.27, it does not fuse
`Conv` if that scale is not the product. The product includes `alpha` of `Gemm`, which is not fused if `beta` is not 1.
`ConvTranspose` is not fused up to 1.32. Measured 2026-11-28.
"""
MOVED_QUANTIZERS = UNCHANGED - {"Flatten"}
"""Operators before which ONNX Runtime moves the `QuantizeLinear` that follows them; `Slice` since 1.20.

Source: 1.17 to 1.32, measured 2026-11-28.
"""
_COMPARED_NAMES = {*BIASED, *INPUT_NAMES, *(name.rpartition(".")[2] for name in QUANTIZED_INPUTS)}
MAX_SCALE_DIFFERENCE = 1e-3
"""Maximum relative difference of equal scales. Products of float16 scales are rounded to 11 bits."""
MAX_BIAS_DIFFERENCE = 0.01
_INT8_TYPES, _INT32 = (2, 3), 6


def find_inconsistencies(model: ModelView, path: Path) -> Iterator[QuantizationFault]:
    """Yield the nodes with inconsistent scales, in node order. Only stored scales are compared."""
    nodes = [node.proto for node in model.nodes() if node.operator[1] in _COMPARED_NAMES]
    if any(map(list_slots, nodes)):
        yield from _ScaleComparison(model, path).find_faults(nodes)


class _ScaleComparison:
    def __init__(self, model: ModelView, path: Path) -> None:
        self._stored = StoredTensors(model, path)
        self._model = model
        graph = model.proto.graph
        self._makers = {name: node for node in graph.node for name in node.output if name}
        self._main = {id(node) for node in graph.node}

    def find_faults(self, nodes: list[NodeProto]) -> Iterator[QuantizationFault]:
        for node in nodes:
            for slot in list_slots(node):
                yield from self._zero_scales(node, slot)
                if id(node) in self._main:  # names in subgraphs and functions may stand for other values
                    yield from self._unequal_parameters(node, slot)
            if node.op_type in BIASED and id(node) in self._main:
                yield from self._wrong_bias(node)

    def _zero_scales(self, node: NodeProto, slot: QuantizedInput) -> Iterator[QuantizationFault]:
        """Yield a fault if a channel has the scale 0, although its stored values are not 0."""
        scale = self._stored.floats_of(node, slot.scale)
        if scale is None or scale.size < 2 or scale.all() or not scale.any():  # all 0 is reported elsewhere
            return
        data = self._stored.tensor(node, slot.data)
        if data is None or data.data_type not in (*_INT8_TYPES, _INT32):
            return
        axis = get_int_attribute(node, "axis", 1) if node.op_type in INPUT_NAMES else slot.axis
        rank = len(data.dims)
        if axis is None or not -rank <= axis < rank or data.dims[axis] != scale.size:
            return
        values, zero = self._stored.values(data), self._stored.tensor(node, slot.zero)
        points = self._stored.values(zero) if zero is not None else None
        if values is None or (zero is not None and (points is None or points.size not in (1, scale.size))):
            return
        shape = [1] * rank
        shape[axis] = -1
        centred = values.reshape(tuple(data.dims)).astype("i8") - (0 if points is None else points.reshape(shape))
        lost = (centred != 0).any(axis=tuple(i for i in range(rank) if i != axis % rank)) & (scale == 0)
        if lost.any():
            what = f"its `{_name_of(node, slot.scale)}` is 0 for channel {int(lost.argmax())}, whose values are not 0"
            yield QuantizationFault(node, what, "value")

    def _unequal_parameters(self, node: NodeProto, slot: QuantizedInput) -> Iterator[QuantizationFault]:
        """Yield a fault if an input is read with another scale or zero point than it was quantized with."""
        if slot.data < 0 or slot.scale < 0 or slot.data >= len(node.input):
            return
        maker = self._find_quantizer(node.input[slot.data])
        own = next((slot for slot in list_slots(maker) if slot.data < 0), None) if maker is not None else None
        if maker is None or own is None:
            return
        read, written = (self._stored.floats_of(*pair) for pair in ((node, slot.scale), (maker, own.scale)))
        if read is None or written is None or read.size != 1 or written.size != 1:
            return
        ours, theirs = float(read.flat[0]), float(written.flat[0])
        if abs(ours - theirs) > MAX_SCALE_DIFFERENCE * abs(theirs):
            what = f"its `{_name_of(node, slot.scale)}` is {ours:.4g}, but its input was quantized with {theirs:.4g}"
            yield QuantizationFault(node, what, "value")
        read_zero, written_zero = self._zero_point(node, slot), self._zero_point(maker, own)
        if read_zero is not None and written_zero is not None and read_zero != written_zero:
            name = f"`{_name_of(node, slot.zero)}`" if slot.zero < len(node.input) else "zero point"
            what = f"its {name} is {read_zero:g}, but its input was quantized with {written_zero:g}"
            yield QuantizationFault(node, what, "value")

    def _zero_point(self, node: NodeProto, slot: QuantizedInput) -> float | None:
        """Return the stored zero point of a quantized value, 0 by default; None if there is not exactly one."""
        if slot.zero < 0:
            return None
        if slot.zero >= len(node.input) or not node.input[slot.zero]:
            return 0.0
        tensor = self._stored.tensor(node, slot.zero)
        values = self._stored.values(tensor) if tensor is not None else None
        return None if values is None or values.size != 1 else float(values.flat[0])

    def _find_quantizer(self, name: str) -> NodeProto | None:
        """Return the node that quantized a value, skipping nodes that keep its scale."""
        for _ in range(len(self._makers)):
            maker = self._makers.get(name)
            if maker is None or maker.op_type not in UNCHANGED or not maker.input:
                return maker
            name = maker.input[0]
        return None

    def _find_maker(self, name: str) -> NodeProto | None:
        """Return the node that computes a value, skipping `Identity` nodes, which runtimes remove."""
        maker = self._makers.get(name)
        for _ in range(len(self._makers)):
            if maker is None or maker.op_type != "Identity" or not maker.input:
                break
            maker = self._makers.get(maker.input[0])
        return maker

    @cached_property
    def _users(self) -> Mapping[str, list[NodeProto]]:
        """Nodes that use a value, also in subgraphs."""
        users: dict[str, list[NodeProto]] = {}
        for view in self._model.nodes():
            for name in view.proto.input:
                users.setdefault(name, []).append(view.proto)
        return users

    @cached_property
    def _outputs(self) -> set[str]:
        return {value.name for graph in self._model.graphs for value in graph.proto.output}

    def _is_fused(self, node: NodeProto) -> bool:
        """Return whether runtimes fuse a node with dequantized inputs into a quantized operator.

        A `Conv` needs a single user, a `QuantizeLinear`. A `Gemm` may have a floating-point output.
        Source: ONNX Runtime 1.17 to 1.32, measured 2026-11-28.
        """
        name = node.output[0]
        users = self._users.get(name, [])
        if node.op_type == "Gemm":
            is_single = len(users) == 1 and name not in self._outputs
            return is_single or all(user.op_type != "QuantizeLinear" for user in users)
        activations: list[NodeProto] = []
        passed: set[str] = set()
        while name not in passed and name not in self._outputs and len(users := self._users.get(name, [])) == 1:
            passed.add(name)  # the graph may not be acyclic
            user = users[0]
            if user.op_type == "QuantizeLinear":
                return all(self._is_in_range(user, activation) for activation in activations)
            if user.op_type in ACTIVATIONS:
                activations.append(user)
            elif user.op_type not in MOVED_QUANTIZERS or user.input[0] != name:
                return False
            name = user.output[0]
        return False

    def _is_in_range(self, quantizer: NodeProto, activation: NodeProto) -> bool:
        """Return whether the quantized values are in the range of an activation, which is then removed."""
        quantized, limits = read_range(self._stored, quantizer), read_limits(self._stored, activation)
        if quantized is None or limits is None:
            return False
        return limits.low <= quantized.low and quantized.high <= limits.high

    def _wrong_bias(self, node: NodeProto) -> Iterator[QuantizationFault]:
        """Yield a fault if a stored int32 bias has another scale than the product of the other scales."""
        makers = [self._find_maker(name) for name in node.input[:3]]
        dequantizers = [maker for maker in makers if maker is not None and maker.op_type == "DequantizeLinear"]
        if len(dequantizers) < 3:
            return
        bias = self._stored.tensor(dequantizers[2], 0)
        scales = [self._stored.floats_of(maker, 1) for maker in dequantizers]
        if bias is None or bias.data_type != _INT32:
            return
        first, second, own = scales
        alpha, beta = (_get_factor(node, name) for name in ("alpha", "beta"))
        if beta != 1 or first is None or second is None or own is None:
            return
        if first.size != 1 or own.size not in (1, second.size):
            return
        values = self._stored.values(bias)
        if values is None or values.size % own.size:
            return
        used = values.reshape(own.size, -1).any(axis=1)  # the scale of zeros has no effect
        product = alpha * first.astype("f8").reshape(-1)[0] * second.astype("f8").reshape(-1)
        if (used & (abs(own.reshape(-1) - product) > MAX_BIAS_DIFFERENCE * abs(product))).any() and self._is_fused(
            node
        ):
            name = f"`{node.op_type}` node `{node.name}`" if node.name else f"the `{node.op_type}` node"
            factor = "`alpha` and " if alpha != 1 else ""
            what = (
                f"its `x_scale` is not the product of {factor}the scales of input and weight of {name}, "
                "which runtimes use if they fuse these nodes"
            )
            yield QuantizationFault(dequantizers[2], what, "value")


def _get_factor(node: NodeProto, name: str) -> float:
    """Return `alpha` or `beta` of `Gemm`; 1 for other operators."""
    return next((float(attribute.f) for attribute in node.attribute if attribute.name == name), 1.0)


def list_slots(node: NodeProto) -> tuple[QuantizedInput, ...]:
    """Return the quantized inputs and outputs of a node."""
    if node.op_type in INPUT_NAMES:
        return (QUANTIZER if node.op_type == "QuantizeLinear" else DEQUANTIZER,)
    return QUANTIZED_INPUTS.get(format_operator_name(node), ())


def _name_of(node: NodeProto, position: int) -> str:
    names = INPUT_NAMES.get(node.op_type, ())
    return names[position] if position < len(names) else str(node.input[position])
