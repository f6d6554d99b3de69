"""The interface of a fix: the model it gets, and the change that it proposes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onnx import ModelProto

from onnxgate.commands.fix.model_file import Part


@dataclass(frozen=True, slots=True)
class VersionLimits:
    """Version limits of a model, from its runtimes and the config; None for no limit."""

    ir_version: int | None = None  # the highest that is allowed
    opset: int | None = None  # of `ai.onnx`: the pinned one, or the newest that all runtimes implement
    pinned: bool = False  # the opset is pinned by the config


@dataclass(frozen=True, slots=True)
class FixRequest:
    """One model."""

    path: Path  # the file; its data are relative to it
    proto: ModelProto  # its structure
    limits: VersionLimits
    root: Path  # the repository: nothing outside of it is read
    scratch: Path  # an empty folder
    run_onnx: Callable[[Sequence[str]], str]  # runs `onnx_subprocess.py`; returns "", or why it failed


@dataclass(frozen=True, slots=True)
class RunnableCopy:
    """A copy of the model that runtimes can read, to run instead of one whose data no runtime reads."""

    parts: tuple[Part, ...]
    data: Mapping[str, Path]  # name next to the model -> the file


@dataclass(frozen=True, slots=True)
class Change:
    """The change that a fix proposes."""

    parts: tuple[Part, ...]  # the whole file
    words: tuple[str, ...]  # "IR version 13 becomes 10"
    unsafe: str = ""  # why it needs `--unsafe`
    renamed: Mapping[str, str] = field(default_factory=dict)  # outputs with another name: from -> to
    follows: frozenset[str] = frozenset()  # rules that find this change, and nothing wrong with it
    stand_in: RunnableCopy | None = None
    unlinked: tuple[str, ...] = ()  # data files that the model names no longer


@dataclass(frozen=True, slots=True)
class NoFix:
    """Why a fix leaves the model as it is."""

    reason: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Fix:
    """One kind of repair. It writes only into the folder of the request."""

    name: str
    rules: frozenset[str]  # the rules that it fixes
    propose: Callable[[FixRequest], Change | NoFix | None]  # the change, or why there is none; None: nothing to do
