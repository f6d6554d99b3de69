"""ONNX Runtime, any release since 1.8."""

from __future__ import annotations

import ctypes
import os
import re
from typing import Any, Callable, Dict, List, Type

import numpy as np
import onnxruntime as ort

from .. import arrays, containers, extensions, failures, racing, repeating, versions

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
if not hasattr(ort, "InferenceSession"):  # a folder without its `__init__.py` is imported as an empty package
    raise ImportError("the package onnxruntime is not whole")


def probe(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Versions, the runtime's as it says it itself, once a tensor has been through it."""
    ort.OrtValue.ortvalue_from_numpy(np.ones(1)).numpy()
    result = versions.probe(job, phase)
    result["packages"]["onnxruntime"] = ort.__version__
    return result


def load(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Makes a session."""
    session = _session(job, phase)
    _refuse_without("the session has no", _others(job), session.get_providers(), failures.UnusableError)
    return {"kind": "load", "providers": session.get_providers()}


def run(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Makes a session and runs every case; the first that can be run, twice."""
    session = _session(job, phase)
    _refuse_without("the session has no", _others(job), session.get_providers(), failures.ProviderNotUsedError)
    cases: List[Dict[str, Any]] = []
    for index, case in enumerate(job["cases"]):
        twice = job.get("again", True) and not any("outputs" in each for each in cases)
        cases.append(_run_case(session, index, case, job, phase, twice))
    return {"kind": "run", "providers": session.get_providers(), "outputs": _names(session), "cases": cases}


def race(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Two models side by side: how long they take, and how much memory."""
    return racing.race(job, phase, _session, _ready)


def weigh(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """The memory that this process has taken at most, once a model was run in it."""
    return racing.weigh(job, phase, _session, _ready)


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
    """The session. A provider that the build does not have is no model's fault."""
    others = [provider for provider in providers if provider != CPU]
    if others:
        _refuse_without("this build has no", others, ort.get_available_providers(), failures.UnusableError)
    session = ort.InferenceSession(model, sess_options=options, providers=providers)
    if others:
        session.disable_fallback()
    return session


def _others(job: Dict[str, Any]) -> List[str]:
    return [provider for provider in job["providers"] if provider != CPU]


def _refuse_without(what: str, providers: List[str], there: List[str], error: Type[Exception]) -> None:
    lacking = [provider for provider in providers if provider not in there]
    if lacking:
        raise error("%s `%s`; it has `%s`" % (what, "`, `".join(lacking), "`, `".join(there)))


def _run_case(
    session: Any, index: int, case: Dict[str, Any], job: Dict[str, Any], phase: Phase, twice: bool
) -> Dict[str, Any]:
    phase("case " + case["name"])
    try:
        feeds = {name: np.asarray(arrays.read(path), order="C") for name, path in case["inputs"].items()}
        written = _write(os.path.join(job["output"], str(index)), _outputs(session, feeds))
        return {"outputs": written, **(_again(session, feeds, written) if twice else {})}
    except failures.UnusableError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the runtime says is the result
        return {"failure": failures.failure(error)}


def _again(session: Any, feeds: Dict[str, Any], written: List[Any]) -> Dict[str, Any]:
    """What running the same case once more shows of the outputs."""
    names, values = _names(session), _outputs(session, feeds)
    exact = session.get_providers() == [CPU]
    return {
        "unstable": repeating.unstable(names, values, written, exact),
        "aliased": repeating.aliased(names, values, feeds),
    }


def _ready(session: Any, feeds: Dict[str, Any]) -> Callable[[], Any]:
    """What runs the session once. Raises KeyError where the feeds lack an input."""
    given = {value.name: feeds[value.name] for value in session.get_inputs()}
    return lambda: _outputs(session, given)


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
