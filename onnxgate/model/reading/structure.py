"""Reader for the protobuf messages in a model file. In large files, weights and long attributes are not read.

The result is a regular serialized `ModelProto`, which protobuf parses.
"""

from __future__ import annotations

import enum
import functools
import hashlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.core.files import REMEMBERED_BYTES, open_regular
from onnxgate.model.facts import DEFAULT_DOMAIN, ELEMENT_TYPES, STRING, canonical_domain
from onnxgate.model.reading.file_format import (
    LENGTH,
    Field,
    FileWindow,
    UnreadableModel,
    encode_length_prefix,
    iter_fields,
)
from onnxgate.model.reading.omitted_data import (
    CONSTANT,
    LEADING_FIELDS,
    NO_OPERATOR,
    OMITTED_KEY,
    OmittedData,
    Operator,
    can_omit_list,
    describe_list,
    find_omitted_data,
    list_companion_tensors,
    restore_needed_lists,
)
from onnxgate.model.reading.omitted_texts import (
    KEPT_STRING_BYTES,
    LARGE_TEXT_BYTES,
    LARGE_VALUE_BYTES,
    OMITTED_TEXT_KEY,
    encode_text_position,
    summarize_text,
)
from onnxgate.model.reading.view import ModelView

if TYPE_CHECKING:
    from onnx import ModelProto


SMALL_BYTES = 4096
"""Maximum size in bytes of messages and tensor data that are kept. Shape inference reads only smaller data."""
_MAX_DEPTH = 100
"""Maximum nesting depth of messages. Source: default recursion limit of protobuf."""
_MAX_PLAIN_VALUES = 256
"""Minimum number of plain values for which an attribute is assumed to contain only numbers or strings."""


class MessageKind(enum.Enum):
    """Types of messages that may contain large weights or texts."""

    MODEL = enum.auto()
    TRAINING = enum.auto()
    FUNCTION = enum.auto()
    GRAPH = enum.auto()
    NODE = enum.auto()
    ATTRIBUTE = enum.auto()
    SPARSE = enum.auto()
    TENSOR = enum.auto()
    VALUE = enum.auto()
    METADATA = enum.auto()  # of the model
    OTHER_METADATA = enum.auto()


_NESTED_MESSAGES: dict[MessageKind, dict[int, MessageKind]] = {
    MessageKind.MODEL: {7: MessageKind.GRAPH, 20: MessageKind.TRAINING, 25: MessageKind.FUNCTION},
    MessageKind.TRAINING: {1: MessageKind.GRAPH, 2: MessageKind.GRAPH},
    MessageKind.FUNCTION: {7: MessageKind.NODE},
    MessageKind.GRAPH: {1: MessageKind.NODE, 5: MessageKind.TENSOR, 15: MessageKind.SPARSE},
    MessageKind.NODE: {5: MessageKind.ATTRIBUTE},
    MessageKind.ATTRIBUTE: {
        5: MessageKind.TENSOR,
        6: MessageKind.GRAPH,
        10: MessageKind.TENSOR,
        11: MessageKind.GRAPH,
        22: MessageKind.SPARSE,
        23: MessageKind.SPARSE,
    },
    MessageKind.SPARSE: {1: MessageKind.TENSOR, 2: MessageKind.TENSOR},
}
"""Types of the nested messages in each message type, keyed by field number. Source: onnx.proto."""
_NESTED_TEXTS: dict[MessageKind, dict[int, MessageKind]] = {
    MessageKind.MODEL: {14: MessageKind.METADATA},
    MessageKind.FUNCTION: {12: MessageKind.VALUE, 14: MessageKind.OTHER_METADATA},
    MessageKind.GRAPH: {**dict.fromkeys((11, 12, 13), MessageKind.VALUE), 16: MessageKind.OTHER_METADATA},
    MessageKind.NODE: {9: MessageKind.OTHER_METADATA},
    MessageKind.VALUE: {4: MessageKind.OTHER_METADATA},
}
"""Types of the nested messages that may contain texts, but no weights, keyed as in `_NESTED_MESSAGES`."""
_TEXTS = {
    MessageKind.MODEL: 6,
    MessageKind.FUNCTION: 8,
    MessageKind.GRAPH: 10,
    MessageKind.NODE: 6,
    MessageKind.ATTRIBUTE: 13,
    MessageKind.TENSOR: 12,
    MessageKind.VALUE: 3,
    MessageKind.METADATA: 2,
    MessageKind.OTHER_METADATA: 2,
}
"""Number of the field for documentation or for a value of metadata, for each message type. Source: onnx.proto."""
_STRING, _DOC_STRING, _TENSOR_METADATA = 4, 13, 16
"""Numbers of the fields of AttributeProto and TensorProto that contain texts."""
_COMPLETE_STRINGS = frozenset({"equation"})
"""Names of string attributes that onnx reads completely, whatever their size."""
RAW_DATA = 9
DATA_FIELDS = {
    4: "float_data",
    5: "int32_data",
    7: "int64_data",
    RAW_DATA: "raw_data",
    10: "double_data",
    11: "uint64_data",
}
"""Fields of TensorProto that can contain the data of a tensor as one block of bytes."""
_EXTERNAL_DATA = 13
_NAME, _OPERATOR, _ATTRIBUTE, _DOMAIN = 1, 4, 5, 7
"""Numbers of the fields of AttributeProto and NodeProto."""
_MAX_NAME_BYTES = 100
"""Maximum length in bytes of the names in `OMITTED_LISTS`."""
_IMPORTS, _FUNCTIONS, _FUNCTION_IMPORTS = 8, 25, 9
"""Numbers of the fields of ModelProto and FunctionProto that contain functions and imports of opsets."""
_FIRST_OPSET_WITH_LISTS = 12
"""First opset in which the value of `Constant` can be a list."""


