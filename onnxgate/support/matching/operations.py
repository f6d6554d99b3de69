"""What a model asks of a runtime, and what comes of matching it: values that typing, matching and stages share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from onnx import NodeProto, TypeProto

SupportGapRule = Literal[
    "unknown-domain",
    "unknown-operator",
    "deprecated-operator",
    "missing-kernel",
    "type-mismatch",
    "attribute-unsupported",
]
"""The rules of the support stage that are about one node."""
LoadVerdict = Literal["loads", "refused", "unknown"]


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of a node. `data` is the serialized AttributeProto; empty for tensors, graphs and long lists."""

    name: str
    kind: str  # "INT", "FLOATS", "TENSOR"
    data: bytes


@dataclass(frozen=True, slots=True)
class Operation:
    """All of a node that decides whether a release implements it; equal operations are judged once.

    Types are spelled as ONNX Runtime spells them; "" is a type that is not known, None an argument that is left out.
    """

    domain: str  # "ai.onnx" for the default one
    name: str
    version: int  # what is imported of the domain; 0 where nothing is
    opset: int  # of ai.onnx, by which function bodies are chosen; 0 where none is imported
    inputs: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    attributes: tuple[Attribute, ...]  # by name
    static: bool  # the shape of the first input is known in full

    @property
    def label(self) -> str:
        """`Conv`, or with its domain where that is not the default one."""
        return self.name if self.domain == "ai.onnx" else f"{self.domain}.{self.name}"


def get_unknown_type(name: str) -> TypeProto | None:
    """No type of any value."""
    return None


@dataclass(frozen=True, slots=True, eq=False)
class TypedNode:
    """One node of a model with the types of its arguments."""

    operation: Operation
    name: str  # the node's own, often ""
    proto: NodeProto
    inner: tuple[TypedNode, ...]  # of its subgraphs; where it calls a local function, of the function's body
    calls: bool  # it calls a local function of the model
    within: str  # the local function that it is in, "" for the model itself
    type_of: Callable[[str], TypeProto | None] = get_unknown_type  # of a value that it sees, with its shape
    unread: str = ""  # why the body of what it calls is not looked at

    def every(self) -> Iterator[TypedNode]:
        """The node and all inside it."""
        yield self
        for node in self.inner:
            yield from node.every()


@dataclass(frozen=True, eq=False)
class TypedModel:
    """A model as far as every release is asked the same of it."""

    ir_version: int
    opsets: dict[str, int]  # needed, also by local functions; default domain "ai.onnx"
    nodes: tuple[TypedNode, ...]

    def every(self) -> Iterator[TypedNode]:
        """All nodes, those of subgraphs and of called local functions too."""
        for node in self.nodes:
            yield from node.every()

    @functools.cached_property
    def kinds(self) -> tuple[TypedNode, ...]:
        """The first node of each kind: what a release makes of one, it makes of all that are like it."""
        first: dict[tuple[object, ...], TypedNode] = {}
        seen: set[int] = set()  # bodies that several calls share
        ahead = [self.nodes]
        while ahead:
            for node in ahead.pop():
                first.setdefault((node.operation, node.calls, bool(node.within), node.unread), node)
                if node.inner and id(node.inner) not in seen:
                    seen.add(id(node.inner))
                    ahead.append(node.inner)
        return tuple(first.values())


@dataclass(frozen=True, slots=True)
class SupportGap:
    """Why a release refuses an operation."""

    rule: SupportGapRule
    problem: str  # the same for all releases: "has no kernel for `Det(11)` with `T` = `tensor(double)`"
    detail: str = ""  # what this release has, as a verb phrase: "implements `T` as `tensor(float)` only"


@dataclass(frozen=True, slots=True, eq=False)
class NodeProblem:
    """A node with why it is refused, or with why that cannot be told."""

    node: TypedNode
    miss: SupportGap | None
    unknown: str = ""  # "the type of its input 2 is not known"


@dataclass(frozen=True, slots=True)
class RefusedOperations:
    """What one release is predicted to refuse of one model, as plain data that can be sent to another process."""

    opsets_too_new: tuple[str, ...]  # domains
    gaps: tuple[tuple[SupportGap, Operation], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """What one release does with one model. Empty throughout: it loads."""

    ir_too_new: bool
    opsets_too_new: tuple[str, ...]  # domains
    found: tuple[NodeProblem, ...]

    @property
    def refused(self) -> RefusedOperations:
        """What of it is refused, without the nodes themselves."""
        gaps = tuple((found.miss, found.node.operation) for found in self.found if found.miss is not None)
        return RefusedOperations(self.opsets_too_new, gaps)

    @property
    def verdict(self) -> LoadVerdict:
        """Refused where anything is known to be refused."""
        if self.ir_too_new or self.opsets_too_new or any(found.miss for found in self.found):
            return "refused"
        return "unknown" if self.found else "loads"
