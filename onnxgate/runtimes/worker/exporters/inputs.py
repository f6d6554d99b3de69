"""The user's own inputs from a callable: each mapping that it gives becomes one `.npy` file per name."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Mapping

from . import seeding
from .hearing import heard
from .source import SourceError, load, split

Phase = Callable[[str], None]
Wire = Dict[str, Any]

MOST = 100
"""So many cases at most: a generator may have no end."""


def inputs(job: Wire, phase: Phase) -> Wire:
    """Answer an `Inputs` job with an `InputsResult`; what the user's code says is inside it."""
    result: Wire = {"kind": "inputs", "cases": [], "failure": None}
    with heard(job, result):
        _answer(job, result, phase)
    return result


def _answer(job: Wire, result: Wire, phase: Phase) -> None:
    phase("import of the inputs")
    import numpy  # noqa: F401 - before a file of the user's own can stand for it

    seeding.seed()
    called = load(job["source"])
    phase("call of the inputs")
    seeding.seed()
    name = "`{}`".format(split(job["source"])[1])
    given = called()
    if isinstance(given, Mapping) or not hasattr(given, "__iter__"):
        raise SourceError("{} returned {}; expected a list of mappings of names to arrays".format(name, _kind(given)))
    for index, case in enumerate(given):
        if index == MOST:
            raise SourceError("{} gives more than {} cases; end it earlier".format(name, MOST))
        if not isinstance(case, Mapping):
            raise SourceError(
                "case {} of {} is {}; expected a mapping of names to arrays".format(index, name, _kind(case))
            )
        result["cases"].append(
            _save(case, os.path.join(job["output"], str(index)), "case {} of {}".format(index, name))
        )
    if not result["cases"]:
        raise SourceError("{} gives no case".format(name))


def _save(case: Mapping[Any, Any], folder: str, where: str) -> Dict[str, str]:
    import numpy

    os.makedirs(folder)
    paths = {}
    for number, (name, value) in enumerate(case.items()):
        if not isinstance(name, str):
            raise SourceError("{} has the name `{}`; expected the name of an input".format(where, name))
        path = os.path.join(folder, "{}.npy".format(number))
        numpy.save(path, _array(value, "`{}` in {}".format(name, where)), allow_pickle=False)
        paths[name] = path
    return paths


def _array(value: Any, where: str) -> Any:
    """A tensor of any framework, or whatever numpy makes numbers or words of."""
    import numpy

    if hasattr(value, "detach"):  # PyTorch
        value = value.detach().cpu().resolve_conj().resolve_neg()
    try:
        array = numpy.asarray(value)
    except Exception as error:  # noqa: BLE001 - a bfloat16 tensor, a ragged list
        raise SourceError("{} is no array: {}".format(where, error)) from error
    if array.dtype.kind == "O":
        if not all(isinstance(each, str) for each in array.flat):
            raise SourceError("{} is no array of numbers or words, but {}".format(where, _kind(value)))
        array = array.astype(numpy.str_)
    return array


def _kind(value: Any) -> str:
    return "None" if value is None else "a value of type `{}`".format(type(value).__name__)
