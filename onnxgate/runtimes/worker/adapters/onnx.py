"""Adapter of ONNX's reference evaluator, which implements the specification in numpy."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from .. import arrays, case_runs, versions

Phase = Callable[[str], None]


def probe(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Return versions."""
    return versions.probe_versions(job, phase)


def load(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Find an implementation for each node."""
    _create_evaluator(job, phase)
    return case_runs.load_result()


def run(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Find the implementations and run every case."""
    evaluator, outputs = _create_evaluator(job, phase)

    def compute(feeds: Dict[str, Any]) -> List[Any]:
        given = {name: value.astype(np.str_) if value.dtype.kind == "O" else value for name, value in feeds.items()}
        values = evaluator.run(None, given)
        found: List[Any] = []
        for output, value in zip(outputs, values):  # noqa: B905 - Python 3.8
            found += arrays.flatten(value) if _is_container(output) else [_to_array(value)]
        return found

    return case_runs.run_cases(job, phase, _output_names(outputs), compute)


def _create_evaluator(job: Dict[str, Any], phase: Phase) -> Any:
    phase("load")
    model = onnx.load(job["model"])
    return ReferenceEvaluator(model), list(model.graph.output)


def _output_names(outputs: List[Any]) -> List[str]:
    """Return the names of the returned arrays: a container is followed by its layout."""
    names = []
    for output in outputs:
        names += [output.name, arrays.layout_name(output.name)] if _is_container(output) else [output.name]
    return names


def _is_container(output: Any) -> bool:
    return output.type.WhichOneof("value") in ("sequence_type", "map_type", "optional_type")


def _to_array(value: Any) -> Any:
    """Convert Python numbers, which some implementations return instead of scalars."""
    return np.asarray(value) if isinstance(value, (bool, int, float)) else value
