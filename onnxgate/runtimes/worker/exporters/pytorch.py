"""PyTorch: export of a module with either exporter of `torch.onnx.export`, eager runs, and traces."""

from __future__ import annotations

import contextlib
import linecache
import os
import sys
import time
import warnings
from typing import Any, Dict, List, Mapping, Optional, Sequence

import torch
import torch.fx

from . import eager, torch_behaviour, torch_eager
from .source import (
    Phase,
    SourceError,
    SourceResult,
    Wire,
    describe_error,
    describe_value,
    folders_of,
    project_path,
    read_source_result,
    seed_generators,
    unexpected_return,
)
from .torch_eager import ModuleCall

MAPPING_KEYS = (
    *("model", "args", "kwargs", "input_names", "output_names"),
    *("dynamic_shapes", "dynamic_axes", "dynamo", "opset_version", "custom_translation_table"),
)
EXPECTED_RETURN = "`(module, args)` or a mapping with `model` and `args`"
EXPORTER_OPSETS = {"dynamo": (18, 25), "TorchScript": (7, 23)}
"""Lowest and highest opset that each exporter writes.

Source: measured with torch 2.13. Outside this range, TorchScript fails, and dynamo writes opset 18 unless it can
convert the graph.
"""
MAX_FLOAT64_BYTES = 512 * 1024 * 1024
"""Maximum size of the weights of a module that also runs in float64 after its export; larger ones need a job of their
own, so that a lack of memory does not affect the export."""
_TRACER_WARNING = "Converting a tensor to a Python "


def export(job: Wire, returned: Any, result: Wire, phase: Phase) -> None:
    """Export the module that the callable returned, run it on the cases, and store all results in `result`.

    Raises:
        SourceError: the callable returned an unexpected value.
    """
    recipe = _read_result(returned, job["source"])
    if job["opset"] is None:
        job = {**job, "opset": recipe.opset_version}
    result["was_training"] = any(part.training for part in recipe.model.modules())
    recipe.model.eval()
    call = ModuleCall.of(recipe.model, recipe.args, recipe.kwargs)
    runs = job.get("eager", True)
    copied = torch_eager.copy_call(call) if job["export"] and runs else call
    wide = _prepare_float64(job, call) if runs and job["float64"] else None
    if job["export"]:
        _try_export(job, recipe, call, copied, result, phase)
    if len(recipe.input_names or ()) == len(call.tensors):
        result["input_names"] = list(recipe.input_names or ())
    del recipe, call
    if runs:
        with torch.no_grad():
            _run_source(job, copied, wide, result, phase)


def _prepare_float64(job: Wire, call: ModuleCall) -> Optional[ModuleCall]:
    """Return the call for the runs in float64, or None if they are not possible after the export.

    It is a copy, because other runs may store float32 values in the module, such as a table of positions. Large modules
    are not copied.
    """
    if torch_eager.count_bytes(call.module) <= MAX_FLOAT64_BYTES:
        copied = torch_eager.copy_call(call)
        if copied.module is not call.module:
            return copied
    return None if job["export"] else call


def _read_result(returned: Any, source: str) -> SourceResult:
    """Validate the value that the callable returned.

    Raises:
        SourceError: the callable returned an unexpected value.
    """
    if isinstance(returned, Mapping):
        returned = {"args": (), **returned}
    recipe = read_source_result(returned, source, EXPECTED_RETURN, MAPPING_KEYS)
    if not isinstance(recipe.model, torch.nn.Module):
        model = describe_value(recipe.model)
        raise unexpected_return(source, f"{model} as the model; expected a `torch.nn.Module`")
    if not isinstance(recipe.dynamo, bool):
        raise unexpected_return(source, f"{describe_value(recipe.dynamo)} as `dynamo`; expected True or False")
    if recipe.dynamic_shapes is not None and not recipe.dynamo:
        expected = "`dynamic_axes` for the TorchScript exporter"
        raise unexpected_return(source, f"`dynamic_shapes` with `dynamo: False`; expected {expected}")
    if recipe.custom_translation_table is not None and not recipe.dynamo:
        expected = "`torch.onnx.register_custom_op_symbolic` for the TorchScript exporter"
        raise unexpected_return(source, f"`custom_translation_table` with `dynamo: False`; expected {expected}")
    if not isinstance(recipe.opset_version, (int, type(None))):
        version = describe_value(recipe.opset_version)
        raise unexpected_return(source, f"{version} as `opset_version`; expected an integer")
    args, kwargs = recipe.args, dict(recipe.kwargs or {})
    if isinstance(args, torch.Tensor):
        args = (args,)
    if not isinstance(args, (tuple, list)):
        raise unexpected_return(source, f"{describe_value(args)} as `args`; expected a tuple")
    args = tuple(args)
    if not kwargs and args and isinstance(args[-1], dict):  # as in `torch.onnx.export`
        args, kwargs = args[:-1], args[-1]
    return recipe._replace(args=args, kwargs=kwargs)


