"""The lines of a difference's outline, and words that several of its sections use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

NAMED = 3
"""So many are named where a sentence lists them; the rest is counted."""

Sign = Literal["+", "-", "~", ""]


@dataclass(frozen=True, slots=True)
class Line:
    """One line; literals in it stand in back-ticks. `children` stand below it."""

    sign: Sign
    text: str
    children: tuple[Line, ...] = ()


def listed(names: Sequence[str], most: int) -> str:
    """`a, b and c`; of more than so many, the first ones and how many more."""
    if len(names) > most + 1:
        return f"{', '.join(names[:most])} and {len(names) - most:,} more"
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def two_figures(number: float) -> str:
    """Of a hundred and more all figures before the point: `1.1e+02` is none that is read."""
    return f"{number:,.0f}" if abs(number) >= 99.5 else f"{number:.2g}"
