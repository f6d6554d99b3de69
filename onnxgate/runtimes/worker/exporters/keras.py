"""Keras 3 with any backend: export of a model with its signature, by Keras's own `export`."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Optional, Sequence

from . import export_result, numpy_eager, opsets
from .source import SourceError, folders_of, split_source
from .source_errors import describe_error
from .source_result import SourceResult, check_name_count, describe_value, read_source_result

Phase = Callable[[str], None]
Wire = Dict[str, Any]

PACKAGES = (
    *("keras", "tensorflow", "tensorflow-cpu", "tf2onnx", "jax", "jax2onnx", "torch"),
    *("onnx", "onnxscript", "onnx-ir", "numpy"),
)
CONVERTERS = {"tensorflow": ["tf2onnx"], "jax": ["jax2onnx"], "torch": ["onnxscript"]}
MAPPING_KEYS = ("args", "output_names")
EXPECTED_RETURN = (
    "`(model, inputs)` with a Keras model and sample inputs or their specs, or a mapping with `model` and `args`"
)


def answer(job: Wire, returned: Any, result: Wire, phase: Phase) -> None:
    """Export what the callable returned and run it on the cases, into `result`. Raises `SourceError`."""
    import keras

    if int(keras.__version__.partition(".")[0]) < 3:
        raise SourceError("Keras {} has no export to ONNX; expected Keras 3".format(keras.__version__))
    if isinstance(returned, keras.Model):
        returned = (returned, None)
    given = read_source_result(returned, job["source"], EXPECTED_RETURN, MAPPING_KEYS)
    if not isinstance(given.model, keras.Model):
        text = "`{}` returned {} as the model; expected a `keras.Model`"
        raise SourceError(text.format(split_source(job["source"])[1], describe_value(given.model)))
    inputs = _find_inputs(given, job["source"])
    leaves = keras.tree.flatten(inputs)
    sample = None if any(map(_is_spec, leaves)) else [_to_numpy(leaf) for leaf in leaves]
    _build_model(given.model, inputs, sample)
    signature = _export_signature(given.model, inputs, leaves)
    if job["export"]:
        _export(job, given, signature, result, phase)
    _run_model(job, given.model, inputs, signature, sample, result, phase)


def _find_inputs(given: SourceResult, source: str) -> Any:
    """Return the inputs of the model, or their specs: the source's own, or by default the model's."""
    if given.args is not None:
        args = given.args
        return args[0] if isinstance(args, tuple) and len(args) == 1 else list(args) if _is_tuple(args) else args
    known = getattr(given.model, "_inputs_struct", None)
    known = getattr(given.model, "input", None) if known is None else known
    if known is None:
        text = "`{}` returned a model that knows no inputs of its own; expected sample inputs beside it"
        raise SourceError(text.format(split_source(source)[1]))
    return known


def _is_tuple(value: Any) -> bool:
    return type(value) is tuple


def _is_spec(value: Any) -> bool:
    """Return whether the value has a type and a shape, but no data."""
    import keras

    return isinstance(value, (keras.KerasTensor, keras.InputSpec)) or type(value).__name__ == "TensorSpec"


def _to_numpy(value: Any) -> Any:
    import keras
    import numpy

    return numpy.asarray(value if isinstance(value, numpy.ndarray) else keras.ops.convert_to_numpy(value))


def _build_model(model: Any, inputs: Any, sample: Optional[Sequence[Any]]) -> None:
    """Build the model by calling it, which its export requires. Source: Keras 3.15, `export_onnx`."""
    import keras
    import numpy

    leaves = sample
    if leaves is None:
        specs = keras.tree.flatten(inputs)
        leaves = [numpy.ones([size or 1 for size in spec.shape], _numpy_dtype(spec)) for spec in specs]
    model(keras.tree.pack_sequence_as(inputs, list(leaves)), training=False)


def _numpy_dtype(spec: Any) -> Any:
    import keras
    import numpy

    return numpy.dtype(keras.backend.standardize_dtype(spec.dtype))


def _export_signature(model: Any, inputs: Any, leaves: Sequence[Any]) -> List[Any]:
    """Return the specs for the export, in the model's structure: those requested, those of the model, or those of the
    sample with a dynamic batch axis."""
    import keras

    own = keras.tree.flatten(getattr(model, "_inputs_struct", None) or getattr(model, "input", None) or [])
    if len(own) != len(leaves):
        own = [None] * len(leaves)
    specs = [_input_spec(leaf, known) for leaf, known in zip(leaves, own)]  # noqa: B905 - new in Python 3.10
    return [keras.tree.pack_sequence_as(inputs, specs)]


def _input_spec(leaf: Any, known: Any) -> Any:
    import keras

    if _is_spec(leaf) or known is None:
        shape = leaf.shape if _is_spec(leaf) else (None, *leaf.shape[1:])
        dtype, name = _numpy_dtype(leaf), getattr(leaf, "name", None)
    else:
        shape, dtype, name = known.shape, _numpy_dtype(known), known.name
    return keras.InputSpec(shape=tuple(shape), dtype=str(dtype), name=name)


def _export(job: Wire, given: SourceResult, signature: List[Any], result: Wire, phase: Phase) -> None:
    import keras

    backend = keras.backend.backend()
    export_result.require_converters("Keras on " + backend, CONVERTERS.get(backend, []))
    phase("export")
    path = os.path.join(job["output"], "model.onnx")

    def convert(job: Wire) -> None:
        options = {} if job["opset"] is None else {"opset_version": job["opset"]}
        given.model.export(path, format="onnx", verbose=False, input_signature=signature, **options)

    try:
        opsets.convert_within_limits(job, convert, path)
        _name_outputs(path, given, job["source"])
        export_result.finish_model(path, job)
        result["model"] = path
    except SourceError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the exporter's error is the result
        result["failure"] = describe_error(error, folders_of(job))


def _name_outputs(path: str, given: SourceResult, source: str) -> None:
    import onnx

    if given.output_names is None:
        return
    model = onnx.load(path)
    check_name_count(len(model.graph.output), given.output_names, "output_names", source)
    export_result.rename_outputs(model.graph, dict(zip([e.name for e in model.graph.output], given.output_names)))  # noqa: B905
    onnx.save(model, path)


def _run_model(
    job: Wire, model: Any, inputs: Any, signature: List[Any], sample: Any, result: Wire, phase: Phase
) -> None:
    """Run the model on the cases. Structures are flattened as in Keras's export: mappings by sorted keys."""
    import keras

    specs = keras.tree.flatten(signature)

    def function(values: List[Any]) -> List[Any]:
        returned = model(keras.tree.pack_sequence_as(inputs, values), training=False)
        return [keras.ops.convert_to_numpy(each) for each in keras.tree.flatten(returned)]

    names = [spec.name for spec in specs] if all(spec.name for spec in specs) else _input_names(result)
    numpy_eager.run_cases(
        job, numpy_eager.ArrayCall(function, names, [_numpy_dtype(spec) for spec in specs], sample), result, phase
    )


def _input_names(result: Wire) -> List[str]:
    """Return the input names of the exported file; none if nothing was exported."""
    import onnx

    if result["model"] is None:
        return []
    return [each.name for each in onnx.load(result["model"], load_external_data=False).graph.input]
