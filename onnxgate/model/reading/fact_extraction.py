"""Extraction of facts from a model file in one pass, without keeping large weights in memory."""

from __future__ import annotations

import functools
import hashlib
import math
import operator
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onnxgate.core.files import sha256_of
from onnxgate.model.facts import (
    DEFAULT_DOMAIN,
    Dim,
    ModelFacts,
    ValueInfo,
    canonical_domain,
    format_type,
    model_domain,
    wrap_opset,
)
from onnxgate.model.reading.external_data import find_external_files
from onnxgate.model.reading.omitted_data import (
    OmittedList,
    find_constant_list,
    find_omitted_list,
    iter_omitted_list,
    read_omitted_list,
)
from onnxgate.model.reading.structure import read_light_view, read_view
from onnxgate.model.reading.view import ModelView

if TYPE_CHECKING:
    from onnx import (
        AttributeProto,
        GraphProto,
        ModelProto,
        NodeProto,
        OperatorSetIdProto,
        ValueInfoProto,
    )


FIRST_IR_WITH_OPTIONAL_INPUTS = 4


class ParsedModel(msgspec.Struct, frozen=True):
    """Facts about a model, and the contents of the model without large weights."""

    facts: ModelFacts
    view: ModelView

    @property
    def proto(self) -> ModelProto:
        """The model as a protobuf message."""
        return self.view.proto


def read_model(path: Path, relative: str, *, lightly: bool = False) -> ParsedModel:
    """Read a model. `relative` is its path in reports: relative to the config folder, with `/` as the separator.

    `lightly` is for static checks; see `read_light_view`.

    Raises:
        UnreadableModel: the file is not a model.
    """
    view = read_light_view(path) if lightly else read_view(path)
    return ParsedModel(extract_facts(view, path, relative), view)


def read_facts(path: Path, relative: str) -> ModelFacts:
    """Read a model, and return only the facts about it; see `read_model`."""
    return read_model(path, relative).facts


def extract_facts(view: ModelView, path: Path, relative: str) -> ModelFacts:
    """Return the facts about the model in `view`, which was read from the file `path`."""
    proto, (external, unread) = view.proto, find_external_files(view, path)
    return ModelFacts(
        path=relative,
        sha256=view.sha256 or sha256_of(path),
        size_bytes=path.stat().st_size,
        ir_version=proto.ir_version,
        opsets=read_opsets(proto),
        producer=f"{proto.producer_name} {proto.producer_version.partition('+')[0]}".strip(),
        inputs=read_value_infos(list_inputs(proto.graph)),
        outputs=read_value_infos(proto.graph.output),
        operators=count_operators(view),
        metadata_keys=tuple(sorted(entry.key for entry in proto.metadata_props)),
        external=external,
        function_opsets=_newest_versions(
            imported for function in proto.functions for imported in function.opset_import
        ),
        optional_inputs=read_value_infos(list_optional_inputs(proto)),
        functions=tuple(sorted({_qualify_name(function.domain, function.name) for function in proto.functions})),
        unread=unread,
    )


def read_opsets(proto: ModelProto) -> dict[str, int]:
    """Map each domain to its version, sorted by domain. If a domain is imported twice, the newer version is used."""
    return _newest_versions(proto.opset_import)


def _newest_versions(imports: Iterable[OperatorSetIdProto]) -> dict[str, int]:
    versions: dict[str, int] = {}
    for imported in imports:
        domain = canonical_domain(imported.domain)
        version = wrap_opset(imported.version)
        versions[domain] = max(version, versions.get(domain, version))
    return dict(sorted(versions.items()))


def list_inputs(graph: GraphProto) -> list[ValueInfoProto]:
    """List the graph inputs that have no initializer."""
    initializers = _initializer_names(graph)
    return [value for value in graph.input if value.name not in initializers]


