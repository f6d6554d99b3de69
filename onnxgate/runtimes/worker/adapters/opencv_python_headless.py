"""OpenCV's DNN module on the CPU."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List

import cv2
import numpy as np

from .. import answers, graphs, versions

Phase = Callable[[str], None]

NOISE = re.compile(r"OpenCV\([\d.]+\) \S+?:\d+: error: \(-?\d+:[^)]*\) (?:in function '\w+'\s*)?|^> ", re.MULTILINE)
"""Where in OpenCV it is said."""

cv2.setNumThreads(1)


def probe(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Versions, once an array has been through the engine."""
    cv2.add(np.ones(1, np.float32), np.ones(1, np.float32))
    return versions.probe(job, phase)


def load(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Reads the model."""
    _net(job, phase)
    return answers.loaded()


def run(job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Reads the model, anew for each case: a net keeps what it derived from the sizes of its first input."""
    _net(job, phase)
    names = graphs.read(job["model"]).outputs

    def compute(feeds: Dict[str, Any]) -> List[Any]:
        with answers.without(NOISE):
            net = cv2.dnn.readNetFromONNX(job["model"])
            for name, value in feeds.items():
                net.setInput(_array(name, value), name)
            return [np.array(value) for value in net.forward(names)]

    return answers.ran(job, phase, names, compute)


def _net(job: Dict[str, Any], phase: Phase) -> Any:
    phase("load")
    with answers.without(NOISE):
        return cv2.dnn.readNetFromONNX(job["model"])


def _array(name: str, value: Any) -> Any:
    if value.dtype.kind in "OUc":
        raise TypeError("OpenCV takes no tensor of the type of input `%s`" % name)
    return np.asarray(value, order="C")
