"""ONNX's reference evaluator: what the specification says, in numpy."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from .. import answers, containers, versions

Phase = Callable[[str], None]


def probe(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Versions."""
    return versions.probe(job, phase)


def load(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Finds an implementation for each node."""
    _evaluator(job, phase)
    return answers.loaded()


def run(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Finds the implementations and runs every case."""
    evaluator, outputs = _evaluator(job, phase)

    def compute(feeds: Dict[str, Any]) -> List[Any]:
        given = {name: value.astype(np.str_) if value.dtype.kind == "O" else value for name, value in feeds.items()}
        values = evaluator.run(None, given)
        found: List[Any] = []
        for output, value in zip(outputs, values):  # noqa: B905 - Python 3.8
            found += containers.flat(value) if _is_container(output) else [_tensor(value)]
        return found

    return answers.ran(job, phase, _names(outputs), compute)


def _evaluator(job: Dict[str, Any], phase: Phase) -> Any:
    phase("load")
    model = onnx.load(job["model"])
    return ReferenceEvaluator(model), list(model.graph.output)


def _names(outputs: List[Any]) -> List[str]:
    """Of the arrays that are given: a container is followed by its layout."""
    names = []
    for output in outputs:
        names += [output.name, containers.layout_name(output.name)] if _is_container(output) else [output.name]
    return names


def _is_container(output: Any) -> bool:
    return output.type.WhichOneof("value") in ("sequence_type", "map_type", "optional_type")


def _tensor(value: Any) -> Any:
    """Some implementations give Python's own numbers where a scalar is meant."""
    return np.asarray(value) if isinstance(value, (bool, int, float)) else value
