"""Run sources eagerly, as functions of numpy arrays, on input cases and on their own sample inputs."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from .source import Phase, SourceError, Wire, describe_error, describe_type, folders_of, pluralize, seed_generators

Function = Callable[[List[Any]], Sequence[Any]]
Feed = Tuple[str, Callable[[], List[Any]]]
"""Name of an input case, and a function that reads its inputs."""


class MismatchError(Exception):
    """A case does not match the inputs of the source."""


MAX_FLOAT64_TIME_S = 10.0
"""Maximum time of the float32 runs of a source that also runs in float64 after its export. Those take longer."""


class ArrayCall(NamedTuple):
    """A function whose arguments and results are arrays, in the order of the graph's inputs and outputs."""

    function: Function
    names: Sequence[str]  # names of the graph's inputs, in the function's order; () if unknown
    dtypes: Sequence[Any]  # types that the function accepts
    sample: Optional[Sequence[Any]] = None  # example inputs from the source


def run_cases(job: Wire, call: ArrayCall, result: Wire, phase: Phase, wide: Optional[Function] = None) -> None:
    """Run `call` on the cases and the sample, and store the sample and the outputs in `result`.

    `wide` is the function in float64, if available.
    """
    result["input_names"] = list(call.names)
    if call.sample is not None:
        result["sample"] = save_arrays(call.sample, os.path.join(job["output"], "sample"))
    if not job.get("eager", True):
        return
    takes = len(call.dtypes)
    counts = [len(case["inputs"]) for case in job["cases"] if len(case["inputs"]) != takes]
    if counts:
        result["eager_reason"] = f"the source has {pluralize(takes, 'input')}, but the model has {counts[0]}"
        return
    start = time.monotonic()
    result["eager"] = _run_all(job, call, "eager", phase)
    if wide is not None and runs_in_float64(job, time.monotonic() - start):
        dtypes = [np.dtype("float64") if dtype.kind == "f" else dtype for dtype in call.dtypes]
        outputs = _run_all(job, call._replace(function=wide, dtypes=dtypes), "eager64", phase)
        result["eager64"] = [] if _has_float32(result["eager"], outputs) else outputs


def runs_in_float64(job: Wire, time_s: float) -> bool:
    """Return whether the source also runs in float64; its other runs took `time_s` seconds."""
    return bool(job["float64"]) and (not job.get("export") or time_s <= MAX_FLOAT64_TIME_S)


def _run_all(job: Wire, call: ArrayCall, folder: str, phase: Phase) -> List[Wire]:
    """Return one `CaseResult` per case, followed by the result for the sample if there is one."""

    def read_case(paths: Dict[str, str]) -> List[Any]:
        names = call.names if set(call.names) == set(paths) else list(paths)  # by position if a name is unknown
        return _cast_inputs(call, [np.load(paths[name], allow_pickle=False) for name in names])

    feeds: List[Feed] = [("case " + case["name"], partial(read_case, case["inputs"])) for case in job["cases"]]
    if call.sample is not None:
        feeds.append(("the source's sample", partial(_cast_inputs, call, call.sample)))

    def compute(arrays: List[Any]) -> Sequence[Any]:
        seed_generators()
        return call.function(arrays)

    return run_feeds(job, feeds, compute, folder, phase)


def run_feeds(job: Wire, feeds: Sequence[Feed], compute: Function, folder: str, phase: Phase) -> List[Wire]:
    """Return one `CaseResult` per feed; `compute` returns arrays, or None for values that numpy cannot represent."""
    results: List[Wire] = []
    for number, (name, read) in enumerate(feeds):
        phase("source on " + name)
        try:
            outputs = compute(read())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code; its error is the result
            results.append({"outputs": [], "failure": describe_error(error, folders_of(job))})
        else:
            paths = save_arrays(outputs, os.path.join(job["output"], folder, str(number)))
            results.append({"outputs": paths, "failure": None})
    return results


def _cast_inputs(call: ArrayCall, arrays: Sequence[Any]) -> List[Any]:
    """Convert each array to the type that the function accepts, if both are of the same kind, such as float."""
    typed = []
    kinds = {"u": "i", "U": "O"}
    for array, dtype in zip(arrays, call.dtypes):  # noqa: B905 - new in Python 3.10
        present, accepted = (kinds.get(kind, kind) for kind in (array.dtype.kind, dtype.kind))
        if array.dtype != dtype and present != accepted:
            raise MismatchError(f"an input has type {dtype} in the source, but {array.dtype} in the model")
        typed.append(array.astype(object if dtype.kind in "OU" else dtype))
    return typed


def _has_float32(narrow: Sequence[Wire], wide: Sequence[Wire]) -> bool:
    """Return whether the float64 run has a float output of another type, which is no exact reference."""
    for few, many in zip(narrow, wide):  # noqa: B905 - new in Python 3.10
        for paths in zip(few["outputs"], many["outputs"]):  # noqa: B905
            types = [np.load(path, mmap_mode="r").dtype for path in paths if path is not None]
            if types and types[0].kind == "f" and types[-1] != np.dtype("float64"):
                return True
    return False


def save_arrays(arrays: Sequence[Any], folder: str) -> List[Optional[str]]:
    """Write each array as `<index>.npy` and return the paths; None for types that numpy cannot write without pickle."""
    os.makedirs(folder, exist_ok=True)
    paths: List[Optional[str]] = []
    for number, value in enumerate(arrays):
        array = np.asarray(value)
        if value is not None and array.dtype.kind == "O":
            array = array.astype(np.str_)
        writable = array.dtype.kind in "biufcU"
        path = os.path.join(folder, f"{number}.npy")
        if writable:
            np.save(path, array, allow_pickle=False)
        paths.append(path if writable else None)
    return paths


def save_input(path: str, value: Any, name: str) -> None:
    """Write a tensor of any framework, or a value that numpy converts to numbers or strings.

    Raises:
        SourceError: the value cannot be converted; the message contains `name`.
    """
    if hasattr(value, "detach"):  # PyTorch
        value = value.detach().cpu().resolve_conj().resolve_neg()
    try:
        array = np.asarray(value)
    except Exception as error:  # noqa: BLE001 - a bfloat16 tensor, a ragged list
        raise SourceError(f"{name} cannot be converted to an array: {error}") from error
    if array.dtype.kind == "O":
        if not all(isinstance(element, str) for element in array.flat):
            raise SourceError(f"{name} is {describe_type(value)}; expected an array of numbers or strings")
        array = array.astype(np.str_)
    np.save(path, array, allow_pickle=False)
