"""Cases read from the user's own files, or given by a callable: array names are input names.

A file is an `.npz`, or a folder `test_data_set_<n>` as ONNX's own test data have them: `input_<i>.pb`, by name, else in
the order of the graph. The outputs that lie beside them are not read, which `unread_outputs` says.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, numpy_helper

from onnxgate.core.errors import ConfigError
from onnxgate.core.files import replace_atomically
from onnxgate.core.jobs import InputCase
from onnxgate.inputs.axis_sizes import name_axes
from onnxgate.inputs.values import DTYPES
from onnxgate.model.facts import ModelFacts, ValueInfo
from onnxgate.model.reading.external_data import is_external

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]


MAX_ARCHIVE_BYTES = 2**31
"""What the arrays of one archive may take: a few kilobytes can say that they are terabytes."""
NPY_MAGIC = b"\x93NUMPY"
"""How one begins that is in no archive."""
_INPUT_FILE = re.compile(r"input_(\d+)\.pb")


def read_user_cases(facts: ModelFacts, pattern: str, base: Path, folder: Path) -> tuple[InputCase, ...]:
    """One case per file that `pattern` matches below `base`, its arrays written below `folder` as `.npy` files.

    Raises:
        ConfigError: no file matches, or files do not hold what the model takes; all that is wrong is in `problems`.
    """
    files = sorted(base.glob(pattern))
    if not files:
        raise ConfigError(f"`inputs` of `{facts.path}`: no file matches `{pattern}`")
    return _make_cases(
        facts, ((file.relative_to(base).as_posix(), _read_arrays(facts, file)) for file in files), folder
    )


def find_unread_outputs(pattern: str, base: Path) -> str:
    """The first folder of test data that also holds expected outputs, "" where none does: nothing is held to them."""
    beside = (file.parent for file in sorted(base.glob(f"{pattern}/output_*.pb")))
    return next((folder.relative_to(base).as_posix() for folder in beside), "")


def make_callable_cases(
    facts: ModelFacts, source: str, given: Sequence[Mapping[str, str]], folder: Path
) -> tuple[InputCase, ...]:
    """One case per mapping of names to `.npy` files that the callable `source` gave: `samples.py:batches[0]`.

    Raises:
        ConfigError: they are not what the model takes.
    """
    loaded = ({name: np.load(path, allow_pickle=False) for name, path in paths.items()} for paths in given)
    return _make_cases(facts, ((f"{source}[{index}]", arrays) for index, arrays in enumerate(loaded)), folder)


def _make_cases(facts: ModelFacts, named: Iterator[tuple[str, Arrays | str]], folder: Path) -> tuple[InputCase, ...]:
    """Arrays as cases; what stands in place of arrays says why there are none."""
    cases: list[InputCase] = []
    problems: list[str] = []
    for index, (name, read) in enumerate(named):
        found = [read] if isinstance(read, str) else list(_find_problems(facts, read))
        problems += [f"`{name}`: {problem}" for problem in found]
        if not isinstance(read, str) and not found:
            cases.append(_write_case(facts, name, read, folder / str(index)))
    if problems:
        raise ConfigError(f"`inputs` of `{facts.path}` are not what it takes", problems=tuple(problems))
    return tuple(cases)


def _read_arrays(facts: ModelFacts, file: Path) -> Arrays | str:
    """The arrays by name, or why there are none."""
    return _read_folder(facts, file) if file.is_dir() else _read_archive(file)


def _read_archive(file: Path) -> Arrays | str:
    if not file.is_file():
        return "is no file"
    try:
        with file.open("rb") as stream:
            if stream.read(len(NPY_MAGIC)) == NPY_MAGIC:
                return "is a single array; `numpy.savez` writes named ones"
        with zipfile.ZipFile(file) as archive:
            size_bytes = sum(each.file_size for each in archive.infolist())
        if size_bytes > MAX_ARCHIVE_BYTES:
            return f"holds {size_bytes:,} bytes when it is unpacked; at most {MAX_ARCHIVE_BYTES:,} are taken"
        with np.load(file, allow_pickle=False) as arrays:
            return {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)}
    except Exception as error:  # noqa: BLE001 - what zipfile and numpy raise of damaged files is no closed list
        return f"cannot be read ({type(error).__name__}: {error})"


def _read_folder(facts: ModelFacts, folder: Path) -> Arrays | str:
    """`input_<i>.pb`: by the names that they have where these are the model's, else one after another."""
    numbers = {int(found[1]): file for file in folder.iterdir() if (found := _INPUT_FILE.fullmatch(file.name))}
    if not numbers:
        return "is a folder without `input_0.pb`"
    tensors = []
    for _, file in sorted(numbers.items()):
        tensor = _read_tensor(file)
        if isinstance(tensor, str):
            return f"`{file.name}` {tensor}"
        tensors.append(tensor)
    names = [value.name for value in facts.inputs]
    own = [name for name, _ in tensors]
    if len(set(own)) == len(own) and set(own) <= set(names):
        return dict(tensors)
    if len(tensors) != len(names):
        return f"has {len(tensors)} inputs; the model takes {len(names)}"
    return dict(zip(names, (array for _, array in tensors), strict=True))


