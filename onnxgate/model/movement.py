"""How far the weights of a model moved, matched by the structure of its graphs and not by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onnxgate.model.drift import drift
from onnxgate.model.pairing import WeightMatch, match
from onnxgate.model.structure import read_structure
from onnxgate.model.weights import UnreadableWeightError
from onnxgate.model.wiring import wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """How the weights of two models differ."""

    changed: int  # tensors that hold other values, or are of another type or shape
    of: int  # tensors of the model now
    added: int = 0
    removed: int = 0
    largest: float | None = None  # the largest absolute change of one element; None where none can be told
    name: str = ""  # the tensor in which it is


def weights_moved(old: Path, new: Path) -> Moved | None:
    """How the weights of `new` differ from those of `old`; None where they are the same. No weight is held in memory.

    Raises:
        UnreadableModel: one of the files is no model.
        UnreadableWeightError: some of the weights are not there to be read.
    """
    models = match(wire(read_structure(old), old), wire(read_structure(new), new))
    of = sum(it.new is not None for it in models.weights)
    added = sum(it.old is None and it.copy_of is None for it in models.weights)
    removed = sum(it.new is None for it in models.weights)
    changed = [it for it in models.weights if it.old is not None and it.new is not None and not it.same]
    _require_readable(models.weights)
    if not (changed or added or removed):
        return None
    largest, name = _largest(changed)
    return Moved(changed=len(changed), of=of, added=added, removed=removed, largest=largest, name=name)


def _require_readable(weights: list[WeightMatch]) -> None:
    for weight in (it for pair in weights for it in (pair.old, pair.new) if it is not None):
        if not weight.digest:
            raise UnreadableWeightError(f"weight `{weight.name}` cannot be read: {weight.problem}")


def _largest(changed: list[WeightMatch]) -> tuple[float | None, str]:
    """None where an element is NaN or infinite: nothing moved by at most anything."""
    found: tuple[float | None, str] = (None, "")
    for pair in changed:
        assert pair.old is not None
        assert pair.new is not None
        moved = drift(pair.old, pair.new)
        if moved is not None and moved.unbounded:
            return None, ""
        if moved is not None and moved.largest is not None and (found[0] is None or moved.largest > found[0]):
            found = moved.largest, pair.new.name
    return found
