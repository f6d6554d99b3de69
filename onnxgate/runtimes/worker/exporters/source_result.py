"""Values returned by the user's callable: a model with its inputs and export options."""

from __future__ import annotations

import difflib
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence

from .source import SourceError, split_source


class SourceResult(NamedTuple):
    """Parts of the value that the user's callable returned; each framework accepts some of them."""

    model: Any
    args: Any = None
    kwargs: Any = None
    input_names: Optional[Sequence[str]] = None
    output_names: Optional[Sequence[str]] = None
    dynamic_shapes: Any = None
    dynamic_axes: Any = None
    dynamo: bool = True
    options: Optional[Mapping[Any, Any]] = None


def unexpected_return(source: str, problem: str) -> SourceError:
    """Return the error that the callable of `source` returned something else than expected."""
    return SourceError(f"`{split_source(source)[1]}` returned {problem}")


def read_source_result(value: Any, source: str, expected: str, keys: Sequence[str]) -> SourceResult:
    """Read `(model, args)`, or a mapping with `model` and some of `keys`. Raises `SourceError` with `expected`."""
    if isinstance(value, tuple) and len(value) == 2:
        return SourceResult(*value)
    if not isinstance(value, Mapping):
        raise unexpected_return(source, f"{describe_value(value)}; expected {expected}")
    recipe = SourceResult(**_check_keys(value, source, expected, keys))
    for key in ("input_names", "output_names"):
        names = getattr(recipe, key)
        if names is not None and (not isinstance(names, (list, tuple)) or not all(isinstance(e, str) for e in names)):
            raise unexpected_return(source, f"{describe_value(names)} as `{key}`; expected a list of names")
    return recipe


def _check_keys(value: Mapping[Any, Any], source: str, expected: str, keys: Sequence[str]) -> Dict[str, Any]:
    for key in value:
        if key not in ("model", *keys):
            near = difflib.get_close_matches(str(key), keys, 1)
            hint = f"did you mean `{near[0]}`?" if near else "known are " + ", ".join(dict.fromkeys(("model", *keys)))
            raise unexpected_return(source, f"a mapping with the unknown key `{key}`; {hint}")
    if "model" not in value:
        raise unexpected_return(source, f"a mapping without `model`; expected {expected}")
    return dict(value)


def check_name_count(count: int, names: Optional[Sequence[str]], what: str, source: str) -> None:
    """Raise `SourceError` if names are given, but not `count` of them."""
    if names is not None and len(names) != count:
        raise unexpected_return(source, f"{len(names)} names as `{what}`; the model has {count}")


def describe_value(value: Any) -> str:
    """Return the description of a value for messages."""
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else describe_type(value)


def describe_type(value: Any) -> str:
    """Return the type of a value for messages."""
    return "None" if value is None else f"a value of type `{type(value).__name__}`"
