"""PyTorch: export of a callable's module with either exporter of `torch.onnx.export`, eager runs and traces."""

from __future__ import annotations

import linecache
import os
import sys
import warnings
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

from . import opsets, source, torch_behaviour, torch_eager
from .export_result import finish_model
from .source import SourceError, folders_of, load_callable, project_path, seed_generators
from .source_errors import describe_error, run_user_code
from .source_result import TorchSourceResult, read_torch_result

Phase = Callable[[str], None]
Wire = Dict[str, Any]

PACKAGES = ("torch", "onnx", "onnxscript", "onnx-ir", "numpy")
EXPORTER_OPSETS = {"dynamo": (18, 25), "TorchScript": (7, 23)}
"""Lowest and highest opset that each exporter writes. Source: measured with torch 2.13; outside this range, dynamo
keeps 18 unless it can convert, which depends on the graph, and TorchScript refuses."""
_TRACER_WARNING = "Converting a tensor to a Python "


def answer(job: Wire, returned: Any, result: Wire, phase: Phase) -> None:
    """Export what the callable returned and run it on the cases, into `result`. Raises `SourceError`."""
    import torch

    recipe = read_torch_result(returned, job["source"])
    result["was_training"] = any(part.training for part in recipe.model.modules())
    recipe.model.eval()
    call = torch_eager.ModuleCall.of(recipe.model, recipe.args, recipe.kwargs)
    asked = job.get("eager", True)
    aside = torch_eager.copy_call(call) if job["export"] and asked else call
    if job["export"]:
        _try_export(job, recipe, call, aside, result, phase)
    if len(recipe.input_names or ()) == len(call.tensors):
        result["input_names"] = list(recipe.input_names or ())
    del recipe, call
    if asked:
        with torch.no_grad():
            _run_source(job, aside, result, phase)


def _try_export(
    job: Wire,
    recipe: TorchSourceResult,
    call: torch_eager.ModuleCall,
    aside: torch_eager.ModuleCall,
    result: Wire,
    phase: Phase,
) -> None:
    phase("export")
    path = os.path.join(job["output"], "model.onnx")
    told: Wire = {"exporter": recipe.exporter, "opsets": list(EXPORTER_OPSETS[recipe.exporter])}
    result["told"] = told
    try:
        wanted = torch_behaviour.find_requested_axes(recipe, call)
        told.update(_requested_details(recipe, call, wanted))
        fixed = told.pop("fixed", [])

        def convert(job: Wire) -> Any:
            told["fixed"] = [*fixed]
            return _export(job, recipe, path, told)

        program = opsets.convert_within_limits(job, convert, path)
        result["input_names"] = finish_model(path, job)
        result["model"] = path
        if job.get("eager", True):
            phase("observation of the source")
            told.update(_observe_source(aside, wanted, program))
            _mark_varying_branches(aside, told["fixed"])
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the exporter's error is the result
        result["failure"] = describe_error(error, folders_of(job))


def _requested_details(
    recipe: TorchSourceResult, call: torch_eager.ModuleCall, wanted: Sequence[torch_behaviour.RequestedAxis]
) -> Wire:
    """Return the options of the exporter except the opset."""
    by_name = list(torch_behaviour.read_named_axes(recipe))
    names = list(recipe.input_names or ())
    whole = len(names) == len(call.tensors)
    return {
        "parameters": torch_behaviour.parameter_names(call) if recipe.dynamo and not recipe.input_names else [],
        "inputs": list(recipe.input_names or ()),
        "outputs": list(recipe.output_names or ()),
        "axes": by_name or [{"input": e.input, "axis": e.axis, "name": e.name} for e in wanted if e.promised],
        "grew": [{"input": e.input, "axis": e.axis, "value": names[e.input] if whole else ""} for e in wanted],
        "fixed": _number_arguments(call) if recipe.dynamo else [],
    }


def _number_arguments(call: torch_eager.ModuleCall) -> List[Wire]:
    """Return numbers among the arguments, which torch.export writes into the graph."""
    found = []
    for name, position in torch_behaviour.leaves_by_parameter(call).items():
        leaf = call.leaves[position] if isinstance(position, int) else None
        if isinstance(leaf, (int, float)) and not isinstance(leaf, bool):
            found.append({"what": "argument `{}` is the number {}".format(name, leaf), "kind": "argument"})
    return found


