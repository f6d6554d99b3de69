"""Adapter of ONNX Runtime 1.8 and later."""

from __future__ import annotations

import ctypes
import importlib
import os
import re
from importlib import metadata
from typing import Any, Callable, Dict, List, Type

import numpy as np
import onnxruntime as ort

from .. import arrays, benchmark, engine_results, failures
from ..engine_results import Job, Phase

LEVELS = {"all": "ORT_ENABLE_ALL", "disabled": "ORT_DISABLE_ALL"}
FATAL_SEVERITY = 4  # silences the log: errors are reported by exceptions
NUMPY_ELEMENTS = (
    "float double float16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool string complex64 complex128".split()
)
NUMPY_TENSOR_TYPES = frozenset("tensor(%s)" % element for element in NUMPY_ELEMENTS)
"""Output types that numpy can represent; outputs of other types, such as float8, are not returned."""
BFLOAT16 = "tensor(bfloat16)"
CPU = "CPUExecutionProvider"
if not hasattr(ort, "InferenceSession"):  # a folder without its `__init__.py` is imported as an empty package
    raise ImportError("the onnxruntime package is incomplete")


def probe(job: Job, phase: Phase) -> Dict[str, Any]:
    """Test the runtime with a tensor, and return the installed versions."""
    ort.OrtValue.ortvalue_from_numpy(np.ones(1)).numpy()
    result = engine_results.probe_result(job)
    result["packages"]["onnxruntime"] = ort.__version__
    return result


def load(job: Job, phase: Phase) -> Dict[str, Any]:
    """Create a session."""
    session = _create_session(job, phase)
    _require_providers("the session has no", job, session.get_providers(), failures.UnusableError)
    return {"kind": "load", "providers": session.get_providers()}


def run(job: Job, phase: Phase) -> Dict[str, Any]:
    """Create a session and run every case. The first successful case runs twice."""
    session = _create_session(job, phase)
    _require_providers("the session has no", job, session.get_providers(), failures.ProviderNotUsedError)
    names = arrays.name_arrays((output.name, _is_container(output.type)) for output in session.get_outputs())

    def compute(feeds: Dict[str, Any]) -> List[Any]:
        return _compute_outputs(session, feeds)

    def repeat(feeds: Dict[str, Any], paths: List[Any]) -> Dict[str, Any]:
        """Run the case again. Return the outputs that differ and the outputs that share memory with inputs."""
        values, exact = compute(feeds), session.get_providers() == [CPU]
        return {
            "unstable": engine_results.find_unstable_outputs(names, values, paths, exact),
            "aliased": engine_results.find_aliased_outputs(names, values, feeds),
        }

    result = engine_results.run_cases(job, phase, names, compute, repeat if job.get("again", True) else None)
    return {**result, "providers": session.get_providers()}


def race(job: Job, phase: Phase) -> Dict[str, Any]:
    """Compare the time and memory of two models."""
    return benchmark.run_benchmark(job, phase, _create_session, _prepare_run)


def measure_memory(job: Job, phase: Phase) -> Dict[str, Any]:
    """Return the peak memory of this process after running a model."""
    return benchmark.measure_peak_memory(job, phase, _create_session, _prepare_run)


def harvest(job: Job, phase: Phase) -> Dict[str, Any]:
    """Write the kernels and schemas of the build to a file."""
    from .. import kernel_registry  # imports parts of the build that other jobs do not need

    phase("harvest")
    return kernel_registry.harvest(job["output"])


def _create_session(job: Job, phase: Phase) -> Any:
    phase("extensions" if job["extensions"] else "load")
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, LEVELS[job["optimization"]])
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = FATAL_SEVERITY
    ort.set_default_logger_severity(FATAL_SEVERITY)
    if job["extensions"]:
        register_extensions(options, job["extensions"])
        phase("load")
    providers = list(job["providers"])
    # A provider missing from the build is not the model's fault.
    _require_providers("this build has no", job, ort.get_available_providers(), failures.UnusableError)
    session = ort.InferenceSession(job["model"], sess_options=options, providers=providers)
    if set(providers) - {CPU}:
        session.disable_fallback()
    return session


