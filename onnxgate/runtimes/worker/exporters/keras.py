"""Keras 3 with any backend: export of a model with Keras's own `export`, and eager runs."""

from __future__ import annotations

from typing import Any, List, Sequence

import keras
import numpy as np

from . import eager
from .source import Phase, SourceError, SourceResult, Wire, describe_value, read_source_result, unexpected_return
from .source_jobs import require_converters

CONVERTERS = {"tensorflow": ("tf2onnx",), "jax": ("jax2onnx",), "torch": ("onnxscript",)}
MAPPING_KEYS = ("args", "output_names")
EXPECTED_RETURN = (
    "`(model, inputs)`, where `inputs` are sample inputs or their specs, or a mapping with `model` and `args`"
)


def export(job: Wire, returned: Any, result: Wire, phase: Phase) -> None:
    """Export the model that the callable returned, run it on the cases, and store all results in `result`.

    Structures are flattened as in Keras's export: mappings are sorted by key.

    Raises:
        SourceError: the callable returned an unexpected value.
    """
    if int(keras.__version__.partition(".")[0]) < 3:
        raise SourceError(f"Keras {keras.__version__} cannot export to ONNX; Keras 3 is required")
    if isinstance(returned, keras.Model):
        returned = (returned, None)
    recipe = read_source_result(returned, job["source"], EXPECTED_RETURN, MAPPING_KEYS)
    model = recipe.model
    if not isinstance(model, keras.Model):
        raise unexpected_return(job["source"], f"{describe_value(model)} as the model; expected a `keras.Model`")
    inputs = _find_inputs(recipe, job["source"])
    leaves = keras.tree.flatten(inputs)
    sample = None
    if not any(map(_is_spec, leaves)):
        to_numpy = keras.ops.convert_to_numpy
        sample = [np.asarray(leaf if isinstance(leaf, np.ndarray) else to_numpy(leaf)) for leaf in leaves]
    # The export requires a built model, and calling it builds it. Source: Keras 3.15, `export_onnx`.
    values = sample or [np.ones([size or 1 for size in spec.shape], _numpy_dtype(spec)) for spec in leaves]
    model(keras.tree.pack_sequence_as(inputs, values), training=False)
    specs = _input_specs(model, leaves)
    if job["export"]:
        _export(job, recipe, [keras.tree.pack_sequence_as(inputs, specs)], result, phase)

    def function(values: List[Any]) -> List[Any]:
        outputs = model(keras.tree.pack_sequence_as(inputs, values), training=False)
        return [keras.ops.convert_to_numpy(output) for output in keras.tree.flatten(outputs)]

    names = [spec.name for spec in specs] if all(spec.name for spec in specs) else result["input_names"]
    call = eager.ArrayCall(function, names, [_numpy_dtype(spec) for spec in specs], sample)
    eager.run_cases(job, call, result, phase)


def _find_inputs(recipe: SourceResult, source: str) -> Any:
    """Return the inputs of the source, or by default the model's input specs."""
    args = recipe.args
    if args is not None:
        if isinstance(args, tuple) and len(args) == 1:
            return args[0]
        return list(args) if type(args) is tuple else args
    inputs = getattr(recipe.model, "_inputs_struct", None)
    inputs = getattr(recipe.model, "input", None) if inputs is None else inputs
    if inputs is None:
        problem = "a model without defined inputs; expected `(model, inputs)` with sample inputs"
        raise unexpected_return(source, problem)
    return inputs


def _is_spec(value: Any) -> bool:
    """Return whether the value has a type and a shape, but no data."""
    return isinstance(value, (keras.KerasTensor, keras.InputSpec)) or type(value).__name__ == "TensorSpec"


def _numpy_dtype(spec: Any) -> Any:
    return np.dtype(keras.backend.standardize_dtype(spec.dtype))


def _input_specs(model: Any, leaves: Sequence[Any]) -> List[Any]:
    """Return the flattened specs for the export.

    They come from the source, the model, or the sample with a dynamic batch axis.
    """
    own = keras.tree.flatten(getattr(model, "_inputs_struct", None) or getattr(model, "input", None) or [])
    specs = []
    for leaf, model_input in zip(leaves, own if len(own) == len(leaves) else [None] * len(leaves)):  # noqa: B905
        source = leaf if _is_spec(leaf) or model_input is None else model_input
        shape = source.shape if _is_spec(source) else (None, *source.shape[1:])
        name = getattr(source, "name", None)
        specs.append(keras.InputSpec(shape=tuple(shape), dtype=str(_numpy_dtype(source)), name=name))
    return specs


def _export(job: Wire, recipe: SourceResult, signature: List[Any], result: Wire, phase: Phase) -> None:
    backend = keras.backend.backend()
    require_converters("Keras on " + backend, CONVERTERS.get(backend, ()))
    from . import model_file

    path = model_file.export_path(job)

    def convert(job: Wire) -> None:
        options = {} if job["opset"] is None else {"opset_version": job["opset"]}
        recipe.model.export(path, format="onnx", verbose=False, input_signature=signature, **options)

    model_file.export_model(job, result, phase, convert, recipe.output_names)
