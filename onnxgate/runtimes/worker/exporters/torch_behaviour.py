"""Behaviour of a PyTorch source that its graph may lose: returned values, state, and axes that grow."""

from __future__ import annotations

import contextlib
import copy
import inspect
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .source import seed_generators
from .source_result import TorchSourceResult
from .torch_eager import ModuleCall, copy_leaf, without_attention_fastpath

Wire = Dict[str, Any]

MAX_AXIS_SIZE = 4096
"""Largest size of an axis in trial calls."""


def observe_call(call: ModuleCall, wanted: Sequence[RequestedAxis]) -> Wire:
    """Return leaves, changed buffers and output axes that grow; nothing if the source cannot be called."""
    with _restore_module(call.module):
        before = _copy_buffers(call.module)
        first = _call_module(call)
        if first is None:
            return {}
        tensors, leaves = _copy_tensors(first), _describe_leaves(first)
        between = _copy_buffers(call.module)
        second = _call_module(call)
        after = dict(call.module.named_buffers())
    remembers = second is not None and not _are_all_equal(tensors, _copy_tensors(second))
    changed = [name for name, buffer in between.items() if not _are_equal(buffer, before.get(name))]
    caches = [name for name in changed if not remembers and _is_cache(before.get(name), between[name], after.get(name))]
    return {
        "leaves": leaves,
        "mutated": sorted(set(changed) - set(caches)),
        "remembers": remembers,
        "grown": _find_grown_axes(call, wanted, tensors),
    }


def _copy_buffers(module: Any) -> Dict[str, Any]:
    return {name: buffer.detach().clone() for name, buffer in module.named_buffers()}


def _is_cache(before: Any, between: Any, after: Any) -> bool:
    """Return whether a first call created or enlarged the buffer, and a second one left it unchanged, as for masks."""
    made = before is None or before.shape != between.shape
    return made and after is not None and _are_equal(after, between)


def find_size_beyond(call: ModuleCall, narrow: NarrowedAxes) -> Optional[int]:
    """Return a size just outside the exported program's range that the source itself accepts; None if there is none."""
    beyond = [narrow.lowest - 1] if narrow.lowest > MIN_DYNAMIC_SIZE else []
    if narrow.highest is not None and narrow.highest < MAX_AXIS_SIZE:
        beyond.append(narrow.highest + 1)
    for size in beyond:
        with _restore_module(call.module):
            if _call_module(_resize_axes(call, dict.fromkeys(narrow.axes, size))) is not None:
                return size
    return None


def do_branches_vary(call: ModuleCall) -> bool:
    """Return whether the source converts tensors to other Python values for other numbers of the same kind."""
    import torch

    def turned(change: Any) -> Optional[List[Any]]:
        leaves = [change(leaf) if _is_float(leaf) else leaf for leaf in call.leaves]
        with _restore_module(call.module), _record_branches() as made:
            return made if _call_module(call._replace(leaves=tuple(leaves))) is not None else None

    first = turned(lambda leaf: leaf)
    others = [turned(change) for change in (torch.neg, torch.zeros_like, lambda leaf: 2 * leaf + 1)]
    return first is not None and any(made is not None and made != first for made in others)


def _is_float(leaf: Any) -> bool:
    import torch

    return isinstance(leaf, torch.Tensor) and leaf.dtype.is_floating_point


