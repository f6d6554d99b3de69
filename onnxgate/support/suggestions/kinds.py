"""Kinds of suggestions: data from which a message is written, and which a test can apply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union


@dataclass(frozen=True, slots=True)
class OpsetChange:
    """Export at another opset of a domain, at which all runtimes implement the operation."""

    domain: str
    version: int
    whole: bool  # all other operations of the model are implemented there, too


@dataclass(frozen=True, slots=True)
class TypeCast:
    """Cast the inputs of one type parameter, and its outputs back."""

    parameter: str  # a constraint's name (`T`), or the type that the schema fixes
    to: str  # "tensor(float)"
    exact: bool  # without loss
    back: bool  # an output has to be cast back


@dataclass(frozen=True, slots=True)
class AttributeRemoval:
    """Remove an attribute."""

    attribute: str


@dataclass(frozen=True, slots=True)
class AttributeAddition:
    """Add attributes of the kinds that the schema declares."""

    attributes: tuple[tuple[str, str], ...]  # name, kind ("INT")


@dataclass(frozen=True, slots=True)
class OperatorReplacement:
    """Use another operator with the same arguments, or with those listed here."""

    domain: str
    name: str
    inputs: tuple[int | None, ...] | None = None  # index of the old input for each new one; None: unchanged
    attributes: tuple[tuple[str, str], ...] = ()  # strings to add, so that it computes the same


@dataclass(frozen=True, slots=True)
class FunctionExpansion:
    """Replace the node by the operator's function body, which ONNX defines as equivalent."""


@dataclass(frozen=True, slots=True)
class DomainImport:
    """Import the operator's domain."""

    domain: str
    version: int


@dataclass(frozen=True, slots=True)
class MinimumReleaseRaise:
    """Require this release or a newer one."""

    release: str


Suggestion = Union[  # noqa: UP007
    OpsetChange,
    TypeCast,
    AttributeRemoval,
    AttributeAddition,
    OperatorReplacement,
    FunctionExpansion,
    DomainImport,
    MinimumReleaseRaise,
]
