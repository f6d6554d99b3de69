"""Values returned by the user's callable: a model with its inputs and export options."""

from __future__ import annotations

import difflib
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from .source import SourceError, split_source


class SourceResult(NamedTuple):
    """Parts of the value that the user's callable returned."""

    model: Any
    args: Any = None
    input_names: Optional[Sequence[str]] = None
    output_names: Optional[Sequence[str]] = None
    dynamic_shapes: Any = None
    options: Optional[Mapping[Any, Any]] = None


def read_source_result(value: Any, source: str, expected: str, keys: Sequence[str]) -> SourceResult:
    """Read `(model, args)`, or a mapping with `model` and some of `keys`. Raises `SourceError` with `expected`."""
    name = "`{}`".format(split_source(source)[1])
    if isinstance(value, Mapping):
        return _check_names(SourceResult(**_check_keys(value, name, expected, keys)), name)
    if isinstance(value, tuple) and len(value) == 2:
        return SourceResult(*value)
    raise SourceError("{} returned {}; expected {}".format(name, describe_value(value), expected))


def _check_keys(value: Mapping[Any, Any], name: str, expected: str, keys: Sequence[str]) -> Dict[str, Any]:
    for key in value:
        if key not in ("model", *keys):
            near = difflib.get_close_matches(str(key), keys, 1)
            meant = "; did you mean `{}`?".format(near[0]) if near else "; known are model, " + ", ".join(keys)
            raise SourceError("{} returned a mapping with the unknown key `{}`{}".format(name, key, meant))
    if "model" not in value:
        raise SourceError("{} returned a mapping without `model`; expected {}".format(name, expected))
    return dict(value)


def _check_names(given: SourceResult, name: str) -> SourceResult:
    for key in ("input_names", "output_names"):
        names = getattr(given, key)
        if names is not None and (not isinstance(names, (list, tuple)) or not all(isinstance(e, str) for e in names)):
            raise SourceError(
                "{} returned {} as `{}`; expected a list of names".format(name, describe_value(names), key)
            )
    return given


def check_name_count(count: int, names: Optional[Sequence[str]], what: str, source: str) -> None:
    """Raise `SourceError` if names are given, but not `count` of them."""
    if names is not None and len(names) != count:
        text = "`{}` returned {} names as `{}`; the model has {}"
        raise SourceError(text.format(split_source(source)[1], len(names), what, count))


def describe_value(value: Any) -> str:
    """Return the description of a value for messages."""
    if isinstance(value, tuple):
        return "a tuple of {}".format(len(value))
    return "None" if value is None else "a value of type `{}`".format(type(value).__name__)


_TORCH_KEYS = (
    *("model", "args", "kwargs", "input_names", "output_names"),
    *("dynamic_shapes", "dynamic_axes", "dynamo"),
)
_TORCH_EXPECTED = "`(module, args)` or a mapping with `model` and `args`"


class TorchSourceResult(NamedTuple):
    """Parts of the value that the user's callable returned, which are the arguments of `torch.onnx.export`."""

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
        """Name of the exporter in messages."""
        return "dynamo" if self.dynamo else "TorchScript"


def read_torch_result(returned: Any, source: str) -> TorchSourceResult:
    """Read the value that the callable returned. Raises `SourceError` that names the expected form."""
    if isinstance(returned, Mapping):
        return _check_torch_result(_torch_result_from_mapping(returned, source), source)
    if isinstance(returned, tuple) and len(returned) == 2:
        return _check_torch_result(TorchSourceResult(*returned, kwargs={}), source)
    raise SourceError(
        "{} returned {}; expected {}".format(_quoted_name(source), _describe_torch_value(returned), _TORCH_EXPECTED)
    )


def _torch_result_from_mapping(returned: Mapping[str, Any], source: str) -> TorchSourceResult:
    for key in returned:
        if key not in _TORCH_KEYS:
            near = difflib.get_close_matches(str(key), _TORCH_KEYS, 1)
            meant = "; did you mean `{}`?".format(near[0]) if near else "; known are " + ", ".join(_TORCH_KEYS)
            raise SourceError(
                "{} returned a mapping with the unknown key `{}`{}".format(_quoted_name(source), key, meant)
            )
    if "model" not in returned:
        raise SourceError(
            "{} returned a mapping without `model`; expected {}".format(_quoted_name(source), _TORCH_EXPECTED)
        )
    return TorchSourceResult(**{"args": (), **returned, "kwargs": dict(returned.get("kwargs") or {})})


def _check_torch_result(recipe: TorchSourceResult, source: str) -> TorchSourceResult:
    import torch

    if not isinstance(recipe.model, torch.nn.Module):
        raise SourceError(
            "{} returned {} as the model; expected a `torch.nn.Module`".format(
                _quoted_name(source), _describe_torch_value(recipe.model)
            )
        )
    _check_torch_options(recipe, source)
    args, kwargs = recipe.args, recipe.kwargs
    if isinstance(args, torch.Tensor):
        args = (args,)
    if not isinstance(args, (tuple, list)):
        raise SourceError(
            "{} returned {} as `args`; expected a tuple".format(_quoted_name(source), _describe_torch_value(args))
        )
    args = tuple(args)
    if not kwargs and args and isinstance(args[-1], dict):  # as `torch.onnx.export` reads it
        args, kwargs = args[:-1], args[-1]
    return recipe._replace(args=args, kwargs=kwargs)


def _check_torch_options(recipe: TorchSourceResult, source: str) -> None:
    if not isinstance(recipe.dynamo, bool):
        raise SourceError(
            "{} returned {} as `dynamo`; expected True or False".format(
                _quoted_name(source), _describe_torch_value(recipe.dynamo)
            )
        )
    if recipe.dynamic_shapes is not None and not recipe.dynamo:
        raise SourceError(
            "{} returned `dynamic_shapes` with `dynamo: False`; expected `dynamic_axes`, "
            "which is what the TorchScript exporter takes".format(_quoted_name(source))
        )
    for key in ("input_names", "output_names"):
        names = getattr(recipe, key)
        if names is not None and (not isinstance(names, (list, tuple)) or not all(isinstance(e, str) for e in names)):
            said = "{} returned {} as `{}`; expected a list of names"
            raise SourceError(said.format(_quoted_name(source), _describe_torch_value(names), key))


def _quoted_name(source: str) -> str:
    return "`{}`".format(split_source(source)[1])


def _describe_torch_value(value: Any) -> str:
    if isinstance(value, tuple):
        return "a tuple of {}".format(len(value))
    return "None" if value is None else "a value of type `{}`".format(type(value).__name__)
