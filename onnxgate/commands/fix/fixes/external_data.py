"""External data moved into the model's own file."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

from onnx import TensorProto

from onnxgate.commands.fix.model_file import FieldMatch, Part, Span, length_delimited_field, rewrite_fields, total_size
from onnxgate.commands.fix.proposals import Change, FixRequest, NoFix, RunnableCopy
from onnxgate.core.text import pluralize
from onnxgate.model.facts import required_bytes
from onnxgate.model.reading.external_data import classify_layout, is_external, read_data_range, read_external_entries
from onnxgate.model.reading.file_format import read_pointer
from onnxgate.model.reading.structure import MAX_PROTOBUF_BYTES, iter_tensors

_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 9, 13, 14
_DATA_FIELDS = frozenset({4, 5, 6, 7, _RAW_DATA, 10, 11, _EXTERNAL_DATA, _DATA_LOCATION})
"""Fields of TensorProto with data or their location. Source: onnx.proto."""
_LOCATION_EXTERNAL = 1
_MAX_HEADER_BYTES = 64 * 1024
"""Larger than name, shape and location of any tensor: such a tensor has data in spite of its location."""


class ExternalData:
    """Move raw bytes of the data file into the tensor: both are little-endian and of the same length."""

    name = "external-data"
    rules = frozenset({"external-data-escapes", "external-data-refused", "data-file-added"})

    def propose(self, request: FixRequest) -> Change | NoFix | None:
        """One file in place of several."""
        try:
            places = [_locate_data(request, tensor) for tensor in _external_tensors(request)]
            if not places:
                return None
            parts = rewrite_fields(request.path, {("", "TensorProto"): lambda match: _inline_tensor(request, match)})
            beyond = any(classify_layout(request.path, place.location) in _UNREADABLE_LAYOUTS for place in places)
            stand_in = _make_runnable_copy(request) if beyond else None
        except _NotInlinableError as reason:
            return NoFix(*reason.args)
        if (size := total_size(parts)) > MAX_PROTOBUF_BYTES:
            return NoFix(
                f"it would be one file of {size:,} bytes, and a protobuf message ends before 2 GiB", _EXTERNAL_DATA_HINT
            )
        locations = sorted({place.location for place in places})
        files = ", ".join(f"`{location}`" for location in locations)
        words = f"{pluralize(len(places), 'tensor')} of {files} moved inside: {size:,} bytes in one file"
        return Change(parts, (words,), stand_in=stand_in, unlinked=tuple(locations), follows=frozenset({"size-grew"}))


_UNREADABLE_LAYOUTS = ("link", "outside", "absolute")
"""Why data at such a location are moved: not every runtime reads them, and onnx itself never does."""
_EXTERNAL_DATA_HINT = "save it with its data beside it"


class _NotInlinableError(Exception):
    """The reason why data cannot be moved, and a hint."""


@dataclass(frozen=True, slots=True)
class _DataRange:
    """The location of one tensor's data."""

    location: str  # as the model writes it
    file: Path  # links followed
    start: int
    length: int


def _external_tensors(request: FixRequest) -> list[TensorProto]:
    return [tensor for _, tensor in iter_tensors(request.proto) if is_external(tensor)]


def _locate_data(request: FixRequest, tensor: TensorProto) -> _DataRange:
    location, needed = read_external_entries(tensor).get("location", ""), required_bytes(tensor)
    file = _resolve_data_file(request, location)
    try:
        start, length = read_data_range(tensor)
    except ValueError as error:
        raise _NotInlinableError(f"`{tensor.name}` says no sound range of `{location}`: {error}") from error
    if needed is None or (length is not None and length != needed):
        raise _NotInlinableError(f"`{tensor.name}` has another size in `{location}` than its shape and type need")
    if start + needed > file.stat().st_size:
        raise _NotInlinableError(f"`{location}` ends before the last byte of `{tensor.name}`", "export the model again")
    return _DataRange(location, file, start, needed)


def _resolve_data_file(request: FixRequest, location: str) -> Path:
    """Return the data file. One outside of the repository is not read, whatever the model states."""
    if not location or "\0" in location or PureWindowsPath(location).drive:
        raise _NotInlinableError("it does not say where its data are")
    real = Path(os.path.realpath(request.path.parent / location))
    if not real.is_relative_to(os.path.realpath(request.root)):
        message = f"`{location}` lies outside of the repository, and onnxgate does not read it"
        raise _NotInlinableError(
            message, "copy the file into the repository if it belongs to the model, or export it again"
        )
    try:
        if not stat.S_ISREG(real.stat().st_mode):
            raise _NotInlinableError(f"`{location}` is no regular file")
    except OSError as error:
        raise _NotInlinableError(
            f"`{location}` is not there", "commit the data file, or export the model again"
        ) from error
    if read_pointer(real):
        raise _NotInlinableError(f"`{location}` is a Git LFS pointer", f'git lfs pull --include "*{real.name}"')
    return real


def _parse_external_tensor(match: FieldMatch) -> TensorProto | None:
    """Return the tensor if its data are external."""
    locations = [field.value for field in match.inner() if field.number == _DATA_LOCATION]
    if not locations or locations[-1] != _LOCATION_EXTERNAL:
        return None
    if match.field.end - match.field.start > _MAX_HEADER_BYTES:
        raise _NotInlinableError("a tensor holds data and says that they are elsewhere", "export the model again")
    return TensorProto.FromString(match.content())


def _inline_tensor(request: FixRequest, match: FieldMatch) -> list[Part] | None:
    tensor = _parse_external_tensor(match)
    if tensor is None:
        return None
    place = _locate_data(request, tensor)
    data: list[Part] = [Span(place.file, place.start, place.start + place.length)] if place.length else []
    return match.replaced([*match.without(_DATA_FIELDS), *length_delimited_field(_RAW_DATA, data)])


def _make_runnable_copy(request: FixRequest) -> RunnableCopy:
    """Return a copy with its data files in its folder, ranges untouched, for runtimes to read."""
    names: dict[str, str] = {}
    files: dict[str, Path] = {}

    def relocated(match: FieldMatch) -> list[Part] | None:
        tensor = _parse_external_tensor(match)
        if tensor is None:
            return None
        location = read_external_entries(tensor)["location"]
        name = names.setdefault(location, _unique_name(PurePosixPath(location).name, set(names.values())))
        files[name] = _resolve_data_file(request, location)
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = name
        return match.replaced([tensor.SerializeToString()])

    return RunnableCopy(rewrite_fields(request.path, {("", "TensorProto"): relocated}), files)


def _unique_name(name: str, taken: set[str]) -> str:
    return name if name not in taken else _unique_name(f"other-{name}", taken)