def _read_tensor(file: Path) -> tuple[str, NDArray[Any]] | str:
    if not file.is_file():
        return "is no file"
    tensor = TensorProto()
    try:
        tensor.ParseFromString(file.read_bytes())
        if is_external(tensor):
            return "keeps its data in another file; tensors that are fed hold their own"
        array = numpy_helper.to_array(tensor)
    except Exception as error:  # noqa: BLE001 - what protobuf, onnx and numpy raise of damaged files is no closed list
        return f"is no tensor ({type(error).__name__}: {error})"
    return tensor.name, array.astype(str) if array.dtype.kind == "O" else array


def _find_problems(facts: ModelFacts, arrays: Arrays) -> Iterator[str]:
    """What the arrays lack, have too much, or have of another type or shape than the model takes."""
    inputs = {value.name: value for value in facts.inputs}
    for name in inputs:
        if name not in arrays:
            yield f"lacks the input `{name}`"
    for name in sorted(arrays.keys() - inputs.keys()):
        yield f"has `{name}`, which is no input of the model"
    for name, value in inputs.items():
        if name in arrays:
            yield from _find_value_problems(value, arrays[name])


def _find_value_problems(value: ValueInfo, array: NDArray[Any]) -> Iterator[str]:
    element = value.type.removeprefix("tensor(").removesuffix(")")
    wanted = DTYPES.get(element)
    if wanted is None:
        yield f"`{value.name}` cannot be given: no array can hold `{value.type}`"
    elif array.dtype != wanted and not (wanted == "str" and array.dtype.kind == "U"):
        yield f"`{value.name}` is {array.dtype}; the model takes {wanted}"
    if value.shape is not None and not _fits_shape(value, array):
        yield f"`{value.name}` has the shape {_format_shape(array.shape)}; the model takes {_format_shape(name_axes(value))}"


def _fits_shape(value: ValueInfo, array: NDArray[Any]) -> bool:
    dims = name_axes(value)
    fixed = zip(dims, array.shape, strict=False)
    return len(dims) == array.ndim and all(isinstance(dim, str) or dim == size for dim, size in fixed)


def _format_shape(shape: tuple[object, ...]) -> str:
    return f"({', '.join(map(str, shape))})"


def _write_case(facts: ModelFacts, name: str, arrays: Arrays, folder: Path) -> InputCase:
    folder.mkdir(parents=True)
    paths, sizes = {}, {}
    for index, value in enumerate(facts.inputs):
        path = folder / f"{index}.npy"
        np.save(path, arrays[value.name], allow_pickle=False)
        paths[value.name] = str(path.absolute())
        dims = zip(name_axes(value), arrays[value.name].shape, strict=False)
        sizes.update({dim: size for dim, size in dims if isinstance(dim, str)})
    return InputCase(name=name, origin="user", inputs=paths, sizes=sizes)


STORED_INPUTS_FOLDER = "inputs"
"""Its name below the cache folder."""

MAX_STORED_FILES = 100
MAX_STORED_BYTES = 1 << 30
"""So many files, and so many bytes, stay at most; what was used last stays longest."""

MAX_STEM_LENGTH = 60


def store_case_inputs(case: InputCase, model: str, folder: Path) -> str:
    """The name of the file below `folder` that holds the inputs of a case; "" where it cannot be written.

    The name follows from the content, so that equal inputs are one file. Writing is atomic.
    """
    digest = hashlib.sha256()
    for name, path in case.inputs.items():
        digest.update(f"{len(name)}\0{name}\0".encode())
        digest.update(Path(path).read_bytes())
    file = folder / f"{_sanitize_stem(Path(model).stem)}-{digest.hexdigest()[:12]}.npz"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_archive(file, case.inputs)
        _prune_archives(folder, file)
    except OSError:  # a cache that is full, or read-only: the inputs can be generated again
        return ""
    return file.name


def _sanitize_stem(stem: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", stem)[:MAX_STEM_LENGTH].strip(".") or "model"


def _write_archive(file: Path, inputs: Mapping[str, str]) -> None:
    if file.exists():
        file.touch()
        return
    with replace_atomically(file) as scratch, zipfile.ZipFile(scratch, "w") as archive:
        for name, path in inputs.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), Path(path).read_bytes())


def _prune_archives(folder: Path, newest: Path) -> None:
    """Remove what was not used for longest. Another gate may do the same at this moment."""
    size, count = 0, 0
    for file, file_size in _sort_by_last_use(folder):
        count, size = count + 1, size + file_size
        if file != newest and (count > MAX_STORED_FILES or size > MAX_STORED_BYTES):
            with contextlib.suppress(OSError):
                file.unlink()


def _sort_by_last_use(folder: Path) -> Iterator[tuple[Path, int]]:
    found = []
    for file in folder.glob("*.npz"):
        with contextlib.suppress(OSError):
            state = file.stat()
            found.append((state.st_mtime_ns, file, state.st_size))
    for _, file, size in sorted(found, reverse=True):
        yield file, size
