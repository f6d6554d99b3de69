"""What a PyTorch source returns: a module with the arguments of its call, and how it wants to be exported."""

from __future__ import annotations

import difflib
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from .source import SourceError, split

_KEYS = (
    *("model", "args", "kwargs", "input_names", "output_names"),
    *("dynamic_shapes", "dynamic_axes", "dynamo"),
)
_EXPECTED = "`(module, args)` or a mapping with `model` and `args`"


class Recipe(NamedTuple):
    """What the user's callable returned: all that `torch.onnx.export` is to be told."""

    model: Any
    args: Tuple[Any, ...]
    kwargs: Dict[str, Any]
    input_names: Optional[Sequence[str]] = None
    output_names: Optional[Sequence[str]] = None
    dynamic_shapes: Any = None
    dynamic_axes: Any = None
    dynamo: bool = True

    @property
    def exporter(self) -> str:
        """What messages call it."""
        return "dynamo" if self.dynamo else "TorchScript"


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
    _check_options(recipe, source)
    args, kwargs = recipe.args, recipe.kwargs
    if isinstance(args, torch.Tensor):
        args = (args,)
    if not isinstance(args, (tuple, list)):
        raise SourceError("{} returned {} as `args`; expected a tuple".format(_named(source), _kind(args)))
    args = tuple(args)
    if not kwargs and args and isinstance(args[-1], dict):  # as `torch.onnx.export` reads it
        args, kwargs = args[:-1], args[-1]
    return recipe._replace(args=args, kwargs=kwargs)


def _check_options(recipe: Recipe, source: str) -> None:
    if not isinstance(recipe.dynamo, bool):
        raise SourceError(
            "{} returned {} as `dynamo`; expected True or False".format(_named(source), _kind(recipe.dynamo))
        )
    if recipe.dynamic_shapes is not None and not recipe.dynamo:
        raise SourceError(
            "{} returned `dynamic_shapes` with `dynamo: False`; expected `dynamic_axes`, "
            "which is what the TorchScript exporter takes".format(_named(source))
        )
    for key in ("input_names", "output_names"):
        names = getattr(recipe, key)
        if names is not None and (not isinstance(names, (list, tuple)) or not all(isinstance(e, str) for e in names)):
            said = "{} returned {} as `{}`; expected a list of names"
            raise SourceError(said.format(_named(source), _kind(names), key))


def _named(source: str) -> str:
    return "`{}`".format(split(source)[1])


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return "a tuple of {}".format(len(value))
    return "None" if value is None else "a value of type `{}`".format(type(value).__name__)
