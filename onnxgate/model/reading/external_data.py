"""External data of a model: its files, and validation of the location, offset and length that tensors declare."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Literal, TypeGuard, get_args

import msgspec
from msgspec.structs import replace

from onnxgate.core.files import sha256_of
from onnxgate.model.facts import ExternalFile, ModelFacts, required_bytes
from onnxgate.model.reading.file_format import LfsPointer, read_pointer
from onnxgate.model.reading.view import EXTERNAL, ModelView

if TYPE_CHECKING:
    from onnx import TensorProto


MAX_OFFSET = 2**63 - 1
"""Maximum file size in bytes, because file offsets are signed 64-bit numbers. Larger declared sizes are clamped."""
_MAX_DIGITS = 20
_MAX_SHOWN_CHARACTERS = 80

ExternalProblem = Literal[
    "missing",  # the file does not exist
    "escapes",  # absolute or outside the model folder; not opened
    "lfs-pointer",
    "not-a-file",  # a folder or a pipe
    "no-location",  # the tensor has no location
    "bad-range",  # offset or length is not a number
    "wrong-length",  # the length does not match the shape and type
    "short",  # the file ends before the last byte of the tensor
]

DataLayout = Literal[
    "inside",  # in the model folder or below, after following links
    "linked-model",  # model and data are links to files in one folder, as in a Hugging Face cache
    "link",  # a link in the model folder to a file outside it
    "outside",  # a relative path to a file outside the model folder
    "absolute",
]
_ESCAPES: dict[DataLayout, str] = {
    "absolute": "is an absolute path",
    "outside": "is outside the model's folder",
    "link": "is a link to a file outside the model's folder",
}
"""Descriptions of the locations from which ONNX Runtime has refused to read external data since 1.24.2.

If the model file itself is a link, ONNX Runtime still follows links to data files.
"""


DataSpelling = Literal[
    "signed",  # an offset or length with a plus sign, or the length -0
    "negative-zero",  # the offset or length -0
    "spaced",  # an offset or length after a space
    "hexadecimal",  # a hexadecimal length
    "prepacked",  # entries that describe prepacked weights
    "unknown-entry",  # an entry with an unknown key, or an empty checksum
    "second-location",
    "second-number",  # a second offset or length
    "null",  # a location with a null character
    "zero-length",  # a length 0 of a tensor with elements
    "longer-file",  # no length or a length 0, although the file does not end with the tensor
]
"""Spellings of external data entries that only some runtimes accept."""
_SPELLINGS = frozenset(get_args(DataSpelling))

_KNOWN_KEYS = frozenset({"location", "offset", "length", "checksum"})
_PREPACKED_PREFIX = "prepacked"
_DECIMAL = re.compile(r"([ \t-\r]*)(\+|-(?=0+\Z))?([0-9]+)")
_HEXADECIMAL = re.compile(r"0[xX]([0-9a-fA-F]+)")
"""Spellings of offsets and lengths that some runtimes accept.

Source: spellings of 48 offsets and 41 lengths, loaded with 20 releases of ONNX Runtime from 1.16.3 to 1.32.0.
"""


class ExternalUse(msgspec.Struct, frozen=True):
    """The external data of one tensor; `problem` is None if the data is valid."""

    location: str  # location as written in the model
    tensor: str
    problem: ExternalProblem | None = None
    detail: str = ""  # such as "has 4,096 bytes, but at least 8,192 are required"
    pointer_sha256: str = ""  # SHA-256 in a Git LFS pointer
    is_unused: bool = False  # ONNX Runtime does not read the data, see `list_unread_weights`


class DataFile(msgspec.Struct, frozen=True):
    """One external data file; `problem` is set if no tensor can be read from it."""

    location: str
    path: Path
    problem: ExternalProblem | None = None
    detail: str = ""
    size_bytes: int = 0
    pointer: LfsPointer | None = None


def is_external(tensor: TensorProto) -> bool:
    """Return whether the tensor declares external data."""
    return bool(tensor.data_location == EXTERNAL)


def read_external_entries(tensor: TensorProto) -> dict[str, str]:
    """Return the external data location, offset and length that a tensor declares.

    A location ends at its first NUL. Source: ONNX Runtime 1.16.3–1.32.0.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if "\0" in entries.get("location", ""):
        entries["location"] = entries["location"].partition("\0")[0]
    return entries


def find_spellings(tensor: TensorProto, file_bytes: int | None = None) -> set[DataSpelling]:
    """Return the spellings in a tensor's valid external data entries that some runtimes refuse.

    `file_bytes` is the size of the data file, if it is known.
    """
    found = _classify_range(tensor, file_bytes)
    keys: set[str] = set()
    for entry in tensor.external_data:
        key, value = entry.key, entry.value
        if key in ("offset", "length"):
            found |= _classify_number(key, value)
            if key in keys:
                found.add("second-number")
        elif key == "location":
            if "\0" in value:
                found.add("null")
            if key in keys:
                found.add("second-location")
        elif key.startswith(_PREPACKED_PREFIX):
            found.add("prepacked")
        elif not value or key not in _KNOWN_KEYS:
            found.add("unknown-entry")
        keys.add(key)
    return found


