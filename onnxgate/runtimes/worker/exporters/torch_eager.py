"""Eager runs of a PyTorch module on each case, in its own precision and in float64."""

from __future__ import annotations

import contextlib
import copy
import os
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from .source import seed_generators
from .source_errors import describe_error

Phase = Callable[[str], None]
Wire = Dict[str, Any]


class MismatchError(Exception):
    """A case does not fit the inputs of the source."""


class ModuleCall(NamedTuple):
    """A module with the arguments of its call, flattened."""

    module: Any
    leaves: Tuple[Any, ...]
    spec: Any
    tensors: Tuple[int, ...]  # indices of the leaves that are tensors: they are the graph's inputs, in its order

    @classmethod
    def of(cls, module: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> ModuleCall:
        """Flatten the arguments as `torch.export` does."""
        import torch
        from torch.utils import _pytree

        leaves, spec = _pytree.tree_flatten((args, kwargs))
        tensors = tuple(i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor))
        return cls(module, tuple(leaves), spec, tensors)

    def sample(self) -> List[Any]:
        """Return the example inputs, tensors only."""
        return [self.leaves[i] for i in self.tensors]


def copy_call(call: ModuleCall) -> ModuleCall:
    """Return the call on a copy of the module, which an export cannot change; on the module itself if copying fails."""
    aside = call._replace(leaves=tuple(copy_leaf(leaf) for leaf in call.leaves))
    try:
        return aside._replace(module=copy.deepcopy(call.module))
    except Exception:  # noqa: BLE001 - a copy can fail in many ways
        return aside


def mismatch_reason(call: ModuleCall, cases: Sequence[Wire], names: Sequence[str]) -> str:
    """Return why the cases do not fit the source's inputs; "" if they do."""
    takes = len(call.tensors)
    for case in cases:
        if len(case["inputs"]) != takes and not _names_cover(case["inputs"], names, takes):
            return "the source takes {} tensors and the model {}".format(takes, len(case["inputs"]))
    return ""


def in_source_order(case: Wire, names: Sequence[str], takes: int) -> List[Optional[str]]:
    """Return paths of the inputs in the source's order: by name if `names` has all, None for those that the case lacks.

    An exporter may drop unused inputs.
    """
    inputs = case["inputs"]
    return [inputs.get(name) for name in names] if _names_cover(inputs, names, takes) else list(inputs.values())


def _names_cover(inputs: Wire, names: Sequence[str], takes: int) -> bool:
    return len(names) == takes and set(inputs) <= set(names)


def run_cases(
    call: ModuleCall, cases: Sequence[Wire], names: Sequence[str], output: str, folders: Sequence[str], phase: Phase
) -> List[Wire]:
    """Return one `CaseResult` per case, then one for the sample."""
    takes = len(call.tensors)
    feeds = [("case " + case["name"], partial(_read_case, call, in_source_order(case, names, takes))) for case in cases]
    feeds.append(("the source's sample", partial(call.sample)))
    results = []
    for number, (what, feed) in enumerate(feeds):
        phase("source on " + what)
        results.append(_run_case(call, feed, os.path.join(output, str(number)), folders))
    return results


def run_cases_in_float64(
    call: ModuleCall, cases: Sequence[Wire], names: Sequence[str], output: str, folders: Sequence[str], phase: Phase
) -> List[Wire]:
    """Run the cases as `run_cases`, with module and inputs in float64; [] if conversion fails. Changes the module."""
    import torch

    try:
        wide = call._replace(module=call.module.double(), leaves=tuple(_to_float64(leaf) for leaf in call.leaves))
    except Exception:  # noqa: BLE001 - a user's module can raise anything when it is converted
        return []
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return run_cases(wide, cases, names, output, folders, phase)
    finally:
        torch.set_default_dtype(before)


def save_tensors(tensors: Sequence[Any], folder: str) -> List[Optional[str]]:
    """Write each tensor as `<index>.npy`; None for types that numpy cannot represent."""
    import numpy

    os.makedirs(folder, exist_ok=True)
    paths: List[Optional[str]] = []
    for number, tensor in enumerate(tensors):
        array = _to_numpy(tensor)
        path = os.path.join(folder, "{}.npy".format(number))
        if array is not None:
            numpy.save(path, array, allow_pickle=False)
        paths.append(None if array is None else path)
    return paths


