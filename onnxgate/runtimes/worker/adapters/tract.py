"""Adapter of tract, with its default optimizations."""

from __future__ import annotations

import os
from typing import Any, Dict, List

import numpy as np

os.environ["RUST_BACKTRACE"] = os.environ["RUST_LIB_BACKTRACE"] = "0"  # without this, each error includes a backtrace
import tract  # noqa: E402

from .. import engine_results  # noqa: E402
from ..engine_results import Job, Phase  # noqa: E402


def probe(job: Job, phase: Phase) -> Dict[str, Any]:
    """Test the engine with a tensor, and return the installed versions."""
    tract.Tensor.from_numpy(np.ones(1, np.float32)).to_numpy()
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
    model = tract.onnx().load(job["model"])
    inputs = [model.input_name(index) for index in range(model.input_count())]
    return model.into_model().into_runnable(), inputs


def _to_array(value: Any) -> Any:
    """Return the value as a numpy array; tract's dimension type becomes int64.

    Source: in tract 0.23.9, a Cast to int64 returns values of this type, which its Python package does not expose.
    """
    try:
        return value.to_numpy()
    except tract.TractError:
        return value.convert_to(tract.DatumType.I64).to_numpy()
