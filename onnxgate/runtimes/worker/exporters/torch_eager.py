"""Eager runs of a PyTorch module on each case, in its own precision and in float64."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import sys
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Set, Tuple

import numpy as np
import torch
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from . import eager
from .source import Phase, Wire, pluralize, seed_generators

MAX_IDENTITY_ERROR = 1e-4
"""Maximum error of a factor that does not change a float16 number."""

MAX_ROWS = 4096
"""Maximum number of rows of a weight that are hashed; larger weights are usually vocabularies."""


class ModuleCall(NamedTuple):
    """A module, and the flattened arguments of a call to it."""

    module: Any
    leaves: Tuple[Any, ...]
    spec: Any
    tensors: Tuple[int, ...]  # indices of the leaves that are tensors, which are the graph's inputs in this order

    @classmethod
    def of(cls, module: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> ModuleCall:
        """Flatten the arguments as `torch.export` does."""
        leaves, spec = _pytree.tree_flatten((args, kwargs))
        tensors = tuple(i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor))
        return cls(module, tuple(leaves), spec, tensors)

    def sample(self) -> List[Any]:
        """Return the tensors of the example inputs."""
        return [self.leaves[i] for i in self.tensors]

    def run(self) -> Any:
        """Call the module with copies of the arguments."""
        args, kwargs = _pytree.tree_unflatten([copy_leaf(leaf) for leaf in self.leaves], self.spec)
        seed_generators()
        with torch.no_grad(), _without_attention_fastpath():
            return self.module(*args, **kwargs)

    def with_tensors(self, tensors: Sequence[Any]) -> ModuleCall:
        """Return the call with different tensors."""
        leaves = list(self.leaves)
        for index, tensor in zip(self.tensors, tensors):  # noqa: B905 - new in Python 3.10
            leaves[index] = tensor
        return self._replace(leaves=tuple(leaves))


def copy_call(call: ModuleCall) -> ModuleCall:
    """Return the call with a copy of the module, which an export may change; if copying fails, with the original."""
    copied = call._replace(leaves=tuple(copy_leaf(leaf) for leaf in call.leaves))
    try:
        return copied._replace(module=copy.deepcopy(call.module))
    except Exception:  # noqa: BLE001 - copying can raise any error
        return copied


def copy_leaf(leaf: Any) -> Any:
    """Return a copy of a tensor, so that in-place operations do not change the example."""
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def mismatch_reason(call: ModuleCall, cases: Sequence[Wire], names: Sequence[str]) -> str:
    """Return why the cases do not match the source's inputs; "" if they do."""
    takes = len(call.tensors)
    for case in cases:
        if len(case["inputs"]) != takes and not _names_cover(case["inputs"], names, takes):
            return f"the source has {pluralize(takes, 'input')}, but the model has {len(case['inputs'])}"
    return ""


def _names_cover(inputs: Wire, names: Sequence[str], takes: int) -> bool:
    return len(names) == takes and set(inputs) <= set(names)


def read_case(call: ModuleCall, case: Wire, names: Sequence[str]) -> List[Any]:
    """Return the tensors of a case in the source's order, with the example's tensors for missing inputs.

    Inputs are matched by name if `names` is complete, and otherwise by position. Exporters may drop unused inputs.
    """
    inputs = case["inputs"]
    covered = _names_cover(inputs, names, len(call.tensors))
    paths = [inputs.get(name) for name in names] if covered else list(inputs.values())
    pairs = zip(paths, call.sample())  # noqa: B905 - new in Python 3.10
    return [leaf if path is None else _read_tensor(path, leaf) for path, leaf in pairs]


def _read_tensor(path: str, like: Any) -> Any:
    """Read an array as a tensor with the device and type of `like`. The kind (such as float) must match."""
    tensor = torch.from_numpy(np.array(np.load(path, allow_pickle=False), order="C"))
    if _dtype_kind(tensor) != _dtype_kind(like):
        raise eager.MismatchError(f"an input has type {like.dtype} in the source, but {tensor.dtype} in the model")
    return tensor.to(device=like.device, dtype=like.dtype)


def _dtype_kind(tensor: Any) -> str:
    if tensor.dtype == torch.bool:
        return "bool"
    return "float" if tensor.dtype.is_floating_point else "complex" if tensor.dtype.is_complex else "int"


class _Selection(NamedTuple):
    """A call that selects items by their scores, with the corresponding ONNX operator.

    Without tensors, no node selects such items.
    """

    operator: str
    tensors: Dict[str, Any]
    largest: bool = True


