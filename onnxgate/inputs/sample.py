"""The source's own example inputs as a case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnxgate.inputs.sizes import axis_names
from onnxgate.model.facts import ModelFacts, ValueInfo
from onnxgate.runtimes.jobs import Case

NAME = "the source's example"


def sample_case(facts: ModelFacts, names: Sequence[str], paths: Sequence[str]) -> Case | None:
    """The example as a case of the committed model; None where its arrays are not what the model takes.

    `names` are the inputs of the fresh export and `paths` their `.npy` files, in the source's order. Names that the
    committed model shares decide; where it names its inputs differently, their order does.
    """
    inputs = [value.name for value in facts.inputs]
    order = list(names) if sorted(names) == sorted(inputs) else inputs
    if not len(inputs) == len(paths) == len(order):
        return None
    given = dict(zip(order, paths, strict=True))
    sizes: dict[str, int] = {}
    for value in facts.inputs:
        found = _sizes(value, given[value.name])
        if found is None or any(sizes.get(axis, size) != size for axis, size in found.items()):
            return None
        sizes.update(found)
    return Case(name=NAME, origin="source", inputs={name: given[name] for name in inputs}, sizes=sizes)


def _sizes(value: ValueInfo, path: str) -> Mapping[str, int] | None:
    """The sizes that an array gives the dynamic axes of an input; None where it does not fit."""
    import numpy as np

    from onnxgate.inputs.values import DTYPES

    array = np.load(path, mmap_mode="r", allow_pickle=False)
    element = value.type.removeprefix("tensor(").removesuffix(")")
    dims = axis_names(value)
    if array.dtype != DTYPES.get(element) or (value.shape is not None and len(dims) != array.ndim):
        return None
    pairs = list(zip(dims, array.shape, strict=False))
    if any(isinstance(dim, int) and dim != size for dim, size in pairs):
        return None
    return {dim: int(size) for dim, size in pairs if isinstance(dim, str)}
