"""JAX: a function with the shapes of its arguments, exported with jax2onnx."""

from __future__ import annotations

import inspect
import os
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple, Union

from . import arrays, results
from .failure import describe
from .returned import Returned, kind, need, read
from .source import SourceError, folders_of, split

Phase = Callable[[str], None]
Wire = Dict[str, Any]
Shape = Tuple[Union[int, str], ...]

PACKAGES = ("jax", "jaxlib", "flax", "equinox", "jax2onnx", "onnx", "onnx-ir", "numpy")
KEYS = ("args", "input_names", "output_names", "dynamic_shapes")
EXPECTED = "`(function, args)` with arrays or `jax.ShapeDtypeStruct`s, or a mapping with `model` and `args`"


def answer(job: Wire, returned: Any, result: Wire, phase: Phase) -> None:
    """Export what the callable returned and run it on the cases, into `result`. Raises `SourceError`."""
    import jax

    given = _checked(read(returned, job["source"], EXPECTED, KEYS), job["source"])
    if job["export"]:
        jax.clear_caches()  # what a source has called before would be exported as it was traced then
        _export(job, given, _shapes(given, job["source"]), result, phase)
        jax.clear_caches()  # and what was traced for the export cannot be run. Source: jax2onnx 0.17.1
    _run(job, given, result, phase)


def _checked(given: Returned, source: str) -> Returned:
    name = split(source)[1]
    if not callable(given.model):
        text = "`{}` returned {} as the model; expected a function of JAX arrays"
        raise SourceError(text.format(name, kind(given.model)))
    args = given.args if isinstance(given.args, (tuple, list)) else (given.args,)
    odd = next((each for each in args if not hasattr(each, "shape") or not hasattr(each, "dtype")), None)
    if odd is not None or not args or args == (None,):
        text = "`{}` returned {} among `args`; expected arrays or `jax.ShapeDtypeStruct`s"
        raise SourceError(text.format(name, kind(odd)))
    need(len(args), given.input_names, "input_names", source)
    return given._replace(args=tuple(args))


def _shapes(given: Returned, source: str) -> List[Shape]:
    """The shape of each argument, with a name for each axis that is asked to be dynamic."""
    named = _dynamic(given, source)
    return [
        tuple(axes.get(axis, size if isinstance(size, int) else str(size)) for axis, size in enumerate(arg.shape))
        for arg, axes in zip(given.args, named)  # noqa: B905 - new in Python 3.10
    ]


def _dynamic(given: Returned, source: str) -> List[Mapping[int, str]]:
    """Axis -> name, for each argument: given by position, or by the name of a parameter or of an input."""
    asked = given.dynamic_shapes
    if asked is None:
        return [{} for _ in given.args]
    if isinstance(asked, Mapping):
        names = list(given.input_names or _parameters(given))
        unknown = [str(key) for key in asked if key not in names]
        if unknown:
            text = "`{}` names `{}` in `dynamic_shapes`; its inputs are {}"
            raise SourceError(text.format(split(source)[1], unknown[0], ", ".join("`%s`" % name for name in names)))
        asked = [asked.get(name) for name in names]
    if len(asked) != len(given.args) or not all(each is None or isinstance(each, Mapping) for each in asked):
        text = "`{}` returned `dynamic_shapes` that do not fit; expected {} mappings of axis to name"
        raise SourceError(text.format(split(source)[1], len(given.args)))
    return [dict(each or {}) for each in asked]


def _parameters(given: Returned) -> List[str]:
    try:
        found = [each.name for each in inspect.signature(given.model).parameters.values()]
    except (TypeError, ValueError):
        found = []
    return found[: len(given.args)] + ["input {}".format(i) for i in range(len(found), len(given.args))]


def _export(job: Wire, given: Returned, shapes: Sequence[Shape], result: Wire, phase: Phase) -> None:
    import jax
    import jax2onnx
    import numpy
    import onnx

    phase("export")
    path = os.path.join(job["output"], "model.onnx")
    asked: Wire = {} if job["opset"] is None else {"opset": job["opset"]}
    specs = [jax.ShapeDtypeStruct(shape, arg.dtype) for shape, arg in zip(shapes, given.args)]  # noqa: B905
    asked["enable_double_precision"] = any(numpy.dtype(arg.dtype) == numpy.float64 for arg in given.args)
    result["told"] = _told(given, shapes)
    try:
        model = jax2onnx.to_onnx(
            given.model, specs, input_names=given.input_names, output_names=given.output_names, **asked
        )
        onnx.save(model, path)
        result["input_names"] = results.finish(path, job)
        result["model"] = path
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a converter says is the result
        result["failure"] = describe(error, folders_of(job))


def _told(given: Returned, shapes: Sequence[Shape]) -> Wire:
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


def _run(job: Wire, given: Returned, result: Wire, phase: Phase) -> None:
    import numpy

    has_values = all(hasattr(arg, "__array__") for arg in given.args)
    sample = [numpy.asarray(arg) for arg in given.args] if has_values else None
    dtypes = [numpy.dtype(arg.dtype) for arg in given.args]
    names = result["input_names"] or list(given.input_names or ())
    call = arrays.Call(lambda values: _computed(given.model, values), names, dtypes, sample)
    arrays.run(job, call, result, phase, lambda values: _computed_in_float64(given.model, values))


def _computed(function: Any, values: Sequence[Any]) -> List[Any]:
    """The arrays that the function returns, flattened as the exporter flattens them."""
    import jax
    import numpy

    return [numpy.asarray(leaf) for leaf in jax.tree_util.tree_leaves(function(*map(jax.numpy.asarray, values)))]


def _computed_in_float64(function: Any, values: Sequence[Any]) -> List[Any]:
    """As far as it goes: what the function holds in single precision is widened, not computed again."""
    import jax

    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        return _computed(function, values)
    finally:
        jax.config.update("jax_enable_x64", before)
