"""Fix that moves external data into the model."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

from onnx import TensorProto

from onnxgate.commands.fix.definition import Change, Fix, FixRequest, NoFix, RunnableCopy
from onnxgate.commands.fix.model_file import (
    FieldMatch,
    Part,
    Span,
    length_delimited_field,
    rewrite_fields,
    total_size,
)
from onnxgate.core.text import pluralize, quote_value
from onnxgate.model.facts import required_bytes
from onnxgate.model.reading.external_data import classify_layout, read_data_range, read_external_entries
from onnxgate.model.reading.file_format import read_pointer
from onnxgate.model.reading.structure import MAX_PROTOBUF_BYTES
from onnxgate.model.reading.view import ModelView

_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 9, 13, 14

_DATA_FIELDS = frozenset({4, 5, 6, 7, _RAW_DATA, 10, 11, _EXTERNAL_DATA, _DATA_LOCATION})
"""Numbers of the fields of TensorProto that contain data or its location. Source: onnx.proto."""


_MAX_HEADER_BYTES = 64 * 1024
"""Maximum size in bytes of a tensor message without data: its name, shape and location."""


_UNREADABLE_LAYOUTS = ("link", "outside", "absolute")
"""Kinds of external data locations that some runtimes and the onnx package reject (see `classify_layout`)."""


class _NotInlinableError(Exception):
    """Raised if external data cannot be moved into the model. The arguments are the reason and a hint."""


@dataclass(frozen=True, slots=True)
class _DataRange:
    """The file that contains the data of one tensor, with the offset and length of the data."""

    location: str  # as in the model
    file: Path  # after links
    start: int
    length: int


def _inline_external_data(request: FixRequest) -> Change | NoFix | None:
    """Move external data into the model. The bytes are copied unchanged, because `raw_data` has the same layout."""

    def inlined(match: FieldMatch) -> list[Part] | None:
        tensor = _parse_external_tensor(match)
        if tensor is None:
            return None
        place = _locate_data(request, tensor)
        data: list[Part] = [Span(place.file, place.start, place.start + place.length)] if place.length else []
        return match.replaced([*match.without(_DATA_FIELDS), *length_delimited_field(_RAW_DATA, data)])

    try:
        places = [_locate_data(request, tensor) for _, tensor in ModelView(request.proto).external]
        if not places:
            return None
        parts = rewrite_fields(request.path, {("", "TensorProto"): inlined})
        beyond = any(classify_layout(request.path, place.location) in _UNREADABLE_LAYOUTS for place in places)
        stand_in = _make_runnable_copy(request) if beyond else None
    except _NotInlinableError as reason:
        return NoFix(*reason.args)
    if (size := total_size(parts)) > MAX_PROTOBUF_BYTES:
        message = f"the model would have {size:,} bytes, but protobuf requires less than 2 GiB"
        return NoFix(message, "save the model with its external data in the same folder")
    locations = sorted({place.location for place in places})
    files = ", ".join(f"`{location}`" for location in locations)
    words = f"moves {pluralize(len(places), 'tensor')} from {files} into the model ({size:,} bytes)"
    return Change(parts, (words,), stand_in=stand_in, unlinked=tuple(locations), follows=frozenset({"size-grew"}))


def _locate_data(request: FixRequest, tensor: TensorProto) -> _DataRange:
    location, needed = read_external_entries(tensor).get("location", ""), required_bytes(tensor)
    file = _resolve_data_file(request, location)
    try:
        start, length = read_data_range(tensor)
    except ValueError as error:
        raise _NotInlinableError(f"`{tensor.name}` has an invalid range in `{location}`: {error}") from error
    if needed is None or (length is not None and length != needed):
        raise _NotInlinableError(f"the size of `{tensor.name}` in `{location}` does not match its shape and type")
    if start + needed > file.stat().st_size:
        raise _NotInlinableError(f"`{location}` ends before the last byte of `{tensor.name}`", "re-export the model")
    return _DataRange(location, file, start, needed)


def _resolve_data_file(request: FixRequest, location: str) -> Path:
    """Return the path of the external data file at `location`. Files outside the repository are rejected."""
    if not location or "\0" in location or PureWindowsPath(location).drive:
        raise _NotInlinableError("a tensor with external data has no location")
    real = Path(os.path.realpath(request.path.parent / location))
    if not real.is_relative_to(os.path.realpath(request.root)):
        message = f"`{location}` is outside the folder `{request.root}`"
        hint = "copy the file into this folder, or re-export the model"
        raise _NotInlinableError(message, hint)
    try:
        if not stat.S_ISREG(real.stat().st_mode):
            raise _NotInlinableError(f"`{location}` is not a regular file")
    except OSError as error:
        hint = "commit the data file, or re-export the model"
        raise _NotInlinableError(f"`{location}` does not exist", hint) from error
    if read_pointer(real):
        raise _NotInlinableError(
            f"`{location}` is a Git LFS pointer (content not fetched)",
            f"run `git lfs pull --include {quote_value(f'*{real.name}')}`",
        )
    return real


def _parse_external_tensor(match: FieldMatch) -> TensorProto | None:
    """Return the parsed tensor if its data is external, otherwise None."""
    locations = [inner.value for inner in match.inner() if inner.number == _DATA_LOCATION]
    if not locations or locations[-1] != TensorProto.EXTERNAL:
        return None
    if match.field.end - match.field.start > _MAX_HEADER_BYTES:
        raise _NotInlinableError("a tensor has both embedded and external data", "re-export the model")
    return TensorProto.FromString(match.content())


def _make_runnable_copy(request: FixRequest) -> RunnableCopy:
    """Return a copy of the model with its data files in one folder, so that runtimes can load it."""
    names: dict[str, str] = {}
    files: dict[str, Path] = {}

    def relocated(match: FieldMatch) -> list[Part] | None:
        tensor = _parse_external_tensor(match)
        if tensor is None:
            return None
        location = read_external_entries(tensor)["location"]
        if location not in names:
            name = PurePosixPath(location).name
            while name in names.values():
                name = f"other-{name}"
            names[location] = name
        files[names[location]] = _resolve_data_file(request, location)
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = names[location]
        return match.replaced([tensor.SerializeToString()])

    return RunnableCopy(rewrite_fields(request.path, {("", "TensorProto"): relocated}), files)


EXTERNAL_DATA = Fix(
    "external-data",
    frozenset({"external-data-escapes", "external-data-refused", "data-file-added"}),
    _inline_external_data,
)