def _mark_varying_branches(aside: torch_eager.ModuleCall, fixed: Sequence[Wire]) -> None:
    """Mark branches that were fixed in the file although the source takes others for other inputs."""
    branches = [each for each in fixed if each["kind"] == "branch"]
    if branches and torch_behaviour.do_branches_vary(aside):
        for branch in branches:
            branch["varies"] = True


def _observe_source(
    aside: torch_eager.ModuleCall, wanted: Sequence[torch_behaviour.RequestedAxis], program: Any
) -> Wire:
    """Return the source's behaviour, and the sizes that the source accepts but its exported program does not."""
    seen = torch_behaviour.observe_call(aside, wanted)
    narrow = torch_behaviour.find_narrowed_axes(program.exported_program, list(wanted)) if program is not None else []
    found = []
    for each in narrow:
        works = torch_behaviour.find_size_beyond(aside, each)
        for number, axis in each.axes:
            bounds = {"lowest": each.lowest, "highest": each.highest, "works": works}
            found.append({"input": number, "axis": axis, **bounds})
    return {**seen, "narrow": found}


def _export(job: Wire, recipe: TorchSourceResult, path: str, told: Wire) -> Any:
    """Write the file; return the exported program if the exporter has one."""
    import torch

    asked: Dict[str, Any] = {} if job["opset"] is None else {"opset_version": job["opset"]}
    if recipe.dynamo:
        asked["external_data"] = job["external_data"]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always" if not recipe.dynamo else "default")
        seed_generators()
        try:
            return torch.onnx.export(
                recipe.model,
                recipe.args,
                path,
                kwargs=recipe.kwargs or None,
                input_names=recipe.input_names,
                output_names=recipe.output_names,
                dynamic_shapes=recipe.dynamic_shapes,
                dynamic_axes=recipe.dynamic_axes,
                dynamo=recipe.dynamo,
                verbose=False,
                **asked,
            )
        finally:
            told.setdefault("fixed", []).extend(_baked_constants(said, folders_of(job)))


def _baked_constants(said: Sequence[Any], folders: Sequence[str]) -> List[Wire]:
    """Return the tracer's warnings about lines of the project; write all other warnings to the log."""
    found: List[Wire] = []
    for each in said:
        told = _baked_constant_at(each, folders)
        if told is None:
            sys.stderr.write(warnings.formatwarning(each.message, each.category, each.filename, each.lineno))
        elif told not in found:
            found.append(told)
    return found


def _baked_constant_at(warning: Any, folders: Sequence[str]) -> Optional[Wire]:
    text = str(warning.message)
    file = project_path(os.path.abspath(warning.filename), folders)
    line = linecache.getline(warning.filename, warning.lineno).strip()
    if warning.category.__name__ != "TracerWarning" or not text.startswith(_TRACER_WARNING) or file is None:
        return None
    if line.startswith("assert "):  # an assertion only refuses inputs unlike the example
        return None
    kind = "branch" if text.startswith(_TRACER_WARNING + "boolean") else "number"
    return {"what": line, "source": "{}:{}".format(file, warning.lineno), "kind": kind}


def _run_source(job: Wire, call: torch_eager.ModuleCall, result: Wire, phase: Phase) -> None:
    cases, names = job["cases"], result["input_names"]
    sample = torch_eager.save_tensors(call.sample(), os.path.join(job["output"], "sample"))
    result["sample"] = [] if None in sample else sample
    result["eager_reason"] = torch_eager.mismatch_reason(call, cases, names)
    if result["eager_reason"]:
        return
    _drop_unused_inputs(result, cases)

    def below(name: str) -> str:
        return os.path.join(job["output"], name)

    folders = folders_of(job)
    result["eager"] = torch_eager.run_cases(call, cases, names, below("eager"), folders, phase)
    if job["float64"]:
        result["eager64"] = torch_eager.run_cases_in_float64(call, cases, names, below("eager64"), folders, phase)


def _drop_unused_inputs(result: Wire, cases: Sequence[Wire]) -> None:
    """Remove inputs of the example that the model does not have."""
    taken = cases[0]["inputs"] if cases else result["input_names"]
    if len(result["sample"]) == len(result["input_names"]) > len(taken):
        pairs = zip(result["input_names"], result["sample"])  # noqa: B905 - new in Python 3.10
        kept = [pair for pair in pairs if pair[0] in taken]
        result["input_names"], result["sample"] = [name for name, _ in kept], [path for _, path in kept]


