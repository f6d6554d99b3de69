"""Behavior of a PyTorch source that an export may lose: returned values, state, and dynamic output axes."""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
from functools import partial
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree

from .source import SourceResult, Wire
from .torch_eager import ModuleCall, is_float

MAX_AXIS_SIZE = 4096
"""Largest size of an axis in trial calls."""


def observe_call(call: ModuleCall, axes: Sequence[RequestedAxis]) -> Wire:
    """Return the output's leaves, the changed buffers and the dynamic output axes; empty if the call fails."""
    with _restore_module(call.module):
        before = _copy_buffers(call.module)
        first = _try_call(call)
        if first is None:
            return {}
        tensors, leaves = _copy_tensors(first), _describe_leaves(first)
        between = _copy_buffers(call.module)
        second = _try_call(call)
        after = dict(call.module.named_buffers())
    remembers = False
    if second is not None:
        repeated = _copy_tensors(second)
        remembers = len(repeated) != len(tensors) or not all(map(_are_equal, tensors, repeated))
    changed = [name for name, buffer in between.items() if not _are_equal(buffer, before.get(name))]
    caches = [name for name in changed if not remembers and _is_cache(before.get(name), between[name], after.get(name))]
    return {
        "leaves": leaves,
        "mutated": sorted(set(changed) - set(caches)),
        "remembers": remembers,
        "grown": _find_grown_axes(call, axes, tensors),
    }


def _try_call(call: ModuleCall) -> Any:
    """Return the module's result in a tuple; None if the call fails. The run on the cases reports the failure."""
    try:
        return (call.run(),)
    except Exception:  # noqa: BLE001 - user code can raise any error
        return None


def _copy_buffers(module: Any) -> Dict[str, Any]:
    return {name: buffer.detach().clone() for name, buffer in module.named_buffers()}


def _copy_tensors(returned: Any) -> List[Any]:
    return [leaf.clone() for leaf in _pytree.tree_leaves(returned) if isinstance(leaf, torch.Tensor)]


def _is_cache(before: Any, between: Any, after: Any) -> bool:
    """Return whether only the first of two calls changed the buffer, by creating or resizing it (common for masks)."""
    resized = before is None or before.shape != between.shape
    return resized and after is not None and _are_equal(after, between)


def _are_equal(a: Any, b: Any) -> bool:
    if b is None or a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())  # noqa: PLR0124 - NaN is not equal to itself


def _describe_leaves(returned: Any) -> List[Wire]:
    """Return the kind and the name of each output leaf. Examples of names: `plus`, `states_0`; "" if unnamed."""
    leaves = []
    with_path = getattr(_pytree, "tree_flatten_with_path", None)
    pairs = with_path(returned[0])[0] if with_path else [((), leaf) for leaf in _pytree.tree_leaves(returned[0])]
    for path, leaf in pairs:
        names = [getattr(part, "key", getattr(part, "name", None)) for part in path]
        parts = [str(getattr(part, "idx", name)) for part, name in zip(path, names)]  # noqa: B905 - Python 3.10
        key = "_".join(parts) if any(isinstance(name, str) for name in names) else ""
        kind = "tensor" if isinstance(leaf, torch.Tensor) else "none" if leaf is None else "other"
        leaves.append({"key": key, "kind": kind})
    return leaves


def _find_grown_axes(call: ModuleCall, axes: Sequence[RequestedAxis], before: List[Any]) -> List[Wire]:
    """Return the output axes that change when all dynamic input axes grow by one (if that fails, when they double)."""
    sizes = {(e.input, e.axis): int(call.leaves[call.tensors[e.input]].shape[e.axis]) for e in axes}
    sizes = {axis: size for axis, size in sizes.items() if size}
    for longer in ({k: size + 1 for k, size in sizes.items()}, {k: 2 * size for k, size in sizes.items()}):
        if longer and max(longer.values()) <= MAX_AXIS_SIZE:
            with _restore_module(call.module):
                after = _try_call(_resize_axes(call, longer))
            if after is not None:
                return [
                    {"output": output, "axis": axis, "size": int(size), "grown": int(grown)}
                    for output, pair in enumerate(zip(before, _copy_tensors(after)))  # noqa: B905 - Python 3.10
                    if pair[0].dim() == pair[1].dim()
                    for axis, (size, grown) in enumerate(zip(pair[0].shape, pair[1].shape))  # noqa: B905
                    if size != grown
                ]
    return []


