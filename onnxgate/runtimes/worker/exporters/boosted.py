"""XGBoost and LightGBM: onnxmltools' converters of trees, which skl2onnx calls."""

from __future__ import annotations

import importlib
from typing import Any, Dict

from . import estimators
from .returned import Returned, kind
from .source import SourceError, split

Wire = Dict[str, Any]

CONVERTERS = {
    "xgboost": ("onnxmltools.convert.xgboost.operator_converters.XGBoost", "convert_xgboost"),
    "lightgbm": ("onnxmltools.convert.lightgbm.operator_converters.LightGbm", "convert_lightgbm"),
}
ESTIMATORS = {
    "xgboost": ("XGBClassifier", "XGBRFClassifier", "XGBRegressor", "XGBRFRegressor"),
    "lightgbm": ("LGBMClassifier", "LGBMRegressor"),
}


def register(framework: str) -> None:
    """Have skl2onnx know the estimators of a framework. Source: the documentation of skl2onnx, "Using converters from
    other libraries"."""
    from skl2onnx import update_registered_converter
    from skl2onnx.common import shape_calculator

    module, name = CONVERTERS[framework]
    convert = getattr(importlib.import_module(module), name)
    for name in ESTIMATORS[framework]:
        classifies = name.endswith("Classifier")
        kind = "classifier" if classifies else "regressor"
        options: Wire = {"nocl": [True, False], "zipmap": [True, False, "columns"], "raw_scores": [True, False]}
        update_registered_converter(
            getattr(importlib.import_module(framework), name),
            framework + name,
            getattr(shape_calculator, "calculate_linear_{}_output_shapes".format(kind)),
            convert,
            options=options if classifies else {"split": None},
            overwrite=True,
        )


def convert(framework: str, job: Wire, given: Returned, rows: estimators.Rows) -> Any:
    """An estimator with the interface of scikit-learn. Raises `SourceError` for a booster of the framework's own."""
    if not hasattr(given.model, "get_params"):
        text = "`{}` returned {} as the model; expected an estimator with the interface of scikit-learn, as `{}`"
        raise SourceError(text.format(split(job["source"])[1], kind(given.model), ESTIMATORS[framework][-1]))
    register(framework)
    return estimators.with_skl2onnx(job, given, rows, trees=True)