def list_optional_inputs(proto: ModelProto) -> list[ValueInfoProto]:
    """List the graph inputs with a default value.

    Source: in ONNX Runtime 1.23, inputs with an initializer can be set if the IR version is at least 4;
    otherwise, they are constants.
    """
    initializers = _initializer_names(proto.graph) if proto.ir_version >= FIRST_IR_WITH_OPTIONAL_INPUTS else set()
    return [value for value in proto.graph.input if value.name in initializers]


def _initializer_names(graph: GraphProto) -> set[str]:
    names = {tensor.name for tensor in graph.initializer}
    names.update(sparse.values.name for sparse in graph.sparse_initializer)
    return names


def read_value_infos(protos: Sequence[ValueInfoProto]) -> tuple[ValueInfo, ...]:
    """Read the names, types and shapes of graph inputs or outputs."""
    return tuple(ValueInfo(proto.name, format_type(proto.type), _read_shape(proto)) for proto in protos)


def _read_shape(value: ValueInfoProto) -> tuple[Dim, ...] | None:
    kind = value.type.WhichOneof("value")
    if kind not in ("tensor_type", "sparse_tensor_type") or not getattr(value.type, kind).HasField("shape"):
        return None
    dims = getattr(value.type, kind).shape.dim
    return tuple(
        int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value >= 0 else str(dim.dim_param) or "?"
        for dim in dims
    )


def count_operators(view: ModelView) -> dict[str, int]:
    """Map each operator to its number of nodes, including subgraphs and local functions; sorted by operator."""
    counts = Counter(node.operator[:2] for node in view.nodes())
    return dict(sorted((_qualify_name(domain, name), count) for (domain, name), count in counts.items()))


def format_operator_name(node: NodeProto) -> str:
    """Format an operator, such as `Conv`, with its domain unless it is the default domain."""
    return _qualify_name(node.domain, node.op_type)


def _qualify_name(domain: str, name: str) -> str:
    return name if canonical_domain(domain) == DEFAULT_DOMAIN else f"{domain}.{name}"


_MAX_TUPLE_ELEMENTS = 4096
"""Maximum number of elements in attribute lists that are kept in memory."""


class LongList:
    """A long list in an attribute, read on demand. Two lists are equal if their elements are equal."""

    __slots__ = ("_count", "_digest", "_kind", "_read")

    def __init__(self, kind: int, count: int, read: Callable[[], Iterator[AttributeProto]]) -> None:
        self._kind, self._count, self._read = kind, count, read  # `read` yields the attribute in pieces
        self._digest = b""

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[AttributeValue]:
        for piece in self._read():
            elements = _DECODERS[self._kind](piece)
            assert isinstance(elements, tuple)
            yield from elements

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LongList):
            return NotImplemented
        return (self._kind, self._count) == (other._kind, other._count) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return repr(tuple(self))

    @property
    def digest(self) -> bytes:
        """SHA-256 of the elements. All NaN values are treated as equal, as are positive and negative zero."""
        if not self._digest:
            digest = hashlib.sha256()
            for piece in self._read():
                digest.update(_encode_elements(piece, self._kind))
            self._digest = digest.digest()
        return self._digest


def _encode_elements(piece: AttributeProto, kind: int) -> bytes:
    """Encode the elements of a list; the result does not depend on how the list is divided into pieces."""
    import numpy as np

    own = type(piece)()
    own.MergeFrom(piece)
    for held, _ in own.ListFields():
        if held.name != _LIST_NAMES[kind]:
            own.ClearField(held.name)
    own.DiscardUnknownFields()
    content: bytes = own.SerializeToString()
    if kind != _FLOATS:
        return content
    values = np.frombuffer(content, [("tag", "u1"), ("value", "<f4")])["value"] + np.float32(0)  # -0.0 becomes 0.0
    values[np.isnan(values)] = np.nan
    return bytes(values.tobytes())


AttributeValue = int | float | bytes | str | LongList | tuple["AttributeValue", ...]
"""Value of an attribute that is neither a tensor nor a graph."""
DimsLookup = Callable[[str], Sequence[int] | None]
"""Function that takes the name of a weight and returns its dims; None if there is no such weight."""

