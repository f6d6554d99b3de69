"""What differs between two models, as values: what `onnxgate diff --output json` says.

In the order of the new model; no clock, no host. What counts makes another model of it; what is in `beside` does not
change what is computed.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from onnxgate.model.facts import ValueInfo

SCHEMA_VERSION = 1

Verdict = Literal["identical", "same", "different", "undecided"]
"""Byte for byte; but for what is in `beside` and around; another model; the same as far as it could be read."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two models. `name` is what the user called it."""

    name: str
    sha256: str
    size_bytes: int
    nodes: int  # graphs inside and local functions included
    weights: int


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is said of a model: a stamp, a metadata key, a data file. None: it is not there."""

    what: str
    before: str | None = None
    after: str | None = None


class InterfaceChange(msgspec.Struct, frozen=True, kw_only=True):
    """One input or output; `text` says what changed of one that is in both, after its name."""

    role: Literal["input", "output"]
    change: Literal["added", "removed", "renamed", "changed", "reordered"]
    name: str
    was: str = ""  # its name before, where that is another
    before: ValueInfo | None = None
    after: ValueInfo | None = None
    text: str = ""


class OperatorChange(msgspec.Struct, frozen=True, kw_only=True):
    """How many nodes of one operator there are."""

    operator: str
    before: int
    after: int


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that changed of a node: an attribute, an input, its outputs, a graph inside."""

    kind: Literal["attribute", "input", "outputs", "graph"]
    text: str  # "attribute `strides` is [2, 2], was [1, 1]"


class NodeChange(msgspec.Struct, frozen=True, kw_only=True):
    """One node. `name` and `operator` are those of the new model where it is in it."""

    change: Literal["added", "removed", "replaced", "changed"]
    scope: tuple[str, ...] = ()  # where it is, from the outside in: "local function `my.f`"; empty in the main graph
    operator: str
    name: str
    was: str = ""  # of a replaced one, the operator before
    was_name: str = ""
    position: int  # among the graph's nodes, in the file of the new model, of a removed one in that of the old
    inserted: bool = False  # it stands where before, or after, there is a plain edge from `reads` to `feeds`
    reads: tuple[str, ...] = ()  # "`Conv` `c1`", "input `x`"; weights are left out
    feeds: tuple[str, ...] = ()
    details: tuple[Detail, ...] = ()


class EndChange(msgspec.Struct, frozen=True, kw_only=True):
    """An output of a graph that is made by something else."""

    scope: tuple[str, ...] = ()
    output: str
    before: str  # "`Relu` `r1`"
    after: str


class FunctionChange(msgspec.Struct, frozen=True, kw_only=True):
    """A local function that is in one model only, or is called otherwise."""

    change: Literal["added", "removed", "renamed", "changed"]
    name: str
    was: str = ""
    text: str = ""


class WeightChange(msgspec.Struct, frozen=True, kw_only=True):
    """One weight: an initializer, a `Constant`, or a tensor that a node holds."""

    change: Literal["added", "removed", "changed", "copied", "unreadable"]
    name: str
    was: str = ""  # its name before, or the weight that a copy repeats
    type: str = ""
    shape: tuple[int, ...] = ()
    sha256: str = ""
    values: str = ""  # of a small one, what it holds
    was_type: str = ""
    was_shape: tuple[int, ...] = ()
    was_sha256: str = ""
    was_values: str = ""
    elements: int = 0  # that differ
    total: int = 0
    largest: float | None = None  # the largest absolute change of one element
    relative: float | None = None  # the distance of all elements, by the length of the old ones
    text: str = ""  # what else there is to say: why it cannot be read, what it holds now


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Two models side by side."""

    version: int = SCHEMA_VERSION
    onnxgate: str
    verdict: Verdict
    old: Side
    new: Side
    beside: tuple[str, ...] = ()  # what is other and makes no other model of it: "names of nodes"
    interface: tuple[InterfaceChange, ...] = ()
    stamps: tuple[Changed, ...] = ()
    metadata: tuple[Changed, ...] = ()
    files: tuple[Changed, ...] = ()
    operators: tuple[OperatorChange, ...] = ()
    functions: tuple[FunctionChange, ...] = ()
    nodes: tuple[NodeChange, ...] = ()
    ends: tuple[EndChange, ...] = ()
    weights: tuple[WeightChange, ...] = ()


class WeightChanges(msgspec.Struct, frozen=True, kw_only=True):
    """How the weights of two models differ, matched by the structure of their graphs."""

    changed: int  # tensors that hold other values, or are of another type or shape
    of: int  # tensors of the model now
    added: int = 0
    removed: int = 0
    largest: float | None = None  # the largest absolute change of one element; None if it is not known
    name: str = ""  # the tensor in which it is
