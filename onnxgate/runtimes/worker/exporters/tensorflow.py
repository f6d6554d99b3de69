"""TensorFlow: export of a `tf.function` with its signature, by tf2onnx."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Sequence

from . import export_result, numpy_eager, opsets
from .source import SourceError, folders_of, split_source
from .source_errors import describe_error
from .source_result import check_name_count, describe_value, read_source_result

Phase = Callable[[str], None]
Wire = Dict[str, Any]

PACKAGES = ("tensorflow", "tensorflow-cpu", "tf2onnx", "onnx", "numpy")
MAPPING_KEYS = ("args", "output_names")
EXPECTED_RETURN = (
    "`(function, inputs)` with a `tf.function` and sample inputs or `tf.TensorSpec`s, or a `tf.function` alone \
that has an `input_signature`"
)


class _ConcreteFunctionSource:
    """Wrapper of a concrete function for tf2onnx, which expects a function that creates one."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def get_concrete_function(self, *_: Any) -> Any:
        return self.function


def answer(job: Wire, returned: Any, result: Wire, phase: Phase) -> None:
    """Export what the callable returned and run it on the cases, into `result`. Raises `SourceError`."""
    returned = (returned, ()) if _is_function(returned) else returned
    given = read_source_result(returned, job["source"], EXPECTED_RETURN, MAPPING_KEYS)
    if not _is_function(given.model):
        text = "`{}` returned {} as the model; expected a `tf.function`"
        raise SourceError(text.format(split_source(job["source"])[1], describe_value(given.model)))
    args = given.args if isinstance(given.args, (tuple, list)) else () if given.args is None else (given.args,)
    phase("trace of the source")
    concrete = _concrete_function(given.model, args, job["source"])
    if job["export"]:
        _export(job, concrete, given.output_names, result, phase)
    _run_function(job, concrete, args, result, phase)


def _is_function(value: Any) -> bool:
    return hasattr(value, "get_concrete_function") or hasattr(value, "structured_input_signature")


def _concrete_function(function: Any, args: Sequence[Any], source: str) -> Any:
    """Return the concrete function for its own signature, or for that of the arguments with a dynamic batch axis."""
    if hasattr(function, "structured_input_signature"):
        return function
    own = getattr(function, "input_signature", None)
    if own is None and not args:
        text = "`{}` returned a function without `input_signature`; expected its inputs beside it"
        raise SourceError(text.format(split_source(source)[1]))
    return function.get_concrete_function(*([] if own is not None else map(_tensor_spec, args)))


def _tensor_spec(value: Any) -> Any:
    import tensorflow as tf

    if isinstance(value, tf.TensorSpec):
        return value
    tensor = tf.convert_to_tensor(value)
    return tf.TensorSpec([None, *tensor.shape[1:]] if tensor.shape.rank else [], tensor.dtype)


def _input_tensors(concrete: Any) -> List[Any]:
    """Return the inputs that are tensors, without the variables that the function captures."""
    import tensorflow as tf

    captured = {id(inner) for _, inner in concrete.graph.captures}
    return [each for each in concrete.inputs if each.dtype != tf.resource and id(each) not in captured]


def _export(job: Wire, concrete: Any, names: Any, result: Wire, phase: Phase) -> None:
    import onnx
    import tf2onnx

    phase("export")
    path = os.path.join(job["output"], "model.onnx")

    def convert(job: Wire) -> Any:
        source = _ConcreteFunctionSource(concrete)
        return tf2onnx.convert.from_function(source, input_signature=(), opset=job["opset"])[0]

    try:
        model = opsets.convert_within_limits(job, convert)
        if names is not None:
            check_name_count(len(model.graph.output), names, "output_names", job["source"])
            export_result.rename_outputs(model.graph, dict(zip([e.name for e in model.graph.output], names)))  # noqa: B905
        onnx.save(model, path)
        result["input_names"] = export_result.finish_model(path, job)
        result["model"] = path
    except SourceError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the converter's error is the result
        result["failure"] = describe_error(error, folders_of(job))


def _run_function(job: Wire, concrete: Any, args: Sequence[Any], result: Wire, phase: Phase) -> None:
    """Run the function on the cases. Mappings are flattened by sorted keys, as the graph's outputs are."""
    import numpy
    import tensorflow as tf

    tensors = _input_tensors(concrete)

    def function(values: List[Any]) -> List[Any]:
        given = [tf.constant(value, tensor.dtype) for value, tensor in zip(values, tensors)]  # noqa: B905
        return [each.numpy() for each in tf.nest.flatten(concrete(*given)) if each is not None]

    sample = None
    if args and not any(isinstance(arg, tf.TensorSpec) for arg in args):
        sample = [numpy.asarray(arg) for arg in args]
    names = [tensor.name.partition(":")[0] for tensor in tensors]
    dtypes = [numpy.dtype(tensor.dtype.as_numpy_dtype) for tensor in tensors]
    numpy_eager.run_cases(job, numpy_eager.ArrayCall(function, names, dtypes, sample), result, phase)
