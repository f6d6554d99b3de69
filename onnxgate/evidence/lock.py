"""Evidence about changes to models, from which the rules of the lock stage create findings."""

from __future__ import annotations

import msgspec

from onnxgate.core.findings import Place
from onnxgate.model.diff.result import WeightChanges
from onnxgate.model.facts import ModelFacts
from onnxgate.project.lock.types import LockedModel


class ModelLockComparison(msgspec.Struct, frozen=True):
    """A model, its lock entry, and the opsets and IR version that the config pins.

    If the model file is a Git LFS pointer, `facts` are copied from the lock.
    """

    facts: ModelFacts
    entry: LockedModel | None
    place: Place  # the model's entry in the lock or config, or the model file
    pinned_opsets: dict[str, int]
    pinned_ir: str | int | None  # "<=10", 8
    opset_place: Place  # the line in the config that pins the opset
    ir_place: Place
    changes: tuple[str, ...] = ()  # differences from the lock entry; empty if the content is the same
    misrecorded: tuple[str, ...] = ()  # keys of the lock entry that are wrong although the content is the same


class LockConfigComparison(msgspec.Struct, frozen=True):
    """Differences between the lock and the config. Each is a sentence, such as "target `edge` is not locked"."""

    place: Place
    differences: tuple[str, ...]
    vanished: dict[str, Place]  # locked models that are no longer in the project -> place of the lock entry


class MinimumRelease(msgspec.Struct, frozen=True, kw_only=True):
    """The first release of an engine that is predicted to load a model, before and after the model was changed."""

    engine: str = "onnxruntime"
    before: str  # "1.16.0"; "" if the first release is unknown
    after: str  # "" if no known release loads the model
    lost: tuple[str, ...] = ()  # required releases that loaded the model before but no longer do


class ModelChange(msgspec.Struct, frozen=True, kw_only=True):
    """A model whose content differs from its baseline (the lock or a git revision), with both versions."""

    before: ModelFacts  # `path` is the path at the baseline
    after: ModelFacts
    place: Place
    baseline: str  # phrase for messages: "at `origin/main`", "in the lock"
    against: str = ""  # value of `--against` that selects the baseline; "" if the lock is the baseline
    from_lock: bool = False  # the lock is the baseline, so `model-changed` reports the change
    weights: WeightChanges | None = None  # None if the weights are equal or some are not available
    minimums: tuple[MinimumRelease, ...] = ()  # by engine, without those that are the same or cannot be predicted
