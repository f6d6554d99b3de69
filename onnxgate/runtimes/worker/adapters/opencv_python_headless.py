"""Adapter of OpenCV's DNN module on the CPU."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List

import cv2
import numpy as np

from .. import case_runs, io_names, versions

Phase = Callable[[str], None]

ERROR_PREFIX = re.compile(
    r"OpenCV\([\d.]+\) \S+?:\d+: error: \(-?\d+:[^)]*\) (?:in function '\w+'\s*)?|^> ", re.MULTILINE
)
"""Prefix with the place in OpenCV's code."""

cv2.setNumThreads(1)


def probe(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Return versions, after passing an array through the engine."""
    cv2.add(np.ones(1, np.float32), np.ones(1, np.float32))
    return versions.probe_versions(job, phase)


def load(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Read the model."""
    _read_net(job, phase)
    return case_runs.load_result()


def run(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Read the model for each case separately: a net caches values derived from the sizes of its first input."""
    _read_net(job, phase)
    names = io_names.read_io_names(job["model"]).outputs

    def compute(feeds: Dict[str, Any]) -> List[Any]:
        with case_runs.strip_from_errors(ERROR_PREFIX):
            net = cv2.dnn.readNetFromONNX(job["model"])
            for name, value in feeds.items():
                net.setInput(_to_input(name, value), name)
            return [np.array(value) for value in net.forward(names)]

    return case_runs.run_cases(job, phase, names, compute)


def _read_net(job: Dict[str, Any], phase: Phase) -> Any:
    phase("load")
    with case_runs.strip_from_errors(ERROR_PREFIX):
        return cv2.dnn.readNetFromONNX(job["model"])


def _to_input(name: str, value: Any) -> Any:
    if value.dtype.kind in "OUc":
        raise TypeError("OpenCV takes no tensor of the type of input `%s`" % name)
    return np.asarray(value, order="C")
