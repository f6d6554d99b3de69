"""JAX: export of a function with jax2onnx, and eager runs."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any, List, Mapping, Sequence, Tuple, Union

import jax
import numpy as np

from . import eager
from .source import (
    Phase,
    SourceError,
    SourceResult,
    Wire,
    check_name_count,
    describe_value,
    pluralize,
    read_source_result,
    split_source,
    unexpected_return,
)

MAPPING_KEYS = ("args", "input_names", "output_names", "dynamic_shapes")
EXPECTED_RETURN = (
    "`(function, args)`, where `args` are arrays or `jax.ShapeDtypeStruct`s, or a mapping with `model` and `args`"
)


def export(job: Wire, returned: Any, result: Wire, phase: Phase) -> None:
    """Export the function that the callable returned, run it on the cases, and store all results in `result`.

    Raises:
        SourceError: the callable returned an unexpected value.
    """
    recipe = _check_result(read_source_result(returned, job["source"], EXPECTED_RETURN, MAPPING_KEYS), job["source"])
    if job["export"]:
        jax.clear_caches()  # otherwise, JAX would export cached traces of functions that the source has called
        _export(job, recipe, result, phase)
        jax.clear_caches()  # functions traced for the export cannot run. Source: jax2onnx 0.17.1
    has_values = all(hasattr(arg, "__array__") for arg in recipe.args)
    sample = [np.asarray(arg) for arg in recipe.args] if has_values else None
    dtypes = [np.dtype(arg.dtype) for arg in recipe.args]
    names = result["input_names"] or list(recipe.input_names or ())
    call = eager.ArrayCall(lambda values: _compute_outputs(recipe.model, values), names, dtypes, sample)
    eager.run_cases(job, call, result, phase, lambda values: _compute_in_float64(recipe.model, values))


def _check_result(recipe: SourceResult, source: str) -> SourceResult:
    if not callable(recipe.model):
        model = describe_value(recipe.model)
        raise unexpected_return(source, f"{model} as the model; expected a function that takes JAX arrays")
    args = recipe.args if isinstance(recipe.args, (tuple, list)) else (recipe.args,)
    odd = [arg for arg in args if not hasattr(arg, "shape") or not hasattr(arg, "dtype")]
    if odd or not args:
        problem = f"{describe_value(odd[0] if odd else None)} among `args`; expected arrays or `jax.ShapeDtypeStruct`s"
        raise unexpected_return(source, problem)
    check_name_count(len(args), recipe.input_names, "input_names", source)
    return recipe._replace(args=tuple(args))


def _dynamic_axes(recipe: SourceResult, source: str) -> List[Mapping[int, str]]:
    """Return the axis names of each argument, by axis.

    The keys of `dynamic_shapes` may be positions, parameter names or input names.
    """
    requested = recipe.dynamic_shapes
    if requested is None:
        return [{} for _ in recipe.args]
    if isinstance(requested, Mapping):
        names = list(recipe.input_names or ())
        if not names:
            with contextlib.suppress(TypeError, ValueError):
                names = list(inspect.signature(recipe.model).parameters)[: len(recipe.args)]
            names += [f"input {number}" for number in range(len(names), len(recipe.args))]
        unknown = [str(key) for key in requested if key not in names]
        if unknown:
            inputs = ", ".join(f"`{name}`" for name in names)
            name = split_source(source)[1]
            raise SourceError(
                f"`{name}` returned `dynamic_shapes` for `{unknown[0]}`, which is not an input; the inputs are {inputs}"
            )
        requested = [requested.get(name) for name in names]
    count = len(recipe.args)
    if len(requested) != count or not all(axes is None or isinstance(axes, Mapping) for axes in requested):
        expected = f"{pluralize(count, 'mapping')} from axes to names"
        raise unexpected_return(source, f"invalid `dynamic_shapes`; expected {expected}")
    return [dict(axes or {}) for axes in requested]


def _export(job: Wire, recipe: SourceResult, result: Wire, phase: Phase) -> None:
    import jax2onnx

    from . import model_file

    shapes: List[Tuple[Union[int, str], ...]] = [
        tuple(axes.get(axis, size if isinstance(size, int) else str(size)) for axis, size in enumerate(arg.shape))
        for arg, axes in zip(recipe.args, _dynamic_axes(recipe, job["source"]))  # noqa: B905 - new in Python 3.10
    ]
    specs = [jax.ShapeDtypeStruct(shape, arg.dtype) for shape, arg in zip(shapes, recipe.args)]  # noqa: B905
    double = any(np.dtype(arg.dtype) == np.float64 for arg in recipe.args)
    result["details"] = {
        "exporter": "jax2onnx",
        "inputs": list(recipe.input_names or ()),
        "outputs": list(recipe.output_names or ()),
        "axes": [
            {"input": number, "axis": axis, "name": size}
            for number, shape in enumerate(shapes)
            for axis, size in enumerate(shape)
            if isinstance(size, str)
        ],
    }

    def convert(job: Wire) -> Any:
        options: Wire = {} if job["opset"] is None else {"opset": job["opset"]}
        names = {"input_names": recipe.input_names, "output_names": recipe.output_names}
        return jax2onnx.to_onnx(recipe.model, specs, enable_double_precision=double, **names, **options)

    model_file.export_model(job, result, phase, convert)


def _compute_outputs(function: Any, values: Sequence[Any]) -> List[Any]:
    """Return the arrays in the function's result, flattened in the exporter's order."""
    return [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(function(*map(jax.numpy.asarray, values)))]


def _compute_in_float64(function: Any, values: Sequence[Any]) -> List[Any]:
    """Compute in float64; single-precision constants in the function are converted, not recomputed."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        return _compute_outputs(function, values)
    finally:
        jax.config.update("jax_enable_x64", before)
