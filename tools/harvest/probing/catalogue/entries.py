"""One entry of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Shape = tuple[int | str, ...]
"""Sizes; the name of a dynamic size."""
Value = Shape | list[int] | list[float] | list[list[float]] | list[list[list[float]]] | int | float | str | None
"""Shape of a computed input, or the value of a parameter: an input that models usually store as a constant.

In forms, the value of an attribute; None if it is unset."""

USUAL_SHAPES: tuple[Shape, ...] = ((2, 3, 4, 4), (3,), (), (2, 3))
"""Shapes of the inputs of operators that accept any shape."""


@dataclass(frozen=True)
class Entry:
    """Arguments of one operator. The first form is the usual one; optional inputs are omitted in it."""

    forms: tuple[Mapping[str, Value], ...]
    attributes: Mapping[str, object] = field(default_factory=dict)  # in every model
    choices: Mapping[str, Sequence[object]] = field(default_factory=dict)  # other values, by attribute
    optional: Mapping[str, Value] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)  # usual types of type parameters, if they are not float