def _classify_range(tensor: TensorProto, file_bytes: int | None) -> set[DataSpelling]:
    needed = required_bytes(tensor)
    try:
        offset, length = read_data_range(tensor)
    except ValueError:
        return set()
    if length is not None or not needed:
        return set()
    found: set[DataSpelling] = {"zero-length"} if "length" in read_external_entries(tensor) else set()
    if file_bytes is not None and file_bytes > offset + needed:
        found.add("longer-file")
    return found


def is_spelling(problem: str) -> TypeGuard[DataSpelling]:
    """Return whether a problem is a spelling of external data entries."""
    return problem in _SPELLINGS


def _classify_number(key: str, text: str) -> set[DataSpelling]:
    if _HEXADECIMAL.fullmatch(text):
        return {"hexadecimal"}
    match = _DECIMAL.fullmatch(text)
    found: set[DataSpelling] = set()
    if match is None:
        return found
    space, sign, _ = match.groups()
    if space:
        found.add("spaced")
    if sign == "-":
        found.add("negative-zero")
    if sign == "+" or (sign and key == "length"):
        found.add("signed")
    return found


def iter_data_locations(model: ModelView) -> Iterator[str]:
    """Yield the declared data location of each tensor with external data; "" if the tensor does not declare one."""
    return (read_external_entries(tensor).get("location", "") for _, tensor in model.external)


def has_replaced_locations(model: ModelView) -> bool:
    """Return whether a tensor has several locations, so that a runtime may look for a file that the facts lack."""
    return any(sum(it.key == "location" for it in tensor.external_data) > 1 for _, tensor in model.external)


def check_external_data(model: ModelView, path: Path) -> tuple[ExternalUse, ...]:
    """Check the external data of each tensor in the model at `path`. Files outside the model folder are not opened."""
    files = find_data_files(model, path)
    return tuple(_check_use(name, tensor, files) for name, tensor in model.external)


def hash_external_files(model: ModelView, path: Path) -> tuple[ExternalFile, ...]:
    """Hash the external data files that exist. For a Git LFS pointer, use the hash of the file that it refers to."""
    return find_external_files(model, path)[0]


def find_external_files(model: ModelView, path: Path) -> tuple[tuple[ExternalFile, ...], tuple[str, ...]]:
    """Return the hashed external data files, and the locations of files that are missing or must not be opened."""
    files = find_data_files(model, path)
    external = []
    for file in files.values():
        if file.pointer:
            external.append(ExternalFile(file.location, file.pointer.size_bytes, file.pointer.sha256))
        elif not file.problem:
            external.append(ExternalFile(file.location, file.size_bytes, sha256_of(file.path)))
    return tuple(sorted(external)), tuple(sorted(files.keys() - {file.location for file in external}))


def read_data_range(tensor: TensorProto) -> tuple[int, int | None]:
    """Return the offset and length that a tensor declares for its external data.

    The length 0 means that the tensor declares none. Source: ONNX Runtime 1.16–1.31.

    Raises:
        ValueError: the offset or length is not a nonnegative integer.
    """
    declared = read_external_entries(tensor)
    offset, length = (_parse_byte_count(key, declared.get(key, "0")) for key in ("offset", "length"))
    return offset, length or None


def _parse_byte_count(key: str, text: str) -> int:
    """Parse a number of bytes that a tensor declares, in any spelling that a release of ONNX Runtime accepts."""
    if not text:
        raise ValueError(f"has an empty {key}")
    base = 10
    match = _DECIMAL.fullmatch(text)
    if match is None and key == "length":
        base, match = 16, _HEXADECIMAL.fullmatch(text)
    if match is None:
        raise ValueError(f"has the invalid {key} `{shorten_text(text)}`")
    digits = match[match.lastindex or 0].lstrip("0") or "0"
    return min(int(digits, base), MAX_OFFSET) if len(digits) <= _MAX_DIGITS else MAX_OFFSET


def shorten_text(text: str) -> str:
    """Shorten a value from the model for messages."""
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}..."


def find_data_files(model: ModelView, path: Path) -> dict[str, DataFile]:
    """Map each location of external data to its file, without reading the content of the file."""
    locations = dict.fromkeys(filter(None, iter_data_locations(model)))
    return {location: inspect_data_file(path, location) for location in locations}