def _try_export(
    job: Wire, recipe: SourceResult, call: ModuleCall, copied: ModuleCall, result: Wire, phase: Phase
) -> None:
    phase("export")
    exporter = "dynamo" if recipe.dynamo else "TorchScript"
    details: Wire = {"exporter": exporter, "opsets": list(EXPORTER_OPSETS[exporter]), "opset": recipe.opset_version}
    result["details"] = details
    try:
        from . import model_file  # imports onnx, which eager runs do not need

        axes = torch_behaviour.find_requested_axes(recipe, call)
        details.update(_requested_details(recipe, call, axes))
        details["constants"] = torch_behaviour.list_constant_arguments(recipe, call)
        details["recurrent"] = torch_behaviour.find_recurrent_layers(copied) if recipe.dynamo and axes else {}
        fixed = []  # number arguments, which torch.export writes into the graph as constants
        for name, position in torch_behaviour.leaves_by_parameter(call).items() if recipe.dynamo else ():
            leaf = call.leaves[position] if isinstance(position, int) else None
            if isinstance(leaf, (int, float)) and not isinstance(leaf, bool):
                fixed.append({"what": f"argument `{name}` is the number {leaf}", "kind": "argument", "name": name})

        def convert(job: Wire) -> Any:
            details["fixed"] = [*fixed]
            return _export(job, recipe, model_file.export_path(job), details["fixed"])

        program = model_file.write_model(job, result, convert)
        if job.get("eager", True):
            phase("observation of the source")
            details.update(_observe_source(copied, axes, program))
            branches = [constant for constant in details["fixed"] if constant["kind"] == "branch"]
            if branches and torch_behaviour.do_branches_vary(copied):
                for branch in branches:
                    branch["varies"] = True
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the exporter's error is the result
        result["failure"] = describe_error(error, folders_of(job))


def _requested_details(recipe: SourceResult, call: ModuleCall, axes: Sequence[torch_behaviour.RequestedAxis]) -> Wire:
    """Return the requested export options, except the opset."""
    by_name = list(torch_behaviour.read_named_axes(recipe))
    names = list(recipe.input_names or ())
    complete = len(names) == len(call.tensors)
    return {
        "parameters": torch_behaviour.parameter_names(call) if recipe.dynamo and not names else [],
        "inputs": names,
        "outputs": list(recipe.output_names or ()),
        "axes": by_name or [{"input": e.input, "axis": e.axis, "name": e.name} for e in axes if e.is_explicit],
        "grew": [{"input": e.input, "axis": e.axis, "value": names[e.input] if complete else ""} for e in axes],
    }


def _observe_source(copied: ModuleCall, axes: Sequence[torch_behaviour.RequestedAxis], program: Any) -> Wire:
    """Return the source's behavior, and the axis sizes that the source accepts but its exported program does not."""
    behaviour = torch_behaviour.observe_call(copied, axes)
    narrowed = torch_behaviour.find_narrowed_axes(program.exported_program, axes) if program is not None else []
    rows = []
    for symbol in narrowed:
        works = torch_behaviour.find_size_beyond(copied, symbol)
        for number, axis in symbol.axes:
            bounds = {"lowest": symbol.lowest, "highest": symbol.highest, "works": works}
            rows.append({"input": number, "axis": axis, **bounds})
    return {**behaviour, "narrow": rows}


