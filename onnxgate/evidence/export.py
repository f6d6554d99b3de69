"""Subjects of the export stage's rules."""

from __future__ import annotations

from typing import Literal

import msgspec

from onnxgate.core.findings import Place
from onnxgate.core.jobs import Failure


class LostAxis(msgspec.Struct, frozen=True, kw_only=True):
    """An axis that is not as dynamic in the file as the source asks for, or as its own outputs are."""

    role: Literal["input", "output", "value"]  # "value": the file has none of that name
    value: str
    axis: int
    name: str = ""  # "batch"
    size: int | None = None  # what the file says instead
    grown: int | None = None  # of an output: the size that the source gave when its inputs grew
    lowest: int | None = None  # the exported program holds from this size on
    highest: int | None = None  # and up to this one
    works: int | None = None  # a size beyond these that the source takes


class TrainingNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that computes as in training."""

    operator: str
    node: str
    place: Place | None = None


class ReturnedValue(msgspec.Struct, frozen=True, kw_only=True):
    """One of the values that the source returns."""

    key: str = ""  # what the source calls it
    kind: Literal["tensor", "none", "other"] = "tensor"


class FixedValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value of the example that was written into the file."""

    what: str  # the source's line, or "argument `n` is the number 3"
    kind: Literal["argument", "branch", "number"] = "argument"
    varies: bool = False  # a branch that the source was seen to take otherwise
    place: Place | None = None


class InterfaceNames(msgspec.Struct, frozen=True, kw_only=True):
    """What the source asks for by name, and what the file has."""

    inputs: tuple[str, ...] = ()  # asked for
    outputs: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()  # what the source calls its inputs, where the exporter takes these names
    inputs_written: tuple[str, ...] = ()
    outputs_written: tuple[str, ...] = ()


class Reexport(msgspec.Struct, frozen=True, kw_only=True):
    """One model, exported again from its source or by its command."""

    model: str
    place: Place  # the source's line where it is known, else the model's entry in the config
    source: str  # "export/classifier.py:build", or the command's words
    failure: Failure | None = None
    timed_out_s: float = 0.0
    crashed: str = ""
    opsets_asked: dict[str, int] = {}
    opsets_written: dict[str, int] = {}
    # What differs between the committed and the fresh export, normalised; the first few, in words.
    differences: tuple[str, ...] = ()
    # "IR version 8, was 10": no difference of the model; rules about the committed file judge its own.
    restamped: str = ""
    log: str = ""
    exporter: str = ""  # "dynamo", "TorchScript", "" where that is not known
    nearest_opset: int | None = None  # to what was asked for, of those that the exporter writes and every target takes
    names: InterfaceNames = InterfaceNames()
    lost: tuple[LostAxis, ...] = ()
    was_training: bool = False  # the module was handed over in `train()`
    training: tuple[TrainingNode, ...] = ()
    returned: tuple[ReturnedValue, ...] = ()
    mutated: tuple[str, ...] = ()  # buffers that a call of the source changes
    remembers: bool = False  # a second call of the source gives other outputs
    fixed: tuple[FixedValue, ...] = ()
    rounded: tuple[str, ...] = ()  # weights that differ from the committed ones by rounding alone
    unstable: tuple[str, ...] = ()  # what differs when it is exported a second time
    failed_again: Failure | None = None  # it was exported once and not a second time


class ToolchainState(msgspec.Struct, frozen=True, kw_only=True):
    """What the toolchain is against what the lock says: package -> (locked, found); found is "" where it is absent."""

    place: Place
    drift: dict[str, tuple[str, str]]