_FLOAT, _INT, _STRING, _FLOATS, _INTS, _STRINGS = 1, 2, 3, 6, 7, 8
_NESTED_TYPES = {4, 5, 9, 10, 11, 12}
"""Attribute types that contain tensors or graphs. Source: AttributeProto.AttributeType."""
_DECODERS: dict[int, Callable[[AttributeProto], AttributeValue]] = {
    _FLOAT: lambda attribute: _normalize_nan(attribute.f),
    _INT: lambda attribute: int(attribute.i),
    _STRING: lambda attribute: bytes(attribute.s),
    _FLOATS: lambda attribute: tuple(map(_normalize_nan, attribute.floats)),
    _INTS: lambda attribute: tuple(attribute.ints),
    _STRINGS: lambda attribute: tuple(attribute.strings),
}
_LIST_NAMES = {_FLOATS: "floats", _INTS: "ints", _STRINGS: "strings"}
_KERNEL_INPUT = {"Conv": 1, "ConvTranspose": 1, "ConvInteger": 1, "DeformConv": 1, "QLinearConv": 3}
"""Index of the input whose dims determine a missing `kernel_shape`, for each operator with a kernel."""
_WINDOW_OPERATORS = {*_KERNEL_INPUT, "MaxPool", "AveragePool", "LpPool", "MaxUnpool"}
_MAX_OPSET = 2**31 - 1
"""Maximum opset version. Source: onnx stores operator versions in an `int`."""
MAX_LISTED = 8
"""Maximum number of list elements that a message shows."""


def read_attributes(node: NodeProto, opset: int, dims: DimsLookup, model: Path) -> dict[str, AttributeValue]:
    """Return the attributes of a node except tensors and graphs, including default values from its schema.

    Omitted lists are read from the file `model`.
    """
    explicit = {
        attribute.name: _decode_list(attribute, model) or _decode_attribute(attribute)
        for attribute in node.attribute
        if _is_plain(attribute)
    }
    lists = [constant for attribute in node.attribute if (constant := find_constant_list(attribute.t))]
    explicit |= {constant.name: _decode_omitted_list(constant, constant.type, model) for constant in lists}
    elsewhere = {attribute.name for attribute in node.attribute if not _is_plain(attribute)}
    filled = {
        name: value for name, value in _schema_defaults(node.op_type, opset, node.domain) if name not in elsewhere
    }
    return _fill_window_attributes(node, {**filled, **explicit}, dims)


def _is_plain(attribute: AttributeProto) -> bool:
    return bool(attribute.ref_attr_name) or attribute.type not in _NESTED_TYPES


def _decode_list(attribute: AttributeProto, model: Path) -> AttributeValue | None:
    """Return the value of an attribute that contains a long or omitted list; None for any other attribute."""
    if attribute.ref_attr_name or attribute.type not in _LIST_NAMES:
        return None
    if omitted := find_omitted_list(attribute):
        return _decode_omitted_list(omitted, attribute.type, model)
    count = len(getattr(attribute, _LIST_NAMES[attribute.type]))
    return LongList(attribute.type, count, lambda: iter((attribute,))) if count > _MAX_TUPLE_ELEMENTS else None


def _decode_omitted_list(omitted: OmittedList, kind: int, model: Path) -> AttributeValue:
    """Return the value of an attribute whose list is omitted."""
    if omitted.count <= _MAX_TUPLE_ELEMENTS:
        return _decode_attribute(read_omitted_list(omitted, model))
    return LongList(kind, omitted.count, functools.partial(iter_omitted_list, omitted, model))


def _decode_attribute(attribute: AttributeProto) -> AttributeValue:
    """Return the value of an attribute, or the parameter name if it refers to a parameter of the local function."""
    if attribute.ref_attr_name:
        return str(attribute.ref_attr_name)
    if attribute.type in _DECODERS:
        return _DECODERS[attribute.type](attribute)
    return bytes(attribute.SerializeToString(deterministic=True))


