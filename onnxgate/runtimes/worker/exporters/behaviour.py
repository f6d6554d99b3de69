"""What a call of the source does that a graph may not: what it returns, remembers, and makes larger."""

from __future__ import annotations

import contextlib
import copy
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from . import axes
from .eager import Call, as_written, own
from .seeding import seed

Wire = Dict[str, Any]

LARGEST = 4096
"""No axis is made larger than this only to learn whether it may be."""


def observe(call: Call, wanted: Sequence[axes.Asked]) -> Wire:
    """Returned leaves, changed buffers and output axes that grow; nothing where the source cannot be called."""
    with _unchanged(call.module):
        before = _buffers(call.module)
        first = _returned(call)
        if first is None:
            return {}
        tensors, leaves = _tensors(first), _leaves(first)
        between = _buffers(call.module)
        second = _returned(call)
        after = dict(call.module.named_buffers())
    remembers = second is not None and not _all_same(tensors, _tensors(second))
    changed = [name for name, buffer in between.items() if not _same(buffer, before.get(name))]
    caches = [name for name in changed if not remembers and _is_cache(before.get(name), between[name], after.get(name))]
    return {
        "leaves": leaves,
        "mutated": sorted(set(changed) - set(caches)),
        "remembers": remembers,
        "grown": _grown(call, wanted, tensors),
    }


def _buffers(module: Any) -> Dict[str, Any]:
    return {name: buffer.detach().clone() for name, buffer in module.named_buffers()}


def _is_cache(before: Any, between: Any, after: Any) -> bool:
    """Whether a first call made the buffer, or made it larger, and a second one left it: masks are kept like that."""
    made = before is None or before.shape != between.shape
    return made and after is not None and _same(after, between)


def works_beyond(call: Call, narrow: axes.Narrow) -> Optional[int]:
    """A size next to those that the exported program holds for that the source itself takes; None if there is none."""
    beyond = [narrow.lowest - 1] if narrow.lowest > axes.SMALLEST else []
    if narrow.highest is not None and narrow.highest < LARGEST:
        beyond.append(narrow.highest + 1)
    for size in beyond:
        with _unchanged(call.module):
            if _returned(_resized(call, dict.fromkeys(narrow.axes, size))) is not None:
                return size
    return None


def decisions_vary(call: Call) -> bool:
    """Whether the source turns tensors into other Python values where it is given other numbers of the same kind."""
    import torch

    def turned(change: Any) -> Optional[List[Any]]:
        leaves = [change(leaf) if _is_float(leaf) else leaf for leaf in call.leaves]
        with _unchanged(call.module), _decisions() as made:
            return made if _returned(call._replace(leaves=tuple(leaves))) is not None else None

    first = turned(lambda leaf: leaf)
    others = [turned(change) for change in (torch.neg, torch.zeros_like, lambda leaf: 2 * leaf + 1)]
    return first is not None and any(made is not None and made != first for made in others)


def _is_float(leaf: Any) -> bool:
    import torch

    return isinstance(leaf, torch.Tensor) and leaf.dtype.is_floating_point


@contextlib.contextmanager
def _decisions() -> Iterator[List[Any]]:
    """Every truth value that is made of a tensor inside, in order."""
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


def _returned(call: Call) -> Any:
    """What the module returns, None where it fails: the run on the cases says why."""
    import torch
    from torch.utils import _pytree

    args, kwargs = _pytree.tree_unflatten([own(leaf) for leaf in call.leaves], call.spec)
    seed()
    try:
        with torch.no_grad(), as_written():
            return (call.module(*args, **kwargs),)
    except Exception:  # noqa: BLE001 - whatever the user's code raises
        return None


def _leaves(returned: Any) -> List[Wire]:
    import torch
    from torch.utils import _pytree

    found = []
    with_path = getattr(_pytree, "tree_flatten_with_path", None)
    pairs = with_path(returned[0])[0] if with_path else [((), leaf) for leaf in _pytree.tree_leaves(returned[0])]
    for path, leaf in pairs:
        kind = "tensor" if isinstance(leaf, torch.Tensor) else "none" if leaf is None else "other"
        found.append({"key": _key(path), "kind": kind})
    return found


