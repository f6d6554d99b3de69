"""Cases read from the user's own `.npz` files: one file is one case, array names are input names."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxgate.errors import ConfigError
from onnxgate.inputs.sizes import axis_names
from onnxgate.model.facts import ModelFacts, ValueInfo
from onnxgate.runtimes.jobs import Case

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]


def user_cases(facts: ModelFacts, pattern: str, base: Path, folder: Path) -> tuple[Case, ...]:
    """One case per `.npz` file that `pattern` matches below `base`, its arrays written below `folder` as `.npy` files.

    Raises:
        ConfigError: no file matches, or files do not hold what the model takes; all that is wrong is in `problems`.
    """
    files = sorted(base.glob(pattern))
    if not files:
        raise ConfigError(f"`inputs` of `{facts.path}`: no file matches `{pattern}`")
    cases: list[Case] = []
    problems: list[str] = []
    for index, file in enumerate(files):
        name = file.relative_to(base).as_posix()
        read = _read(file)
        found = [read] if isinstance(read, str) else list(_problems(facts, read))
        problems += [f"`{name}`: {problem}" for problem in found]
        if not isinstance(read, str) and not found:
            cases.append(_case(facts, name, read, folder / str(index)))
    if problems:
        raise ConfigError(f"`inputs` of `{facts.path}` are not what it takes", problems=tuple(problems))
    return tuple(cases)


def _read(file: Path) -> dict[str, NDArray[Any]] | str:
    """The arrays by name, or why there are none."""
    import numpy as np

    try:
        with file.open("rb") as stream:
            arrays = np.load(stream, allow_pickle=False)
            return dict(arrays) if hasattr(arrays, "files") else "is a single array; `numpy.savez` writes named ones"
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        return f"cannot be read ({error})"


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
