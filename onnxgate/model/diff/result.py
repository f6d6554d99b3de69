"""Difference between two models, the output of `onnxgate diff --output json`.

Lists are in the order of the new model. The output does not depend on the time or the machine. Every change except
those in `beside` may affect the results of the model.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from onnxgate.model.facts import ValueInfo

SCHEMA_VERSION = 1

Verdict = Literal["identical", "same", "different", "undecided"]
"""identical: the same bytes; same: only differences in `beside`; undecided: no difference, but not all was read."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two models."""

    name: str  # as given on the command line
    sha256: str
    size_bytes: int
    nodes: int  # including subgraphs and local functions
    weights: int


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """One version field, metadata key or data file. Its value is null if it is absent."""

    what: str
    before: str | None = None
    after: str | None = None


class InterfaceChange(msgspec.Struct, frozen=True, kw_only=True):
    """One input or output."""

    role: Literal["input", "output"]
    change: Literal["added", "removed", "renamed", "changed", "reordered"]
    name: str
    was: str = ""  # previous name, if it was different
    before: ValueInfo | None = None
    after: ValueInfo | None = None
    text: str = ""  # the change, as a phrase that continues the name


class OperatorChange(msgspec.Struct, frozen=True, kw_only=True):
    """Number of nodes with one operator."""

    operator: str
    before: int
    after: int


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a node."""

    kind: Literal["attribute", "input", "outputs", "graph"]
    text: str  # such as "attribute `strides` changed from [1, 1] to [2, 2]"


class NodeChange(msgspec.Struct, frozen=True, kw_only=True):
    """One node. `name` and `operator` come from the new model, unless the node was removed."""

    change: Literal["added", "removed", "replaced", "changed"]
    scope: tuple[str, ...] = ()  # enclosing functions and nodes, outermost first
    operator: str
    name: str
    was: str = ""  # operator of the replaced node
    was_name: str = ""
    position: int  # position in its graph
    inserted: bool = False  # whether it was inserted into an edge
    reads: tuple[str, ...] = ()  # inputs except weights, such as "`Conv` `c1`" or "input `x`"
    feeds: tuple[str, ...] = ()  # nodes and outputs that use its outputs
    details: tuple[Detail, ...] = ()


class EndChange(msgspec.Struct, frozen=True, kw_only=True):
    """A graph output with a different producer."""

    scope: tuple[str, ...] = ()
    output: str
    before: str  # producer, such as "`Relu` `r1`"
    after: str


class FunctionChange(msgspec.Struct, frozen=True, kw_only=True):
    """A local function."""

    change: Literal["added", "removed", "renamed", "changed"]
    name: str
    was: str = ""
    text: str = ""


class WeightChange(msgspec.Struct, frozen=True, kw_only=True):
    """One weight: an initializer, a `Constant` or a tensor attribute."""

    change: Literal["added", "removed", "changed", "copied", "unreadable"]
    name: str
    was: str = ""  # previous name, or name of the original if the weight is a copy
    type: str = ""
    shape: tuple[int, ...] = ()
    sha256: str = ""
    values: str = ""  # elements of a small weight
    was_type: str = ""
    was_shape: tuple[int, ...] = ()
    was_sha256: str = ""
    was_values: str = ""
    elements: int = 0  # number of differing elements
    total: int = 0
    largest: float | None = None  # largest absolute change of one element
    relative: float | None = None  # relative L2 change
    text: str = ""  # remarks, such as why it was not read


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Difference between two models."""

    version: int = SCHEMA_VERSION
    onnxgate: str
    verdict: Verdict  # identical: the same bytes; same: only differences in `beside`
    old: Side
    new: Side
    beside: tuple[str, ...] = ()  # differences that do not affect results, such as "node names"
    interface: tuple[InterfaceChange, ...] = ()
    stamps: tuple[Changed, ...] = ()  # version fields
    metadata: tuple[Changed, ...] = ()
    files: tuple[Changed, ...] = ()
    operators: tuple[OperatorChange, ...] = ()
    functions: tuple[FunctionChange, ...] = ()
    nodes: tuple[NodeChange, ...] = ()
    ends: tuple[EndChange, ...] = ()
    weights: tuple[WeightChange, ...] = ()


class WeightChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of the differences between the weights of two models. Weights are matched by graph structure."""

    changed: int  # tensors with different values, type or shape
    of: int  # all tensors of the new model
    added: int = 0
    removed: int = 0
    largest: float | None = None  # the largest absolute change of one element; None if it is unknown
    name: str = ""  # tensor with the largest change
