"""Subjects of the lock stage's rules."""

from __future__ import annotations

import msgspec

from onnxgate.core.findings import Place
from onnxgate.model.diff.result import WeightChanges
from onnxgate.model.facts import ModelFacts
from onnxgate.project.lock.types import LockedModel


class ModelLockComparison(msgspec.Struct, frozen=True):
    """A model, its entry in the lock and the pins that apply. Of an LFS pointer, the facts are those of the lock."""

    facts: ModelFacts
    entry: LockedModel | None
    place: Place  # the model's entry in the lock or in the config, or the file
    pinned_opsets: dict[str, int]
    pinned_ir: str | int | None  # "<=10", 8
    opset_place: Place  # the line of the config that pins it
    ir_place: Place
    changes: tuple[str, ...] = ()  # differences from the entry; empty for the same content
    misrecorded: tuple[str, ...] = ()  # keys of the entry that contradict the file although the content is the same


class LockConfigComparison(msgspec.Struct, frozen=True):
    """Differences between lock and config, as sentences ("target `edge` is not locked")."""

    place: Place
    differences: tuple[str, ...]
    vanished: dict[str, Place]  # locked models that are no longer in the project, with their entries


class MinimumRelease(msgspec.Struct, frozen=True, kw_only=True):
    """First release of ONNX Runtime that a model is predicted to load on, before and after a change."""

    before: str  # "1.16.0"; "" if only some lost releases are known
    after: str  # "" if no known release loads it
    lost: tuple[str, ...] = ()  # required releases that loaded it before and refuse it now


class ModelChange(msgspec.Struct, frozen=True, kw_only=True):
    """One model whose content differs from its baseline."""

    before: ModelFacts  # with its old `path`
    after: ModelFacts
    place: Place
    baseline: str  # in a message: "at `origin/main`", "in the lock"
    from_lock: bool = False  # the lock is the baseline, so `model-changed` reports the change
    weights: WeightChanges | None = None  # None if they are equal or not all available
    minimum: MinimumRelease | None = None  # None if it is equal or cannot be predicted