def _resize_axes(call: ModuleCall, sizes: Dict[Tuple[int, int], int]) -> ModuleCall:
    """Return the call with tensors that are repeated or truncated to these axis sizes."""
    tensors = call.sample()
    for (number, axis), size in sizes.items():
        tensor = tensors[number]
        count = max(1, int(tensor.shape[axis]))
        tensors[number] = tensor.index_select(axis, torch.arange(size, device=tensor.device) % count)
    return call.with_tensors(tensors)


def find_size_beyond(call: ModuleCall, narrow: NarrowedAxes) -> Optional[int]:
    """Return a size just outside the exported program's range that the source accepts; None if there is none."""
    beyond = [narrow.lowest - 1] if narrow.lowest > MIN_DYNAMIC_SIZE else []
    if narrow.highest is not None and narrow.highest < MAX_AXIS_SIZE:
        beyond.append(narrow.highest + 1)
    for size in beyond:
        with _restore_module(call.module):
            if _try_call(_resize_axes(call, dict.fromkeys(narrow.axes, size))) is not None:
                return size
    return None


def find_recurrent_layers(call: ModuleCall) -> Dict[str, int]:
    """Return the sequence length of each recurrent layer in a call with the example inputs."""
    lengths: Dict[str, int] = {}

    def record(name: str, layer: Any, inputs: Any) -> None:
        if inputs and isinstance(inputs[0], torch.Tensor) and inputs[0].dim() == 3:
            lengths[f"`{name}` (`nn.{type(layer).__name__}`)"] = int(inputs[0].shape[1 if layer.batch_first else 0])

    layers = [(name, part) for name, part in call.module.named_modules() if isinstance(part, torch.nn.RNNBase)]
    hooks = [part.register_forward_pre_hook(partial(record, name)) for name, part in layers]
    try:
        if hooks:
            with _restore_module(call.module):
                _try_call(call)
    finally:
        for hook in hooks:
            hook.remove()
    return lengths


def do_branches_vary(call: ModuleCall) -> bool:
    """Return whether branches on tensors in the source depend on the input values."""

    def record(change: Any) -> Optional[List[Any]]:
        leaves = [change(leaf) if is_float(leaf) else leaf for leaf in call.leaves]
        with _restore_module(call.module), _record_branches() as branches:
            return branches if _try_call(call._replace(leaves=tuple(leaves))) is not None else None

    first = record(lambda leaf: leaf)
    changed = [record(change) for change in (torch.neg, torch.zeros_like, lambda leaf: 2 * leaf + 1)]
    return first is not None and any(branches is not None and branches != first for branches in changed)