class _SelectionRecorder(TorchDispatchMode):  # type: ignore[misc]
    """Records the calls that select items by their scores."""

    def __init__(self) -> None:
        super().__init__()
        self.selections: List[_Selection] = []
        self._is_paused = False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        schema: Any = getattr(function, "_schema", None)
        record = _RECORDS.get(schema.name) if schema is not None else None
        if record is not None and not self._is_paused:
            names = [argument.name for argument in schema.arguments]
            self.add(record(dict(zip(names, args), **(kwargs or {})), result))  # noqa: B905 - new in Python 3.10
        return result

    def add(self, selection: _Selection) -> None:
        """Add a copy of a selection if it has tensors."""
        if selection.tensors:
            tensors = {name: copy_leaf(tensor) for name, tensor in selection.tensors.items()}
            self.selections.append(selection._replace(tensors=tensors))

    @contextlib.contextmanager
    def record(self) -> Iterator[None]:
        """Record the calls in the block.

        For many boxes, torchvision suppresses those of each class separately, but not in an exported model, which moves
        the boxes of each class. These calls are recorded as one.
        """
        boxes: Any = sys.modules.get("torchvision.ops.boxes")
        separate: Any = getattr(boxes, "_batched_nms_vanilla", None)

        def suppress(dets: Any, scores: Any, classes: Any, iou_threshold: float) -> Any:
            self._is_paused = True
            try:
                kept = separate(dets, scores, classes, iou_threshold)
            finally:
                self._is_paused = False
            moved = dets + (classes.to(dets) * (dets.max() + 1))[:, None]
            self.add(_Selection("NonMaxSuppression", {"boxes": moved, "scores": scores, "indices": kept}))
            return kept

        if separate is not None:
            boxes._batched_nms_vanilla = suppress
        try:
            with self:
                yield
        finally:
            if separate is not None:
                boxes._batched_nms_vanilla = separate


def _record_ranking(direction: str, default: bool, arguments: Dict[str, Any], result: Any) -> _Selection:
    """`direction` is the argument that chooses the highest scores, or with which these are first."""
    scores, indices = result
    return _Selection("TopK", {"scores": scores, "indices": indices}, bool(arguments.get(direction, default)))


def _record_suppression(arguments: Dict[str, Any], result: Any) -> _Selection:
    tensors = {"boxes": arguments["dets"], "scores": arguments["scores"], "indices": result}
    return _Selection("NonMaxSuppression", tensors)


def _record_extreme(largest: bool, arguments: Dict[str, Any], result: Any) -> _Selection:
    scores, axis, indices = arguments["self"], arguments.get("dim"), result
    if axis is None:
        scores, axis, indices = scores.flatten(), 0, indices.flatten()
    elif not arguments.get("keepdim"):
        indices = indices.unsqueeze(axis)
    return _Selection("ArgMax", {"scores": scores.gather(axis, indices), "indices": indices}, largest)


def _record_reduction(largest: bool, arguments: Dict[str, Any], result: Any) -> _Selection:
    """Return the selection of `max` along one axis; nothing for the other kinds of `max`, which select no items."""
    is_other = isinstance(result, torch.Tensor)
    return _Selection("ArgMax", {}) if is_other else _record_extreme(largest, arguments, result[1])


_RECORDS: Dict[str, Callable[[Dict[str, Any], Any], _Selection]] = {
    "aten::topk": partial(_record_ranking, "largest", True),
    "aten::sort": partial(_record_ranking, "descending", False),
    "aten::argmax": partial(_record_extreme, True),
    "aten::argmin": partial(_record_extreme, False),
    "aten::max": partial(_record_reduction, True),
    "aten::min": partial(_record_reduction, False),
    "torchvision::nms": _record_suppression,
}