def strip_weights(
    source: FileWindow, small_bytes: int = SMALL_BYTES, *, describes_lists: bool = True, omits_texts: bool = False
) -> bytes:
    """Return the bytes of the file without tensor data and attribute lists of more than `small_bytes`.

    With `omits_texts`, large texts are also omitted; see `omitted_texts`.

    Raises:
        UnreadableModel: the file is not a sequence of complete messages.
    """
    stripper = _WeightStripper(source, small_bytes, describes_lists, omits_texts)
    return b"".join(stripper.message(MessageKind.MODEL, 0, source.size_bytes, 0))


class _WeightStripper:
    def __init__(self, source: FileWindow, small_bytes: int, describes_lists: bool, omits_texts: bool) -> None:
        self._source = source
        self._small_bytes = small_bytes
        self._describes_lists = describes_lists
        self._omits_texts = omits_texts
        texts = _NESTED_TEXTS if omits_texts else {}
        self._nested = {kind: {**_NESTED_MESSAGES.get(kind, {}), **texts.get(kind, {})} for kind in MessageKind}

    def message(self, kind: MessageKind, start: int, end: int, depth: int) -> list[bytes]:
        """Return the parts of one message without its large fields. The other bytes are copied without being parsed."""
        if depth > _MAX_DEPTH:
            raise UnreadableModel(f"an unsupported model (its messages are nested more than {_MAX_DEPTH} levels deep)")
        parts: list[bytes] = []
        copied = start
        plain = 0
        operator: Operator | None = None
        is_shortened = False
        for field in iter_fields(self._source, start, end):
            is_large = field.end - field.start > self._small_bytes or kind is MessageKind.MODEL
            inside = self._nested[kind].get(field.number) if field.wire == LENGTH and is_large else None
            content: list[bytes] | None = None
            if inside is MessageKind.TENSOR:
                content = self._tensor(field.start, field.end)
            elif inside is not None:
                stub = b""
                if inside is MessageKind.ATTRIBUTE:
                    operator = operator or self._read_operator(start, end)
                    stub = self._describe_list(field.start, field.end, operator)
                content = [stub] if stub else self.message(inside, field.start, field.end, depth + 1)
            elif self._omits_texts and field.wire == LENGTH:
                content = self._shorten_text(kind, field, start, end)
                is_shortened |= content is not None and kind is MessageKind.ATTRIBUTE
            if content is not None:
                parts += (
                    self._source.read(copied, field.tag),
                    encode_length_prefix(field.number, sum(map(len, content))),
                )
                parts += content
                copied = field.end
            elif kind is MessageKind.ATTRIBUTE and (plain := plain + 1) > _MAX_PLAIN_VALUES:
                break
        parts.append(self._source.read(copied, end))
        if is_shortened:
            position = encode_text_position(start, end)
            parts.append(encode_length_prefix(_DOC_STRING, len(position)) + position)
        return parts

    def _shorten_text(self, kind: MessageKind, field: Field, start: int, end: int) -> list[bytes] | None:
        """Return what is kept of a large text in the message between `start` and `end`; None if all of it is kept."""
        size = field.end - field.start
        if size < (LARGE_VALUE_BYTES if kind is MessageKind.METADATA else LARGE_TEXT_BYTES):
            return None
        if kind is MessageKind.ATTRIBUTE and field.number == _STRING:
            is_read = self._read_attribute_name(start, end) in _COMPLETE_STRINGS
            return None if is_read else [self._source.read(field.start, field.start + KEPT_STRING_BYTES)]
        if field.number != _TEXTS.get(kind):
            return None
        summary = summarize_text(self._source, field.start, field.end)
        return None if summary is None else [summary]

    def _read_operator(self, start: int, end: int) -> Operator:
        """Return the domain and name of the operator of the node between `start` and `end`, as far as they matter.

        The name is empty for nodes whose lists are kept: those of `Constant` with several attributes.
        """
        texts = {_OPERATOR: b"", _DOMAIN: b""}
        attributes = 0
        try:
            for field in iter_fields(self._source, start, end):
                attributes += field.number == _ATTRIBUTE
                if field.number in texts and field.wire == LENGTH:  # the last value applies
                    end_of_text = min(field.end, field.start + _MAX_NAME_BYTES)
                    texts[field.number] = self._source.read(field.start, end_of_text)
        except UnreadableModel:  # report the first error in the file
            return NO_OPERATOR
        name, domain = (texts[number].decode(errors="replace") for number in (_OPERATOR, _DOMAIN))
        operator = (canonical_domain(domain), name)
        return NO_OPERATOR if attributes > 1 and operator == CONSTANT else operator

    def _describe_list(self, start: int, end: int, operator: Operator) -> bytes:
        """Return the encoded attribute without its list, see `describe_list`; b"" if the list must be kept."""
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
        from onnx import AttributeProto

        name = self._read_attribute_name(start, end)
        if not can_omit_list(operator, name) or (operator == CONSTANT and not self._takes_constant_lists):
            return b""
        if not self._describes_lists:
            return bytes(AttributeProto(name=name).SerializeToString())
        try:
            stub = describe_list(self._source, start, end, operator)
        except DecodeError:
            return b""
        return b"" if stub is None else bytes(stub.SerializeToString())

    @functools.cached_property
    def _takes_constant_lists(self) -> bool:
        """Whether all opsets of the model define lists as values of `Constant`."""
        versions = [*self._iter_opsets(0, self._source.size_bytes, _IMPORTS)]
        for field in iter_fields(self._source, 0, self._source.size_bytes):
            if field.number == _FUNCTIONS and field.wire == LENGTH:
                versions += self._iter_opsets(field.start, field.end, _FUNCTION_IMPORTS)
        return min(versions, default=0) >= _FIRST_OPSET_WITH_LISTS

    def _iter_opsets(self, start: int, end: int, number: int) -> Iterator[int]:
        """Yield the versions of the default domain in the imports of a model or function."""
        from onnx import OperatorSetIdProto

        for field in iter_fields(self._source, start, end):
            if field.number == number and field.wire == LENGTH and field.end - field.start <= self._small_bytes:
                imported = OperatorSetIdProto.FromString(self._source.read(field.start, field.end))
                if canonical_domain(imported.domain) == DEFAULT_DOMAIN:
                    yield imported.version

    def _read_attribute_name(self, start: int, end: int) -> str:
        """Return the name of an attribute if it is one of the first fields, as in exported models; otherwise ""."""
        for field in islice(iter_fields(self._source, start, end), LEADING_FIELDS):
            if field.number == _NAME and field.wire == LENGTH and field.end - field.start <= _MAX_NAME_BYTES:
                return self._source.read(field.start, field.end).decode(errors="replace")
        return ""

    def _tensor(self, start: int, end: int) -> list[bytes]:
        parts: list[bytes] = []
        omitted: list[OmittedData] = []
        copied = start
        for index, field in enumerate(iter_fields(self._source, start, end)):
            large = field.wire == LENGTH and field.end - field.start > self._small_bytes
            if large and field.number in DATA_FIELDS:
                parts.append(self._source.read(copied, field.tag))
                omitted.append(OmittedData(field.number, field.start, field.end - field.start))
                copied = field.end
            elif large and self._omits_texts and (text := self._shorten_tensor_text(field, start, end)):
                parts += (self._source.read(copied, field.tag), encode_length_prefix(field.number, sum(map(len, text))))
                parts += text
                copied = field.end
            elif not omitted and index > _MAX_PLAIN_VALUES:  # strings or unpacked numbers
                break
        parts.append(self._source.read(copied, end))
        return [*parts, *_encode_omitted_data(omitted)] if omitted else parts

    def _shorten_tensor_text(self, field: Field, start: int, end: int) -> list[bytes] | None:
        if field.number == _TENSOR_METADATA and field.wire == LENGTH:
            return self.message(MessageKind.OTHER_METADATA, field.start, field.end, 0)
        return self._shorten_text(MessageKind.TENSOR, field, start, end)


