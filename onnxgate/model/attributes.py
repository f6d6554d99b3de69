"""A node's attributes with all that may be left out filled in, so that two exporters' spellings compare equal."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from onnxgate.model.reading import canonical_domain

if TYPE_CHECKING:
    from onnx import AttributeProto, NodeProto

Plain = int | float | bytes | str | tuple["Plain", ...]
"""An attribute's value where it is neither a tensor nor a graph."""
Dims = Callable[[str], Sequence[int] | None]
"""The dims of a weight by its name; None where the name is no weight's."""

_FLOAT, _INT, _STRING, _FLOATS, _INTS, _STRINGS = 1, 2, 3, 6, 7, 8
_HELD = {4, 5, 9, 10, 11, 12}
"""Tensors and graphs. Source: AttributeProto.AttributeType."""
_PLAIN: dict[int, Callable[[AttributeProto], Plain]] = {
    _FLOAT: lambda attribute: _number(attribute.f),
    _INT: lambda attribute: int(attribute.i),
    _STRING: lambda attribute: bytes(attribute.s),
    _FLOATS: lambda attribute: tuple(map(_number, attribute.floats)),
    _INTS: lambda attribute: tuple(attribute.ints),
    _STRINGS: lambda attribute: tuple(attribute.strings),
}
_KERNEL_INPUT = {"Conv": 1, "ConvTranspose": 1, "ConvInteger": 1, "DeformConv": 1, "QLinearConv": 3}
"""Which input's dims give `kernel_shape` where it is left out."""
_WINDOWED = {*_KERNEL_INPUT, "MaxPool", "AveragePool", "LpPool", "MaxUnpool"}
_DEFAULT_DOMAINS = ("", "ai.onnx")
_LARGEST_OPSET = 2**31 - 1
"""Source: onnx keeps versions of operators in an `int`."""
LISTED = 8
"""Messages show lists up to this length."""


def plain_attributes(node: NodeProto, opset: int, dims: Dims) -> dict[str, Plain]:
    """The node's attributes that are neither tensors nor graphs; defaults of its schema are filled in."""
    given = {attribute.name: _plain(attribute) for attribute in node.attribute if _is_plain(attribute)}
    elsewhere = {attribute.name for attribute in node.attribute if not _is_plain(attribute)}
    filled = {name: value for name, value in _defaults(node.op_type, opset, node.domain) if name not in elsewhere}
    return _with_window(node, {**filled, **given}, dims)


def _is_plain(attribute: AttributeProto) -> bool:
    return bool(attribute.ref_attr_name) or attribute.type not in _HELD


def _plain(attribute: AttributeProto) -> Plain:
    """A value; one that a local function takes from its caller is the name that it has there."""
    if attribute.ref_attr_name:
        return str(attribute.ref_attr_name)
    if attribute.type in _PLAIN:
        return _PLAIN[attribute.type](attribute)
    return bytes(attribute.SerializeToString(deterministic=True))


def _number(value: float) -> Plain:
    """NaN is no number, and equal to itself."""
    return "nan" if math.isnan(value) else value


@functools.lru_cache(maxsize=4096)
def _defaults(operator: str, opset: int, domain: str) -> tuple[tuple[str, Plain], ...]:
    from onnx import defs

    if not 0 <= opset <= _LARGEST_OPSET:
        return ()
    try:
        schema = defs.get_schema(operator, opset, "" if domain == "ai.onnx" else domain)
    except defs.SchemaError:
        return ()
    known = ((name, attribute.default_value) for name, attribute in schema.attributes.items())
    return tuple((name, _plain(default)) for name, default in known if default.name and _is_plain(default))


def _with_window(node: NodeProto, attributes: dict[str, Plain], dims: Dims) -> dict[str, Plain]:
    """Convolutions and pools: the kernel's shape is its weight's, strides and dilations are 1, pads 0."""
    if node.op_type not in _WINDOWED or node.domain not in _DEFAULT_DOMAINS:
        return attributes
    kernel = attributes.get("kernel_shape") or _kernel(node, dims)
    if not isinstance(kernel, tuple):
        return attributes
    rank = len(kernel)
    filled: dict[str, Plain] = {"kernel_shape": kernel, "strides": (1,) * rank, "pads": (0,) * 2 * rank}
    if node.op_type != "MaxUnpool":
        filled["dilations"] = (1,) * rank
    if node.op_type == "ConvTranspose":
        filled["output_padding"] = (0,) * rank
    return {**filled, **attributes}


def _kernel(node: NodeProto, dims: Dims) -> Plain | None:
    index = _KERNEL_INPUT.get(node.op_type)
    if index is None or index >= len(node.input):
        return None
    shape = dims(node.input[index])
    return tuple(shape[2:]) if shape else None


def written(value: Plain | None) -> str:
    """A value as a message shows it: `[1, 1]`, `0.5`, `"reflect"`."""
    match value:
        case None:
            return "absent"
        case bytes():
            return f'"{value.decode(errors="replace")}"'
        case tuple():
            return f"[{', '.join(map(written, value))}]"
        case float():
            return float_text(value)
        case _:
            return str(value)


def float_text(value: float) -> str:
    """As few digits as tell a float of 32 bits from its neighbours."""
    return next(
        (text for digits in range(6, 9) if _bits(text := f"{value:.{digits}g}") == _bits(value)), f"{value:.9g}"
    )


def _bits(value: float | str) -> bytes:
    import struct

    try:
        return struct.pack("<f", float(value))
    except OverflowError:
        return b""


def changed(before: Plain | None, after: Plain | None) -> str:
    """What a message says of an attribute that is another: both values, or how much of a long list."""
    if isinstance(before, tuple) and isinstance(after, tuple) and max(len(before), len(after)) > LISTED:
        if len(before) != len(after):
            return f"has {len(after):,} elements, had {len(before):,}"
        return f"differs in {sum(map(operator.ne, before, after)):,} of {len(after):,} elements"
    return f"is {written(after)}, was {written(before)}"


def operator_text(node: NodeProto) -> str:
    """An operator as messages name it: `Conv`, or with a domain that is not the default one."""
    if node.domain in _DEFAULT_DOMAINS:
        return f"`{node.op_type}`"
    return f"`{canonical_domain(node.domain)}.{node.op_type}`"