def run_cases(job: Wire, call: ModuleCall, names: Sequence[str], phase: Phase, folder: str = "eager") -> List[Wire]:
    """Return one `CaseResult` per case, followed by the result for the sample, with selections if requested."""
    feeds: List[eager.Feed] = [("case " + case["name"], partial(read_case, call, case, names)) for case in job["cases"]]
    feeds.append(("the source's sample", call.sample))
    recorders: List[_SelectionRecorder] = []

    def compute(tensors: List[Any]) -> List[Any]:
        """Return the arrays in the module's result, flattened without None, as in the export; then the selections."""
        recorder = _SelectionRecorder()
        with torch.no_grad(), _restore_buffers(call.module):
            with recorder.record() if job.get("selections") else contextlib.nullcontext():
                returned = call.with_tensors(tensors).run()
        leaves = [leaf for leaf in _pytree.tree_leaves(returned) if isinstance(leaf, torch.Tensor)]
        leaves += [tensor for selection in recorder.selections for tensor in selection.tensors.values()]
        recorders.append(recorder)
        # Runtimes' outputs in bfloat16 are also stored as float32.
        return [to_numpy(leaf.float() if leaf.dtype == torch.bfloat16 else leaf) for leaf in leaves]

    results = eager.run_feeds(job, feeds, compute, folder, phase)
    for result, recorder in zip([it for it in results if it["failure"] is None], recorders):  # noqa: B905
        _divide_outputs(result, recorder.selections)
    return results


def _divide_outputs(result: Wire, selections: Sequence[_Selection]) -> None:
    """Divide the written tensors of a result into outputs and selections."""
    paths = result["outputs"]
    added = paths[len(paths) - sum(len(selection.tensors) for selection in selections) :]
    result["outputs"] = paths[: len(paths) - len(added)]
    following = iter(added)
    divided = [
        {"operator": it.operator, "largest": it.largest, **dict(zip(it.tensors, following))}  # noqa: B905
        for it in selections
    ]
    result["selections"] = [it for it in divided if None not in it.values()]


def run_cases_in_float64(job: Wire, call: ModuleCall, names: Sequence[str], phase: Phase) -> List[Wire]:
    """Convert the module to float64 in place, and run the cases in float64. Return [] if the conversion fails."""
    try:
        leaves = tuple(leaf.double() if is_float(leaf) else leaf for leaf in call.leaves)
        wide = call._replace(module=call.module.double(), leaves=leaves)
    except Exception:  # noqa: BLE001 - converting a user's module can raise any error
        return []
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return run_cases(job, wide, names, phase, "eager64")
    finally:
        torch.set_default_dtype(before)


def is_half(module: Any) -> bool:
    """Return whether the module has a float16 or bfloat16 weight."""
    halves = (torch.float16, torch.bfloat16)
    return isinstance(module, torch.nn.Module) and any(weight.dtype in halves for weight in _weights(module))


def _weights(module: Any) -> Tuple[Any, ...]:
    return (*module.parameters(), *module.buffers())


def count_bytes(module: Any) -> int:
    """Return the total size of the weights and buffers of a module in bytes."""
    return sum(weight.numel() * weight.element_size() for weight in _weights(module))


def round_weights(module: Any, stored: Set[str]) -> List[str]:
    """Round the float32 weights that a model stores in float16 in place; return the SHA-256 of all float16 weights.

    `stored` contains the SHA-256 of the model's float16 weights, and of their rows and columns.
    """
    if not isinstance(module, torch.nn.Module):
        return []
    embeddings = {id(child.weight) for child in module.modules() if isinstance(child, torch.nn.Embedding)}
    folded = _find_folded_weights(module)
    hashes: Set[str] = set()
    for weight in _weights(module):
        if id(weight) in folded:
            continue
        if weight.dtype == torch.float16:
            hashes |= _hash_stored(weight)
        elif weight.dtype in (torch.float32, torch.float64):
            is_embedding = id(weight) in embeddings
            rounded = next((half for half in _round(weight) if _is_stored(half, stored, is_embedding)), None)
            if rounded is not None:
                weight.data.copy_(rounded)
                hashes |= _hash_stored(rounded)
    return sorted(hashes)


def hash_folded_weights(module: Any) -> List[str]:
    """Return the SHA-256 of the float16 weights into which exporters may fold a normalization.

    If a model stores such a weight unchanged, the normalization changes it by less than rounding, unless a factor was
    rounded: 1.0005, for `eps=0.001`, is 1 in float16. Weights of modules with such factors are omitted.
    """
    if not isinstance(module, torch.nn.Module) or not all(map(_is_identity, _list_normalizations(module))):
        return []
    folded = _find_folded_weights(module)
    weights = (weight for weight in _weights(module) if id(weight) in folded and weight.dtype == torch.float16)
    return sorted({hashed for weight in weights for hashed in _hash_stored(weight)})


def _list_normalizations(module: Any) -> List[Any]:
    return [part for part in module.modules() if isinstance(part, torch.nn.modules.batchnorm._BatchNorm)]


