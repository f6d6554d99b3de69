"""PyTorch: a callable's module exported with `torch.onnx.export`, and run as it is."""

from __future__ import annotations

import difflib
import os
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import eager
from .failure import describe
from .results import finish
from .seeding import seed
from .source import SourceError, folders_of, split

Phase = Callable[[str], None]
Wire = Dict[str, Any]

PACKAGES = ("torch", "onnx", "onnxscript", "onnx-ir", "numpy")
_KEYS = ("model", "args", "kwargs", "input_names", "output_names", "dynamic_shapes")
_EXPECTED = "`(module, args)` or a mapping with `model` and `args`"


class Recipe(NamedTuple):
    """What the user's callable returned: all that `torch.onnx.export` is to be told."""

    model: Any
    args: Tuple[Any, ...]
    kwargs: Dict[str, Any]
    input_names: Optional[Sequence[str]] = None
    output_names: Optional[Sequence[str]] = None
    dynamic_shapes: Any = None


def answer(job: Wire, returned: Any, result: Wire, phase: Phase) -> None:
    """Export what the callable returned and run it on the cases, into `result`. Raises `SourceError`."""
    import torch

    recipe = read_recipe(returned, job["source"])
    result["was_training"] = any(part.training for part in recipe.model.modules())
    recipe.model.eval()
    call = eager.Call.of(recipe.model, recipe.args, recipe.kwargs)
    aside = eager.twin(call) if job["export"] else call
    if job["export"]:
        _try_export(job, recipe, result, phase)
    if len(recipe.input_names or ()) == len(call.tensors):
        result["input_names"] = list(recipe.input_names or ())
    del recipe, call
    with torch.no_grad():
        _run_eagerly(job, aside, result, phase)


def read_recipe(returned: Any, source: str) -> Recipe:
    """What the callable returned, in one form. Raises `SourceError` with what was expected."""
    if isinstance(returned, Mapping):
        return _checked(_from_mapping(returned, source), source)
    if isinstance(returned, tuple) and len(returned) == 2:
        return _checked(Recipe(*returned, kwargs={}), source)
    raise SourceError("{} returned {}; expected {}".format(_named(source), _kind(returned), _EXPECTED))


def _from_mapping(returned: Mapping[str, Any], source: str) -> Recipe:
    for key in returned:
        if key not in _KEYS:
            near = difflib.get_close_matches(str(key), _KEYS, 1)
            meant = "; did you mean `{}`?".format(near[0]) if near else "; known are " + ", ".join(_KEYS)
            raise SourceError("{} returned a mapping with the unknown key `{}`{}".format(_named(source), key, meant))
    if "model" not in returned:
        raise SourceError("{} returned a mapping without `model`; expected {}".format(_named(source), _EXPECTED))
    return Recipe(**{"args": (), **returned, "kwargs": dict(returned.get("kwargs") or {})})


def _checked(recipe: Recipe, source: str) -> Recipe:
    import torch

    if not isinstance(recipe.model, torch.nn.Module):
        raise SourceError(
            "{} returned {} as the model; expected a `torch.nn.Module`".format(_named(source), _kind(recipe.model))
        )
    args, kwargs = recipe.args, recipe.kwargs
    if isinstance(args, torch.Tensor):
        args = (args,)
    if not isinstance(args, (tuple, list)):
        raise SourceError("{} returned {} as `args`; expected a tuple".format(_named(source), _kind(args)))
    args = tuple(args)
    if not kwargs and args and isinstance(args[-1], dict):  # as `torch.onnx.export` reads it
        args, kwargs = args[:-1], args[-1]
    return recipe._replace(args=args, kwargs=kwargs)


def _named(source: str) -> str:
    return "`{}`".format(split(source)[1])


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return "a tuple of {}".format(len(value))
    return "None" if value is None else "a value of type `{}`".format(type(value).__name__)


def _try_export(job: Wire, recipe: Recipe, result: Wire, phase: Phase) -> None:
    phase("export")
    path = os.path.join(job["output"], "model.onnx")
    try:
        _export(job, recipe, path)
        result["input_names"] = finish(path, job)
        result["model"] = path
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever an exporter says is the result
        result["failure"] = describe(error, folders_of(job))


def _export(job: Wire, recipe: Recipe, path: str) -> None:
    import torch

    asked: Dict[str, Any] = {} if job["opset"] is None else {"opset_version": job["opset"]}
    seed()
    torch.onnx.export(
        recipe.model,
        recipe.args,
        path,
        kwargs=recipe.kwargs,
        input_names=recipe.input_names,
        output_names=recipe.output_names,
        dynamic_shapes=recipe.dynamic_shapes,
        dynamo=True,
        verbose=False,
        external_data=job["external_data"],
        **asked,
    )


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
