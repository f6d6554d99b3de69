"""ONNX Runtime, any release since 1.8."""

from __future__ import annotations

import ctypes
import os
import re
from typing import Any, Callable, Dict, List

import numpy as np
import onnxruntime as ort

from .. import arrays, containers, extensions, failures, versions

Phase = Callable[[str], None]

LEVELS = {"all": "ORT_ENABLE_ALL", "disabled": "ORT_DISABLE_ALL"}
SILENT = 4  # log severity "fatal": the texts of errors come as exceptions
ELEMENTS = (
    "float double float16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool string complex64 complex128".split()
)
HOLDABLE = frozenset("tensor(%s)" % element for element in ELEMENTS)
"""Types of outputs that numpy can hold. Those of others (float8, int4) are left out."""
BFLOAT16 = "tensor(bfloat16)"
CPU = "CPUExecutionProvider"


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
        "outputs": _names(session),
        "cases": [_run_case(session, index, case, job, phase) for index, case in enumerate(job["cases"])],
    }


def harvest(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Writes down what the build says of itself."""
    from .. import registry

    phase("harvest")
    return registry.harvest(job["output"])


def _session(job: Dict[str, Any], phase: Phase) -> Any:
    phase("extensions" if job["extensions"] else "load")
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, LEVELS[job["optimization"]])
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = SILENT
    ort.set_default_logger_severity(SILENT)
    if job["extensions"]:
        extensions.register(options, job["extensions"])
        phase("load")
    return _made(job["model"], options, list(job["providers"]))


def _made(model: str, options: Any, providers: List[str]) -> Any:
    """The session. A provider that it cannot have is no model's fault, and never silently replaced by another one."""
    others = [provider for provider in providers if provider != CPU]
    if others:
        _refuse_without("this build has no", others, ort.get_available_providers())
    session = ort.InferenceSession(model, sess_options=options, providers=providers)
    if others:
        session.disable_fallback()
        _refuse_without("the session has no", others, session.get_providers())
    return session


def _refuse_without(what: str, providers: List[str], there: List[str]) -> None:
    lacking = [provider for provider in providers if provider not in there]
    if lacking:
        raise failures.UnusableError("%s `%s`; it has `%s`" % (what, "`, `".join(lacking), "`, `".join(there)))


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


def _names(session: Any) -> List[str]:
    """Of the arrays that `_outputs` gives: a container is followed by its layout."""
    names = []
    for output in session.get_outputs():
        names += [output.name, containers.layout_name(output.name)] if _is_container(output.type) else [output.name]
    return names


def _is_container(type_name: str) -> bool:
    """Whether it is a sequence, a map or an optional of what numpy can hold."""
    elements = re.findall(r"tensor\((\w+)\)", type_name)
    return not type_name.startswith("tensor(") and bool(elements) and set(elements) <= set(ELEMENTS)


def _outputs(session: Any, feeds: Dict[str, Any]) -> List[Any]:
    """One value per name of `_names`, None for those that numpy cannot hold; all nodes are run in any case."""
    outputs = session.get_outputs()
    wanted = [output.name for output in outputs if output.type in HOLDABLE or _is_container(output.type)]
    if not wanted:
        _run_for_nothing(session, feeds)
    values = dict(zip(wanted, session.run(wanted, feeds))) if wanted else {}  # noqa: B905 - Python 3.8
    values.update(_bfloat16(session, feeds))
    found: List[Any] = []
    for output in outputs:
        value = values.get(output.name)
        found += containers.flat(value) if _is_container(output.type) else [value]
    return found


def _bfloat16(session: Any, feeds: Dict[str, Any]) -> Dict[str, Any]:
    """Outputs in bfloat16, as float32: the same numbers. A run of their own; nothing where it is not possible."""
    wanted = [output.name for output in session.get_outputs() if output.type == BFLOAT16]
    if not wanted or not hasattr(session, "run_with_ort_values"):
        return {}
    given = {name: ort.OrtValue.ortvalue_from_numpy(np.asarray(value)) for name, value in feeds.items()}
    values = session.run_with_ort_values(wanted, given)
    return {name: _widened(value) for name, value in zip(wanted, values)}  # noqa: B905 - Python 3.8


def _widened(value: Any) -> Any:
    """The upper half of a float32 is a bfloat16."""
    shape = value.shape()
    size_bytes = 2 * int(np.prod(shape))
    bits = np.frombuffer(ctypes.string_at(value.data_ptr(), size_bytes), np.uint16)
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).reshape(shape)


def _run_for_nothing(session: Any, feeds: Dict[str, Any]) -> None:
    try:
        session.run(None, feeds)
    except RuntimeError as error:
        if "No corresponding Numpy type" not in str(error):  # said after the run, when outputs are fetched
            raise


def _write(folder: str, values: List[Any]) -> List[Any]:
    paths = [os.path.join(folder, "%d.npy" % index) for index in range(len(values))]
    return [path if arrays.write(path, value) else None for path, value in zip(paths, values)]  # noqa: B905
