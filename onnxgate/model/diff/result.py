"""Difference between two models, as printed by `onnxgate diff --output json`.

Lists are in the order of the new model. The output does not depend on the time or the machine. All changes except
those in `harmless` may affect the results of the model.
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

    name: str  # file name, as given on the command line
    sha256: str  # SHA-256 of the file
    size_bytes: int  # size of the file
    nodes: int  # number of nodes, including subgraphs and local functions
    weights: int  # number of weights


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """Change to a version field, a metadata key or a data file."""

    what: str  # name of the field, metadata key or file, such as "IR version"
    before: str | None = None  # old value; null if the field, key or file was added
    after: str | None = None  # new value; null if the field, key or file was removed


class InterfaceChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change to an input or output of the model."""

    role: Literal["input", "output"]  # whether the change affects an input or an output
    change: Literal["added", "removed", "renamed", "changed", "reordered"]  # kind of change
    name: str  # name in the new model, or in the old model if it was removed; "" if only the order changed
    was: str = ""  # previous name; "" if the name did not change
    before: ValueInfo | None = None  # old type and shape; null if the input or output was added
    after: ValueInfo | None = None  # new type and shape; null if the input or output was removed
    text: str = ""  # description of the change, such as "axis 0 changed from `batch` to 1"


class OperatorChange(msgspec.Struct, frozen=True, kw_only=True):
    """Number of nodes with a given operator in the old and the new model."""

    operator: str  # name of the operator, such as "Conv" or "com.microsoft.Gelu"
    before: int  # number of nodes in the old model
    after: int  # number of nodes in the new model


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """One change to a node, such as a changed attribute."""

    kind: Literal["attribute", "input", "outputs", "graph"]  # part of the node that changed
    text: str  # description, such as "attribute `strides` changed from [1, 1] to [2, 2]"


class NodeChange(msgspec.Struct, frozen=True, kw_only=True):
    """One changed node. `name` and `operator` are from the new model, or from the old model if the node was removed."""

    change: Literal["added", "removed", "replaced", "changed"]  # kind of change
    scope: tuple[str, ...] = ()  # local functions and nodes that contain the node, outermost first
    operator: str  # operator of the node, such as "Conv"
    name: str  # name of the node
    was: str = ""  # operator of the node that was replaced; "" for other changes
    was_name: str = ""  # previous name of the node; "" if the name did not change
    position: int  # index of the node in its graph
    inserted: bool = False  # whether the node was added to or removed from an existing connection
    reads: tuple[str, ...] = ()  # sources of the node's inputs, except weights, such as "`Conv` `c1`" or "input `x`"
    feeds: tuple[str, ...] = ()  # nodes and graph outputs that use the node's outputs
    details: tuple[Detail, ...] = ()  # changes to the node


class EndChange(msgspec.Struct, frozen=True, kw_only=True):
    """A graph output that is computed by a different node than in the old model."""

    scope: tuple[str, ...] = ()  # local functions and nodes that contain the graph, outermost first
    output: str  # name of the graph output
    before: str  # node or input that provided the value, such as "`Relu` `r1`"
    after: str  # node or input that now provides the value


class FunctionChange(msgspec.Struct, frozen=True, kw_only=True):
    """One changed local function."""

    change: Literal["added", "removed", "renamed", "changed"]  # kind of change
    name: str  # name of the function in the new model, or in the old model if it was removed
    was: str = ""  # previous name; "" if the name did not change
    text: str = ""  # description of the change; "" if the other keys describe it completely


class WeightChange(msgspec.Struct, frozen=True, kw_only=True):
    """One changed weight: an initializer, a `Constant` or a tensor attribute."""

    change: Literal["added", "removed", "changed", "copied", "unreadable"]  # kind of change
    name: str  # name in the new model, or in the old model if the weight was removed
    was: str = ""  # previous name, or for a copy the name of the original weight; "" if there is none
    type: str = ""  # new element type, such as "float"
    shape: tuple[int, ...] = ()  # new shape
    sha256: str = ""  # SHA-256 of the new data
    values: str = ""  # new elements of a small weight; "" for a large weight
    was_type: str = ""  # old element type
    was_shape: tuple[int, ...] = ()  # old shape
    was_sha256: str = ""  # SHA-256 of the old data
    was_values: str = ""  # old elements of a small weight; "" for a large weight
    elements: int = 0  # number of elements that differ
    total: int = 0  # number of elements of the weight
    largest: float | None = None  # largest absolute change of an element; null if unknown
    relative: float | None = None  # L2 norm of the change divided by the L2 norm of the old weight; null if unknown
    text: str = ""  # remarks, such as the reason why the weight could not be read


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Difference between two models."""

    version: int = SCHEMA_VERSION  # version of this format
    onnxgate: str  # version of onnxgate that compared the models
    verdict: Verdict  # "identical": same bytes; "same": different bytes, but the same results
    old: Side  # first model on the command line
    new: Side  # second model on the command line
    harmless: tuple[str, ...] = ()  # differences that do not affect results, such as "node names"
    interface: tuple[InterfaceChange, ...] = ()  # changed inputs and outputs
    version_fields: tuple[Changed, ...] = ()  # changed version fields, such as the IR version
    metadata: tuple[Changed, ...] = ()  # changed metadata entries
    files: tuple[Changed, ...] = ()  # changed external data files
    operators: tuple[OperatorChange, ...] = ()  # operators whose number of nodes changed
    functions: tuple[FunctionChange, ...] = ()  # changed local functions
    nodes: tuple[NodeChange, ...] = ()  # changed nodes
    ends: tuple[EndChange, ...] = ()  # graph outputs that are computed by a different node than in the old model
    weights: tuple[WeightChange, ...] = ()  # changed weights


class WeightChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of the differences between the weights of two models. Weights are matched by graph structure."""

    changed: int  # number of weights with different values, type or shape
    of: int  # number of weights in the new model
    added: int = 0
    removed: int = 0
    largest: float | None = None  # largest absolute change to an element; None if it is unknown
    name: str = ""  # weight with the largest change
