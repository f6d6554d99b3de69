"""OpenVINO on the CPU, in float32."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List

import numpy as np
import openvino as ov

from .. import answers, graphs, versions

Phase = Callable[[str], None]

# Source: openvino 2026.4.1 computes in bfloat16 by itself where the CPU has it, 1e-3 from float32.
SETTINGS = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1", "NUM_STREAMS": "1"}
NOISE = re.compile(
    r"Exception from \S+?:\d+:\s*|Check '[^\n]*?' failed at \S+?:\d+:\s*|FrontEnd API failed with \w+:\s*"
    r"|Model wasn't fully converted\.\s*|Summary:\s*|^-- ",
    re.MULTILINE,
)
"""Where in OpenVINO it is said, and what is said of every model."""
SIXTEEN = "bf16"
SMALL = ("u1", "u2", "u3", "u4", "u6", "i4", "nf4", "f4e2m1", "f8e4m3", "f8e5m2", "f8e8m0", "dynamic", "undefined")
"""Element types that numpy cannot hold."""


def probe(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Versions, once the engine has found its device."""
    ov.Core().get_property("CPU", "FULL_DEVICE_NAME")
    return versions.probe(job, phase)


def load(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Compiles the model."""
    _compiled(job, phase)
    return answers.loaded()


def run(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Compiles the model and runs every case."""
    compiled = _compiled(job, phase)
    request = compiled.create_infer_request()
    taken = {name for port in compiled.inputs for name in port.get_names()}

    def compute(feeds: Dict[str, Any]) -> List[Any]:
        for name, value in feeds.items():
            if name in taken:
                request.set_tensor(name, _tensor(value))
        with answers.without(NOISE):
            request.infer()
        return [_array(request.get_output_tensor(index)) for index in range(len(compiled.outputs))]

    return answers.ran(job, phase, _names(job["model"], compiled), compute)


def _compiled(job: Dict[str, Any], phase: Phase) -> Any:
    phase("load")
    core = ov.Core()
    with answers.without(NOISE):
        return core.compile_model(core.read_model(job["model"]), "CPU", SETTINGS)


def _names(model: str, compiled: Any) -> List[str]:
    """The graph's own, where each has its output; a value may have several names here."""
    names = graphs.read(model).outputs
    if len(names) == len(compiled.outputs):
        return names
    return [port.get_any_name() for port in compiled.outputs]


def _tensor(value: Any) -> Any:
    array = np.asarray(value, order="C")
    return ov.Tensor(array.astype(np.str_) if array.dtype.kind == "O" else array)


def _array(tensor: Any) -> Any:
    """A copy: the next case may be computed where this one lies."""
    name = tensor.element_type.get_type_name()
    if name in SMALL:
        return None
    if name == SIXTEEN:
        return _widened(tensor.data)
    return np.array(tensor.str_data if name == "string" else tensor.data)


def _widened(data: Any) -> Any:
    """The upper half of a float32 is a bfloat16."""
    return (data.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
