"""Sequential runs of cases, for engines whose session is a function of arrays."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Callable, Dict, Iterator, List, Pattern

import numpy as np

from . import arrays, failures

Phase = Callable[[str], None]
Compute = Callable[[Dict[str, Any]], List[Any]]
"""Computes one value per output from the inputs by name; None for values that numpy cannot represent."""

NUMPY_KINDS = "biufcUSO"
"""Kinds of numpy's own types; those of ml_dtypes are not included."""


@contextlib.contextmanager
def strip_from_errors(noise: Pattern[str]) -> Iterator[None]:
    """Remove the pattern from errors that are raised in the block: the engine's own files and lines."""
    try:
        yield
    except Exception as error:
        error.args = (noise.sub("", str(error)).strip(),)
        raise


def load_result() -> Dict[str, Any]:
    """Return the result of a load; only ONNX Runtime has providers."""
    return {"kind": "load", "providers": []}


def run_cases(job: Dict[str, Any], phase: Phase, names: List[str], compute: Compute) -> Dict[str, Any]:
    """Return the result of a run; one failing case does not stop the next."""
    cases = [_run_case(job, index, case, phase, compute) for index, case in enumerate(job["cases"])]
    return {"kind": "run", "providers": [], "outputs": names, "cases": cases}


def _run_case(job: Dict[str, Any], index: int, case: Dict[str, Any], phase: Phase, compute: Compute) -> Dict[str, Any]:
    phase("case " + case["name"])
    folder = os.path.join(job["output"], str(index))
    try:
        values = compute({name: arrays.read_array(path) for name, path in case["inputs"].items()})
        paths = [os.path.join(folder, "%d.npy" % place) for place in range(len(values))]
        written = zip(paths, [to_numpy(value) for value in values])  # noqa: B905 - Python 3.8
        return {"outputs": [path if arrays.write_array(path, value) else None for path, value in written]}
    except failures.UnusableError:
        raise
    except Exception as error:  # noqa: BLE001 - the engine's error is the result
        return {"failure": failures.describe_failure(error)}


def to_numpy(value: Any) -> Any:
    """Return the value for numpy: bfloat16 as float32, the same numbers; None if numpy cannot represent it."""
    if not isinstance(value, (np.ndarray, np.generic)):
        return None
    if value.dtype.name == "bfloat16":
        return value.astype(np.float32)
    return value if value.dtype.kind in NUMPY_KINDS else None
