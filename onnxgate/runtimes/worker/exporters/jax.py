"""JAX: export of a function with the shapes of its arguments, by jax2onnx."""

from __future__ import annotations

import inspect
import os
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple, Union

from . import export_result, numpy_eager, opsets
from .source import SourceError, folders_of, split_source
from .source_errors import describe_error
from .source_result import SourceResult, check_name_count, describe_value, read_source_result

Phase = Callable[[str], None]
Wire = Dict[str, Any]
Shape = Tuple[Union[int, str], ...]

PACKAGES = ("jax", "jaxlib", "flax", "equinox", "jax2onnx", "onnx", "onnx-ir", "numpy")
MAPPING_KEYS = ("args", "input_names", "output_names", "dynamic_shapes")
EXPECTED_RETURN = "`(function, args)` with arrays or `jax.ShapeDtypeStruct`s, or a mapping with `model` and `args`"


def answer(job: Wire, returned: Any, result: Wire, phase: Phase) -> None:
    """Export what the callable returned and run it on the cases, into `result`. Raises `SourceError`."""
    import jax

    given = _check_result(read_source_result(returned, job["source"], EXPECTED_RETURN, MAPPING_KEYS), job["source"])
    if job["export"]:
        jax.clear_caches()  # functions that the source has called would be exported with their cached traces
        _export(job, given, _argument_shapes(given, job["source"]), result, phase)
        jax.clear_caches()  # functions traced for the export cannot be run. Source: jax2onnx 0.17.1
    _run_source(job, given, result, phase)


def _check_result(given: SourceResult, source: str) -> SourceResult:
    name = split_source(source)[1]
    if not callable(given.model):
        text = "`{}` returned {} as the model; expected a function of JAX arrays"
        raise SourceError(text.format(name, describe_value(given.model)))
    args = given.args if isinstance(given.args, (tuple, list)) else (given.args,)
    odd = next((arg for arg in args if not hasattr(arg, "shape") or not hasattr(arg, "dtype")), None)
    if odd is not None or not args or args == (None,):
        text = "`{}` returned {} among `args`; expected arrays or `jax.ShapeDtypeStruct`s"
        raise SourceError(text.format(name, describe_value(odd)))
    check_name_count(len(args), given.input_names, "input_names", source)
    return given._replace(args=tuple(args))


def _argument_shapes(given: SourceResult, source: str) -> List[Shape]:
    """Return the shape of each argument, with names for the axes that are requested to be dynamic."""
    named = _dynamic_axes(given, source)
    return [
        tuple(axes.get(axis, size if isinstance(size, int) else str(size)) for axis, size in enumerate(arg.shape))
        for arg, axes in zip(given.args, named)  # noqa: B905 - new in Python 3.10
    ]


def _dynamic_axes(given: SourceResult, source: str) -> List[Mapping[int, str]]:
    """Return axis -> name for each argument; the source gives them by position, or by name of parameter or input."""
    asked = given.dynamic_shapes
    if asked is None:
        return [{} for _ in given.args]
    if isinstance(asked, Mapping):
        names = list(given.input_names or _parameter_names(given))
        unknown = [str(key) for key in asked if key not in names]
        if unknown:
            text = "`{}` names `{}` in `dynamic_shapes`; its inputs are {}"
            raise SourceError(
                text.format(split_source(source)[1], unknown[0], ", ".join("`%s`" % name for name in names))
            )
        asked = [asked.get(name) for name in names]
    if len(asked) != len(given.args) or not all(each is None or isinstance(each, Mapping) for each in asked):
        text = "`{}` returned `dynamic_shapes` that do not fit; expected {} mappings of axis to name"
        raise SourceError(text.format(split_source(source)[1], len(given.args)))
    return [dict(each or {}) for each in asked]


def _parameter_names(given: SourceResult) -> List[str]:
    try:
        found = [parameter.name for parameter in inspect.signature(given.model).parameters.values()]
    except (TypeError, ValueError):
        found = []
    return found[: len(given.args)] + ["input {}".format(i) for i in range(len(found), len(given.args))]


def _export(job: Wire, given: SourceResult, shapes: Sequence[Shape], result: Wire, phase: Phase) -> None:
    import jax
    import jax2onnx
    import numpy
    import onnx

    phase("export")
    path = os.path.join(job["output"], "model.onnx")
    specs = [jax.ShapeDtypeStruct(shape, arg.dtype) for shape, arg in zip(shapes, given.args)]  # noqa: B905
    double = any(numpy.dtype(arg.dtype) == numpy.float64 for arg in given.args)
    result["told"] = _export_details(given, shapes)

    def convert(job: Wire) -> Any:
        options: Wire = {} if job["opset"] is None else {"opset": job["opset"]}
        names = {"input_names": given.input_names, "output_names": given.output_names}
        return jax2onnx.to_onnx(given.model, specs, enable_double_precision=double, **names, **options)

    try:
        model = opsets.convert_within_limits(job, convert)
        onnx.save(model, path)
        result["input_names"] = export_result.finish_model(path, job)
        result["model"] = path
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the converter's error is the result
        result["failure"] = describe_error(error, folders_of(job))


def _export_details(given: SourceResult, shapes: Sequence[Shape]) -> Wire:
    return {
        "exporter": "jax2onnx",
        "inputs": list(given.input_names or ()),
        "outputs": list(given.output_names or ()),
        "axes": [
            {"input": number, "axis": axis, "name": size}
            for number, shape in enumerate(shapes)
            for axis, size in enumerate(shape)
            if isinstance(size, str)
        ],
    }


def _run_source(job: Wire, given: SourceResult, result: Wire, phase: Phase) -> None:
    import numpy

    has_values = all(hasattr(arg, "__array__") for arg in given.args)
    sample = [numpy.asarray(arg) for arg in given.args] if has_values else None
    dtypes = [numpy.dtype(arg.dtype) for arg in given.args]
    names = result["input_names"] or list(given.input_names or ())
    call = numpy_eager.ArrayCall(lambda values: _compute_outputs(given.model, values), names, dtypes, sample)
    numpy_eager.run_cases(job, call, result, phase, lambda values: _compute_in_float64(given.model, values))


def _compute_outputs(function: Any, values: Sequence[Any]) -> List[Any]:
    """Return the arrays of the function's result, flattened in the exporter's order."""
    import jax
    import numpy

    return [numpy.asarray(leaf) for leaf in jax.tree_util.tree_leaves(function(*map(jax.numpy.asarray, values)))]


def _compute_in_float64(function: Any, values: Sequence[Any]) -> List[Any]:
    """Compute in float64 if possible: single-precision constants of the function are widened, not recomputed."""
    import jax

    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        return _compute_outputs(function, values)
    finally:
        jax.config.update("jax_enable_x64", before)
