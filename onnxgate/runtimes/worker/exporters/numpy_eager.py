"""Eager runs of sources that compute with numpy arrays, on each case and on their own sample."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from .source import folders_of, seed_generators
from .source_errors import describe_error

Phase = Callable[[str], None]
Wire = Dict[str, Any]
Function = Callable[[List[Any]], Sequence[Any]]


class MismatchError(Exception):
    """A case does not fit the inputs of the source."""


class ArrayCall(NamedTuple):
    """A function of arrays, in the order of the graph's inputs and outputs."""

    function: Function
    names: Sequence[str]  # of the graph's inputs, in the function's order; () if unknown
    dtypes: Sequence[Any]  # types that the function accepts
    sample: Optional[Sequence[Any]] = None  # its own example inputs


def run_cases(job: Wire, call: ArrayCall, result: Wire, phase: Phase, wide: Optional[Function] = None) -> None:
    """Set the sample and outputs in `result`; `wide` is the function in float64, if it has one."""
    result["input_names"] = list(call.names)
    if call.sample is not None:
        result["sample"] = _save_arrays(call.sample, os.path.join(job["output"], "sample"))
    if not job.get("eager", True):
        return
    result["eager_reason"] = _mismatch_reason(call, job["cases"])
    if result["eager_reason"]:
        return
    result["eager"] = _run_all(job, call, "eager", phase)
    if wide is not None and job["float64"]:
        result["eager64"] = _drop_if_float32(
            result["eager"], _run_all(job, _float64_call(call, wide), "eager64", phase)
        )


def _mismatch_reason(call: ArrayCall, cases: Sequence[Wire]) -> str:
    takes = len(call.dtypes)
    counts = [len(case["inputs"]) for case in cases if len(case["inputs"]) != takes]
    return "the source takes {} arrays and the model {}".format(takes, counts[0]) if counts else ""


def _run_all(job: Wire, call: ArrayCall, folder: str, phase: Phase) -> List[Wire]:
    """Return one `CaseResult` per case, then one for the sample if there is one."""
    feeds = [("case " + case["name"], partial(_read_case, call, case["inputs"])) for case in job["cases"]]
    if call.sample is not None:
        feeds.append(("the source's sample", partial(_cast_inputs, call, call.sample)))
    results = []
    for number, (what, feed) in enumerate(feeds):
        phase("source on " + what)
        results.append(_run_case(job, call, feed, os.path.join(job["output"], folder, str(number))))
    return results


def _run_case(job: Wire, call: ArrayCall, feed: Callable[[], List[Any]], output: str) -> Wire:
    try:
        arrays = feed()
        seed_generators()
        outputs = call.function(arrays)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code; its error is the result
        return {"outputs": [], "failure": describe_error(error, folders_of(job))}
    return {"outputs": _save_arrays(outputs, output), "failure": None}


def _read_case(call: ArrayCall, paths: Dict[str, str]) -> List[Any]:
    """Return the arrays of a case: by name if all names are known, otherwise by position."""
    import numpy

    names = call.names if set(call.names) == set(paths) else list(paths)
    return _cast_inputs(call, [numpy.load(paths[name], allow_pickle=False) for name in names])


def _cast_inputs(call: ArrayCall, arrays: Sequence[Any]) -> List[Any]:
    """Convert each array to the function's type, which may differ from the graph's type of the same kind."""
    typed = []
    for array, dtype in zip(arrays, call.dtypes):  # noqa: B905 - new in Python 3.10
        if array.dtype != dtype and _dtype_kind(array.dtype) != _dtype_kind(dtype):
            raise MismatchError("the source takes {} where the model takes {}".format(dtype, array.dtype))
        typed.append(array.astype(object if dtype.kind in "OU" else dtype))
    return typed


def _dtype_kind(dtype: Any) -> str:
    return {"u": "i", "U": "O"}.get(dtype.kind, dtype.kind)  # type: ignore[no-any-return]


def _float64_call(call: ArrayCall, function: Function) -> ArrayCall:
    import numpy

    dtypes = [numpy.dtype("float64") if dtype.kind == "f" else dtype for dtype in call.dtypes]
    return call._replace(function=function, dtypes=dtypes)


def _drop_if_float32(narrow: Sequence[Wire], wide: List[Wire]) -> List[Wire]:
    """Return `wide`, or nothing if an output stayed in single precision: it would show the source as exact."""
    import numpy

    for few, many in zip(narrow, wide):  # noqa: B905 - new in Python 3.10
        for before, after in zip(few["outputs"], many["outputs"]):  # noqa: B905
            types = [numpy.load(path, mmap_mode="r").dtype for path in (before, after) if path is not None]
            if types and types[0].kind == "f" and types[-1] != numpy.dtype("float64"):
                return []
    return wide


def _save_arrays(arrays: Sequence[Any], folder: str) -> List[Optional[str]]:
    """Write each array as `<index>.npy`; None for types that numpy cannot write without pickle."""
    import numpy

    os.makedirs(folder, exist_ok=True)
    paths: List[Optional[str]] = []
    for number, value in enumerate(arrays):
        array = numpy.asarray(value)
        array = array.astype(numpy.str_) if array.dtype.kind == "O" else array
        path = os.path.join(folder, "{}.npy".format(number))
        if array.dtype.kind in "biufcU":
            numpy.save(path, array, allow_pickle=False)
        paths.append(path if array.dtype.kind in "biufcU" else None)
    return paths
