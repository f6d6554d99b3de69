"""Adapter of tract, with its default optimizations.

Source: its Python package has `model_for_path` and `Value` up to 0.22.4, and `load` and `Tensor` since 0.23.0.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Dict, List

import numpy as np

os.environ["RUST_BACKTRACE"] = os.environ["RUST_LIB_BACKTRACE"] = "0"  # without this, each error includes a backtrace
import tract  # noqa: E402

from .. import engine_results  # noqa: E402
from ..engine_results import Job, Phase  # noqa: E402


def probe(job: Job, phase: Phase) -> Dict[str, Any]:
    """Test the engine with a tensor, and return the installed versions."""
    tensor = tract.Tensor if hasattr(tract, "Tensor") else tract.Value
    tensor.from_numpy(np.ones(1, np.float32)).to_numpy()
    return engine_results.probe_result(job)


def load(job: Job, phase: Phase) -> Dict[str, Any]:
    """Check that the model can be prepared for running."""
    _load_runnable(job, phase)
    return engine_results.load_result()


def run(job: Job, phase: Phase) -> Dict[str, Any]:
    """Prepare the model and run every case."""
    runnable, inputs = _load_runnable(job, phase)

    def compute(feeds: Dict[str, Any]) -> List[Any]:
        values = [feeds[name] for name in inputs]
        if any(value.dtype.kind == "O" for value in values):
            raise TypeError("tract does not support string tensors")
        return [_to_array(value) for value in runnable.run(values)]

    return engine_results.run_cases(job, phase, engine_results.read_output_names(job["model"]), compute)


def _load_runnable(job: Job, phase: Phase) -> Any:
    """Return the runnable model and its input names, in tract's order."""
    phase("load")
    reader = tract.onnx()
    model = reader.load(job["model"]) if hasattr(reader, "load") else reader.model_for_path(job["model"])
    inputs = [model.input_name(index) for index in range(model.input_count())]
    typed = model.into_model() if hasattr(model, "into_model") else model.into_optimized()
    return typed.into_runnable(), inputs


def _to_array(value: Any) -> Any:
    """Return the value as a numpy array; tract's dimension type becomes int64.

    Source: in tract 0.23.9, a Cast to int64 returns values of this type, which its Python package does not expose.
    """
    if not hasattr(value, "convert_to"):
        return _copy_value(value)
    try:
        return value.to_numpy()
    except tract.TractError:
        return value.convert_to(tract.DatumType.I64).to_numpy()


def _copy_value(value: Any) -> Any:
    """Return a value of tract up to 0.22.4 as a numpy array.

    Source: `Value.to_numpy` of 0.21.8 to 0.22.4 reads values of all types as float32.
    """
    datum_type, rank = ctypes.c_uint32(), ctypes.c_size_t()
    shape, data = ctypes.POINTER(ctypes.c_size_t)(), ctypes.c_void_p()
    fields = (ctypes.byref(field) for field in (datum_type, rank, shape, data))
    tract.bindings.check(tract.bindings.lib.tract_value_as_bytes(value.ptr, *fields))
    kind, size = divmod(datum_type.value, 16)
    dtype = np.dtype("?" if kind == 0 else "%s%d" % (" uif"[kind], size))
    array = np.empty(shape[: rank.value], dtype)
    ctypes.memmove(array.ctypes.data, data, array.nbytes)
    return array