def _key(path: Sequence[Any]) -> str:
    """`plus`, or `states_0` for a part of it; "" where no name leads to it."""
    names = [getattr(part, "key", getattr(part, "name", None)) for part in path]
    if not any(isinstance(name, str) for name in names):
        return ""
    return "_".join(str(getattr(part, "idx", name)) for part, name in zip(path, names))  # noqa: B905 - Python 3.10


def _tensors(returned: Any) -> List[Any]:
    import torch
    from torch.utils import _pytree

    return [leaf.clone() for leaf in _pytree.tree_leaves(returned) if isinstance(leaf, torch.Tensor)]


def _grown(call: Call, wanted: Sequence[axes.Asked], before: List[Any]) -> List[Wire]:
    """Axes of outputs that change when all dynamic axes grow by one, or to twice their size where that fails."""
    sizes = {(each.input, each.axis): _size(call, each.input, each.axis) for each in wanted}
    sizes = {where: size for where, size in sizes.items() if size}
    for longer in ({k: size + 1 for k, size in sizes.items()}, {k: 2 * size for k, size in sizes.items()}):
        if longer and max(longer.values()) <= LARGEST:
            with _unchanged(call.module):
                after = _returned(_resized(call, longer))
            if after is not None:
                return list(_changes(before, _tensors(after)))
    return []


def _changes(before: List[Any], after: List[Any]) -> Iterator[Wire]:
    for output, (small, large) in enumerate(zip(before, after)):  # noqa: B905 - new in Python 3.10
        if small.dim() == large.dim():
            for axis, pair in enumerate(zip(small.shape, large.shape)):  # noqa: B905 - new in Python 3.10
                if pair[0] != pair[1]:
                    yield {"output": output, "axis": axis, "size": int(pair[0]), "grown": int(pair[1])}


def _size(call: Call, number: int, axis: int) -> int:
    return int(call.leaves[call.tensors[number]].shape[axis])


def _resized(call: Call, sizes: Dict[Tuple[int, int], int]) -> Call:
    """The call with these axes of its tensors repeated, or cut, to these sizes: no value is new."""
    import torch

    leaves = list(call.leaves)
    for (number, axis), size in sizes.items():
        tensor = leaves[call.tensors[number]]
        count = max(1, int(tensor.shape[axis]))
        leaves[call.tensors[number]] = tensor.index_select(axis, torch.arange(size, device=tensor.device) % count)
    return call._replace(leaves=tuple(leaves))


def _all_same(first: List[Any], second: List[Any]) -> bool:
    return len(first) == len(second) and all(_same(a, b) for a, b in zip(first, second))  # noqa: B905 - Python 3.10


def _same(a: Any, b: Any) -> bool:
    if b is None or a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())  # noqa: PLR0124 - NaN is not equal to itself


@contextlib.contextmanager
def _unchanged(module: Any) -> Iterator[None]:
    """Afterwards the module is as it was: its buffers, and what else it holds one level deep."""
    kept = [(part, {name: _copied(value) for name, value in part.__dict__.items()}) for part in module.modules()]
    values = [(tensor, tensor.detach().clone()) for tensor in _held_tensors(module)]
    try:
        yield
    finally:
        for part, held in kept:
            part.__dict__.clear()
            part.__dict__.update(held)
        for tensor, before in values:
            tensor.detach().copy_(before)


def _held_tensors(module: Any) -> Iterator[Any]:
    """Buffers, and tensors that are plain attributes. Parameters are not changed by a call without gradients."""
    import torch

    yield from module.buffers()
    for part in module.modules():
        yield from (value for value in part.__dict__.values() if isinstance(value, torch.Tensor))


def _copied(value: Any) -> Any:
    return copy.copy(value) if isinstance(value, (dict, list, set)) else value