def _encode_omitted_data(omitted: list[OmittedData]) -> list[bytes]:
    raw = [piece for piece in omitted if piece.field == RAW_DATA][-1:]  # not repeated, so the last value applies
    omitted = [piece for piece in omitted if piece.field != RAW_DATA] + raw
    value = ",".join(f"{piece.field}:{piece.offset}:{piece.length}" for piece in omitted).encode()
    entry = (
        encode_length_prefix(1, len(OMITTED_KEY)) + OMITTED_KEY.encode() + encode_length_prefix(2, len(value)) + value
    )
    return [encode_length_prefix(_EXTERNAL_DATA, len(entry)) + entry]


LARGE_BYTES = 50 * 1000 * 1000
"""Minimum size in bytes of files that are read without their weights."""
LIGHT_BYTES = 8 * 1000 * 1000
"""Minimum size in bytes of files that static checks read without their weights."""
FIRST_IR_WITHOUT_INPUTS = 4
"""First IR version in which initializers do not have to be inputs. Source: IR.md of ONNX."""
MAX_PROTOBUF_BYTES = 2**31 - 1
"""Maximum size of a model in bytes. Source: protobuf, and thus every runtime, refuses messages of 2 GiB or more."""


def read_view(
    path: Path,
    *,
    large_bytes: int = LARGE_BYTES,
    small_bytes: int = SMALL_BYTES,
    describes_lists: bool = True,
    omits_texts: bool = False,
) -> ModelView:
    """Read a view of the model without external data. Files of at least `large_bytes` are read without large tensors.

    With `describes_lists`, omitted lists are read once to record their lengths and first elements. Otherwise, only the
    names of their attributes are kept. With `omits_texts`, large texts are omitted, too.

    Raises:
        UnreadableModel: the file is not a model.
        OSError: the file cannot be opened.
    """
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    content, is_whole = _read_content(
        path, large_bytes, small_bytes, describes_lists=describes_lists, omits_texts=omits_texts
    )
    try:
        proto = ModelProto.FromString(content)
    except DecodeError as error:
        with open_regular(path) as file:
            strip_weights(FileWindow(file))  # raises a more specific error if possible
        raise UnreadableModel("a corrupted model (invalid protobuf message)") from error
    is_hashed = is_whole and len(content) < REMEMBERED_BYTES  # the digest of the file includes omitted data
    view = ModelView(proto, hashlib.sha256(content).hexdigest() if is_hashed else "")
    if not is_whole and (OMITTED_KEY.encode() in content or OMITTED_TEXT_KEY.encode() in content):
        restore_needed_lists(view, path)
    return view


