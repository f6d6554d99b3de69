"""Input cases from the user's files or callable, and archives of inputs for which a check failed.

A case is an `.npz` archive with arrays named like the inputs, or a folder `test_data_set_<n>` as in the ONNX test data.
Such a folder contains tensors `input_<i>.pb`, which are matched by name or by order. Outputs in the folder are not
read.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, numpy_helper

from onnxgate.core.errors import ConfigError
from onnxgate.core.jobs import InputCase
from onnxgate.core.text import pluralize
from onnxgate.inputs.axis_sizes import DTYPES, element_type, match_axis_sizes, name_axes
from onnxgate.model.facts import ModelFacts
from onnxgate.model.reading.external_data import is_external

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]


MAX_ARCHIVE_BYTES = 2**31
"""Maximum unpacked size of an archive in bytes, as protection against decompression bombs."""
NPY_MAGIC = b"\x93NUMPY"
"""First bytes of a `.npy` file."""
_INPUT_FILE = re.compile(r"input_(\d+)\.pb")


def read_user_cases(facts: ModelFacts, pattern: str, base: Path, root: Path, folder: Path) -> tuple[InputCase, ...]:
    """Return one case for each file in `base` that matches `pattern`; write the arrays to `folder` as `.npy` files.

    Files outside of the repository at `root`, such as the targets of links, are not read.

    Raises:
        ConfigError: no file matches the pattern, or files do not match the model; `problems` lists all reasons.
    """
    try:
        files = sorted(base.glob(pattern))
        outside = next((path for path in _list_read_files(files) if not _is_inside(path, root)), None)
    except (OSError, RuntimeError) as error:  # such as a loop of links
        raise ConfigError(f"`inputs` of `{facts.path}`: `{pattern}` cannot be searched ({error})") from error
    if not files:
        raise ConfigError(f"`inputs` of `{facts.path}`: no file matches `{pattern}`")
    if outside is not None:  # its name is not shown, only that of the link in the repository
        places = (it for it in (*reversed(outside.parents), outside) if base in it.parents and it.is_symlink())
        link = next((it for it in places if not _is_inside(it, root)), None)
        through = f" through the link `{link.relative_to(base).as_posix()}`" if link is not None else ""
        raise ConfigError(f"`inputs` of `{facts.path}`: `{pattern}` matches files outside of the repository{through}")
    arrays = (_read_folder(facts, file) if file.is_dir() else _read_archive(file) for file in files)
    names = (file.relative_to(base).as_posix() for file in files)
    return _make_cases(facts, zip(names, arrays, strict=True), folder)


def _is_inside(path: Path, root: Path) -> bool:
    return path.resolve().is_relative_to(root.resolve())


def _list_read_files(files: Iterable[Path]) -> Iterator[Path]:
    """Yield archives, folders, and the files of folders that contain a case."""
    for file in files:
        yield file
        if file.is_dir():
            yield from (path for path in file.iterdir() if _INPUT_FILE.fullmatch(path.name))


def find_unread_outputs(pattern: str, base: Path) -> str:
    """Return the first test data folder with expected outputs, which onnxgate does not compare; "" if there is none."""
    folders = (file.parent for file in sorted(base.glob(f"{pattern}/output_*.pb")))
    return next((folder.relative_to(base).as_posix() for folder in folders), "")


def make_callable_cases(
    facts: ModelFacts, source: str, array_files: Sequence[Mapping[str, str]], folder: Path
) -> tuple[InputCase, ...]:
    """Return one input case for each mapping from names to `.npy` files that the user's callable returned.

    The cases have names such as `samples.py:batches[0]`.

    Raises:
        ConfigError: the arrays do not match the model.
    """
    loaded = ({name: np.load(path, allow_pickle=False) for name, path in paths.items()} for paths in array_files)
    return _make_cases(facts, ((f"{source}[{index}]", arrays) for index, arrays in enumerate(loaded)), folder)


def _make_cases(facts: ModelFacts, named: Iterable[tuple[str, Arrays | str]], folder: Path) -> tuple[InputCase, ...]:
    """Create input cases from pairs of a case name and either its arrays or the reason why they cannot be read."""
    cases: list[InputCase] = []
    problems: list[str] = []
    for index, (name, read) in enumerate(named):
        reasons = [read] if isinstance(read, str) else list(_find_problems(facts, read))
        problems += [f"`{name}`: {problem}" for problem in reasons]
        if not isinstance(read, str) and not reasons:
            cases.append(_write_case(facts, name, read, folder / str(index)))
    if problems:
        raise ConfigError(f"`inputs` of `{facts.path}` do not match the model", problems=tuple(problems))
    return tuple(cases)


def _read_archive(file: Path) -> Arrays | str:
    if not file.is_file():
        return "is not a file"
    try:
        with file.open("rb") as stream:
            if stream.read(len(NPY_MAGIC)) == NPY_MAGIC:
                return "contains a single array without a name; use `numpy.savez` to write named arrays"
        with zipfile.ZipFile(file) as archive:
            size_bytes = sum(entry.file_size for entry in archive.infolist())
        if size_bytes > MAX_ARCHIVE_BYTES:
            return f"has {size_bytes:,} bytes when unpacked; the limit is {MAX_ARCHIVE_BYTES:,} bytes"
        with np.load(file, allow_pickle=False) as arrays:
            return {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)}
    except Exception as error:  # noqa: BLE001 - zipfile and NumPy raise various errors for damaged files
        return f"cannot be read ({type(error).__name__}: {error})"


def _read_folder(facts: ModelFacts, folder: Path) -> Arrays | str:
    """Read the inputs of a test data folder from its files `input_<i>.pb`.

    They are matched by name if all names are inputs of the model, otherwise by order.
    """
    numbers = {int(match[1]): file for file in folder.iterdir() if (match := _INPUT_FILE.fullmatch(file.name))}
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
        return f"has {pluralize(len(tensors), 'input')}, but the model has {len(names)}"
    return dict(zip(names, (array for _, array in tensors), strict=True))


def _read_tensor(file: Path) -> tuple[str, NDArray[Any]] | str:
    if not file.is_file():
        return "is not a file"
    tensor = TensorProto()
    try:
        tensor.ParseFromString(file.read_bytes())
        if is_external(tensor):
            return "uses external data, which is not supported for inputs"
        array = numpy_helper.to_array(tensor)
    except Exception as error:  # noqa: BLE001 - protobuf, onnx and NumPy raise various errors for damaged files
        return f"is not a valid tensor ({type(error).__name__}: {error})"
    return tensor.name, array.astype(str) if array.dtype.kind == "O" else array


def _find_problems(facts: ModelFacts, arrays: Arrays) -> Iterator[str]:
    """Describe the arrays that are missing or unknown, or whose type or shape does not match the model."""
    inputs = {value.name: value for value in facts.inputs}
    for name in inputs:
        if name not in arrays:
            yield f"has no array for input `{name}`"
    for name in sorted(arrays.keys() - inputs.keys()):
        yield f"contains `{name}`, which is not an input of the model"
    for name, value in inputs.items():
        if name not in arrays:
            continue
        array, dtype = arrays[name], DTYPES.get(element_type(value))
        if dtype is None:
            yield f"`{name}` is not supported: a NumPy array cannot represent `{value.type}`"
        elif array.dtype != dtype and not (dtype == "str" and array.dtype.kind == "U"):
            yield f"`{name}` has type {array.dtype}, but the model expects {dtype}"
        if match_axis_sizes(value, array.shape) is None:
            shape, expected = (f"({', '.join(map(str, dims))})" for dims in (array.shape, name_axes(value)))
            yield f"`{name}` has shape {shape}, but the model expects {expected}"


def _write_case(facts: ModelFacts, name: str, arrays: Arrays, folder: Path) -> InputCase:
    folder.mkdir(parents=True)
    paths: dict[str, str] = {}
    sizes: dict[str, int] = {}
    for index, value in enumerate(facts.inputs):
        path = folder / f"{index}.npy"
        np.save(path, arrays[value.name], allow_pickle=False)
        paths[value.name] = str(path.absolute())
        sizes |= match_axis_sizes(value, arrays[value.name].shape) or {}
    return InputCase(name=name, origin="user", inputs=paths, sizes=sizes)