def _normalize_nan(value: float) -> AttributeValue:
    """Replace NaN with a value that compares equal to itself."""
    return "nan" if math.isnan(value) else value


@functools.lru_cache(maxsize=4096)
def _schema_defaults(operator: str, opset: int, domain: str) -> tuple[tuple[str, AttributeValue], ...]:
    from onnx import defs

    if not 0 <= opset <= _MAX_OPSET:
        return ()
    try:
        schema = defs.get_schema(operator, opset, model_domain(domain))
    except defs.SchemaError:
        return ()
    defaults = ((name, attribute.default_value) for name, attribute in schema.attributes.items())
    return tuple(
        (name, _decode_attribute(default)) for name, default in defaults if default.name and _is_plain(default)
    )


def _fill_window_attributes(
    node: NodeProto, attributes: dict[str, AttributeValue], dims: DimsLookup
) -> dict[str, AttributeValue]:
    """Add the defaults of convolutions and pools: kernel shape from the weight, strides and dilations 1, pads 0."""
    if node.op_type not in _WINDOW_OPERATORS or canonical_domain(node.domain) != DEFAULT_DOMAIN:
        return attributes
    index = _KERNEL_INPUT.get(node.op_type, len(node.input))
    shape = dims(node.input[index]) if index < len(node.input) else None
    kernel = attributes.get("kernel_shape") or (tuple(shape[2:]) if shape else None)
    if not isinstance(kernel, tuple):
        return attributes
    rank = len(kernel)
    filled: dict[str, AttributeValue] = {"kernel_shape": kernel, "strides": (1,) * rank, "pads": (0,) * 2 * rank}
    if node.op_type != "MaxUnpool":
        filled["dilations"] = (1,) * rank
    if node.op_type == "ConvTranspose":
        filled["output_padding"] = (0,) * rank
    return {**filled, **attributes}


def format_value(value: AttributeValue | None) -> str:
    """Format a value for messages, such as `[1, 1]`, `0.5` or `"reflect"`."""
    match value:
        case None:
            return "absent"
        case bytes():
            return f'"{value.decode(errors="replace")}"'
        case tuple() | LongList():
            return f"[{', '.join(map(format_value, value))}]"
        case float():
            return format_float(value)
        case _:
            return str(value)


def format_float(value: float) -> str:
    """Format a 32-bit float with as few digits as possible without changing its value."""
    return next(
        (text for digits in range(6, 9) if _float32_bytes(text := f"{value:.{digits}g}") == _float32_bytes(value)),
        f"{value:.9g}",
    )


def _float32_bytes(value: float | str) -> bytes:
    try:
        return struct.pack("<f", float(value))
    except OverflowError:
        return b""


def format_change(before: AttributeValue | None, after: AttributeValue | None) -> str:
    """Describe how an attribute changed: both values, or the number of differing elements of a long list."""
    lists = (tuple, LongList)
    if isinstance(before, lists) and isinstance(after, lists) and max(len(before), len(after)) > MAX_LISTED:
        if len(before) != len(after):
            return f"changed from {len(before):,} to {len(after):,} elements"
        return f"differs in {sum(map(operator.ne, before, after)):,} of {len(after):,} elements"
    if before is None or after is None:
        return f"was added: {format_value(after)}" if before is None else f"was removed: {format_value(before)}"
    return f"changed from {format_value(before)} to {format_value(after)}"


NOT_PROVIDED = "not provided"
"""Text that describes the origin of a node input if the optional input is omitted."""


def format_source_change(before: str, after: str) -> str:
    """Describe how a node input or graph output changed; `before` and `after` describe where its value comes from."""
    if before == after:
        return f"is a different {after}"
    if before == NOT_PROVIDED:
        return f"is now provided by {after}"
    if after == NOT_PROVIDED:
        return f"is no longer provided (previously {before})"
    return f"changed from {before} to {after}"
