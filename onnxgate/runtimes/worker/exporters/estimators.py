"""Fitted estimators with scikit-learn's interface: export with skl2onnx, and execution of their own methods."""

from __future__ import annotations

import importlib
import os
from typing import Any, Callable, Dict, List, NamedTuple, Sequence

from . import export_result, numpy_eager, opsets
from .source import SourceError, folders_of, split_source
from .source_errors import describe_error
from .source_result import SourceResult, check_name_count, describe_value, read_source_result

Phase = Callable[[str], None]
Wire = Dict[str, Any]
Converter = Callable[[Wire, SourceResult, "SampleRows"], Any]

MAPPING_KEYS = ("args", "input_names", "output_names", "options")
EXPECTED_RETURN = "`(estimator, X)` with a fitted estimator and sample rows, or a mapping with `model` and `args`"
TREE_OPSET = 3
"""Version of `ai.onnx.ml` in which converters write trees. Source: skl2onnx 1.20 and onnxmltools 1.16 require a version
if the model contains trees, and refuse 5."""

SCORE_COLUMNS = {
    **dict.fromkeys(
        ("LogisticRegression", "LinearSVC", "SGDClassifier", "Perceptron", "GradientBoostingClassifier"), "-+"
    ),
    **dict.fromkeys(("SVC", "NuSVC"), "+-"),
    "RidgeClassifier": "+",
}
"""Columns of the score for two classes, by sign. Source: measured with skl2onnx 1.20; each converter has its own
layout, and the declared shape does not determine it."""


class SampleRows(NamedTuple):
    """Sample rows: one matrix, or the columns of a table."""

    columns: Sequence[str]  # () for a matrix
    values: List[Any]

    def names(self, given: SourceResult) -> List[str]:
        """Return the names of the graph's inputs."""
        return list(given.input_names or self.columns or ("X",))

    def joined(self, values: Sequence[Any]) -> Any:
        """Return the arrays of the graph's inputs in the form that the estimator accepts."""
        if not self.columns:
            return values[0]
        import pandas

        return pandas.DataFrame({name: value.reshape(-1) for name, value in zip(self.columns, values)})  # noqa: B905


def export_estimator(job: Wire, value: Any, result: Wire, phase: Phase, convert: Converter) -> None:
    """Convert what the callable returned and run it on the cases, into `result`. Raises `SourceError`."""
    given = read_source_result(value, job["source"], EXPECTED_RETURN, MAPPING_KEYS)
    rows = read_sample_rows(given, job["source"])
    phase("export")
    try:
        model = opsets.convert_within_limits(job, lambda job: convert(job, given, rows))
        outputs = [each.name for each in model.graph.output]
        check_name_count(len(outputs), given.output_names, "output_names", job["source"])
        if job["export"]:
            _write_model(job, model, given, result)
    except SourceError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the converter's error is the result
        result["failure"] = describe_error(error, folders_of(job))
        return
    _run_estimator(job, given, rows, model, outputs, result, phase)


def read_sample_rows(given: SourceResult, source: str) -> SampleRows:
    """Return the sample rows as arrays of two dimensions. Raises `SourceError` if they have another form."""
    import numpy

    value = given.args
    if isinstance(value, tuple) and len(value) == 1:
        value = value[0]
    if type(value).__name__ == "DataFrame":
        columns = [str(name) for name in value.columns]
        rows = SampleRows(columns, [numpy.asarray(value[name]).reshape(-1, 1) for name in value.columns])
    elif isinstance(value, numpy.ndarray) and value.ndim == 2:
        rows = SampleRows((), [value])
    else:
        text = "`{}` returned {} as sample rows; expected a numpy array of two dimensions or a pandas DataFrame"
        raise SourceError(text.format(split_source(source)[1], describe_value(value)))
    check_name_count(len(rows.values), given.input_names, "input_names", source)
    return rows


def convert_with_skl2onnx(job: Wire, given: SourceResult, rows: SampleRows, *, trees: bool = False) -> Any:
    """Convert the model with skl2onnx, without `ZipMap`, so that probabilities are a matrix."""
    options = dict(given.options or {})
    try:
        return _convert_with_fallback(job, given, rows, {"zipmap": False, **options}, trees)
    except NameError as error:  # raised if the estimator does not support the option
        if "'zipmap'" not in str(error) or "zipmap" in options:
            raise
        return _convert_with_fallback(job, given, rows, options, trees)


def _convert_with_fallback(job: Wire, given: SourceResult, rows: SampleRows, options: Wire, trees: bool) -> Any:
    try:
        return _convert(job, given, rows, options, TREE_OPSET if trees else job.get("opset_ml"))
    except RuntimeError as error:
        if "ai.onnx.ml" not in str(error) or trees or job.get("opset_ml") is not None:
            raise
        return _convert(job, given, rows, options, TREE_OPSET)


def _convert(job: Wire, given: SourceResult, rows: SampleRows, options: Wire, opset_ml: Any) -> Any:
    import skl2onnx

    versions: Dict[str, int] = {} if job["opset"] is None else {"": job["opset"]}
    if opset_ml is not None:
        versions["ai.onnx.ml"] = job.get("opset_ml") or opset_ml
    types = list(zip(rows.names(given), map(_input_type, rows.values)))  # noqa: B905 - new in Python 3.10
    return skl2onnx.to_onnx(given.model, initial_types=types, target_opset=versions or None, options=options)


def _input_type(values: Any) -> Any:
    from skl2onnx.common import data_types

    if values.dtype.kind in "OU":
        return data_types.StringTensorType([None, values.shape[1]])
    return type(data_types.guess_data_type(values[:1])[0][1])([None, values.shape[1]])


