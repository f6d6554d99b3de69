"""External data moved into the model's own file."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from onnxgate.model.external import data_range, entries, is_external, layout
from onnxgate.model.pointer import read_pointer
from onnxgate.model.structure import PROTOBUF_BYTES, tensors
from onnxgate.model.types import data_bytes
from onnxgate.repair.fix import Asked, Change, Left, StandIn
from onnxgate.repair.parts import Part, Span, size_of
from onnxgate.repair.rewriting import Found, headed, rewritten

if TYPE_CHECKING:
    from onnx import TensorProto

_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 9, 13, 14
_DATA = frozenset({4, 5, 6, 7, _RAW_DATA, 10, 11, _EXTERNAL_DATA, _DATA_LOCATION})
"""Fields of TensorProto that hold data or say where they are. Source: onnx.proto."""
_EXTERNAL = 1
_HEAD_BYTES = 64 * 1024
"""A tensor's name, shape and place are smaller; what is larger holds data, and says wrongly that they are elsewhere."""


class ExternalData:
    """Raw bytes of the data file become raw bytes of the tensor: both are little-endian and as long."""

    name = "external-data"
    rules = frozenset({"external-data-escapes", "external-data-refused", "data-file-added"})

    def propose(self, asked: Asked) -> Change | Left | None:
        """One file in place of several."""
        try:
            places = [_place(asked, tensor) for tensor in _external(asked)]
            if not places:
                return None
            parts = rewritten(asked.path, {("", "TensorProto"): lambda found: _inlined(asked, found)})
            beyond = any(layout(asked.path, place.location) in _BEYOND for place in places)
            stand_in = _stand_in(asked) if beyond else None
        except _Unmovable as reason:
            return Left(*reason.args)
        if (size := size_of(parts)) > PROTOBUF_BYTES:
            return Left(f"it would be one file of {size:,} bytes, and a protobuf message ends before 2 GiB", _BESIDE)
        locations = sorted({place.location for place in places})
        files = ", ".join(f"`{location}`" for location in locations)
        words = f"{_count(len(places), 'tensor')} of {files} moved inside: {size:,} bytes in one file"
        return Change(parts, (words,), stand_in=stand_in, unlinked=tuple(locations), follows=frozenset({"size-grew"}))


_BEYOND = ("link", "outside", "absolute")
"""Where not every runtime reads data, and onnx's own package never does."""
_BESIDE = "save it with its data beside it"


class _Unmovable(Exception):  # noqa: N818 - a state of the data
    """Why they cannot be moved, and what helps."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one tensor's data lie."""

    location: str  # as the model writes it
    file: Path  # links followed
    start: int
    length: int


def _external(asked: Asked) -> list[TensorProto]:
    return [tensor for _, tensor in tensors(asked.proto) if is_external(tensor)]


def _place(asked: Asked, tensor: TensorProto) -> _Place:
    location, needed = entries(tensor).get("location", ""), data_bytes(tensor)
    file = _file(asked, location)
    try:
        start, length = data_range(tensor)
    except ValueError as error:
        raise _Unmovable(f"`{tensor.name}` says no sound range of `{location}`: {error}") from error
    if needed is None or (length is not None and length != needed):
        raise _Unmovable(f"`{tensor.name}` has another size in `{location}` than its shape and type need")
    if start + needed > file.stat().st_size:
        raise _Unmovable(f"`{location}` ends before the last byte of `{tensor.name}`", "export the model again")
    return _Place(location, file, start, needed)


def _file(asked: Asked, location: str) -> Path:
    """The data file. One outside of the repository is no part of the project, whatever a model says: it is not read."""
    if not location or "\0" in location or PureWindowsPath(location).drive:
        raise _Unmovable("it does not say where its data are")
    real = Path(os.path.realpath(asked.path.parent / location))
    if not real.is_relative_to(os.path.realpath(asked.root)):
        said = f"`{location}` lies outside of the repository, and onnxgate does not read it"
        raise _Unmovable(said, "copy the file into the repository if it belongs to the model, or export it again")
    try:
        if not stat.S_ISREG(real.stat().st_mode):
            raise _Unmovable(f"`{location}` is no regular file")
    except OSError as error:
        raise _Unmovable(f"`{location}` is not there", "commit the data file, or export the model again") from error
    if read_pointer(real):
        raise _Unmovable(f"`{location}` is a Git LFS pointer", f'git lfs pull --include "*{real.name}"')
    return real


def _tensor(found: Found) -> TensorProto | None:
    """The tensor, where its data are said to lie elsewhere."""
    from onnx import TensorProto

    said = [field.value for field in found.inner() if field.number == _DATA_LOCATION]
    if not said or said[-1] != _EXTERNAL:
        return None
    if found.field.end - found.field.start > _HEAD_BYTES:
        raise _Unmovable("a tensor holds data and says that they are elsewhere", "export the model again")
    return TensorProto.FromString(found.content())


def _inlined(asked: Asked, found: Found) -> list[Part] | None:
    tensor = _tensor(found)
    if tensor is None:
        return None
    place = _place(asked, tensor)
    data: list[Part] = [Span(place.file, place.start, place.start + place.length)] if place.length else []
    return found.replaced([*found.without(_DATA), *headed(_RAW_DATA, data)])


def _stand_in(asked: Asked) -> StandIn:
    """The model with its data files beside it, ranges untouched: a runtime reads them, and not we."""
    names: dict[str, str] = {}
    files: dict[str, Path] = {}

    def relocated(found: Found) -> list[Part] | None:
        tensor = _tensor(found)
        if tensor is None:
            return None
        location = entries(tensor)["location"]
        name = names.setdefault(location, _unlike(PurePosixPath(location).name, set(names.values())))
        files[name] = _file(asked, location)
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = name
        return found.replaced([tensor.SerializeToString()])

    return StandIn(rewritten(asked.path, {("", "TensorProto"): relocated}), files)


def _unlike(name: str, taken: set[str]) -> str:
    return name if name not in taken else _unlike(f"other-{name}", taken)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
