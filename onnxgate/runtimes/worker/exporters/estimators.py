"""scikit-learn, XGBoost and LightGBM: export of fitted estimators with skl2onnx, and eager runs of their methods."""

from __future__ import annotations

import importlib
import sys
from functools import partial
from typing import Any, Dict, List, NamedTuple, Sequence, Union

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype

from . import eager, model_file
from .source import Phase, SourceResult, Wire, check_name_count, describe_value, read_source_result, unexpected_return

MAPPING_KEYS = ("args", "input_names", "output_names", "options")
EXPECTED_RETURN = "`(estimator, X)` with a fitted estimator and sample rows `X`, or a mapping with `model` and `args`"
TREE_OPSET = 3
"""Version of `ai.onnx.ml` for models with trees.

Source: skl2onnx 1.20 and onnxmltools 1.16 require a version for models with trees, and reject 5.
"""

SCORE_COLUMNS = {
    **dict.fromkeys(
        ("LogisticRegression", "LinearSVC", "SGDClassifier", "Perceptron", "GradientBoostingClassifier"), "-+"
    ),
    **dict.fromkeys(("SVC", "NuSVC"), "+-"),
    "RidgeClassifier": "+",
}
"""Columns of the score output for two classes, by estimator: `+` is the decision function, `-` its negative. The
shape that the model declares is ambiguous.

Source: measured with skl2onnx 1.20.
"""

BOOSTED_CONVERTERS = {
    "xgboost": ("onnxmltools.convert.xgboost.operator_converters.XGBoost", "convert_xgboost"),
    "lightgbm": ("onnxmltools.convert.lightgbm.operator_converters.LightGbm", "convert_lightgbm"),
}
BOOSTED_ESTIMATORS = {
    "xgboost": ("XGBClassifier", "XGBRFClassifier", "XGBRegressor", "XGBRFRegressor"),
    "lightgbm": ("LGBMClassifier", "LGBMRegressor"),
}


class SampleRows(NamedTuple):
    """Sample rows: one matrix, or the columns of a table."""

    columns: Sequence[str]  # empty for a matrix
    values: List[Any]

    def names(self, recipe: SourceResult) -> List[str]:
        """Return the names of the graph's inputs."""
        return list(recipe.input_names or self.columns or ("X",))

    def joined(self, values: Sequence[Any]) -> Any:
        """Convert the arrays of the graph's inputs to the estimator's input."""
        if not self.columns:
            return values[0]
        import pandas

        return pandas.DataFrame({name: value.reshape(-1) for name, value in zip(self.columns, values)})  # noqa: B905


def export_sklearn(job: Wire, returned: Any, result: Wire, phase: Phase, *, boosted: str = "") -> None:
    """Export the model that the callable returned, run it on the cases, and store all results in `result`.

    Raises:
        SourceError: the callable returned an unexpected value.
    """
    recipe = read_source_result(returned, job["source"], EXPECTED_RETURN, MAPPING_KEYS)
    rows = _read_sample_rows(recipe, job["source"])
    outputs: List[str] = []  # names from the converter, which determine the estimator's methods

    def convert(job: Wire) -> Any:
        if boosted and not hasattr(recipe.model, "get_params"):  # the framework's own booster
            expected = f"an estimator with the scikit-learn interface, such as `{BOOSTED_ESTIMATORS[boosted][-1]}`"
            raise unexpected_return(job["source"], f"{describe_value(recipe.model)} as the model; expected {expected}")
        # A pipeline may contain estimators of any framework that the source imported.
        for framework in (boosted,) if boosted else [name for name in BOOSTED_ESTIMATORS if name in sys.modules]:
            _register_boosted(framework)
        model = _convert_with_skl2onnx(job, recipe, rows, trees=bool(boosted))
        outputs[:] = [output.name for output in model.graph.output]
        return model

    model = model_file.export_model(job, result, phase, convert, recipe.output_names)
    if model is None:
        return
    call = _eager_call(recipe, rows, model.graph, outputs)
    if isinstance(call, str):
        result["eager_reason"] = call
    else:
        eager.run_cases(job, call, result, phase)


export_xgboost = partial(export_sklearn, boosted="xgboost")
export_lightgbm = partial(export_sklearn, boosted="lightgbm")


def _read_sample_rows(recipe: SourceResult, source: str) -> SampleRows:
    """Return the sample rows as two-dimensional arrays.

    Raises:
        SourceError: the rows have an unexpected type or shape.
    """
    value = recipe.args
    if isinstance(value, tuple) and len(value) == 1:
        value = value[0]
    if type(value).__name__ == "DataFrame":
        columns = [str(name) for name in value.columns]
        rows = SampleRows(columns, [np.asarray(value[name]).reshape(-1, 1) for name in value.columns])
    elif isinstance(value, np.ndarray) and value.ndim == 2:
        rows = SampleRows((), [value])
    else:
        expected = "a 2-D NumPy array or a pandas DataFrame"
        raise unexpected_return(source, f"{describe_value(value)} as sample rows; expected {expected}")
    check_name_count(len(rows.values), recipe.input_names, "input_names", source)
    return rows


def _convert_with_skl2onnx(job: Wire, recipe: SourceResult, rows: SampleRows, *, trees: bool) -> Any:
    """Convert the model with skl2onnx, without `ZipMap`, so that probabilities are a matrix."""
    options = dict(recipe.options or {})
    try:
        return _convert_with_fallback(job, recipe, rows, {"zipmap": False, **options}, trees)
    except NameError as error:  # raised if the estimator does not support the option
        if "'zipmap'" not in str(error) or "zipmap" in options:
            raise
        return _convert_with_fallback(job, recipe, rows, options, trees)