@contextlib.contextmanager
def _record_branches() -> Iterator[List[Any]]:
    """Collect every truth value that is computed from a tensor in the block, in order."""
    from torch import Tensor
    from torch.overrides import TorchFunctionMode

    made: List[Any] = []

    class Listening(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            value = function(*args, **(kwargs or {}))
            if function is Tensor.__bool__:
                made.append(value)
            return value

    with Listening():
        yield made


def _call_module(call: ModuleCall) -> Any:
    """Return the module's result in a tuple, None if it fails: the run on the cases reports the error."""
    import torch
    from torch.utils import _pytree

    args, kwargs = _pytree.tree_unflatten([copy_leaf(leaf) for leaf in call.leaves], call.spec)
    seed_generators()
    try:
        with torch.no_grad(), without_attention_fastpath():
            return (call.module(*args, **kwargs),)
    except Exception:  # noqa: BLE001 - the user's code can raise anything
        return None


def _describe_leaves(returned: Any) -> List[Wire]:
    import torch
    from torch.utils import _pytree

    found = []
    with_path = getattr(_pytree, "tree_flatten_with_path", None)
    pairs = with_path(returned[0])[0] if with_path else [((), leaf) for leaf in _pytree.tree_leaves(returned[0])]
    for path, leaf in pairs:
        kind = "tensor" if isinstance(leaf, torch.Tensor) else "none" if leaf is None else "other"
        found.append({"key": _leaf_name(path), "kind": kind})
    return found


def _leaf_name(path: Sequence[Any]) -> str:
    """Return the leaf's name, such as `plus`, or `states_0` for a part of a value; "" if its path has no name."""
    names = [getattr(part, "key", getattr(part, "name", None)) for part in path]
    if not any(isinstance(name, str) for name in names):
        return ""
    return "_".join(str(getattr(part, "idx", name)) for part, name in zip(path, names))  # noqa: B905 - Python 3.10


def _copy_tensors(returned: Any) -> List[Any]:
    import torch
    from torch.utils import _pytree

    return [leaf.clone() for leaf in _pytree.tree_leaves(returned) if isinstance(leaf, torch.Tensor)]


def _find_grown_axes(call: ModuleCall, wanted: Sequence[RequestedAxis], before: List[Any]) -> List[Wire]:
    """Return axes of outputs that change when all dynamic axes grow by one, or double if that fails."""
    sizes = {(each.input, each.axis): _axis_size(call, each.input, each.axis) for each in wanted}
    sizes = {where: size for where, size in sizes.items() if size}
    for longer in ({k: size + 1 for k, size in sizes.items()}, {k: 2 * size for k, size in sizes.items()}):
        if longer and max(longer.values()) <= MAX_AXIS_SIZE:
            with _restore_module(call.module):
                after = _call_module(_resize_axes(call, longer))
            if after is not None:
                return list(_changed_axes(before, _copy_tensors(after)))
    return []


def _changed_axes(before: List[Any], after: List[Any]) -> Iterator[Wire]:
    for output, (small, large) in enumerate(zip(before, after)):  # noqa: B905 - new in Python 3.10
        if small.dim() == large.dim():
            for axis, pair in enumerate(zip(small.shape, large.shape)):  # noqa: B905 - new in Python 3.10
                if pair[0] != pair[1]:
                    yield {"output": output, "axis": axis, "size": int(pair[0]), "grown": int(pair[1])}


def _axis_size(call: ModuleCall, number: int, axis: int) -> int:
    return int(call.leaves[call.tensors[number]].shape[axis])


def _resize_axes(call: ModuleCall, sizes: Dict[Tuple[int, int], int]) -> ModuleCall:
    """Return the call with these axes of its tensors repeated or cut to these sizes, without new values."""
    import torch

    leaves = list(call.leaves)
    for (number, axis), size in sizes.items():
        tensor = leaves[call.tensors[number]]
        count = max(1, int(tensor.shape[axis]))
        leaves[call.tensors[number]] = tensor.index_select(axis, torch.arange(size, device=tensor.device) % count)
    return call._replace(leaves=tuple(leaves))


def _are_all_equal(first: List[Any], second: List[Any]) -> bool:
    return len(first) == len(second) and all(_are_equal(a, b) for a, b in zip(first, second))  # noqa: B905 - Python 3.10


def _are_equal(a: Any, b: Any) -> bool:
    if b is None or a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())  # noqa: PLR0124 - NaN is not equal to itself