@contextlib.contextmanager
def _record_branches() -> Iterator[List[Any]]:
    """Collect the results of all `bool(tensor)` calls in the block, in order."""
    branches: List[Any] = []

    class Recorder(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            value = function(*args, **(kwargs or {}))
            if function is torch.Tensor.__bool__:
                branches.append(value)
            return value

    with Recorder():
        yield branches


@contextlib.contextmanager
def _restore_module(module: Any) -> Iterator[None]:
    """Restore the module's buffers and other attributes, one level deep, after the block.

    Parameters are not restored, since a call without gradients does not change them.
    """
    parts = list(module.modules())
    containers = (dict, list, set)
    attributes = [
        {name: copy.copy(value) if isinstance(value, containers) else value for name, value in part.__dict__.items()}
        for part in parts
    ]
    plain = [value for part in parts for value in part.__dict__.values() if isinstance(value, torch.Tensor)]
    tensors = [(tensor, tensor.detach().clone()) for tensor in (*module.buffers(), *plain)]
    try:
        yield
    finally:
        for part, before in zip(parts, attributes):  # noqa: B905 - new in Python 3.10
            part.__dict__.clear()
            part.__dict__.update(before)
        for tensor, value in tensors:
            tensor.detach().copy_(value)


MIN_DYNAMIC_SIZE = 2
"""Smallest size to compare: torch.export may exclude 0 and 1 even if the source supports them. Source: torch 2.13."""


class RequestedAxis(NamedTuple):
    """A dynamic axis of a tensor input; `input` is the tensor's position."""

    input: int
    axis: int
    name: str
    is_explicit: bool  # False: the exporter decides (`Dim.AUTO`)
    lowest: int = 0
    highest: Optional[int] = None


class NarrowedAxes(NamedTuple):
    """Range of one size symbol in the exported program, and the axes that have this size."""

    axes: Tuple[Tuple[int, int], ...]
    lowest: int
    highest: Optional[int]


def find_requested_axes(recipe: SourceResult, call: ModuleCall) -> List[RequestedAxis]:
    """Return the dynamic axes of tensor inputs, from `dynamic_shapes` or from `dynamic_axes`."""
    if recipe.dynamic_axes:
        return list(_requested_by_name(recipe, call))
    leaves = leaves_by_parameter(call)
    spec = recipe.dynamic_shapes
    if isinstance(spec, Mapping):
        pairs = [(value, spec[name]) for name, value in leaves.items() if name in spec]
    elif isinstance(spec, (list, tuple)):
        pairs = list(zip(leaves.values(), spec))  # noqa: B905 - new in Python 3.10
    else:
        return []
    return [axis for value, part in pairs for axis in _requested_in(value, part, call)]


def leaves_by_parameter(call: ModuleCall) -> Dict[str, Any]:
    """Return the argument for each parameter of the module, with leaves replaced by their positions."""
    args, kwargs = _fill_structure(call.spec, itertools.count())
    try:
        return dict(inspect.signature(call.module.forward).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):  # the call itself reports the error
        return {}


def list_constant_arguments(recipe: SourceResult, call: ModuleCall) -> List[str]:
    """Return the arguments in `dynamic_shapes` that are not tensors, and therefore not inputs of the file.

    With such arguments, the exporter does not rename axes. Source: `create_rename_mapping` of torch 2.13.
    """
    spec = recipe.dynamic_shapes if recipe.dynamo else None
    if not isinstance(spec, (Mapping, list, tuple)):
        return []
    names = leaves_by_parameter(call).items()
    leaves = [(name, value) for name, value in names if isinstance(value, int) and value not in call.tensors]
    return [name for name, _ in leaves if not isinstance(spec, Mapping) or name in spec]


def _fill_structure(spec: Any, leaves: Iterator[Any]) -> Any:
    """Return the structure of arguments with these leaves.

    An object of another registered class, such as a cache of transformers, is a list of its parts, as in
    `dynamic_shapes`: its own constructor does not accept positions.
    """
    if spec.type is None:
        return next(leaves)
    parts = [_fill_structure(part, leaves) for part in _list_parts(spec)]
    if spec.type is dict:
        return dict(zip(spec.context, parts))  # noqa: B905 - new in Python 3.10
    return tuple(parts) if spec.type is tuple else parts


def _list_parts(spec: Any) -> List[Any]:
    return list(spec.children() if hasattr(spec, "children") else spec.children_specs)  # a method since torch 2.9


def has_registered_class(args: Any, kwargs: Any) -> bool:
    """Return whether the arguments contain an object of a class that is registered with pytree."""
    pending = [_pytree.tree_flatten((args, kwargs))[1]]
    while pending:
        spec = pending.pop()
        if spec.type not in (None, tuple, list, dict):
            return True
        pending += _list_parts(spec) if spec.type is not None else []
    return False


@contextlib.contextmanager
def plain_values(recipe: SourceResult) -> Iterator[SourceResult]:
    """Return a source whose module takes and returns lists in place of objects of registered classes.

    PyTorch 2.13 cannot decompose programs that create an object of a class such as the `DynamicCache` of transformers
    5.24 outside of the module (`Constant tensor lifted_tensor_4 is not in the constants dictionary`).
    """
    module, forward = recipe.model, recipe.model.forward
    leaves, spec = _pytree.tree_flatten((recipe.args, recipe.kwargs))
    args, kwargs = _fill_structure(spec, iter(leaves))

    def call_with_objects(*plain_args: Any, **plain_kwargs: Any) -> Any:
        named = {name: plain_kwargs[name] for name in kwargs if name in plain_kwargs}
        parts = _pytree.tree_leaves((plain_args, named))
        own_args, own_kwargs = _pytree.tree_unflatten(parts, spec)
        returned, shape = _pytree.tree_flatten(forward(*own_args, **own_kwargs))
        return _fill_structure(shape, iter(returned))

    call_with_objects.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    had_own = module.__dict__.get("forward")
    module.__dict__["forward"] = call_with_objects
    try:
        yield recipe._replace(args=args, kwargs=kwargs)
    finally:
        del module.__dict__["forward"]
        if had_own is not None:
            module.__dict__["forward"] = had_own


def parameter_names(call: ModuleCall) -> List[str]:
    """Return the parameter names of the tensor inputs; empty if an input is only part of a parameter."""
    by_position = {position: name for name, position in leaves_by_parameter(call).items() if isinstance(position, int)}
    names = [by_position.get(position, "") for position in call.tensors]
    return names if all(names) else []


def read_named_axes(recipe: SourceResult) -> Iterator[Wire]:
    """Yield the entries of `dynamic_axes` for inputs and outputs."""
    for value, axes in dict(recipe.dynamic_axes or {}).items():
        listed = [(axis, "") for axis in axes] if isinstance(axes, (list, tuple)) else []
        for axis, name in axes.items() if isinstance(axes, Mapping) else listed:
            if isinstance(axis, int):
                yield {"value": str(value), "axis": axis, "name": name if isinstance(name, str) else ""}


def _requested_by_name(recipe: SourceResult, call: ModuleCall) -> Iterator[RequestedAxis]:
    names = list(recipe.input_names or parameter_names(call))
    for axis in read_named_axes(recipe):
        if len(names) == len(call.tensors) and axis["value"] in names:
            number = names.index(axis["value"])
            rank = call.leaves[call.tensors[number]].dim()
            if -rank <= axis["axis"] < rank:
                yield RequestedAxis(number, axis["axis"] % rank, axis["name"], True)


def _requested_in(value: Any, spec: Any, call: ModuleCall) -> Iterator[RequestedAxis]:
    """Yield the dynamic axes of a parameter; its value and specification have the same structure."""
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
        lowest, highest = _finite_bound(getattr(dim, "min", 0)) or 0, _finite_bound(getattr(dim, "max", None))
        yield RequestedAxis(number, axis % rank, name, hint != "AUTO", lowest, highest)


def _finite_bound(bound: Any) -> Optional[int]:
    """Return a bound as an integer; None for infinity, which has its own type in PyTorch."""
    try:
        return int(bound)
    except (TypeError, ValueError, OverflowError, AttributeError, AssertionError):
        return None


def find_narrowed_axes(program: Any, requested: Sequence[RequestedAxis]) -> List[NarrowedAxes]:
    """Return the axes for which the program supports fewer sizes than requested, grouped by size symbol."""
    symbols: Dict[Any, List[Tuple[int, int]]] = {}
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    inputs = (values.get(name) for name in program.graph_signature.user_inputs if isinstance(name, str))
    shapes = (getattr(value, "shape", None) for value in inputs)
    for number, shape in enumerate(shape for shape in shapes if shape is not None):
        for axis, size in enumerate(shape):
            expression = getattr(getattr(size, "node", None), "expr", None)
            if getattr(expression, "is_Symbol", False):
                symbols.setdefault(expression, []).append((number, axis))
    narrowed = []
    for symbol, axes in symbols.items():
        bounds = program.range_constraints.get(symbol)
        requests = [request for request in requested if (request.input, request.axis) in axes]
        if bounds is None or not requests:
            continue
        lowest, highest = _finite_bound(bounds.lower) or 0, _finite_bound(bounds.upper)
        limit = min((request.highest for request in requests if request.highest is not None), default=None)
        raised = lowest > max(MIN_DYNAMIC_SIZE, *(request.lowest for request in requests))
        if raised or (highest is not None and (limit is None or highest < limit)):
            narrowed.append(NarrowedAxes(tuple(axes), lowest, highest))
    return narrowed
