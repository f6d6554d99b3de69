"""Adapter of OpenCV's DNN module on the CPU."""

from __future__ import annotations

import re
from typing import Any, Dict, List

import cv2
import numpy as np

from .. import engine_results
from ..engine_results import Job, Phase

ERROR_PREFIX = re.compile(
    r"OpenCV\([\d.]+\) \S+?:\d+: error: \(-?\d+:[^)]*\) (?:in function '\w+'\s*)?|^> ", re.MULTILINE
)
"""Prefix of error messages: the location in OpenCV's source code."""

cv2.setNumThreads(1)


def probe(job: Job, phase: Phase) -> Dict[str, Any]:
    """Test the engine with an array, and return the installed versions."""
    cv2.add(np.ones(1, np.float32), np.ones(1, np.float32))
    return engine_results.probe_result(job)


def load(job: Job, phase: Phase) -> Dict[str, Any]:
    """Read the model."""
    _read_net(job, phase)
    return engine_results.load_result()


def run(job: Job, phase: Phase) -> Dict[str, Any]:
    """Run every case on a newly read model, since a net caches values that depend on the sizes of its first case."""
    _read_net(job, phase)
    names = engine_results.read_output_names(job["model"])

    def compute(feeds: Dict[str, Any]) -> List[Any]:
        with engine_results.strip_from_errors(ERROR_PREFIX):
            net = cv2.dnn.readNetFromONNX(job["model"])
            for name, value in feeds.items():
                if value.dtype.kind in "OUc":
                    raise TypeError("OpenCV does not support the type of input `%s`" % name)
                net.setInput(value, name)
            return [np.array(value) for value in net.forward(names)]

    return engine_results.run_cases(job, phase, names, compute)


def _read_net(job: Job, phase: Phase) -> Any:
    phase("load")
    with engine_results.strip_from_errors(ERROR_PREFIX):
        return cv2.dnn.readNetFromONNX(job["model"])