def read_structure(path: Path, *, large_bytes: int = LARGE_BYTES, small_bytes: int = SMALL_BYTES) -> ModelProto:
    """Read a model as a protobuf message; see `read_view`."""
    return read_view(path, large_bytes=large_bytes, small_bytes=small_bytes).proto


def read_light_view(path: Path) -> ModelView:
    """Read a view for static checks. Plain weights and texts are omitted in files of at least `LIGHT_BYTES`.

    If the onnx checker would read an omitted tensor, the model is read with `read_view` instead.

    Raises:
        UnreadableModel: the file is not a model.
        OSError: the file cannot be opened.
    """
    light = read_view(path, large_bytes=LIGHT_BYTES, omits_texts=True)
    is_light = LIGHT_BYTES <= path.stat().st_size < LARGE_BYTES
    return read_view(path) if is_light and not _omits_only_plain_weights(light) else light


def _omits_only_plain_weights(model: ModelView) -> bool:
    """Return whether the onnx checker reads none of the omitted data.

    It does not read lists of attributes, tensors that belong to them, and initializers that are contiguous, have a
    known type, and are not inputs.
    """
    graphs = [graph.proto for graph in model.graphs]
    inputs = {value.name for graph in graphs for value in graph.input}
    weights = [tensor for graph in graphs for tensor in graph.initializer if find_omitted_data(tensor)]
    omitted = sum(bool(find_omitted_data(tensor)) for tensor in model.declared)
    companions = sum(bool(find_omitted_data(tensor)) for tensor in list_companion_tensors(model))
    lists = sum(piece.is_list for tensor in model.declared for piece in find_omitted_data(tensor))
    return omitted == len(weights) + companions + lists and all(
        tensor.name not in inputs
        and model.proto.ir_version >= FIRST_IR_WITHOUT_INPUTS
        and tensor.data_type in ELEMENT_TYPES
        and tensor.data_type != STRING
        and len(find_omitted_data(tensor)) == 1
        for tensor in weights
    )


def _read_content(
    path: Path, large_bytes: int, small_bytes: int, *, describes_lists: bool, omits_texts: bool
) -> tuple[bytes, bool]:
    """Return the bytes of the model without its omitted data, and whether they are the complete file."""
    with open_regular(path) as file:
        source = FileWindow(file)
        if source.size_bytes > MAX_PROTOBUF_BYTES:
            raise UnreadableModel(f"a file of {source.size_bytes:,} bytes, which exceeds the protobuf limit of 2 GiB")
        if source.size_bytes < large_bytes:
            return source.read(0, source.size_bytes), True
        return strip_weights(source, small_bytes, describes_lists=describes_lists, omits_texts=omits_texts), False