def _convert_with_fallback(job: Wire, recipe: SourceResult, rows: SampleRows, options: Wire, trees: bool) -> Any:
    try:
        return _convert(job, recipe, rows, options, TREE_OPSET if trees else job.get("opset_ml"))
    except RuntimeError as error:
        if "ai.onnx.ml" not in str(error) or trees or job.get("opset_ml") is not None:
            raise
        return _convert(job, recipe, rows, options, TREE_OPSET)


def _convert(job: Wire, recipe: SourceResult, rows: SampleRows, options: Wire, opset_ml: Any) -> Any:
    import skl2onnx
    from skl2onnx.common import data_types

    def input_type(values: Any) -> Any:
        is_text = values.dtype.kind in "OU"
        kind = data_types.StringTensorType if is_text else type(data_types.guess_data_type(values[:1])[0][1])
        return kind([None, values.shape[1]])

    versions: Dict[str, int] = {} if job["opset"] is None else {"": job["opset"]}
    if opset_ml is not None:
        versions["ai.onnx.ml"] = job.get("opset_ml") or opset_ml
    types = list(zip(rows.names(recipe), map(input_type, rows.values)))  # noqa: B905 - new in Python 3.10
    return skl2onnx.to_onnx(recipe.model, initial_types=types, target_opset=versions or None, options=options)


def _register_boosted(framework: str) -> None:
    """Register converters for the estimators of a framework.

    Source: the documentation of skl2onnx, "Using converters from other libraries".
    """
    from skl2onnx import update_registered_converter
    from skl2onnx.common import shape_calculator

    module, name = BOOSTED_CONVERTERS[framework]
    convert = getattr(importlib.import_module(module), name)
    for name in BOOSTED_ESTIMATORS[framework]:
        classifies = name.endswith("Classifier")
        kind = "classifier" if classifies else "regressor"
        options: Wire = {"nocl": [True, False], "zipmap": [True, False, "columns"], "raw_scores": [True, False]}
        update_registered_converter(
            getattr(importlib.import_module(framework), name),
            framework + name,
            getattr(shape_calculator, f"calculate_linear_{kind}_output_shapes"),
            convert,
            options=options if classifies else {"split": None},
            overwrite=True,
        )


def _eager_call(
    recipe: SourceResult, rows: SampleRows, graph: Any, outputs: Sequence[str]
) -> Union[eager.ArrayCall, str]:
    """Return a call that computes the outputs of the graph, or the reason why this is not possible."""
    raw = _uses_raw_scores(recipe.options or {})
    methods = [find_method(name, recipe.model, raw) for name in outputs]
    if None in methods:
        return f"it is unknown which method of the estimator computes output `{outputs[methods.index(None)]}`"
    last_step = recipe.model  # the last step of a pipeline computes its outputs
    while type(last_step).__name__ == "Pipeline":
        last_step = last_step.steps[-1][1]
    name = type(last_step).__name__
    for method, output in zip(methods, graph.output):  # noqa: B905 - new in Python 3.10
        if not output.type.HasField("tensor_type"):
            return f"output `{output.name}` is not a tensor"
        scores = method == "decision_function" and len(getattr(recipe.model, "classes_", ())) == 2
        if scores and (name not in SCORE_COLUMNS or (raw and SCORE_COLUMNS[name] != "-+")):
            return f"it is unknown which scores of `{name}` the columns of output `{output.name}` contain"

    def function(values: List[Any]) -> List[Any]:
        joined = rows.joined(values)
        computed = [getattr(recipe.model, method)(joined) for method in methods]
        signs = SCORE_COLUMNS.get(name, "")
        return [reshape_result(value, like, signs) for value, like in zip(computed, graph.output)]  # noqa: B905

    return eager.ArrayCall(function, rows.names(recipe), [value.dtype for value in rows.values], rows.values)


def _uses_raw_scores(options: Any) -> bool:
    """Return whether the options request scores instead of probabilities for any estimator."""
    if not isinstance(options, dict):
        return False
    return bool(options.get("raw_scores")) or any(_uses_raw_scores(value) for value in options.values())


def find_method(output: str, estimator: Any, raw: bool) -> Any:
    """Return the method that computes an output, derived from skl2onnx's output names; None if unknown."""
    candidates = {
        "label": ["predict"],
        "probabilities": ["decision_function"] if raw else ["predict_proba", "decision_function"],
        "scores": ["transform", "decision_function"],
        "variable": ["predict", "transform"],
        "GPmean": ["predict"],
    }.get(output, [])
    return next((name for name in candidates if hasattr(estimator, name)), None)


def reshape_result(value: Any, output: Any, signs: str = "") -> Any:
    """Convert a result to the type and shape of the graph's output."""
    array = np.asarray(value)
    sizes = [dim.dim_value for dim in output.type.tensor_type.shape.dim]
    if array.ndim == 1 and len(sizes) == 2:
        columns = signs if sizes[1] == 2 else "+"
        array = np.stack([-array if sign == "-" else array for sign in columns], axis=1)
    dtype = tensor_dtype_to_np_dtype(output.type.tensor_type.elem_type)
    return array if dtype.kind == "O" else array.astype(dtype)
