"""ONNX Runtime, any release since 1.8."""

from __future__ import annotations

import ctypes
import importlib
import os
import re
from importlib import metadata
from typing import Any, Callable, Dict, List, Type

import numpy as np
import onnxruntime as ort

from .. import arrays, benchmark, determinism, failures, versions

Phase = Callable[[str], None]

LEVELS = {"all": "ORT_ENABLE_ALL", "disabled": "ORT_DISABLE_ALL"}
FATAL_SEVERITY = 4  # log severity "fatal": the texts of errors come as exceptions
NUMPY_ELEMENTS = (
    "float double float16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool string complex64 complex128".split()
)
NUMPY_TENSOR_TYPES = frozenset("tensor(%s)" % element for element in NUMPY_ELEMENTS)
"""Types of outputs that numpy can hold. Those of others (float8, int4) are left out."""
BFLOAT16 = "tensor(bfloat16)"
CPU = "CPUExecutionProvider"
if not hasattr(ort, "InferenceSession"):  # a folder without its `__init__.py` is imported as an empty package
    raise ImportError("the package onnxruntime is not whole")


def probe(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Versions, the runtime's as it says it itself, once a tensor has been through it."""
    ort.OrtValue.ortvalue_from_numpy(np.ones(1)).numpy()
    result = versions.probe_versions(job, phase)
    result["packages"]["onnxruntime"] = ort.__version__
    return result


def load(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Makes a session."""
    session = _create_session(job, phase)
    _require_providers("the session has no", _other_providers(job), session.get_providers(), failures.UnusableError)
    return {"kind": "load", "providers": session.get_providers()}


def run(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Makes a session and runs every case; the first that can be run, twice."""
    session = _create_session(job, phase)
    _require_providers(
        "the session has no", _other_providers(job), session.get_providers(), failures.ProviderNotUsedError
    )
    cases: List[Dict[str, Any]] = []
    for index, case in enumerate(job["cases"]):
        twice = job.get("again", True) and not any("outputs" in each for each in cases)
        cases.append(_run_case(session, index, case, job, phase, twice))
    return {"kind": "run", "providers": session.get_providers(), "outputs": _output_names(session), "cases": cases}


def race(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Two models side by side: how long they take, and how much memory."""
    return benchmark.run_benchmark(job, phase, _create_session, _prepare_run)


def weigh(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """The memory that this process has taken at most, once a model was run in it."""
    return benchmark.measure_peak_memory(job, phase, _create_session, _prepare_run)


def harvest(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Writes down what the build says of itself."""
    from .. import kernel_registry

    phase("harvest")
    return kernel_registry.harvest(job["output"])


def _create_session(job: Dict[str, Any], phase: Phase) -> Any:
    phase("extensions" if job["extensions"] else "load")
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, LEVELS[job["optimization"]])
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = FATAL_SEVERITY
    ort.set_default_logger_severity(FATAL_SEVERITY)
    if job["extensions"]:
        register_extensions(options, job["extensions"])
        phase("load")
    return _open_session(job["model"], options, list(job["providers"]))


def _open_session(model: str, options: Any, providers: List[str]) -> Any:
    """The session. A provider that the build does not have is no model's fault."""
    others = [provider for provider in providers if provider != CPU]
    if others:
        _require_providers("this build has no", others, ort.get_available_providers(), failures.UnusableError)
    session = ort.InferenceSession(model, sess_options=options, providers=providers)
    if others:
        session.disable_fallback()
    return session


def _other_providers(job: Dict[str, Any]) -> List[str]:
    return [provider for provider in job["providers"] if provider != CPU]


def _require_providers(what: str, providers: List[str], there: List[str], error: Type[Exception]) -> None:
    lacking = [provider for provider in providers if provider not in there]
    if lacking:
        raise error("%s `%s`; it has `%s`" % (what, "`, `".join(lacking), "`, `".join(there)))


def _run_case(
    session: Any, index: int, case: Dict[str, Any], job: Dict[str, Any], phase: Phase, twice: bool
) -> Dict[str, Any]:
    phase("case " + case["name"])
    try:
        feeds = {name: np.asarray(arrays.read_array(path), order="C") for name, path in case["inputs"].items()}
        written = _write_outputs(os.path.join(job["output"], str(index)), _compute_outputs(session, feeds))
        return {"outputs": written, **(_repeat_case(session, feeds, written) if twice else {})}
    except failures.UnusableError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the runtime says is the result
        return {"failure": failures.describe_failure(error)}


def _repeat_case(session: Any, feeds: Dict[str, Any], written: List[Any]) -> Dict[str, Any]:
    """What running the same case once more shows of the outputs."""
    names, values = _output_names(session), _compute_outputs(session, feeds)
    exact = session.get_providers() == [CPU]
    return {
        "unstable": determinism.find_unstable_outputs(names, values, written, exact),
        "aliased": determinism.find_aliased_outputs(names, values, feeds),
    }


def _prepare_run(session: Any, feeds: Dict[str, Any]) -> Callable[[], Any]:
    """What runs the session once. Raises KeyError where the feeds lack an input."""
    given = {value.name: feeds[value.name] for value in session.get_inputs()}
    return lambda: _compute_outputs(session, given)


def _output_names(session: Any) -> List[str]:
    """Of the arrays that `_outputs` gives: a container is followed by its layout."""
    names = []
    for output in session.get_outputs():
        names += [output.name, arrays.layout_name(output.name)] if _is_container(output.type) else [output.name]
    return names


def _is_container(type_name: str) -> bool:
    """Whether it is a sequence, a map or an optional of what numpy can hold."""
    elements = re.findall(r"tensor\((\w+)\)", type_name)
    return not type_name.startswith("tensor(") and bool(elements) and set(elements) <= set(NUMPY_ELEMENTS)


def _compute_outputs(session: Any, feeds: Dict[str, Any]) -> List[Any]:
    """One value per name of `_names`, None for those that numpy cannot hold; all nodes are run in any case."""
    outputs = session.get_outputs()
    wanted = [output.name for output in outputs if output.type in NUMPY_TENSOR_TYPES or _is_container(output.type)]
    if not wanted:
        _run_without_outputs(session, feeds)
    values = dict(zip(wanted, session.run(wanted, feeds))) if wanted else {}  # noqa: B905 - Python 3.8
    values.update(_bfloat16_outputs(session, feeds))
    found: List[Any] = []
    for output in outputs:
        value = values.get(output.name)
        found += arrays.flatten(value) if _is_container(output.type) else [value]
    return found


def _bfloat16_outputs(session: Any, feeds: Dict[str, Any]) -> Dict[str, Any]:
    """Outputs in bfloat16, as float32: the same numbers. A run of their own; nothing where it is not possible."""
    wanted = [output.name for output in session.get_outputs() if output.type == BFLOAT16]
    if not wanted or not hasattr(session, "run_with_ort_values"):
        return {}
    given = {name: ort.OrtValue.ortvalue_from_numpy(np.asarray(value)) for name, value in feeds.items()}
    values = session.run_with_ort_values(wanted, given)
    return {name: _widen_bfloat16(value) for name, value in zip(wanted, values)}  # noqa: B905 - Python 3.8


def _widen_bfloat16(value: Any) -> Any:
    """The upper half of a float32 is a bfloat16."""
    shape = value.shape()
    size_bytes = 2 * int(np.prod(shape))
    bits = np.frombuffer(ctypes.string_at(value.data_ptr(), size_bytes), np.uint16)
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).reshape(shape)


def _run_without_outputs(session: Any, feeds: Dict[str, Any]) -> None:
    try:
        session.run(None, feeds)
    except RuntimeError as error:
        if "No corresponding Numpy type" not in str(error):  # said after the run, when outputs are fetched
            raise


def _write_outputs(folder: str, values: List[Any]) -> List[Any]:
    paths = [os.path.join(folder, "%d.npy" % index) for index in range(len(values))]
    return [path if arrays.write_array(path, value) else None for path, value in zip(paths, values)]  # noqa: B905


def register_extensions(options: Any, extensions: List[str]) -> None:
    """Have the session that is made with these options know the operators of all of them.

    Raises:
        failures.UnusableError: one is not there, or is no library of custom operators.
    """
    for extension in extensions:
        library = ""
        try:
            library = _find_library(extension)
            options.register_custom_ops_library(library)
        except Exception as error:  # noqa: BLE001 - a package's own import raises what it likes
            name = os.path.basename(extension)
            said = _error_text(error, os.path.dirname(library))
            raise failures.UnusableError("extension `%s` cannot be registered: %s" % (name, said)) from error


def _find_library(extension: str) -> str:
    """A path as it is; of a package, the library that it names itself."""
    if os.path.isabs(extension):
        if not os.path.isfile(extension):
            raise LookupError("there is no such file")
        return extension
    module = importlib.import_module(_import_name(extension))
    path = getattr(module, "get_library_path", None)
    if path is None:
        raise LookupError("its module `%s` has no `get_library_path`" % module.__name__)
    return str(path())


def _import_name(package: str) -> str:
    """What is imported for a package: what it says, else its own name."""
    usual = package.replace("-", "_")
    said = (metadata.distribution(package).read_text("top_level.txt") or "").split()
    return usual if usual in said or not said else said[0]


def _error_text(error: Exception, hide: str) -> str:
    said = failures.describe_failure(error, hide)
    return str(said["text"]) if isinstance(error, LookupError) else "%(type)s: %(text)s" % said
