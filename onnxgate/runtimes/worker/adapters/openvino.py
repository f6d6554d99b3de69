"""Adapter of OpenVINO on the CPU, in float32."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List

import numpy as np
import openvino as ov

from .. import case_runs, io_names, versions

Phase = Callable[[str], None]

# Source: openvino 2026.4.1 computes in bfloat16 by default if the CPU supports it, 1e-3 from float32.
COMPILE_SETTINGS = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1", "NUM_STREAMS": "1"}
ERROR_PREFIX = re.compile(
    r"Exception from \S+?:\d+:\s*|Check '[^\n]*?' failed at \S+?:\d+:\s*|FrontEnd API failed with \w+:\s*"
    r"|Model wasn't fully converted\.\s*|Summary:\s*|^-- ",
    re.MULTILINE,
)
"""Places in OpenVINO's code, and text common to all models."""
BFLOAT16 = "bf16"
UNSUPPORTED_ELEMENTS = (
    "u1",
    "u2",
    "u3",
    "u4",
    "u6",
    "i4",
    "nf4",
    "f4e2m1",
    "f8e4m3",
    "f8e5m2",
    "f8e8m0",
    "dynamic",
    "undefined",
)
"""Element types that numpy cannot represent."""


def probe(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Return versions, after the engine has found its device."""
    ov.Core().get_property("CPU", "FULL_DEVICE_NAME")
    return versions.probe_versions(job, phase)


def load(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Compile the model."""
    _compile_model(job, phase)
    return case_runs.load_result()


def run(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Compile the model and run every case."""
    compiled = _compile_model(job, phase)
    request = compiled.create_infer_request()
    taken = {name for port in compiled.inputs for name in port.get_names()}

    def compute(feeds: Dict[str, Any]) -> List[Any]:
        for name, value in feeds.items():
            if name in taken:
                request.set_tensor(name, _to_tensor(value))
        with case_runs.strip_from_errors(ERROR_PREFIX):
            request.infer()
        return [_to_array(request.get_output_tensor(index)) for index in range(len(compiled.outputs))]

    return case_runs.run_cases(job, phase, _output_names(job["model"], compiled), compute)


def _compile_model(job: Dict[str, Any], phase: Phase) -> Any:
    phase("load")
    core = ov.Core()
    with case_runs.strip_from_errors(ERROR_PREFIX):
        return core.compile_model(core.read_model(job["model"]), "CPU", COMPILE_SETTINGS)


def _output_names(model: str, compiled: Any) -> List[str]:
    """Return the graph's own output names if the counts agree; a value may have several names here."""
    names = io_names.read_io_names(model).outputs
    if len(names) == len(compiled.outputs):
        return names
    return [port.get_any_name() for port in compiled.outputs]


def _to_tensor(value: Any) -> Any:
    array = np.asarray(value, order="C")
    return ov.Tensor(array.astype(np.str_) if array.dtype.kind == "O" else array)


def _to_array(tensor: Any) -> Any:
    """Return a copy: the next case may reuse the memory."""
    name = tensor.element_type.get_type_name()
    if name in UNSUPPORTED_ELEMENTS:
        return None
    if name == BFLOAT16:
        return _widen_bfloat16(tensor.data)
    return np.array(tensor.str_data if name == "string" else tensor.data)


def _widen_bfloat16(data: Any) -> Any:
    """Convert bfloat16 bits, which are the upper half of a float32."""
    return (data.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