def _is_identity(normalization: Any) -> bool:
    """Return whether a batch normalization multiplies by 1, except for a tenth of a float16 step."""
    if normalization.running_var is None:
        return False
    factor = (normalization.running_var.detach().double() + normalization.eps).rsqrt()
    if normalization.weight is not None:
        factor = factor * normalization.weight.detach().double()
    return bool(((factor - 1).abs() < MAX_IDENTITY_ERROR).all())


def _find_folded_weights(module: Any) -> Set[int]:
    """Return the ids of weights into which exporters may fold a normalization, perhaps without an effect on float16.

    A normalization with initial statistics divides by the square root of 1.00001, and an initial weight normalization
    multiplies by 1.
    """
    parts = list(module.modules())
    normalized = {id(weight) for part in parts for weight in _list_normalized_weights(part)}
    is_folded: Tuple[Any, ...] = ()
    if any(isinstance(part, torch.nn.modules.batchnorm._BatchNorm) for part in parts):
        is_folded = (torch.nn.modules.conv._ConvNd,)
    if any(isinstance(part, torch.nn.BatchNorm1d) for part in parts):
        is_folded = (*is_folded, torch.nn.Linear)
    folded = {id(weight) for part in parts if isinstance(part, is_folded) for weight in part.parameters(recurse=False)}
    return folded | normalized


def _list_normalized_weights(part: Any) -> List[Any]:
    """Return the weights of a module from which its parametrizations, such as weight normalization, compute others."""
    owned = dict(part.named_parameters(recurse=False))
    older = [owned[name] for name in owned if name.endswith("_v") and name[:-1] + "g" in owned]  # without `parametrize`
    newer = part._modules.get("parametrizations")
    return [*older, *(newer.parameters() if newer is not None else ())]


def _round(weight: Any) -> Iterator[Any]:
    """Yield the weight in float16, first as PyTorch rounds it, then as onnxconverter-common 1.14 does."""
    yield weight.detach().half()
    least = weight.detach().abs().clamp(1e-7, 1e4)
    yield torch.where(weight == 0, weight, torch.sign(weight) * least).detach().half()


def _is_stored(half: Any, stored: Set[str], is_embedding: bool) -> bool:
    """Return whether a model stores the weight, or all of its rows; one row of an embedding is enough."""
    if not stored or not torch.isfinite(half).all():
        return False
    if not stored.isdisjoint(map(_hash, _list_layouts(half))):
        return True
    rows = [_hash(row) in stored for row in _list_rows(half)]
    return any(rows) if is_embedding else len(rows) > 0 and all(rows)


def _list_layouts(weight: Any) -> Tuple[Any, ...]:
    return (weight, weight.T) if weight.ndim == 2 else (weight,)


def _list_rows(weight: Any) -> Sequence[Any]:
    return list(weight) if weight.ndim == 2 and len(weight) <= MAX_ROWS else ()


def _hash_stored(half: Any) -> Set[str]:
    """Return the SHA-256 of a weight, and of what exporters store instead: a transposed matrix or some of its rows."""
    return {_hash(part) for part in (*_list_layouts(half), *_list_rows(half))}


def _hash(tensor: Any) -> str:
    return hashlib.sha256(to_numpy(tensor).tobytes()).hexdigest()


def is_float(leaf: Any) -> bool:
    """Return whether the leaf is a tensor of floats."""
    return isinstance(leaf, torch.Tensor) and leaf.dtype.is_floating_point


def to_numpy(tensor: Any) -> Any:
    """Return the tensor as an array; None for types that numpy cannot represent."""
    try:
        return tensor.detach().cpu().resolve_conj().resolve_neg().numpy()
    except (TypeError, RuntimeError, NotImplementedError):  # bfloat16, float8, quantized, sparse
        return None


@contextlib.contextmanager
def _without_attention_fastpath() -> Iterator[None]:
    """Disable PyTorch's fast path for attention, which the exporter does not use.

    The fast path writes zeros at padded positions. Source: `nn.TransformerEncoder` of torch 2.13 in evaluation mode.
    """
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
    """Restore the buffers after the block: a graph has no state, so each case must start with the exported buffers."""
    buffers = [(part, dict(part._buffers)) for part in module.modules()]
    values = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    try:
        yield
    finally:
        for part, before in buffers:
            part._buffers.update(before)
        for buffer, value in values:
            buffer.copy_(value)
