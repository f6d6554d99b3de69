"""What a source of another framework than PyTorch returns: a model with its inputs, and how it is to be exported."""

from __future__ import annotations

import difflib
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence

from .source import SourceError, split


class Returned(NamedTuple):
    """The parts of what the user's callable returned."""

    model: Any
    args: Any = None
    input_names: Optional[Sequence[str]] = None
    output_names: Optional[Sequence[str]] = None
    dynamic_shapes: Any = None
    options: Optional[Mapping[Any, Any]] = None


def read(value: Any, source: str, expected: str, keys: Sequence[str]) -> Returned:
    """`(model, args)`, or a mapping with `model` and some of `keys`. Raises `SourceError` with what was `expected`."""
    name = "`{}`".format(split(source)[1])
    if isinstance(value, Mapping):
        return _checked(Returned(**_known(value, name, expected, keys)), name)
    if isinstance(value, tuple) and len(value) == 2:
        return Returned(*value)
    raise SourceError("{} returned {}; expected {}".format(name, kind(value), expected))


def _known(value: Mapping[Any, Any], name: str, expected: str, keys: Sequence[str]) -> Dict[str, Any]:
    for key in value:
        if key not in ("model", *keys):
            near = difflib.get_close_matches(str(key), keys, 1)
            meant = "; did you mean `{}`?".format(near[0]) if near else "; known are model, " + ", ".join(keys)
            raise SourceError("{} returned a mapping with the unknown key `{}`{}".format(name, key, meant))
    if "model" not in value:
        raise SourceError("{} returned a mapping without `model`; expected {}".format(name, expected))
    return dict(value)


def _checked(given: Returned, name: str) -> Returned:
    for key in ("input_names", "output_names"):
        names = getattr(given, key)
        if names is not None and (not isinstance(names, (list, tuple)) or not all(isinstance(e, str) for e in names)):
            raise SourceError("{} returned {} as `{}`; expected a list of names".format(name, kind(names), key))
    return given


def need(count: int, names: Optional[Sequence[str]], what: str, source: str) -> None:
    """Raise `SourceError` where there are names, and not one for each."""
    if names is not None and len(names) != count:
        text = "`{}` returned {} names as `{}`; the model has {}"
        raise SourceError(text.format(split(source)[1], len(names), what, count))


def kind(value: Any) -> str:
    """What messages call a value."""
    if isinstance(value, tuple):
        return "a tuple of {}".format(len(value))
    return "None" if value is None else "a value of type `{}`".format(type(value).__name__)
