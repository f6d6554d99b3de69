"""Subjects of the rules about change: a model, and what it was at its baseline."""

from __future__ import annotations

import msgspec

from onnxgate.findings import Place
from onnxgate.model.facts import ModelFacts


class MovedWeights(msgspec.Struct, frozen=True, kw_only=True):
    """How the weights of two models differ, matched by the structure of their graphs."""

    changed: int  # tensors that hold other values
    of: int  # tensors of the model now
    added: int = 0
    removed: int = 0
    largest: float | None = None  # the largest absolute change of one element; None where none can be told
    name: str = ""  # the tensor in which it is


class Minimum(msgspec.Struct, frozen=True, kw_only=True):
    """From which release of ONNX Runtime on a model is predicted to load, before and now."""

    before: str  # "1.16.0"; "" where only some releases are known to be lost
    after: str  # "" where no known release loads it
    lost: tuple[str, ...] = ()  # releases within the ranges that the targets ask for which loaded it, and do not now


class ModelChange(msgspec.Struct, frozen=True, kw_only=True):
    """One model whose content is other than at its baseline."""

    before: ModelFacts  # `path` is the one that it had
    after: ModelFacts
    place: Place
    baseline: str  # in a message: "at `origin/main`", "in the lock"
    from_lock: bool = False  # the lock is the baseline: `model-changed` says that the content is another
    weights: MovedWeights | None = None  # None: they are the same, or not all of them is at hand
    minimum: Minimum | None = None  # None: it is the same, or cannot be predicted