@contextlib.contextmanager
def _restore_module(module: Any) -> Iterator[None]:
    """Restore the module after the block: its buffers, and its other attributes one level deep."""
    kept = [
        (part, {name: _copy_container(value) for name, value in part.__dict__.items()}) for part in module.modules()
    ]
    values = [(tensor, tensor.detach().clone()) for tensor in _module_tensors(module)]
    try:
        yield
    finally:
        for part, held in kept:
            part.__dict__.clear()
            part.__dict__.update(held)
        for tensor, before in values:
            tensor.detach().copy_(before)


def _module_tensors(module: Any) -> Iterator[Any]:
    """Yield buffers, and tensors that are plain attributes. Parameters are not changed by a call without gradients."""
    import torch

    yield from module.buffers()
    for part in module.modules():
        yield from (value for value in part.__dict__.values() if isinstance(value, torch.Tensor))


def _copy_container(value: Any) -> Any:
    return copy.copy(value) if isinstance(value, (dict, list, set)) else value


MIN_DYNAMIC_SIZE = 2
"""torch.export may exclude the sizes 0 and 1 without any reason in the source. Source: torch 2.13."""


class RequestedAxis(NamedTuple):
    """An axis of a tensor input that may have other sizes; `input` is the tensor's position."""

    input: int
    axis: int
    name: str
    promised: bool  # False: the exporter was left to decide (`Dim.AUTO`)
    lowest: int = 0
    highest: Optional[int] = None


class NarrowedAxes(NamedTuple):
    """Sizes of one symbol that the exported program supports, and the axes of the symbol."""

    axes: Tuple[Tuple[int, int], ...]
    lowest: int
    highest: Optional[int]


def find_requested_axes(recipe: TorchSourceResult, call: ModuleCall) -> List[RequestedAxis]:
    """Return axes of tensor inputs, from `dynamic_shapes`, or from `dynamic_axes` if its names are known."""
    if recipe.dynamic_axes:
        return list(_requested_by_name(recipe, call))
    given = leaves_by_parameter(call)
    spec = recipe.dynamic_shapes
    if isinstance(spec, Mapping):
        pairs = [(value, spec[name]) for name, value in given.items() if name in spec]
    elif isinstance(spec, (list, tuple)):
        pairs = list(zip(given.values(), spec))  # noqa: B905 - new in Python 3.10
    else:
        return []
    return [each for value, part in pairs for each in _requested_in(value, part, call)]


def leaves_by_parameter(call: ModuleCall) -> Dict[str, Any]:
    """Return the arguments by parameter of the module, each leaf as its position among all leaves."""
    from torch.utils import _pytree

    args, kwargs = _pytree.tree_unflatten(list(range(len(call.leaves))), call.spec)
    try:
        return dict(inspect.signature(call.module.forward).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):  # the call itself reports the error
        return {}


def parameter_names(call: ModuleCall) -> List[str]:
    """Return the module's names of its tensor inputs; empty if one of them is only a part of a parameter."""
    names = {position: name for name, position in leaves_by_parameter(call).items() if isinstance(position, int)}
    found = [names.get(position, "") for position in call.tensors]
    return found if all(found) else []


def read_named_axes(recipe: TorchSourceResult) -> Iterator[Wire]:
    """Yield the entries of `dynamic_axes`, by names of inputs and of outputs."""
    for value, axes in dict(recipe.dynamic_axes or {}).items():
        for axis, name in _axis_items(axes):
            if isinstance(axis, int):
                yield {"value": str(value), "axis": axis, "name": name if isinstance(name, str) else ""}


def _axis_items(axes: Any) -> List[Tuple[Any, Any]]:
    if isinstance(axes, Mapping):
        return list(axes.items())
    return [(axis, "") for axis in axes] if isinstance(axes, (list, tuple)) else []


