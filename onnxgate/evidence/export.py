"""Subjects of the export stage's rules."""

from __future__ import annotations

from typing import Literal

import msgspec

from onnxgate.core.findings import Place
from onnxgate.core.jobs import Failure, ReturnedLeaf


class LostAxis(msgspec.Struct, frozen=True, kw_only=True):
    """An axis that is less dynamic in the file than the source requests, or than its own outputs are."""

    role: Literal["input", "output", "value"]  # "value": the file has no such input or output
    value: str
    axis: int
    name: str = ""  # "batch"
    size: int | None = None  # the fixed size in the file
    grown: int | None = None  # of an output: its size in the source for larger inputs
    lowest: int | None = None  # smallest size that the exported program supports
    highest: int | None = None  # largest one
    works: int | None = None  # a size outside of this range that the source supports


class TrainingNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node in training mode."""

    operator: str
    node: str
    place: Place | None = None


class FixedValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value of the example that was written into the file."""

    what: str  # the source's line, or "argument `n` is the number 3"
    kind: Literal["argument", "branch", "number"] = "argument"
    name: str = ""  # of the argument
    varies: bool = False  # a branch that the source took differently in another call
    place: Place | None = None


class InterfaceNames(msgspec.Struct, frozen=True, kw_only=True):
    """Requested names of inputs and outputs, and those of the file."""

    inputs: tuple[str, ...] = ()  # requested
    outputs: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()  # parameter names of the source, if the exporter uses them
    inputs_written: tuple[str, ...] = ()
    outputs_written: tuple[str, ...] = ()


class ExportFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The end of an export that wrote no usable file."""

    failure: Failure | None = None
    timed_out_s: float = 0.0
    crashed: str = ""  # "SIGSEGV during export"


class OpsetRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The opsets that the config pins, and those of the file."""

    requested: dict[str, int] = {}
    written: dict[str, int] = {}
    nearest: int | None = None  # to the requested one, of those that the exporter writes and every target supports


class CommittedComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The committed file compared with the fresh export, both normalised."""

    differences: tuple[str, ...] = ()  # the first few, in words
    rounded: tuple[str, ...] = ()  # weights that differ by rounding alone
    # "IR version 8, was 10": not a difference of the model; rules about the committed file check its own.
    ir_change: str = ""


class ExportedInterface(msgspec.Struct, frozen=True, kw_only=True):
    """The interface of the file compared with what the source requests."""

    names: InterfaceNames = InterfaceNames()
    lost_axes: tuple[LostAxis, ...] = ()


class SourceBehaviour(msgspec.Struct, frozen=True, kw_only=True):
    """Behaviour of the source when it is called and exported."""

    exporter: str = ""  # "dynamo", "TorchScript"; "" if it is not known
    was_training: bool = False  # the source returned the module in `train()`
    training_nodes: tuple[TrainingNode, ...] = ()
    returned: tuple[ReturnedLeaf, ...] = ()
    mutated: tuple[str, ...] = ()  # buffers that a call changes
    remembers: bool = False  # a second call gives other outputs
    fixed: tuple[FixedValue, ...] = ()


class SecondExport(msgspec.Struct, frozen=True, kw_only=True):
    """A second export compared with the first."""

    differences: tuple[str, ...] = ()
    failure: Failure | None = None


class Reexport(msgspec.Struct, frozen=True, kw_only=True):
    """One model, exported again from its source or by its command."""

    model: str
    place: Place  # the source's line if known, or the model's entry in the config
    source: str  # "export/classifier.py:build", or the command's words
    end: ExportFailure | None = None  # None: there is a file
    opsets: OpsetRequest = OpsetRequest()
    committed: CommittedComparison = CommittedComparison()
    interface: ExportedInterface = ExportedInterface()
    behaviour: SourceBehaviour = SourceBehaviour()
    second: SecondExport = SecondExport()

    @property
    def failure(self) -> Failure | None:
        """The error that ended the export."""
        return self.end.failure if self.end else None


class ToolchainState(msgspec.Struct, frozen=True, kw_only=True):
    """Differences of the toolchain from the lock: package -> (locked, installed); installed is "" if it is missing."""

    place: Place
    drift: dict[str, tuple[str, str]]
