"""Cases read from the user's own files, or given by a callable: array names are input names.

A file is an `.npz`, or a folder `test_data_set_<n>` as ONNX's own test data have them: `input_<i>.pb`, by name, else in
the order of the graph. The outputs that lie beside them are not read, which `unread_outputs` says.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxgate.errors import ConfigError
from onnxgate.inputs.sizes import axis_names
from onnxgate.model.facts import ModelFacts, ValueInfo
from onnxgate.runtimes.jobs import Case

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]

LARGEST_BYTES = 2**31
"""What the arrays of one archive may take: a few kilobytes can say that they are terabytes."""
ARRAY = b"\x93NUMPY"
"""How one begins that is in no archive."""
_NUMBERED = re.compile(r"input_(\d+)\.pb")


def user_cases(facts: ModelFacts, pattern: str, base: Path, folder: Path) -> tuple[Case, ...]:
    """One case per file that `pattern` matches below `base`, its arrays written below `folder` as `.npy` files.

    Raises:
        ConfigError: no file matches, or files do not hold what the model takes; all that is wrong is in `problems`.
    """
    files = sorted(base.glob(pattern))
    if not files:
        raise ConfigError(f"`inputs` of `{facts.path}`: no file matches `{pattern}`")
    return _cases(facts, ((file.relative_to(base).as_posix(), _read(facts, file)) for file in files), folder)


def unread_outputs(pattern: str, base: Path) -> str:
    """The first folder of test data that also holds expected outputs, "" where none does: nothing is held to them."""
    beside = (file.parent for file in sorted(base.glob(f"{pattern}/output_*.pb")))
    return next((folder.relative_to(base).as_posix() for folder in beside), "")


def given_cases(facts: ModelFacts, source: str, given: Sequence[Mapping[str, str]], folder: Path) -> tuple[Case, ...]:
    """One case per mapping of names to `.npy` files that the callable `source` gave: `samples.py:batches[0]`.

    Raises:
        ConfigError: they are not what the model takes.
    """
    import numpy as np

    loaded = ({name: np.load(path, allow_pickle=False) for name, path in paths.items()} for paths in given)
    return _cases(facts, ((f"{source}[{index}]", arrays) for index, arrays in enumerate(loaded)), folder)


def _cases(facts: ModelFacts, named: Iterator[tuple[str, Arrays | str]], folder: Path) -> tuple[Case, ...]:
    """Arrays as cases; what stands in place of arrays says why there are none."""
    cases: list[Case] = []
    problems: list[str] = []
    for index, (name, read) in enumerate(named):
        found = [read] if isinstance(read, str) else list(_problems(facts, read))
        problems += [f"`{name}`: {problem}" for problem in found]
        if not isinstance(read, str) and not found:
            cases.append(_case(facts, name, read, folder / str(index)))
    if problems:
        raise ConfigError(f"`inputs` of `{facts.path}` are not what it takes", problems=tuple(problems))
    return tuple(cases)


def _read(facts: ModelFacts, file: Path) -> Arrays | str:
    """The arrays by name, or why there are none."""
    return _read_folder(facts, file) if file.is_dir() else _read_archive(file)


def _read_archive(file: Path) -> Arrays | str:
    import numpy as np

    if not file.is_file():
        return "is no file"
    try:
        with file.open("rb") as stream:
            if stream.read(len(ARRAY)) == ARRAY:
                return "is a single array; `numpy.savez` writes named ones"
        with zipfile.ZipFile(file) as archive:
            size_bytes = sum(each.file_size for each in archive.infolist())
        if size_bytes > LARGEST_BYTES:
            return f"holds {size_bytes:,} bytes when it is unpacked; at most {LARGEST_BYTES:,} are taken"
        with np.load(file, allow_pickle=False) as arrays:
            return {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)}
    except Exception as error:  # noqa: BLE001 - what zipfile and numpy raise of damaged files is no closed list
        return f"cannot be read ({type(error).__name__}: {error})"


def _read_folder(facts: ModelFacts, folder: Path) -> Arrays | str:
    """`input_<i>.pb`: by the names that they have where these are the model's, else one after another."""
    numbers = {int(found[1]): file for file in folder.iterdir() if (found := _NUMBERED.fullmatch(file.name))}
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
    from onnx import TensorProto, numpy_helper

    from onnxgate.model.external import is_external

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


def _problems(facts: ModelFacts, arrays: Arrays) -> Iterator[str]:
    """What the arrays lack, have too much, or have of another type or shape than the model takes."""
    inputs = {value.name: value for value in facts.inputs}
    for name in inputs:
        if name not in arrays:
            yield f"lacks the input `{name}`"
    for name in sorted(arrays.keys() - inputs.keys()):
        yield f"has `{name}`, which is no input of the model"
    for name, value in inputs.items():
        if name in arrays:
            yield from _misfits(value, arrays[name])


def _misfits(value: ValueInfo, array: NDArray[Any]) -> Iterator[str]:
    from onnxgate.inputs.values import DTYPES

    element = value.type.removeprefix("tensor(").removesuffix(")")
    wanted = DTYPES.get(element)
    if wanted is None:
        yield f"`{value.name}` cannot be given: no array can hold `{value.type}`"
    elif array.dtype != wanted and not (wanted == "str" and array.dtype.kind == "U"):
        yield f"`{value.name}` is {array.dtype}; the model takes {wanted}"
    if value.shape is not None and not _fits(value, array):
        yield f"`{value.name}` has the shape {_said(array.shape)}; the model takes {_said(axis_names(value))}"


def _fits(value: ValueInfo, array: NDArray[Any]) -> bool:
    dims = axis_names(value)
    fixed = zip(dims, array.shape, strict=False)
    return len(dims) == array.ndim and all(isinstance(dim, str) or dim == size for dim, size in fixed)


def _said(shape: tuple[object, ...]) -> str:
    return f"({', '.join(map(str, shape))})"


def _case(facts: ModelFacts, name: str, arrays: Arrays, folder: Path) -> Case:
    import numpy as np

    folder.mkdir(parents=True)
    paths, sizes = {}, {}
    for index, value in enumerate(facts.inputs):
        path = folder / f"{index}.npy"
        np.save(path, arrays[value.name], allow_pickle=False)
        paths[value.name] = str(path.absolute())
        dims = zip(axis_names(value), arrays[value.name].shape, strict=False)
        sizes.update({dim: size for dim, size in dims if isinstance(dim, str)})
    return Case(name=name, origin="user", inputs=paths, sizes=sizes)