def inspect_data_file(model: Path, location: str) -> DataFile:
    """Check the data file `location` of the model at `model`. Files outside the model folder are not opened."""
    path = model.parent / location
    if reason := _ESCAPES.get(classify_layout(model, location)):
        return DataFile(location, path, "escapes", reason)
    try:
        status = os.stat(os.path.join(model.parent, location))  # noqa: PTH116, PTH118 - `Path` drops the `/` in `w.bin/`
    except OSError:
        return DataFile(location, path, "missing")
    if not stat.S_ISREG(status.st_mode):
        kind = "is a folder" if stat.S_ISDIR(status.st_mode) else "is not a regular file"
        return DataFile(location, path, "not-a-file", kind)
    if pointer := read_pointer(path):
        return DataFile(location, path, "lfs-pointer", size_bytes=status.st_size, pointer=pointer)
    return DataFile(location, path, size_bytes=status.st_size)


def classify_layout(model: Path, location: str) -> DataLayout:
    """Return where the data file `location` is relative to the folder of the file `model`, without opening files."""
    if "\0" in location or PurePosixPath(location).is_absolute() or PureWindowsPath(location).drive:
        return "absolute"
    folder = Path(os.path.abspath(model.parent))  # noqa: PTH100 - links must not be followed here
    if not Path(os.path.abspath(folder / location)).is_relative_to(folder):  # noqa: PTH100
        return "outside"
    real = Path(os.path.realpath(folder / location))
    if real.is_relative_to(os.path.realpath(model.parent)):
        return "inside"
    return "linked-model" if real.is_relative_to(Path(os.path.realpath(model)).parent) else "link"


def is_in_folder(model: Path, location: str) -> bool:
    """Return whether the data file `location` is a file in the folder of the model, after following links.

    Some runtimes also accept absolute paths to such a file.
    """
    target = Path(os.path.realpath(model.parent / location))
    folders = (os.path.realpath(model.parent), Path(os.path.realpath(model)).parent)
    return target.is_file() and any(target.is_relative_to(folder) for folder in folders)


def is_hidden(model: Path, location: str) -> bool:
    """Return whether a part of the path from the model to `location`, or to its target, begins with a dot."""
    for resolve in (os.path.abspath, os.path.realpath):
        folder, file = Path(resolve(model.parent)), Path(resolve(model.parent / location))
        if file.is_relative_to(folder) and any(part.startswith(".") for part in file.relative_to(folder).parts):
            return True
    return False


def _check_use(name: str, tensor: TensorProto, files: dict[str, DataFile]) -> ExternalUse:
    location = read_external_entries(tensor).get("location", "")
    use = ExternalUse(location, name)
    if not location:
        return replace(use, problem="no-location")
    file = files[location]
    if file.problem:
        pointer = file.pointer.sha256 if file.pointer else ""
        return replace(use, problem=file.problem, detail=file.detail, pointer_sha256=pointer)
    if detail := _describe_wrong_entry(tensor):
        return replace(use, problem="bad-range", detail=detail)
    needed = required_bytes(tensor)
    offset, length = read_data_range(tensor)
    if length is not None and needed is not None and length != needed:
        return replace(
            use,
            problem="wrong-length",
            detail=f"has {length:,} bytes instead of the {needed:,} that its shape and type require",
        )
    end = offset + (needed if length is None and needed is not None else length or 0)
    if end > file.size_bytes:
        detail = f"has {file.size_bytes:,} bytes, but at least {end:,} are required"
        return replace(use, problem="short", detail=detail)
    return use


def _describe_wrong_entry(tensor: TensorProto) -> str:
    """Return why all runtimes refuse an entry; "" if some do not.

    Each entry must be valid, even an offset or length that a later entry replaces. Source: ONNX Runtime 1.16.3–1.32.0.
    """
    for entry in tensor.external_data:
        if entry.key in ("location", "offset", "length") and not entry.value:
            return f"has an empty {entry.key}"
        if entry.key in ("offset", "length"):
            try:
                _parse_byte_count(entry.key, entry.value)
            except ValueError as error:
                return str(error)
    return ""


def hash_content(facts: ModelFacts) -> str:
    """
    Return the SHA-256 of the content of a model. Without external data, this is the SHA-256 of its file.

    With external data, it is the SHA-256 of the digests of all files, one per line: the model, then its data files by
    location. `sha256sum m.onnx m.onnx.data | cut -c1-64 | sha256sum` prints it.
    """
    if not facts.external:
        return facts.sha256
    digests = (facts.sha256, *(tensor.sha256 for tensor in sorted(facts.external)))
    return hashlib.sha256("".join(f"{digest}\n" for digest in digests).encode()).hexdigest()


def list_content_files(facts: ModelFacts, model: Path) -> dict[Path, str]:
    """Return the model file and its data files, each with its SHA-256."""
    return {model: facts.sha256, **{model.parent / tensor.location: tensor.sha256 for tensor in facts.external}}


def classify_layouts(facts: ModelFacts, model: Path) -> tuple[DataLayout, ...]:
    """Return, for each data file, where it is relative to the model folder. Some runtimes refuse files outside it."""
    return tuple(classify_layout(model, tensor.location) for tensor in sorted(facts.external))
