"""Adapter of ONNX's reference evaluator, which implements the specification in numpy."""

from __future__ import annotations

from typing import Any, Dict, List

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from .. import arrays, engine_results
from ..engine_results import Job, Phase


def probe(job: Job, phase: Phase) -> Dict[str, Any]:
    """Return versions."""
    return engine_results.probe_result(job)


def load(job: Job, phase: Phase) -> Dict[str, Any]:
    """Create an evaluator, which finds an implementation for each node."""
    _create_evaluator(job, phase)
    return engine_results.load_result()


def run(job: Job, phase: Phase) -> Dict[str, Any]:
    """Create an evaluator and run every case. Each sequence, map or optional becomes two arrays: values and layout."""
    evaluator, outputs = _create_evaluator(job, phase)

    def compute(feeds: Dict[str, Any]) -> List[Any]:
        inputs = {name: value.astype(np.str_) if value.dtype.kind == "O" else value for name, value in feeds.items()}
        computed: List[Any] = []
        for output, value in zip(outputs, evaluator.run(None, inputs)):  # noqa: B905 - Python 3.8
            if _is_container(output):
                computed += arrays.flatten(value)
            else:  # some implementations return Python numbers
                computed.append(np.asarray(value) if isinstance(value, (bool, int, float)) else value)
        return computed

    names = arrays.name_arrays((output.name, _is_container(output)) for output in outputs)
    return engine_results.run_cases(job, phase, names, compute)


def _create_evaluator(job: Job, phase: Phase) -> Any:
    phase("load")
    model = onnx.load(job["model"])
    return ReferenceEvaluator(model), list(model.graph.output)


def _is_container(output: Any) -> bool:
    return output.type.WhichOneof("value") in ("sequence_type", "map_type", "optional_type")