def _export(job: Wire, recipe: SourceResult, path: str, fixed: List[Wire]) -> Any:
    """Write the file and return the exported program, if there is one. Append constants from tracing to `fixed`."""
    options: Wire = {"dynamic_axes": recipe.dynamic_axes}
    if recipe.dynamo:
        options["external_data"] = job["external_data"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always" if not recipe.dynamo else "default")
        try:
            return _call_exporter(job, recipe, path, **options)
        finally:
            fixed.extend(_baked_constants(caught, folders_of(job)))


def _call_exporter(job: Wire, recipe: SourceResult, path: Optional[str], **options: Any) -> Any:
    if job["opset"] is not None:
        options["opset_version"] = job["opset"]
    if recipe.custom_translation_table is not None:
        options["custom_translation_table"] = dict(recipe.custom_translation_table)
    if not recipe.dynamo or not torch_behaviour.has_registered_class(recipe.args, recipe.kwargs):
        return _run_exporter(recipe, path, options)
    try:
        return _run_exporter(recipe, path, options)
    except Exception:  # noqa: BLE001 - the exporter's error, which is reported unless the export works with plain values
        with torch_behaviour.plain_values(recipe) as plain, contextlib.suppress(Exception):
            return _run_exporter(plain, path, options)
        raise


def _run_exporter(recipe: SourceResult, path: Optional[str], options: Wire) -> Any:
    seed_generators()
    return torch.onnx.export(
        recipe.model,
        recipe.args,
        path,
        kwargs=recipe.kwargs or None,
        input_names=recipe.input_names,
        output_names=recipe.output_names,
        dynamic_shapes=recipe.dynamic_shapes,
        dynamo=recipe.dynamo,
        verbose=False,
        **options,
    )


def _baked_constants(caught: Sequence[Any], folders: Sequence[str]) -> List[Wire]:
    """Return the values that tracing turned into constants, with their lines in the project. Log all other warnings."""
    constants: List[Wire] = []
    for warning in caught:
        text, name, number = str(warning.message), warning.filename, warning.lineno
        file = project_path(os.path.abspath(name), folders)
        line = linecache.getline(name, number).strip()
        is_baked = warning.category.__name__ == "TracerWarning" and text.startswith(_TRACER_WARNING)
        # An assertion only rejects inputs that differ from the example.
        if not is_baked or file is None or line.startswith("assert "):
            sys.stderr.write(warnings.formatwarning(warning.message, warning.category, name, number))
            continue
        kind = "branch" if text.startswith(_TRACER_WARNING + "boolean") else "number"
        constant = {"what": line, "source": f"{file}:{number}", "kind": kind}
        if constant not in constants:
            constants.append(constant)
    return constants


def _run_source(job: Wire, call: ModuleCall, wide: Optional[ModuleCall], result: Wire, phase: Phase) -> None:
    cases, names = job["cases"], result["input_names"]
    arrays = [torch_eager.to_numpy(tensor) for tensor in call.sample()]
    sample = eager.save_arrays(arrays, os.path.join(job["output"], "sample"))
    result["sample"] = [] if None in sample else sample
    result["eager_reason"] = torch_eager.mismatch_reason(call, cases, names)
    if result["eager_reason"]:
        return
    inputs = cases[0]["inputs"] if cases else names
    if len(result["sample"]) == len(names) > len(inputs):  # the model has fewer inputs than the example
        pairs = [pair for pair in zip(names, result["sample"]) if pair[0] in inputs]  # noqa: B905 - Python 3.10
        result["input_names"], result["sample"] = [name for name, _ in pairs], [path for _, path in pairs]
    start = time.monotonic()
    result["eager"] = torch_eager.run_cases(job, call, names, phase)
    if wide is not None and eager.runs_in_float64(job, time.monotonic() - start):
        result["is_half"] = torch_eager.is_half(wide.module)
        result["folded_weights"] = torch_eager.hash_folded_weights(wide.module)
        result["half_weights"] = torch_eager.round_weights(wide.module, set(job.get("half_weights", ())))
        result["eager64"] = torch_eager.run_cases_in_float64(job, wide, names, phase)


def trace(job: Wire, returned: Any, result: Wire, phase: Phase) -> None:
    """Run one case, and store the values of the source's nodes in `result`.

    Raises:
        SourceError: the callable returned an unexpected value.
    """
    recipe = _read_result(returned, job["source"])
    if job["opset"] is None:
        job = {**job, "opset": recipe.opset_version}
    recipe.model.eval()
    call = ModuleCall.of(recipe.model, recipe.args, recipe.kwargs)
    case, names = job["case"], list(recipe.input_names or ())
    phase("export")
    # The exporter translates this decomposed program, whose nodes have the same names as the values in the file.
    program = _call_exporter(job, recipe._replace(dynamo=True), None).exported_program
    phase("trace of case " + case["name"])
    reason = torch_eager.mismatch_reason(call, [case], names)
    if reason:
        raise SourceError(reason)
    returned_nodes = [  # the exporter drops other values
        spec.arg.name
        for spec in program.graph_signature.output_specs
        if spec.kind.name == "USER_OUTPUT" and type(spec.arg).__name__ == "TensorArgument"
    ]
    renamed = dict(zip(returned_nodes, job["outputs"]))  # noqa: B905 - new in Python 3.10
    seed_generators()
    with torch.no_grad():
        call = call.with_tensors(torch_eager.read_case(call, case, names))
        try:  # skip the check that inputs match the example, if this release supports it
            module = program.module(check_guards=False)
        except TypeError:
            module = program.module()
        _Tracer(module, job, result, renamed).run(*call.leaves)


class _Tracer(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs a program and writes the values of the nodes that the job names, up to the job's size limit."""

    def __init__(self, module: Any, job: Wire, result: Wire, renamed: Dict[str, str]) -> None:
        super().__init__(module)
        self._output, self._result = job["output"], result
        self._names, self._renamed = set(job["names"]), renamed
        self._left_bytes = job["limit_bytes"]

    def run_node(self, node: Any) -> Any:
        value = super().run_node(node)
        name = self._renamed.get(node.name, node.name)
        if node.op != "call_function" or not isinstance(value, torch.Tensor) or name not in self._names:
            return value
        size_bytes = value.numel() * value.element_size()
        if size_bytes > self._left_bytes:
            return value
        self._left_bytes -= size_bytes
        folder = os.path.join(self._output, str(len(self._result["values"])))
        path = eager.save_arrays([torch_eager.to_numpy(value)], folder)[0]
        if path is not None:
            self._result["values"][name] = path
        return value
