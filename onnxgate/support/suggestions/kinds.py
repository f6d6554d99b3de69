"""Ways out of a miss: values that say what to change, so that a message can name it and a test can do it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union


@dataclass(frozen=True, slots=True)
class OpsetChange:
    """Export at another opset of a domain, at which all runtimes implement the operation."""

    domain: str
    version: int
    whole: bool  # and all else of the model


@dataclass(frozen=True, slots=True)
class TypeCast:
    """Cast what is given for one type parameter, and what comes out of it back."""

    parameter: str  # a constraint's name (`T`), or the type that the schema fixes
    to: str  # "tensor(float)"
    exact: bool  # every value is kept
    back: bool  # there is something to be cast back


@dataclass(frozen=True, slots=True)
class AttributeRemoval:
    """Leave an attribute out."""

    attribute: str


@dataclass(frozen=True, slots=True)
class AttributeAddition:
    """Give attributes, of the kinds that the schema says."""

    attributes: tuple[tuple[str, str], ...]  # name, kind ("INT")


@dataclass(frozen=True, slots=True)
class OperatorReplacement:
    """Use another operator, which takes the same arguments, or those named here."""

    domain: str
    name: str
    inputs: tuple[int | None, ...] | None = None  # which of the old inputs each of its own is; None: as they are
    attributes: tuple[tuple[str, str], ...] = ()  # to be added, all strings: without them it would compute otherwise


@dataclass(frozen=True, slots=True)
class FunctionExpansion:
    """Put the operator's own function body in the node's place: ONNX says that they are the same."""


@dataclass(frozen=True, slots=True)
class DomainImport:
    """Import the operator's domain."""

    domain: str
    version: int


@dataclass(frozen=True, slots=True)
class MinimumReleaseRaise:
    """Promise only the releases from this one on."""

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
