"""scikit-learn: a fitted estimator or pipeline, exported with skl2onnx."""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict

from . import boosted, estimators
from .returned import Returned

Wire = Dict[str, Any]

PACKAGES = ("scikit-learn", "skl2onnx", "onnx", "numpy")


def answer(job: Wire, returned: Any, result: Wire, phase: Callable[[str], None]) -> None:
    """Export what the callable returned and run it on the cases, into `result`. Raises `SourceError`."""
    estimators.answer(job, returned, result, phase, _convert)


def _convert(job: Wire, given: Returned, rows: estimators.Rows) -> Any:
    """A pipeline may have an estimator of XGBoost or LightGBM in it: whoever made it has imported that."""
    used = [name for name in boosted.ESTIMATORS if name in sys.modules]
    for name in used:
        boosted.register(name)
    return estimators.with_skl2onnx(job, given, rows)