def _require_providers(subject: str, job: Dict[str, Any], present: List[str], error: Type[Exception]) -> None:
    """Raise an error if a requested provider other than the CPU provider is not available."""
    lacking = [provider for provider in job["providers"] if provider != CPU and provider not in present]
    if lacking:
        raise error("%s `%s`; available: `%s`" % (subject, "`, `".join(lacking), "`, `".join(present)))


def _prepare_run(session: Any, feeds: Dict[str, Any]) -> Callable[[], Any]:
    """Return a function that runs the session once. It raises KeyError if an input is missing from `feeds`."""
    inputs = {value.name: feeds[value.name] for value in session.get_inputs()}
    return lambda: _compute_outputs(session, inputs)


def _is_container(type_name: str) -> bool:
    """Return whether the type is a sequence, map or optional of elements that numpy can represent."""
    elements = re.findall(r"tensor\((\w+)\)", type_name)
    return not type_name.startswith("tensor(") and bool(elements) and set(elements) <= set(NUMPY_ELEMENTS)


def _compute_outputs(session: Any, feeds: Dict[str, Any]) -> List[Any]:
    """Return one value per name that `name_arrays` returns; None if numpy cannot represent it. All nodes always run."""
    outputs = session.get_outputs()
    names = [output.name for output in outputs if output.type in NUMPY_TENSOR_TYPES or _is_container(output.type)]
    values = {}
    if names:
        values = dict(zip(names, session.run(names, feeds)))  # noqa: B905 - Python 3.8
    else:
        try:
            session.run(None, feeds)
        except RuntimeError as error:
            if "No corresponding Numpy type" not in str(error):  # raised after all nodes ran
                raise
    values.update(_bfloat16_outputs(session, feeds))
    computed: List[Any] = []
    for output in outputs:
        value = values.get(output.name)
        computed += arrays.flatten(value) if _is_container(output.type) else [value]
    return computed


def _bfloat16_outputs(session: Any, feeds: Dict[str, Any]) -> Dict[str, Any]:
    """Run the session again and return its bfloat16 outputs as float32; empty if the release does not support this."""
    names = [output.name for output in session.get_outputs() if output.type == BFLOAT16]
    if not names or not hasattr(session, "run_with_ort_values"):
        return {}
    inputs = {name: ort.OrtValue.ortvalue_from_numpy(np.asarray(value)) for name, value in feeds.items()}
    widened = {}
    for name, value in zip(names, session.run_with_ort_values(names, inputs)):  # noqa: B905 - Python 3.8
        size_bytes = 2 * int(np.prod(value.shape()))
        bits = np.frombuffer(ctypes.string_at(value.data_ptr(), size_bytes), np.uint16)
        widened[name] = engine_results.widen_bfloat16(bits).reshape(value.shape())
    return widened


def register_extensions(options: Any, extensions: List[str]) -> None:
    """Register the operators of all extensions with these session options.

    Raises:
        failures.UnusableError: a library is missing or invalid.
    """
    for extension in extensions:
        library = ""
        try:
            library = _find_library(extension)
            options.register_custom_ops_library(library)
        except Exception as error:  # noqa: BLE001 - importing a package can raise any error
            failure = failures.describe_failure(error, os.path.dirname(library))
            text = failure["text"] if isinstance(error, LookupError) else "%(type)s: %(text)s" % failure
            name = os.path.basename(extension)
            raise failures.UnusableError("extension `%s` cannot be registered: %s" % (name, text)) from error


def _find_library(extension: str) -> str:
    """Return the path of an extension's library. For a package, call `get_library_path` of its module.

    The name of the module is in `top_level.txt`; by default, it is the name of the package.
    """
    if os.path.isabs(extension):
        if not os.path.isfile(extension):
            raise LookupError("the file does not exist")
        return extension
    name = extension.replace("-", "_")
    modules = (metadata.distribution(extension).read_text("top_level.txt") or "").split()
    module = importlib.import_module(name if name in modules or not modules else modules[0])
    path = getattr(module, "get_library_path", None)
    if path is None:
        raise LookupError("its module `%s` has no function `get_library_path`" % module.__name__)
    return str(path())
