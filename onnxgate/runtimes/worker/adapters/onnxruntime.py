"""ONNX Runtime, any release since 1.8."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List

import numpy as np
import onnxruntime as ort

from .. import arrays, failures, versions

Phase = Callable[[str], None]

LEVELS = {"all": "ORT_ENABLE_ALL", "disabled": "ORT_DISABLE_ALL"}
SILENT = 4  # log severity "fatal": the texts of errors come as exceptions
ELEMENTS = (
    "float double float16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool string complex64 complex128".split()
)
HOLDABLE = frozenset("tensor(%s)" % element for element in ELEMENTS)
"""Types of outputs that numpy can hold. The bits of others (bfloat16, float8, int4) come as they are, or not at all."""


def probe(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Versions, the runtime's as it says it itself, once a tensor has been through it."""
    ort.OrtValue.ortvalue_from_numpy(np.ones(1)).numpy()
    result = versions.probe(job, phase)
    result["packages"]["onnxruntime"] = ort.__version__
    return result


def load(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Makes a session."""
    return {"kind": "load", "providers": _session(job, phase).get_providers()}


def run(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Makes a session and runs every case."""
    session = _session(job, phase)
    return {
        "kind": "run",
        "providers": session.get_providers(),
        "outputs": [output.name for output in session.get_outputs()],
        "cases": [_run_case(session, index, case, job, phase) for index, case in enumerate(job["cases"])],
    }


def _session(job: Dict[str, Any], phase: Phase) -> Any:
    phase("load")
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, LEVELS[job["optimization"]])
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = SILENT
    ort.set_default_logger_severity(SILENT)
    return ort.InferenceSession(job["model"], sess_options=options, providers=list(job["providers"]))


def _run_case(session: Any, index: int, case: Dict[str, Any], job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    phase("case " + case["name"])
    try:
        feeds = {name: arrays.read(path) for name, path in case["inputs"].items()}
        values = _outputs(session, feeds)
        return {"outputs": _write(os.path.join(job["output"], str(index)), values)}
    except failures.UnusableError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the runtime says is the result
        return {"failure": failures.failure(error)}


def _outputs(session: Any, feeds: Dict[str, Any]) -> List[Any]:
    """One value per output, None for those that numpy cannot hold; all nodes are run in any case."""
    outputs = session.get_outputs()
    wanted = [output.name for output in outputs if output.type in HOLDABLE]
    if not wanted:
        _run_for_nothing(session, feeds)
    values = dict(zip(wanted, session.run(wanted, feeds))) if wanted else {}  # noqa: B905 - Python 3.8
    return [values.get(output.name) for output in outputs]


def _run_for_nothing(session: Any, feeds: Dict[str, Any]) -> None:
    try:
        session.run(None, feeds)
    except RuntimeError as error:
        if "No corresponding Numpy type" not in str(error):  # said after the run, when outputs are fetched
            raise


def _write(folder: str, values: List[Any]) -> List[Any]:
    paths = [os.path.join(folder, "%d.npy" % index) for index in range(len(values))]
    return [path if arrays.write(path, value) else None for path, value in zip(paths, values)]  # noqa: B905
