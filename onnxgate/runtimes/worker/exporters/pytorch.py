"""PyTorch: a callable's module exported with `torch.onnx.export`, by either exporter, and run as it is."""

from __future__ import annotations

import linecache
import os
import sys
import warnings
from typing import Any, Callable, Dict, List, Optional, Sequence

from . import axes, behaviour, eager
from .failure import describe
from .recipe import Recipe, read_recipe
from .results import finish
from .seeding import seed
from .source import below, folders_of

__all__ = ["PACKAGES", "Recipe", "answer", "read_recipe"]

Phase = Callable[[str], None]
Wire = Dict[str, Any]

PACKAGES = ("torch", "onnx", "onnxscript", "onnx-ir", "numpy")
OPSETS = {"dynamo": (18, 25), "TorchScript": (7, 23)}
"""What each exporter really writes. Source: measured with torch 2.13; above and below, dynamo keeps 18 unless it can
convert, which depends on the graph, and TorchScript refuses."""
_BAKED = "Converting a tensor to a Python "


def answer(job: Wire, returned: Any, result: Wire, phase: Phase) -> None:
    """Export what the callable returned and run it on the cases, into `result`. Raises `SourceError`."""
    import torch

    recipe = read_recipe(returned, job["source"])
    result["was_training"] = any(part.training for part in recipe.model.modules())
    recipe.model.eval()
    call = eager.Call.of(recipe.model, recipe.args, recipe.kwargs)
    asked = job.get("eager", True)
    aside = eager.twin(call) if job["export"] and asked else call
    if job["export"]:
        _try_export(job, recipe, call, aside, result, phase)
    if len(recipe.input_names or ()) == len(call.tensors):
        result["input_names"] = list(recipe.input_names or ())
    del recipe, call
    if asked:
        with torch.no_grad():
            _run_eagerly(job, aside, result, phase)


def _try_export(job: Wire, recipe: Recipe, call: eager.Call, aside: eager.Call, result: Wire, phase: Phase) -> None:
    phase("export")
    path = os.path.join(job["output"], "model.onnx")
    told: Wire = {"exporter": recipe.exporter, "opsets": list(OPSETS[recipe.exporter])}
    result["told"] = told
    try:
        wanted = axes.asked(recipe, call)
        told.update(_asked(recipe, call, wanted))
        program = _export(job, recipe, path, told)
        result["input_names"] = finish(path, job)
        result["model"] = path
        if job.get("eager", True):
            phase("observation of the source")
            told.update(_observed(aside, wanted, program))
            _witness(aside, told["fixed"])
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever an exporter says is the result
        result["failure"] = describe(error, folders_of(job))


def _asked(recipe: Recipe, call: eager.Call, wanted: Sequence[axes.Asked]) -> Wire:
    """What the exporter is asked for, beside the opset."""
    by_name = list(axes.named_axes(recipe))
    names = list(recipe.input_names or ())
    whole = len(names) == len(call.tensors)
    return {
        "parameters": axes.parameters(call) if recipe.dynamo and not recipe.input_names else [],
        "inputs": list(recipe.input_names or ()),
        "outputs": list(recipe.output_names or ()),
        "axes": by_name or [{"input": e.input, "axis": e.axis, "name": e.name} for e in wanted if e.promised],
        "grew": [{"input": e.input, "axis": e.axis, "value": names[e.input] if whole else ""} for e in wanted],
        "fixed": _numbers(call) if recipe.dynamo else [],
    }


def _numbers(call: eager.Call) -> List[Wire]:
    """Numbers among the arguments, which torch.export writes into the graph."""
    found = []
    for name, position in axes.given_by_name(call).items():
        leaf = call.leaves[position] if isinstance(position, int) else None
        if isinstance(leaf, (int, float)) and not isinstance(leaf, bool):
            found.append({"what": "argument `{}` is the number {}".format(name, leaf), "kind": "argument"})
    return found


def _witness(aside: eager.Call, fixed: Sequence[Wire]) -> None:
    """Mark branches that were written into the file and that the source really takes otherwise for other inputs."""
    branches = [each for each in fixed if each["kind"] == "branch"]
    if branches and behaviour.decisions_vary(aside):
        for each in branches:
            each["varies"] = True


def _observed(aside: eager.Call, wanted: Sequence[axes.Asked], program: Any) -> Wire:
    """What the source itself does, and for which sizes its program does not hold although the source would."""
    seen = behaviour.observe(aside, wanted)
    narrow = axes.narrow(program.exported_program, list(wanted)) if program is not None else []
    found = []
    for each in narrow:
        works = behaviour.works_beyond(aside, each)
        for number, axis in each.axes:
            bounds = {"lowest": each.lowest, "highest": each.highest, "works": works}
            found.append({"input": number, "axis": axis, **bounds})
    return {**seen, "narrow": found}


def _export(job: Wire, recipe: Recipe, path: str, told: Wire) -> Any:
    """Write the file; the exported program where the exporter has one."""
    import torch

    asked: Dict[str, Any] = {} if job["opset"] is None else {"opset_version": job["opset"]}
    if recipe.dynamo:
        asked["external_data"] = job["external_data"]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always" if not recipe.dynamo else "default")
        seed()
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
            told.setdefault("fixed", []).extend(_baked(said, folders_of(job)))


def _baked(said: Sequence[Any], folders: Sequence[str]) -> List[Wire]:
    """What the tracer says of lines of the project's own; all other warnings are passed on to the log."""
    found: List[Wire] = []
    for each in said:
        told = _baked_at(each, folders)
        if told is None:
            sys.stderr.write(warnings.formatwarning(each.message, each.category, each.filename, each.lineno))
        elif told not in found:
            found.append(told)
    return found


def _baked_at(warning: Any, folders: Sequence[str]) -> Optional[Wire]:
    text = str(warning.message)
    file = below(os.path.abspath(warning.filename), folders)
    line = linecache.getline(warning.filename, warning.lineno).strip()
    if warning.category.__name__ != "TracerWarning" or not text.startswith(_BAKED) or file is None:
        return None
    if line.startswith("assert "):  # it only refuses what the example is not
        return None
    kind = "branch" if text.startswith(_BAKED + "boolean") else "number"
    return {"what": line, "source": "{}:{}".format(file, warning.lineno), "kind": kind}


def _run_eagerly(job: Wire, call: eager.Call, result: Wire, phase: Phase) -> None:
    cases, names = job["cases"], result["input_names"]
    sample = eager.save(call.sample(), os.path.join(job["output"], "sample"))
    result["sample"] = [] if None in sample else sample
    result["eager_reason"] = eager.reason_against(call, cases, names)
    if result["eager_reason"]:
        return
    _leave_out_unused(result, cases)

    def below(name: str) -> str:
        return os.path.join(job["output"], name)

    folders = folders_of(job)
    result["eager"] = eager.run_all(call, cases, names, below("eager"), folders, phase)
    if job["float64"]:
        result["eager64"] = eager.run_all_in_float64(call, cases, names, below("eager64"), folders, phase)


def _leave_out_unused(result: Wire, cases: Sequence[Wire]) -> None:
    """Of the example, keep what the model takes too."""
    taken = cases[0]["inputs"] if cases else result["input_names"]
    if len(result["sample"]) == len(result["input_names"]) > len(taken):
        pairs = zip(result["input_names"], result["sample"])  # noqa: B905 - new in Python 3.10
        kept = [pair for pair in pairs if pair[0] in taken]
        result["input_names"], result["sample"] = [name for name, _ in kept], [path for _, path in kept]
