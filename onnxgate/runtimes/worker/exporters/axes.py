"""Dynamic axes: those that a source asks for, and the sizes for which the exported program holds."""

from __future__ import annotations

import inspect
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from .eager import Call
from .recipe import Recipe

Wire = Dict[str, Any]

SMALLEST = 2
"""Below it lie 0 and 1, which torch.export may rule out without any reason in the source. Source: torch 2.13."""


class Asked(NamedTuple):
    """An axis of a tensor input that may have other sizes, by the tensor's position."""

    input: int
    axis: int
    name: str
    promised: bool  # False: the exporter was left to decide (`Dim.AUTO`)
    lowest: int = 0
    highest: Optional[int] = None


class Narrow(NamedTuple):
    """Sizes of one symbol that the exported program holds for, and the axes that have it."""

    axes: Tuple[Tuple[int, int], ...]
    lowest: int
    highest: Optional[int]


def asked(recipe: Recipe, call: Call) -> List[Asked]:
    """Axes of tensor inputs, by `dynamic_shapes`, or by `dynamic_axes` where its names are known."""
    if recipe.dynamic_axes:
        return list(_by_name(recipe, call))
    given = given_by_name(call)
    spec = recipe.dynamic_shapes
    if isinstance(spec, Mapping):
        pairs = [(value, spec[name]) for name, value in given.items() if name in spec]
    elif isinstance(spec, (list, tuple)):
        pairs = list(zip(given.values(), spec))  # noqa: B905 - new in Python 3.10
    else:
        return []
    return [each for value, part in pairs for each in _axes(value, part, call)]


def given_by_name(call: Call) -> Dict[str, Any]:
    """What the module's parameters are given, each leaf as its position among all leaves."""
    from torch.utils import _pytree

    args, kwargs = _pytree.tree_unflatten(list(range(len(call.leaves))), call.spec)
    try:
        return dict(inspect.signature(call.module.forward).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):  # the call itself will say it
        return {}


def parameters(call: Call) -> List[str]:
    """What the module calls its tensor inputs; empty where one of them is only a part of a parameter."""
    names = {position: name for name, position in given_by_name(call).items() if isinstance(position, int)}
    found = [names.get(position, "") for position in call.tensors]
    return found if all(found) else []


def named_axes(recipe: Recipe) -> Iterator[Wire]:
    """`dynamic_axes` as it is written: by names of inputs and of outputs."""
    for value, axes in dict(recipe.dynamic_axes or {}).items():
        for axis, name in _numbered(axes):
            if isinstance(axis, int):
                yield {"value": str(value), "axis": axis, "name": name if isinstance(name, str) else ""}


def _numbered(axes: Any) -> List[Tuple[Any, Any]]:
    if isinstance(axes, Mapping):
        return list(axes.items())
    return [(axis, "") for axis in axes] if isinstance(axes, (list, tuple)) else []


def _by_name(recipe: Recipe, call: Call) -> Iterator[Asked]:
    names = list(recipe.input_names or parameters(call))
    for each in named_axes(recipe):
        if len(names) == len(call.tensors) and each["value"] in names:
            number = names.index(each["value"])
            tensor = call.leaves[call.tensors[number]]
            if -tensor.dim() <= each["axis"] < tensor.dim():
                yield Asked(number, each["axis"] % tensor.dim(), each["name"], True)


def _axes(value: Any, spec: Any, call: Call) -> Iterator[Asked]:
    """Walk a parameter's value and its specification side by side."""
    if isinstance(value, int):
        if value in call.tensors:
            yield from _axes_of_tensor(call.tensors.index(value), call.leaves[value].dim(), spec)
    elif isinstance(value, Mapping) and isinstance(spec, Mapping):
        for key in value:
            yield from _axes(value[key], spec.get(key), call)
    elif isinstance(value, (list, tuple)) and isinstance(spec, (list, tuple)):
        for part, inner in zip(value, spec):  # noqa: B905 - new in Python 3.10
            yield from _axes(part, inner, call)


def _axes_of_tensor(number: int, rank: int, spec: Any) -> Iterator[Asked]:
    if isinstance(spec, Mapping):
        items = list(spec.items())
    else:
        items = list(enumerate(spec)) if isinstance(spec, (list, tuple)) else []
    for axis, dim in items:
        hint = getattr(getattr(dim, "type", None), "name", "")
        if dim is None or isinstance(dim, int) or hint == "STATIC" or not isinstance(axis, int) or axis >= rank:
            continue
        name = dim if isinstance(dim, str) else str(getattr(dim, "__name__", ""))
        yield Asked(number, axis % rank, name, hint != "AUTO", _finite(getattr(dim, "min", 0)) or 0, _highest(dim))


def _highest(dim: Any) -> Optional[int]:
    return _finite(getattr(dim, "max", None))


def _finite(bound: Any) -> Optional[int]:
    """A bound as a number; None for infinity, which PyTorch has a type of its own for."""
    try:
        return int(bound)
    except (TypeError, ValueError, OverflowError, AttributeError, AssertionError):
        return None


def narrow(program: Any, wanted: List[Asked]) -> List[Narrow]:
    """Symbols of which the program holds for fewer sizes than were asked for; a program without symbols has none."""
    symbols: Dict[Any, List[Tuple[int, int]]] = {}
    for number, shape in enumerate(_shapes(program)):
        for axis, size in enumerate(shape):
            expression = getattr(getattr(size, "node", None), "expr", None)
            if getattr(expression, "is_Symbol", False):
                symbols.setdefault(expression, []).append((number, axis))
    found = []
    for symbol, axes in symbols.items():
        bounds = program.range_constraints.get(symbol)
        asks = [each for each in wanted if (each.input, each.axis) in axes]
        if bounds is not None and asks:
            found.append(_narrowed(bounds, axes, asks))
    return [each for each in found if each is not None]


def _narrowed(bounds: Any, axes: List[Tuple[int, int]], asks: List[Asked]) -> Optional[Narrow]:
    lowest, highest = _finite(bounds.lower) or 0, _finite(bounds.upper)
    limit = min((each.highest for each in asks if each.highest is not None), default=None)
    raised = lowest > max(SMALLEST, *(each.lowest for each in asks))
    lowered = highest is not None and (limit is None or highest < limit)
    return Narrow(tuple(axes), lowest, highest) if raised or lowered else None


def _shapes(program: Any) -> Iterator[Tuple[Any, ...]]:
    """The shapes of the tensors that the program is given, in their order."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    for name in program.graph_signature.user_inputs:
        shape = getattr(values.get(name), "shape", None) if isinstance(name, str) else None
        if shape is not None:
            yield tuple(shape)