def _write_model(job: Wire, model: Any, given: SourceResult, result: Wire) -> None:
    import onnx

    path = os.path.join(job["output"], "model.onnx")
    if given.output_names:
        export_result.rename_outputs(model.graph, dict(zip([e.name for e in model.graph.output], given.output_names)))  # noqa: B905
    onnx.save(model, path)
    export_result.finish_model(path, job)
    result["model"] = path


def _run_estimator(
    job: Wire, given: SourceResult, rows: SampleRows, model: Any, outputs: Sequence[str], result: Wire, phase: Phase
) -> None:
    raw = _uses_raw_scores(given.options or {})
    methods = [find_method(name, given.model, raw) for name in outputs]
    if None in methods:
        unknown = outputs[methods.index(None)]
        result["eager_reason"] = "nothing is known that the estimator computes as `{}`".format(unknown)
        return
    result["eager_reason"] = _mismatch_reason(given.model, methods, model.graph.output, raw)
    if result["eager_reason"]:
        return
    signs = SCORE_COLUMNS.get(_last_step_name(given.model), "")

    def function(values: List[Any]) -> List[Any]:
        taken = rows.joined(values)
        found = [getattr(given.model, method)(taken) for method in methods]
        return [reshape_result(value, like, signs) for value, like in zip(found, model.graph.output)]  # noqa: B905

    dtypes = [value.dtype for value in rows.values]
    numpy_eager.run_cases(job, numpy_eager.ArrayCall(function, rows.names(given), dtypes, rows.values), result, phase)


def _uses_raw_scores(options: Any) -> bool:
    """Return whether scores are requested instead of probabilities, for all estimators or for some."""
    if not isinstance(options, dict):
        return False
    return bool(options.get("raw_scores")) or any(_uses_raw_scores(value) for value in options.values())


def find_method(output: str, estimator: Any, raw: bool) -> Any:
    """Return the method that computes the output of that name from skl2onnx; None if unknown."""
    candidates = {
        "label": ["predict"],
        "probabilities": ["decision_function"] if raw else ["predict_proba", "decision_function"],
        "scores": ["transform", "decision_function"],
        "variable": ["predict", "transform"],
        "GPmean": ["predict"],
    }.get(output, [])
    return next((name for name in candidates if hasattr(estimator, name)), None)


def _last_step_name(estimator: Any) -> str:
    """Return the class name of the estimator that computes the outputs, the last step of a pipeline."""
    while type(estimator).__name__ == "Pipeline":
        estimator = estimator.steps[-1][1]
    return type(estimator).__name__


def _mismatch_reason(estimator: Any, methods: Sequence[Any], outputs: Sequence[Any], raw: bool) -> str:
    """Return why the estimator's results cannot be compared with the outputs of the graph; "" if they can."""
    last = _last_step_name(estimator)
    for method, output in zip(methods, outputs):  # noqa: B905 - new in Python 3.10
        if not output.type.HasField("tensor_type"):
            return "output `{}` is no tensor, and is not compared with the source".format(output.name)
        scores = method == "decision_function" and len(getattr(estimator, "classes_", ())) == 2
        if scores and (last not in SCORE_COLUMNS or (raw and SCORE_COLUMNS[last] != "-+")):
            return "nothing is known of the columns that `{}` has for a `{}`".format(output.name, last)
    return ""


def reshape_result(value: Any, output: Any, signs: str = "") -> Any:
    """Convert a result to the type and the shape of the graph's output."""
    import numpy
    from onnx.helper import tensor_dtype_to_np_dtype

    array = numpy.asarray(value)
    sizes = [each.dim_value for each in output.type.tensor_type.shape.dim]
    if array.ndim == 1 and len(sizes) == 2:
        columns = signs if sizes[1] == 2 else "+"
        array = numpy.stack([-array if sign == "-" else array for sign in columns], axis=1)
    dtype = tensor_dtype_to_np_dtype(output.type.tensor_type.elem_type)
    return array if dtype.kind == "O" else array.astype(dtype)


BOOSTED_CONVERTERS = {
    "xgboost": ("onnxmltools.convert.xgboost.operator_converters.XGBoost", "convert_xgboost"),
    "lightgbm": ("onnxmltools.convert.lightgbm.operator_converters.LightGbm", "convert_lightgbm"),
}
BOOSTED_ESTIMATORS = {
    "xgboost": ("XGBClassifier", "XGBRFClassifier", "XGBRegressor", "XGBRFRegressor"),
    "lightgbm": ("LGBMClassifier", "LGBMRegressor"),
}


def register_boosted(framework: str) -> None:
    """Register converters for the estimators of a framework. Source: the documentation of skl2onnx, "Using converters
    from other libraries"."""
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
            getattr(shape_calculator, "calculate_linear_{}_output_shapes".format(kind)),
            convert,
            options=options if classifies else {"split": None},
            overwrite=True,
        )


def convert_boosted(framework: str, job: Wire, given: SourceResult, rows: SampleRows) -> Any:
    """Convert an estimator with scikit-learn's interface. Raises `SourceError` for the framework's own booster."""
    if not hasattr(given.model, "get_params"):
        text = "`{}` returned {} as the model; expected an estimator with the interface of scikit-learn, as `{}`"
        raise SourceError(
            text.format(split_source(job["source"])[1], describe_value(given.model), BOOSTED_ESTIMATORS[framework][-1])
        )
    register_boosted(framework)
    return convert_with_skl2onnx(job, given, rows, trees=True)
