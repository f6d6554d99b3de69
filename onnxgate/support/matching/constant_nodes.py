"""Nodes with constant inputs that cannot be computed, so that runtimes which compute them at load refuse the model.

Source: 101 nodes of constants that cannot be computed, loaded on 8 releases of ONNX Runtime from 1.16.3 to 1.31.1; 160
lists of operators that require one axis, with 0 to 2 axes and 0 to 4 elements, loaded on 4 releases.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from onnxgate.model.reading.tensor_data import read_small_values
from onnxgate.model.reading.view import NodeView

if TYPE_CHECKING:
    from onnx import AttributeProto, TensorProto

Fault = Callable[[NodeView, Sequence["TensorProto"]], str]
"""Function that returns why a node with these constant inputs cannot be computed; "" if it can or this is unknown."""
_REDUCTIONS = frozenset(
    f"Reduce{name}" for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
)
_LISTS = {"Reshape": 1, "Slice": 1, "Squeeze": 1, **dict.fromkeys(_REDUCTIONS, 1)}
"""Index of the input that must have one axis, by operator."""
_WITH_AXIS = {"ArgMax": 0, "ArgMin": 0, "Hardmax": 1, "LogSoftmax": 1, "LpNormalization": -1, "Softmax": 1}
"""Operators with an axis that old releases of onnx do not check, and its default before opset 13."""
_WITHOUT_ELEMENTS = frozenset({"LpNormalization", "Squeeze"})
"""Operators of which all releases check the axis of a tensor without elements, too. Source: see `_check_axes`."""
_FIRST_WITH_LAST_AXIS = 13
"""First opset in which the default axis of Softmax, LogSoftmax and Hardmax is the last one."""
_MIN_INPUTS = {
    **dict.fromkeys((*_WITH_AXIS, *_REDUCTIONS, "Squeeze"), 1),
    "ConstantOfShape": 1,
    "DepthToSpace": 1,
    "SpaceToDepth": 1,
    "Split": 1,
    "Range": 3,
}
"""Minimum number of inputs of a node with a fault; 2 for other operators."""


def read_constant(attribute: AttributeProto) -> TensorProto | None:
    """Return the value of a `Constant` as a tensor; None if it is not numeric."""
    from onnx import TensorProto

    if attribute.HasField("t"):
        return attribute.t
    match attribute.name:
        case "value_int":
            return TensorProto(data_type=7, int64_data=[attribute.i])
        case "value_ints":
            return TensorProto(data_type=7, dims=[len(attribute.ints)], int64_data=attribute.ints)
        case "value_float":
            return TensorProto(data_type=1, float_data=[attribute.f])
        case "value_floats":
            return TensorProto(data_type=1, dims=[len(attribute.floats)], float_data=attribute.floats)
    return None


def explain_fault(node: NodeView, constants: Sequence[TensorProto], opset: int) -> str:
    """Return why a node with these constant inputs cannot be computed; "" if it can or this is unknown."""
    name = node.operator[1]
    if len(constants) < _MIN_INPUTS.get(name, 2):
        return ""
    if fault := _check_axes(node, constants[0], opset):
        return fault
    index = _LISTS.get(name)
    if index is not None and index < len(constants) and (rank := len(constants[index].dims)) != 1:
        return f"input {index + 1} has {rank} axes instead of one"
    if name == "Unsqueeze" and len(constants[1].dims) > 1:
        return f"input 2 has {len(constants[1].dims)} axes instead of one"
    return _apply_check(name, node, constants)


def _apply_check(name: str, node: NodeView, constants: Sequence[TensorProto]) -> str:
    check = _FAULTS.get(name)
    return check(node, constants) if check is not None else ""


def _check_axes(node: NodeView, tensor: TensorProto, opset: int) -> str:
    """Check the attribute `axis`, or `axes` of a reduction or Squeeze.

    Source: 21 operators of constants with one axis in 4 opsets, loaded on 7 releases from 1.16.3 to 1.32.0; 9 operators
    of constants with and without elements, loaded on 6 of them.
    """
    name, rank = node.operator[1], len(tensor.dims)
    if not rank or (not all(tensor.dims) and name not in _WITHOUT_ELEMENTS):
        return ""
    if name in _WITH_AXIS:
        has_last = opset >= _FIRST_WITH_LAST_AXIS and _WITH_AXIS[name] == 1
        axes = [_attribute(node, "axis", -1 if has_last else _WITH_AXIS[name])]
    else:
        axes = [axis for attribute in node.attributes if attribute.name == "axes" for axis in attribute.ints]
        axes = axes if name == "Squeeze" or name in _REDUCTIONS else []
    wrong = next((axis for axis in axes if not -rank <= axis < rank), None)
    return "" if wrong is None else f"the axis {wrong} is out of range for {rank} axes"


def _attribute(node: NodeView, name: str, default: int) -> int:
    return next((int(attribute.i) for attribute in node.attributes if attribute.name == name), default)


def _read_integers(tensor: TensorProto) -> tuple[int, ...]:
    return tuple(map(int, read_small_values(tensor) or ()))


def _check_reshape(node: NodeView, constants: Sequence[TensorProto]) -> str:
    tensor, values = constants[0], read_small_values(constants[1])
    if values is None or min(values, default=0) < 0:
        return ""
    sizes = tuple(map(int, values))
    if 0 in sizes and not _attribute(node, "allowzero", 0):
        if 0 in sizes[len(tensor.dims) :]:
            return ""
        sizes = tuple(size or tensor.dims[axis] for axis, size in enumerate(sizes))
    count = math.prod(tensor.dims)
    return "" if count == math.prod(sizes) else f"{count} elements do not fit the shape ({', '.join(map(str, sizes))})"


def _check_indices(node: NodeView, constants: Sequence[TensorProto]) -> str:
    """Check the second input of Gather, GatherElements or ScatterElements."""
    dims, axis = constants[0].dims, _attribute(node, "axis", 0)
    if not -len(dims) <= axis < len(dims):
        return ""
    size = dims[axis]
    wrong = next((index for index in _read_integers(constants[1]) if not -size <= index < size), None)
    return "" if wrong is None else f"the index {wrong} is out of range for {size} elements"


def _check_coordinates(node: NodeView, constants: Sequence[TensorProto]) -> str:
    """Check the second input of GatherND or ScatterND."""
    dims, indices = [*constants[0].dims], constants[1]
    depth = indices.dims[-1] if indices.dims else 0
    if not 0 < depth <= len(dims) or _attribute(node, "batch_dims", 0):
        return ""
    values = _read_integers(indices)
    pairs = ((values[at], dims[at % depth]) for at in range(len(values)))
    wrong = next(((index, size) for index, size in pairs if not -size <= index < size), None)
    return "" if wrong is None else f"the index {wrong[0]} is out of range for {wrong[1]} elements"


def _check_range(node: NodeView, constants: Sequence[TensorProto]) -> str:
    if any(tensor.dims for tensor in constants):
        return ""
    bounds = [value for tensor in constants for value in read_small_values(tensor) or ()]
    if len(bounds) < 3 or not all(map(math.isfinite, bounds)):
        return ""
    start, end, step = bounds
    if not step:
        return "the step is 0"
    count = (end - start) / step  # of very large floats, it may be infinite or NaN
    return _check_size([math.ceil(count)]) if abs(count) <= _MAX_RANGE else ""


def _check_filled(node: NodeView, constants: Sequence[TensorProto]) -> str:
    return _check_size(_read_integers(constants[0])) if constants[0].dims else "input 1 has no axis"


def _check_repeats(node: NodeView, constants: Sequence[TensorProto]) -> str:
    """Check the result of Expand or Tile."""
    dims, sizes = [*constants[0].dims], _read_integers(constants[1])
    if node.operator[1] == "Tile":
        return _check_size(
            [size * count for size, count in zip(dims, sizes, strict=True)] if len(sizes) == len(dims) else ()
        )
    pairs = list(itertools.zip_longest(reversed(dims), reversed(sizes), fillvalue=1))
    if any(left == 1 and right < 0 for left, right in pairs):
        return "a size is negative"
    return _check_size([right if left == 1 else left for left, right in pairs][::-1])


def _check_size(sizes: Sequence[int]) -> str:
    """Check that a process can address a result of this shape, in which the count before a size of 0 counts, too."""
    if min(sizes, default=0) < 0:
        return ""
    counts = [*itertools.accumulate(sizes, operator.mul, initial=1)]
    return f"the result has {max(counts)} elements" if max(counts[-1], max(counts) >> 16) >= _MAX_ELEMENTS else ""


def _check_cumulation(node: NodeView, constants: Sequence[TensorProto]) -> str:
    rank, axes = len(constants[0].dims), _read_integers(constants[1])
    return f"the axis {axes[0]} is out of range" if len(axes) == 1 and not -rank <= axes[0] < rank else ""


def _check_blocks(node: NodeView, constants: Sequence[TensorProto]) -> str:
    dims, block = [*constants[0].dims], _attribute(node, "blocksize", 0)
    if len(dims) != 4 or block <= 0:
        return ""
    if node.operator[1] == "DepthToSpace":
        return f"{dims[1]} channels are not a multiple of {block * block}" if dims[1] % (block * block) else ""
    return f"the size ({dims[2]}, {dims[3]}) is not a multiple of {block}" if dims[2] % block or dims[3] % block else ""


def _check_channels(node: NodeView, constants: Sequence[TensorProto]) -> str:
    """Check the channels of Conv and ConvTranspose."""
    data, weight = [*constants[0].dims], [*constants[1].dims]
    if len(data) != len(weight) or len(data) < 3:
        return ""
    of_group = 1 if node.operator[1] == "ConvTranspose" else _attribute(node, "group", 1)
    expected = weight[0] if node.operator[1] == "ConvTranspose" else weight[1] * of_group
    return "" if data[1] == expected else f"the weight is for {expected} channels, not {data[1]}"


def _check_split(node: NodeView, constants: Sequence[TensorProto]) -> str:
    dims, axis = constants[0].dims, _attribute(node, "axis", 0)
    if not -len(dims) <= axis < len(dims):
        return ""
    size, count = dims[axis], _attribute(node, "num_outputs", 0)
    sizes = _read_integers(constants[1]) if len(constants) > 1 else ()
    if sizes and sum(sizes) != size:
        return f"the sum of the sizes is {sum(sizes)} instead of {size}"
    is_too_small = count > size or (count > 0 and -(-size // count) * (count - 1) > size)
    return f"{size} elements cannot be split into {count} parts" if is_too_small and len(constants) == 1 else ""


_MAX_ELEMENTS = 2**47
"""Number of elements for which no process has enough addresses; the product of sizes overflows at 2^63.

Source: 180 nodes of ConstantOfShape, Expand, Range and Tile with negative sizes and results of 2^40 to 2^126 elements,
loaded on 6 releases of ONNX Runtime from 1.16.3 to 1.32.0.
"""
_MAX_RANGE = 2**62
"""Number of elements above which Range may have no element at all, because of an overflow."""
_FAULTS: dict[str, Fault] = {
    "ConstantOfShape": _check_filled,
    "Conv": _check_channels,
    "ConvTranspose": _check_channels,
    "CumSum": _check_cumulation,
    "DepthToSpace": _check_blocks,
    "Expand": _check_repeats,
    "Gather": _check_indices,
    "GatherElements": _check_indices,
    "GatherND": _check_coordinates,
    "Range": _check_range,
    "Reshape": _check_reshape,
    "ScatterElements": _check_indices,
    "ScatterND": _check_coordinates,
    "SpaceToDepth": _check_blocks,
    "Split": _check_split,
    "Tile": _check_repeats,
}
COMPUTED = frozenset({*_FAULTS, *_LISTS, *_WITH_AXIS, "Unsqueeze"})
"""Names of the operators of which `explain_fault` finds faults."""
