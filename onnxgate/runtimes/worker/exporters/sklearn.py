"""scikit-learn: export of a fitted estimator or pipeline with skl2onnx."""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict

from . import estimators
from .source_result import SourceResult

Wire = Dict[str, Any]

PACKAGES = ("scikit-learn", "skl2onnx", "onnx", "numpy")


def answer(job: Wire, returned: Any, result: Wire, phase: Callable[[str], None]) -> None:
    """Export what the callable returned and run it on the cases, into `result`. Raises `SourceError`."""
    estimators.export_estimator(job, returned, result, phase, _convert_pipeline)


def _convert_pipeline(job: Wire, given: SourceResult, rows: estimators.SampleRows) -> Any:
    """Convert a pipeline; estimators of XGBoost or LightGBM may be in it if the source has imported these."""
    used = [name for name in estimators.BOOSTED_ESTIMATORS if name in sys.modules]
    for name in used:
        estimators.register_boosted(name)
    return estimators.convert_with_skl2onnx(job, given, rows)
