"""Subjects of the lock stage's rules."""

from __future__ import annotations

from dataclasses import dataclass

from onnxgate.findings import Place
from onnxgate.lock.types import LockedModel
from onnxgate.model.facts import ModelFacts


@dataclass(frozen=True, slots=True)
class ModelAgainstLock:
    """One readable model (or one proven by an LFS pointer: then the facts are the lock's own) and what is pinned."""

    facts: ModelFacts
    entry: LockedModel | None
    place: Place  # the model's entry in the lock, else in the config, else the file
    pinned_opsets: dict[str, int]
    pinned_ir: str | int | None  # "<=10", 8
    opset_place: Place  # the line of the config that pins it
    ir_place: Place
    changes: tuple[str, ...] = ()  # what differs from the entry, in words; empty where it is the same content
    misrecorded: tuple[str, ...] = ()  # of the same content: keys of the entry that say something else than the file


@dataclass(frozen=True, slots=True)
class LockAgainstConfig:
    """The whole lock against the whole config: one sentence per difference ("target `edge` is not locked")."""

    place: Place
    differences: tuple[str, ...]
    vanished: dict[str, Place]  # models that the lock has and the project no longer has, with their entries
