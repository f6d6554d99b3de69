"""Positions that a mask drops: what a model computes there means nothing, and need not agree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onnxgate.model.facts import Dim, ValueInfo
from onnxgate.model.reading import Reading
from onnxgate.runtimes.jobs import Case

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnxgate.inputs.graph import Graph

    Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Kept:
    """The mask of one case: an array of two axes, batch and time, whose ones keep (or drop) a position."""

    path: str
    ones_keep: bool

    def positions(self, shape: tuple[int, ...]) -> Array | None:
        """Which elements of an output of this shape are kept; None where all are, or where the mask does not fit."""
        import numpy as np

        mask = np.load(self.path, allow_pickle=False)
        if mask.ndim != 2 or shape[:2] != mask.shape:
            return None
        kept = (mask != 0) == self.ones_keep
        if kept.all():
            return None
        return np.broadcast_to(kept.reshape(*mask.shape, *([1] * (len(shape) - 2))), shape)


def kept_positions(reading: Reading, cases: Iterable[Case]) -> dict[tuple[str, str], Kept]:
    """By case and output: the mask of the outputs that have a mask's own axes, batch and time, as their first two.

    A mask counts only where the graph shows what its ones mean, or where its name is the usual one; all else is
    compared in full.
    """
    from onnxgate.inputs.graph import Graph

    masks = [value for value in reading.facts.inputs if _is_candidate(value)]
    if not masks:
        return {}
    found = list(_masks(masks, Graph(reading.proto)))
    if len(found) != 1:
        return {}  # none, or more than one: which of them drops an output's positions is not known
    mask, ones_keep = found[0]
    outputs = [value.name for value in reading.facts.outputs if (value.shape or ())[:2] == mask.shape]
    return {
        (case.name, output): Kept(case.inputs[mask.name], ones_keep)
        for case in cases
        if mask.name in case.inputs
        for output in outputs
    }


def _is_candidate(value: ValueInfo) -> bool:
    dims: tuple[Dim, ...] = value.shape or ()
    return len(dims) == 2 and isinstance(dims[1], str) and dims[1] != "?" and "mask" in value.name.lower()


def _masks(values: Iterable[ValueInfo], graph: Graph) -> Iterator[tuple[ValueInfo, bool]]:
    from onnxgate.inputs.roles import proven_polarity

    for value in values:
        ones_keep = proven_polarity(value.name, graph)
        if ones_keep is None and value.name.lower() == "attention_mask":
            ones_keep = True
        if ones_keep is not None:
            yield value, ones_keep
