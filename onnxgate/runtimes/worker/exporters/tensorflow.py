"""TensorFlow: export of a `tf.function` with tf2onnx, and eager runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, List, Sequence

import numpy as np
import tensorflow as tf

from . import eager
from .source import Phase, Wire, describe_value, read_source_result, unexpected_return

MAPPING_KEYS = ("args", "output_names")
EXPECTED_RETURN = (
    "a `tf.function` with `input_signature`, or `(function, inputs)`, where `inputs` are sample inputs or "
    "`tf.TensorSpec`s"
)


def export(job: Wire, returned: Any, result: Wire, phase: Phase) -> None:
    """Export the function that the callable returned, run it on the cases, and store all results in `result`.

    Raises:
        SourceError: the callable returned an unexpected value.
    """
    returned = (returned, ()) if _is_function(returned) else returned
    recipe = read_source_result(returned, job["source"], EXPECTED_RETURN, MAPPING_KEYS)
    if not _is_function(recipe.model):
        model = describe_value(recipe.model)
        raise unexpected_return(job["source"], f"{model} as the model; expected a `tf.function`")
    args = recipe.args if isinstance(recipe.args, (tuple, list)) else () if recipe.args is None else (recipe.args,)
    phase("trace of the source")
    concrete = _concrete_function(recipe.model, args, job["source"])
    if job["export"]:
        import tf2onnx

        from . import model_file

        def convert(job: Wire) -> Any:
            # tf2onnx uses only this method of a `tf.function`.
            source = SimpleNamespace(get_concrete_function=lambda *_: concrete)
            return tf2onnx.convert.from_function(source, input_signature=(), opset=job["opset"])[0]

        model_file.export_model(job, result, phase, convert, recipe.output_names)
    sample = None
    if args and not any(isinstance(arg, tf.TensorSpec) for arg in args):
        sample = [np.asarray(arg) for arg in args]
    eager.run_cases(job, _eager_call(concrete, sample), result, phase)


def _is_function(value: Any) -> bool:
    return hasattr(value, "get_concrete_function") or hasattr(value, "structured_input_signature")


def _concrete_function(function: Any, args: Sequence[Any], source: str) -> Any:
    """Return the concrete function for the function's own signature, or for arguments with a dynamic batch axis."""
    if hasattr(function, "structured_input_signature"):
        return function
    if getattr(function, "input_signature", None) is not None:
        return function.get_concrete_function()
    if not args:
        problem = "a function without `input_signature`; expected `(function, inputs)`"
        raise unexpected_return(source, problem)
    specs = []
    for arg in args:
        if not isinstance(arg, tf.TensorSpec):
            tensor = tf.convert_to_tensor(arg)
            arg = tf.TensorSpec([None, *tensor.shape[1:]] if tensor.shape.rank else [], tensor.dtype)
        specs.append(arg)
    return function.get_concrete_function(*specs)


def _eager_call(concrete: Any, sample: Any) -> eager.ArrayCall:
    """Wrap the function so that it takes arrays. Mappings are flattened by sorted keys, as in the graph's outputs."""
    captured = {id(inner) for _, inner in concrete.graph.captures}
    tensors = [value for value in concrete.inputs if value.dtype != tf.resource and id(value) not in captured]

    def function(values: List[Any]) -> List[Any]:
        constants = [tf.constant(value, tensor.dtype) for value, tensor in zip(values, tensors)]  # noqa: B905
        return [output.numpy() for output in tf.nest.flatten(concrete(*constants)) if output is not None]

    names = [tensor.name.partition(":")[0] for tensor in tensors]
    dtypes = [np.dtype(tensor.dtype.as_numpy_dtype) for tensor in tensors]
    return eager.ArrayCall(function, names, dtypes, sample)
