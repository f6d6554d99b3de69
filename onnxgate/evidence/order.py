"""Where inputs and outputs that stayed stand now."""

from __future__ import annotations

from onnxgate.evidence.changes import ModelChange
from onnxgate.evidence.interfaces import Matching, Pair, match_outputs


def reordered(found: Matching) -> bool:
    """Whether those that stayed follow each other in another order."""
    positions = [pair.now for pair in found.pairs]
    return positions != sorted(positions)


def outputs_pushed_back(change: ModelChange) -> tuple[Pair, ...]:
    """Outputs behind a new one that stands before them, in an order that is the same: the first one first."""
    found = match_outputs(change)
    if reordered(found):
        return ()
    return tuple(pair for pair in found.pairs if pair.now > pair.was)