def _to_numpy(tensor: Any) -> Any:
    try:
        return tensor.detach().cpu().resolve_conj().resolve_neg().numpy()
    except (TypeError, RuntimeError, NotImplementedError):  # bfloat16, float8, quantized, sparse
        return None


def _run_case(call: ModuleCall, feed: Callable[[], List[Any]], output: str, folders: Sequence[str]) -> Wire:
    try:
        outputs = _compute_outputs(call, feed())
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code; its error is the result
        return {"outputs": [], "failure": describe_error(error, folders)}
    return {"outputs": save_tensors([_widen_bfloat16(each) for each in outputs], output), "failure": None}


def _widen_bfloat16(tensor: Any) -> Any:
    """Convert bfloat16 to float32, the same number, as for outputs of runtimes."""
    import torch

    return tensor.float() if tensor.dtype == torch.bfloat16 else tensor


def _compute_outputs(call: ModuleCall, tensors: List[Any]) -> List[Any]:
    """Return the tensors of the module's result, flattened; the exporter drops None."""
    import torch
    from torch.utils import _pytree

    leaves = list(call.leaves)
    for index, tensor in zip(call.tensors, tensors):  # noqa: B905 - new in Python 3.10
        leaves[index] = copy_leaf(tensor)
    args, kwargs = _pytree.tree_unflatten(leaves, call.spec)
    seed_generators()
    with torch.no_grad(), without_attention_fastpath(), _restore_buffers(call.module):
        returned = call.module(*args, **kwargs)
    return [leaf for leaf in _pytree.tree_leaves(returned) if isinstance(leaf, torch.Tensor)]


def copy_leaf(leaf: Any) -> Any:
    """Return a copy of a tensor, so that a call in place does not change the example."""
    import torch

    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


@contextlib.contextmanager
def without_attention_fastpath() -> Iterator[None]:
    """Compute attention step by step, as the exporter does.

    Without gradients, PyTorch uses a shortcut instead, which writes zeros at padded positions. Source:
    `nn.TransformerEncoder` of torch 2.13 in evaluation mode. In a release without the switch, nothing is changed.
    """
    import torch

    switch: Any = getattr(torch.backends, "mha", None)
    if switch is None:
        yield
        return
    before = switch.get_fastpath_enabled()
    switch.set_fastpath_enabled(False)
    try:
        yield
    finally:
        switch.set_fastpath_enabled(before)


@contextlib.contextmanager
def _restore_buffers(module: Any) -> Iterator[None]:
    """Restore the buffers after the block: a graph has no state, so each case begins with the exported buffers."""
    kept = [(part, dict(part._buffers)) for part in module.modules()]
    values = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    try:
        yield
    finally:
        for part, buffers in kept:
            part._buffers.update(buffers)
        for buffer, before in values:
            buffer.copy_(before)


def _read_case(call: ModuleCall, paths: Sequence[Optional[str]]) -> List[Any]:
    """Return the tensors of a case; the example's own for inputs that the case lacks."""
    pairs = zip(paths, call.sample())  # noqa: B905 - new in Python 3.10
    return [leaf if path is None else read_tensor(path, leaf) for path, leaf in pairs]


def read_tensor(path: str, like: Any) -> Any:
    """Read a case's array as a tensor for the source: same device, and same type within its kind."""
    import numpy
    import torch

    array = numpy.array(numpy.load(path, allow_pickle=False), order="C")
    tensor = torch.from_numpy(array)
    if _dtype_kind(tensor) != _dtype_kind(like):
        raise MismatchError("the source takes {} where the model takes {}".format(like.dtype, tensor.dtype))
    return tensor.to(device=like.device, dtype=like.dtype)


def _dtype_kind(tensor: Any) -> str:
    import torch

    if tensor.dtype == torch.bool:
        return "bool"
    return "float" if tensor.dtype.is_floating_point else "complex" if tensor.dtype.is_complex else "int"


def _to_float64(leaf: Any) -> Any:
    import torch

    return leaf.double() if isinstance(leaf, torch.Tensor) and leaf.dtype.is_floating_point else leaf
