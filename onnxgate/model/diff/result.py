"""Difference between two models, as printed by `onnxgate diff --output json`.

Lists are in the order of the new model. The output does not depend on the time or the machine. All changes except
those in `beside` may affect the results of the model.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from onnxgate.model.facts import ValueInfo

SCHEMA_VERSION = 1

Verdict = Literal["identical", "same", "different", "undecided"]
"""Result of comparing two models.

`identical`: the files have the same bytes; `same`: the models compute the same results, but the bytes differ;
`different`: the results may differ; `undecided`: some weights are unreadable.
"""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two compared models."""

    name: str  # as given on the command line
    sha256: str
    size_bytes: int
    nodes: int  # including subgraphs and local functions
    weights: int


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """Change to a version field, metadata key or data file. `before` is null if it was added, `after` if removed."""

    what: str
    before: str | None = None
    after: str | None = None


class InterfaceChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change to an input or output of the model."""

    role: Literal["input", "output"]
    change: Literal["added", "removed", "renamed", "changed", "reordered"]
    name: str
    was: str = ""  # previous name, if the name changed
    before: ValueInfo | None = None
    after: ValueInfo | None = None
    text: str = ""  # description of the change, such as "axis 0 changed from `batch` to 1"


class OperatorChange(msgspec.Struct, frozen=True, kw_only=True):
    """Number of nodes with a given operator in the old and the new model."""

    operator: str
    before: int
    after: int


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """One change to a node, such as a changed attribute."""

    kind: Literal["attribute", "input", "outputs", "graph"]
    text: str  # such as "attribute `strides` changed from [1, 1] to [2, 2]"


class NodeChange(msgspec.Struct, frozen=True, kw_only=True):
    """One changed node. `name` and `operator` are from the new model, or from the old model if the node was removed."""

    change: Literal["added", "removed", "replaced", "changed"]
    scope: tuple[str, ...] = ()  # local functions and nodes that contain the node, outermost first
    operator: str
    name: str
    was: str = ""  # operator of the replaced node
    was_name: str = ""
    position: int  # index of the node in its graph
    inserted: bool = False  # whether the node was inserted between two connected nodes
    reads: tuple[str, ...] = ()  # sources of the inputs, except weights, such as "`Conv` `c1`" or "input `x`"
    feeds: tuple[str, ...] = ()  # nodes and graph outputs that use the outputs
    details: tuple[Detail, ...] = ()


class EndChange(msgspec.Struct, frozen=True, kw_only=True):
    """A graph output that a different node computes than in the old model."""

    scope: tuple[str, ...] = ()
    output: str
    before: str  # node or input that provides the value, such as "`Relu` `r1`"
    after: str


class FunctionChange(msgspec.Struct, frozen=True, kw_only=True):
    """One changed local function."""

    change: Literal["added", "removed", "renamed", "changed"]
    name: str
    was: str = ""
    text: str = ""


class WeightChange(msgspec.Struct, frozen=True, kw_only=True):
    """One changed weight: an initializer, a `Constant` or a tensor attribute."""

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
    largest: float | None = None  # largest absolute change to an element
    relative: float | None = None  # relative L2 change
    text: str = ""  # remarks, such as the reason why the weight could not be read


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Difference between two models."""

    version: int = SCHEMA_VERSION
    onnxgate: str
    verdict: Verdict  # identical: same bytes; same: different bytes, but the same results
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
    ends: tuple[EndChange, ...] = ()  # graph outputs that are computed by a different node
    weights: tuple[WeightChange, ...] = ()


class WeightChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of the differences between the weights of two models. Weights are matched by graph structure."""

    changed: int  # number of weights with different values, type or shape
    of: int  # number of weights in the new model
    added: int = 0
    removed: int = 0
    largest: float | None = None  # largest absolute change to an element; None if it is unknown
    name: str = ""  # weight with the largest change