def _requested_by_name(recipe: TorchSourceResult, call: ModuleCall) -> Iterator[RequestedAxis]:
    names = list(recipe.input_names or parameter_names(call))
    for axis in read_named_axes(recipe):
        if len(names) == len(call.tensors) and axis["value"] in names:
            number = names.index(axis["value"])
            tensor = call.leaves[call.tensors[number]]
            if -tensor.dim() <= axis["axis"] < tensor.dim():
                yield RequestedAxis(number, axis["axis"] % tensor.dim(), axis["name"], True)


def _requested_in(value: Any, spec: Any, call: ModuleCall) -> Iterator[RequestedAxis]:
    """Yield the axes of a parameter's value and its specification, which have the same structure."""
    if isinstance(value, int):
        if value in call.tensors:
            yield from _requested_of_tensor(call.tensors.index(value), call.leaves[value].dim(), spec)
    elif isinstance(value, Mapping) and isinstance(spec, Mapping):
        for key in value:
            yield from _requested_in(value[key], spec.get(key), call)
    elif isinstance(value, (list, tuple)) and isinstance(spec, (list, tuple)):
        for part, inner in zip(value, spec):  # noqa: B905 - new in Python 3.10
            yield from _requested_in(part, inner, call)


def _requested_of_tensor(number: int, rank: int, spec: Any) -> Iterator[RequestedAxis]:
    if isinstance(spec, Mapping):
        items = list(spec.items())
    else:
        items = list(enumerate(spec)) if isinstance(spec, (list, tuple)) else []
    for axis, dim in items:
        hint = getattr(getattr(dim, "type", None), "name", "")
        if dim is None or isinstance(dim, int) or hint == "STATIC" or not isinstance(axis, int) or axis >= rank:
            continue
        name = dim if isinstance(dim, str) else str(getattr(dim, "__name__", ""))
        yield RequestedAxis(
            number, axis % rank, name, hint != "AUTO", _finite_bound(getattr(dim, "min", 0)) or 0, _upper_bound(dim)
        )


def _upper_bound(dim: Any) -> Optional[int]:
    return _finite_bound(getattr(dim, "max", None))


def _finite_bound(bound: Any) -> Optional[int]:
    """Return a bound as a number; None for infinity, which has its own type in PyTorch."""
    try:
        return int(bound)
    except (TypeError, ValueError, OverflowError, AttributeError, AssertionError):
        return None


def find_narrowed_axes(program: Any, wanted: List[RequestedAxis]) -> List[NarrowedAxes]:
    """Return symbols for which the program supports fewer sizes than requested; none if it has no symbols."""
    symbols: Dict[Any, List[Tuple[int, int]]] = {}
    for number, shape in enumerate(_input_shapes(program)):
        for axis, size in enumerate(shape):
            expression = getattr(getattr(size, "node", None), "expr", None)
            if getattr(expression, "is_Symbol", False):
                symbols.setdefault(expression, []).append((number, axis))
    found = []
    for symbol, axes in symbols.items():
        bounds = program.range_constraints.get(symbol)
        asks = [each for each in wanted if (each.input, each.axis) in axes]
        if bounds is not None and asks:
            found.append(_narrow_symbol(bounds, axes, asks))
    return [each for each in found if each is not None]


def _narrow_symbol(bounds: Any, axes: List[Tuple[int, int]], asks: List[RequestedAxis]) -> Optional[NarrowedAxes]:
    lowest, highest = _finite_bound(bounds.lower) or 0, _finite_bound(bounds.upper)
    limit = min((ask.highest for ask in asks if ask.highest is not None), default=None)
    raised = lowest > max(MIN_DYNAMIC_SIZE, *(ask.lowest for ask in asks))
    lowered = highest is not None and (limit is None or highest < limit)
    return NarrowedAxes(tuple(axes), lowest, highest) if raised or lowered else None


def _input_shapes(program: Any) -> Iterator[Tuple[Any, ...]]:
    """Yield the shapes of the program's input tensors, in order."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    for name in program.graph_signature.user_inputs:
        shape = getattr(values.get(name), "shape", None) if isinstance(name, str) else None
        if shape is not None:
            yield tuple(shape)