def trace(job: Wire, phase: Phase) -> Wire:
    """Answer a `Trace` job with a `TraceResult`; it includes errors of the user's code or the exporter."""
    result: Wire = {"kind": "trace", "values": {}, "left_out": 0, "failure": None}
    with run_user_code(job, result):
        _trace_source(job, result, phase)
    return result


def _trace_source(job: Wire, result: Wire, phase: Phase) -> None:
    phase("call of the source")
    source.seed_generators()
    build = load_callable(job["source"])
    source.seed_generators()
    returned = build()
    recipe = read_torch_result(returned, job["source"])
    recipe.model.eval()
    call = torch_eager.ModuleCall.of(recipe.model, recipe.args, recipe.kwargs)
    phase("export")
    program = _export_program(job, recipe)
    phase("trace of case " + job["case"]["name"])
    _TraceWriter(job, result).run(program, call, recipe)


def _export_program(job: Wire, recipe: TorchSourceResult) -> Any:
    """Return the program that the exporter translates: decomposed, with nodes named as the values of the file."""
    import torch

    asked: Dict[str, Any] = {} if job["opset"] is None else {"opset_version": job["opset"]}
    source.seed_generators()
    exported: Any = torch.onnx.export(
        recipe.model,
        recipe.args,
        kwargs=recipe.kwargs,
        input_names=recipe.input_names,
        output_names=recipe.output_names,
        dynamic_shapes=recipe.dynamic_shapes,
        dynamo=True,
        verbose=False,
        **asked,
    )
    return exported.exported_program


class _TraceWriter:
    """Writes the values of nodes, up to the limit."""

    def __init__(self, job: Wire, result: Wire) -> None:
        self._job = job
        self._result = result
        self._wanted = set(job["names"])
        self._left_bytes = job["limit_bytes"]

    def run(self, program: Any, call: torch_eager.ModuleCall, recipe: TorchSourceResult) -> None:
        """Run the program on the case, node by node; values are freed as soon as the program no longer needs them."""
        import torch

        module = _program_module(program)
        leaves = self._leaves(call, list(recipe.input_names or ()))
        renamed = dict(zip(_output_node_names(program), self._job["outputs"]))  # noqa: B905 - new in Python 3.10
        note = self._note

        class Interpreter(torch.fx.Interpreter):  # type: ignore[misc]
            def run_node(self, node: Any) -> Any:
                value = super().run_node(node)
                if node.op == "call_function" and isinstance(value, torch.Tensor):
                    note(renamed.get(node.name, node.name), value)
                return value

        source.seed_generators()
        with torch.no_grad():
            Interpreter(module).run(*leaves)

    def _leaves(self, call: torch_eager.ModuleCall, names: Sequence[str]) -> List[Any]:
        """Return the flattened arguments, which are the program's own inputs."""
        case, leaves = self._job["case"], list(call.leaves)
        reason = torch_eager.mismatch_reason(call, [case], names)
        if reason:
            raise SourceError(reason)
        paths = torch_eager.in_source_order(case, names, len(call.tensors))
        for index, path in zip(call.tensors, paths):  # noqa: B905 - new in Python 3.10
            if path is not None:
                leaves[index] = torch_eager.read_tensor(path, leaves[index])
        return leaves

    def _note(self, name: str, value: Any) -> None:
        size_bytes = value.numel() * value.element_size()
        if name not in self._wanted:
            return
        if size_bytes > self._left_bytes:
            self._result["left_out"] += 1
            return
        self._left_bytes -= size_bytes
        folder = os.path.join(self._job["output"], str(len(self._result["values"])))
        path = torch_eager.save_tensors([value], folder)[0]
        if path is not None:
            self._result["values"][name] = path


def _program_module(program: Any) -> Any:
    """Return the module, without checks that inputs match the example if this release can omit them."""
    try:
        return program.module(check_guards=False)
    except TypeError:
        return program.module()


def _output_node_names(program: Any) -> Iterator[str]:
    """Yield the nodes whose values are the outputs; the exporter drops values that are not tensors."""
    for output_spec in program.graph_signature.output_specs:
        if output_spec.kind.name == "USER_OUTPUT" and type(output_spec.arg).__name__ == "TensorArgument":
            yield output_spec.arg.name
