"""LightGBM: export of a fitted estimator with onnxmltools through skl2onnx."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict

from . import estimators

PACKAGES = ("lightgbm", "scikit-learn", "onnxmltools", "skl2onnx", "onnx", "numpy")


def answer(job: Dict[str, Any], returned: Any, result: Dict[str, Any], phase: Callable[[str], None]) -> None:
    """Export what the callable returned and run it on the cases, into `result`. Raises `SourceError`."""
    estimators.export_estimator(job, returned, result, phase, partial(estimators.convert_boosted, "lightgbm"))
