"""Subjects of the lock stage's rules."""

from __future__ import annotations

import msgspec

from onnxgate.core.findings import Place
from onnxgate.model.diff.result import WeightChanges
from onnxgate.model.facts import ModelFacts
from onnxgate.project.lock.types import LockedModel


class ModelLockComparison(msgspec.Struct, frozen=True):
    """One readable model (or one proven by an LFS pointer: then the facts are the lock's own) and what is pinned."""

    facts: ModelFacts
    entry: LockedModel | None
    place: Place  # the model's entry in the lock or in the config, or the file
    pinned_opsets: dict[str, int]
    pinned_ir: str | int | None  # "<=10", 8
    opset_place: Place  # the line of the config that pins it
    ir_place: Place
    changes: tuple[str, ...] = ()  # differences from the entry, in words; empty for the same content
    misrecorded: tuple[str, ...] = ()  # keys of the entry that contradict the file although the content is the same


class LockConfigComparison(msgspec.Struct, frozen=True):
    """The whole lock against the whole config: one sentence per difference ("target `edge` is not locked")."""

    place: Place
    differences: tuple[str, ...]
    vanished: dict[str, Place]  # models that the lock has and the project no longer has, with their entries


class MinimumRelease(msgspec.Struct, frozen=True, kw_only=True):
    """From which release of ONNX Runtime on a model is predicted to load, before and now."""

    before: str  # "1.16.0"; "" where only some releases are known to be lost
    after: str  # "" if no known release loads it
    lost: tuple[str, ...] = ()  # releases in the ranges of the targets that loaded it before and refuse it now


class ModelChange(msgspec.Struct, frozen=True, kw_only=True):
    """One model whose content differs from its baseline."""

    before: ModelFacts  # `path` is the one that it had
    after: ModelFacts
    place: Place
    baseline: str  # in a message: "at `origin/main`", "in the lock"
    from_lock: bool = False  # the lock is the baseline: `model-changed` says that the content is another
    weights: WeightChanges | None = None  # None: they are the same, or not all of them is at hand
    minimum: MinimumRelease | None = None  # None: it is the same, or cannot be predicted
