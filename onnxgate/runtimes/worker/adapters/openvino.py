"""Adapter of OpenVINO on the CPU, in float32."""

from __future__ import annotations

import re
from typing import Any, Dict, List

import numpy as np
import openvino as ov

from .. import engine_results
from ..engine_results import Job, Phase

# Source: openvino 2026.4.1 computes in bfloat16 by default if the CPU supports it; results then differ by 1e-3.
COMPILE_SETTINGS = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1", "NUM_STREAMS": "1"}
ERROR_PREFIX = re.compile(
    r"Exception from \S+?:\d+:\s*|Check '[^\n]*?' failed at \S+?:\d+:\s*|FrontEnd API failed with \w+:\s*"
    r"|Model wasn't fully converted\.\s*|Summary:\s*|^-- ",
    re.MULTILINE,
)
"""Parts of error messages to remove: locations in OpenVINO's source code, and text that does not describe the model."""
BFLOAT16 = "bf16"
UNSUPPORTED_ELEMENTS = frozenset("u1 u2 u3 u4 u6 i4 nf4 f4e2m1 f8e4m3 f8e5m2 f8e8m0 dynamic undefined".split())
"""Element types that numpy cannot represent."""


def probe(job: Job, phase: Phase) -> Dict[str, Any]:
    """Query the device, and return the installed versions."""
    ov.Core().get_property("CPU", "FULL_DEVICE_NAME")
    return engine_results.probe_result(job)


def load(job: Job, phase: Phase) -> Dict[str, Any]:
    """Compile the model."""
    _compile_model(job, phase)
    return engine_results.load_result()


def run(job: Job, phase: Phase) -> Dict[str, Any]:
    """Compile the model and run every case."""
    compiled = _compile_model(job, phase)
    request = compiled.create_infer_request()
    inputs = {name for port in compiled.inputs for name in port.get_names()}
    names = engine_results.read_output_names(job["model"])
    if len(names) != len(compiled.outputs):  # a value may have several names
        names = [port.get_any_name() for port in compiled.outputs]

    def compute(feeds: Dict[str, Any]) -> List[Any]:
        for name, value in feeds.items():
            if name in inputs:
                request.set_tensor(name, ov.Tensor(value.astype(np.str_) if value.dtype.kind == "O" else value))
        with engine_results.strip_from_errors(ERROR_PREFIX):
            request.infer()
        return [_to_array(request.get_output_tensor(index)) for index in range(len(compiled.outputs))]

    return engine_results.run_cases(job, phase, names, compute)


def _compile_model(job: Job, phase: Phase) -> Any:
    phase("load")
    core = ov.Core()
    with engine_results.strip_from_errors(ERROR_PREFIX):
        return core.compile_model(core.read_model(job["model"]), "CPU", COMPILE_SETTINGS)


def _to_array(tensor: Any) -> Any:
    """Return a copy of the tensor as an array, since the next case may overwrite the memory."""
    name = tensor.element_type.get_type_name()
    if name in UNSUPPORTED_ELEMENTS:
        return None
    if name == BFLOAT16:
        return engine_results.widen_bfloat16(tensor.data.view(np.uint16))
    return np.array(tensor.str_data if name == "string" else tensor.data)
