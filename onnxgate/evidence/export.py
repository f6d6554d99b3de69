"""Evidence about exported models, from which the rules of the export stage create findings."""

from __future__ import annotations

from typing import Literal

import msgspec

from onnxgate.core.findings import Place
from onnxgate.core.jobs import Failure, ReturnedLeaf


class LostAxis(msgspec.Struct, frozen=True, kw_only=True):
    """An axis that supports fewer sizes in the exported file than in the source, or has another name there."""

    role: Literal["input", "output", "value"]  # "value": the file has no such input or output
    value: str
    axis: int
    name: str = ""  # "batch"
    size: int | None = None  # the fixed size in the file
    grown: int | None = None  # for an output: its size in the source for larger inputs
    lowest: int | None = None  # smallest size that the exported program supports
    highest: int | None = None  # largest size that the exported program supports
    works: int | None = None  # a size outside this range that the source supports
    renamed: str = ""  # name in the file of a dynamic axis that lost only its name


class TrainingNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of an exported model that is in training mode, such as a `Dropout`."""

    operator: str
    node: str
    place: Place | None = None


class FixedValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value from the example inputs that the exporter wrote into the file as a constant."""

    what: str  # the line of source code, or "argument `n` is the number 3"
    kind: Literal["argument", "branch", "number"] = "argument"
    name: str = ""  # name of the argument
    varies: bool = False  # another call of the source took a different branch
    place: Place | None = None


class InterfaceNames(msgspec.Struct, frozen=True, kw_only=True):
    """Names of a model's inputs and outputs: those that the source requests, and those in the exported file."""

    inputs: tuple[str, ...] = ()  # requested
    outputs: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()  # parameter names of the source, if the exporter uses them
    inputs_written: tuple[str, ...] = ()
    outputs_written: tuple[str, ...] = ()


class ExportFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why an export did not write a usable file."""

    failure: Failure | None = None
    timed_out_s: float = 0.0
    crashed: str = ""  # "SIGSEGV during export"


class OpsetRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The opsets that the config pins, and the opsets in the exported file."""

    requested: dict[str, int] = {}
    written: dict[str, int] = {}
    nearest: int | None = None  # the nearest opset that the exporter can write and every target supports
    missing: tuple[str, ...] = ()  # operators of `ai.onnx` in the file that the requested, older opset lacks
    changed: tuple[str, ...] = ()  # operators of `ai.onnx` in the file that changed since the requested opset


class CommittedComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Differences between the committed model file and a new export of its source, after both were normalized."""

    differences: tuple[str, ...] = ()  # descriptions of the first differences
    rounded: tuple[str, ...] = ()  # weights that differ only by rounding
    # "IR version changed from 10 to 8": not in `differences`, because other rules check the IR version of the file.
    ir_change: str = ""


class ExportedInterface(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs and outputs of an exported model, compared with those that the source requests."""

    names: InterfaceNames = InterfaceNames()
    lost_axes: tuple[LostAxis, ...] = ()


class SourceBehaviour(msgspec.Struct, frozen=True, kw_only=True):
    """How the source of a model behaved when it was called and exported."""

    exporter: str = ""  # "dynamo", "TorchScript"; "" if unknown
    was_training: bool = False  # the source returned the module in `train()` mode
    training_nodes: tuple[TrainingNode, ...] = ()
    returned: tuple[ReturnedLeaf, ...] = ()
    mutated: tuple[str, ...] = ()  # buffers that a call changes
    remembers: bool = False  # a second call returns different outputs
    fixed: tuple[FixedValue, ...] = ()
    constants: tuple[str, ...] = ()  # arguments in `dynamic_shapes` that are not tensors
    recurrent: dict[str, int] = {}  # recurrent layer -> its sequence length in the example

    def suggest_for_length(self, length: int | None) -> str:
        """Return a fix if this size is the sequence length of a recurrent layer, which `dynamo: True` fixes; "" if not.

        Source: torch 2.13, whose shape inference of `aten.lstm` and `aten.gru` replaces a dynamic length by a constant.
        """
        layer = next((name for name, steps in self.recurrent.items() if steps == length), "")
        advice = "export with `dynamo: False` and `dynamic_axes`, or keep the length fixed and remove it from the axes"
        return f"PyTorch's `dynamo: True` exporter fixes the sequence length of {layer}; {advice}" if layer else ""


class SecondExport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of exporting a source a second time: the differences from the first export, or the failure."""

    differences: tuple[str, ...] = ()
    failure: Failure | None = None


class Reexport(msgspec.Struct, frozen=True, kw_only=True):
    """A model that was exported again with its source or command, and everything learned from this export."""

    model: str
    place: Place  # the source line if known, otherwise the model's entry in the config
    source: str  # "export/classifier.py:build", or the command line
    is_command: bool = False
    end: ExportFailure | None = None  # None if the export wrote a file
    opsets: OpsetRequest = OpsetRequest()
    committed: CommittedComparison = CommittedComparison()
    interface: ExportedInterface = ExportedInterface()
    behaviour: SourceBehaviour = SourceBehaviour()
    second: SecondExport = SecondExport()

    @property
    def failure(self) -> Failure | None:
        """The error that ended the export; None if no error is known."""
        return self.end.failure if self.end else None


class ToolchainState(msgspec.Struct, frozen=True, kw_only=True):
    """Packages of the export toolchain whose installed versions differ from the lock.

    `drift`: package -> (locked version, installed version). The installed version is "" if the package is missing.
    """

    place: Place
    drift: dict[str, tuple[str, str]]
