"""The interface of a fix: the model it gets, and the change that it proposes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from onnxgate.commands.fix.model_file import Part

if TYPE_CHECKING:
    from onnx import ModelProto

RunOnnx = Callable[[Sequence[str]], str]
"""Runs `onnx_subprocess.py` with these arguments; returns "", or why it failed."""


@dataclass(frozen=True, slots=True)
class VersionLimits:
    """What a model's runtimes and the config ask of its stamps; None where they ask nothing."""

    ir_version: int | None = None  # the highest that is allowed
    opset: int | None = None  # of `ai.onnx`: the one that is pinned, else the newest that all runtimes implement
    pinned: bool = False  # whether that opset is the config's


@dataclass(frozen=True, slots=True)
class FixRequest:
    """One model, and what is wrong with it."""

    path: Path  # where it is read; its data lie relative to it
    proto: ModelProto  # its structure
    rules: frozenset[str]  # that found something
    bounds: VersionLimits
    root: Path  # the repository: nothing outside of it is read
    scratch: Path  # an empty folder
    elsewhere: RunOnnx


@dataclass(frozen=True, slots=True)
class RunnableCopy:
    """The same model where a runtime can read it: what is run in place of a file whose data no runtime takes."""

    parts: tuple[Part, ...]
    data: Mapping[str, Path]  # name beside it -> the file


@dataclass(frozen=True, slots=True)
class Change:
    """What a fix would make of a model."""

    parts: tuple[Part, ...]  # the whole file
    words: tuple[str, ...]  # "IR version 13 becomes 10"
    unsafe: str = ""  # why it is made only where it is asked for
    renamed: Mapping[str, str] = field(default_factory=dict)  # outputs with another name: from -> to
    follows: frozenset[str] = frozenset()  # rules that find this change, and nothing wrong with it
    stand_in: RunnableCopy | None = None
    unlinked: tuple[str, ...] = ()  # data files that the model names no longer


@dataclass(frozen=True, slots=True)
class NoFix:
    """Why a fix that was asked for leaves the model as it is."""

    reason: str
    hint: str = ""


class Fix(Protocol):
    """One kind of repair. It reads, and writes nothing but into the folder that it is given."""

    name: str
    rules: frozenset[str]  # what it answers

    def propose(self, asked: FixRequest) -> Change | NoFix | None:
        """What would be changed, or why nothing can be; None where there is nothing to do."""
        ...
