"""The interface of fixes: what they are given, and the change that they propose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onnx import ModelProto

from onnxgate.commands.fix.model_file import (
    Part,
)


@dataclass(frozen=True, slots=True)
class VersionLimits:
    """Highest versions that a model may use, given by its runtimes and the config; None for no limit."""

    ir_version: int | None = None  # the highest allowed version
    opset: int | None = None  # of `ai.onnx`: the pinned version, or the newest that all runtimes support
    pinned: bool = False  # the opset is pinned by the config


@dataclass(frozen=True, slots=True)
class FixRequest:
    """A model to fix, and the data that fixes need."""

    path: Path  # the file; external data are relative to its folder
    proto: ModelProto  # its structure
    limits: VersionLimits
    root: Path  # the repository or, if there is none, the current folder; no file outside it is read
    scratch: Path  # an empty folder


@dataclass(frozen=True, slots=True)
class RunnableCopy:
    """A copy of a model for runtimes that reject the original because of its external data."""

    parts: tuple[Part, ...]
    data: Mapping[str, Path]  # name in the folder of the model -> the file


@dataclass(frozen=True, slots=True)
class Change:
    """The change that a fix proposes."""

    parts: tuple[Part, ...]  # the whole file
    words: tuple[str, ...]  # "IR version 13 becomes 10"
    unsafe: str = ""  # why the change requires `--unsafe`
    renamed: Mapping[str, str] = field(default_factory=dict)  # renamed outputs: old name -> new name
    follows: frozenset[str] = frozenset()  # rules whose findings this change is expected to cause
    stand_in: RunnableCopy | None = None
    unlinked: tuple[str, ...] = ()  # data files that the model no longer uses


@dataclass(frozen=True, slots=True)
class NoFix:
    """The reason why a fix does not apply."""

    reason: str
    hint: str = ""
    error: str = ""  # of the converter, for `-v`


@dataclass(frozen=True, slots=True)
class Fix:
    """A kind of repair, which writes files only to the scratch folder of the request."""

    name: str
    rules: frozenset[str]  # the rules that it fixes
    propose: Callable[
        [FixRequest], Change | NoFix | None
    ]  # the change or why it is not possible; None if there is nothing to fix
