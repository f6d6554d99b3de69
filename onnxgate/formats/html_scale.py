"""The axis of a plot: where on it a figure stands, in per cent of its width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from onnxgate.formats import phrases
from onnxgate.report import Measured

START, END = 10.0, 90.0
"""Where the smallest and the largest figure stand; 0 and what is not finite have their own places outside."""
ZERO, NOT_FINITE = 2.0, 98.0
TICKS = 5
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class Scale:
    """From `low` to `high`, both in decades where it is logarithmic."""

    low: float
    high: float
    logarithmic: bool

    def at(self, value: float | None) -> float:
        """In steps of half a per cent, so that what looks alike is alike."""
        if value is None or not math.isfinite(value):
            return NOT_FINITE
        if self.logarithmic and value <= 0:
            return ZERO
        return self._place(math.log10(value) if self.logarithmic else value)

    def _place(self, where: float) -> float:
        place = (where - self.low) / (self.high - self.low)
        return round((START + place * (END - START)) * 2) / 2

    def ticks(self) -> list[tuple[float, str]]:
        """Places with what stands there."""
        if self.logarithmic:
            step = max(1, math.ceil((self.high - self.low) / TICKS))
            return [(self._place(power), _power(power)) for power in range(int(self.low), int(self.high) + 1, step)]
        each = (self.high - self.low) / (TICKS - 1)
        return [(self.at(value), f"{value:.4g}") for value in (self.low + each * n for n in range(TICKS))]


def _power(power: int) -> str:
    return "1" if power == 0 else f"10{str(power).translate(SUPERSCRIPTS)}"


def scale_of(figures: Sequence[Measured]) -> Scale | None:
    """For figures of one metric and their bounds; None where there is nothing but 0 and what is not finite."""
    metric = figures[0].metric
    numbers = [each for figure in figures for each in (figure.value, figure.bound) if each is not None]
    numbers = [each for each in numbers if math.isfinite(each)]
    if metric in phrases.RATIOS or metric in phrases.COSTS:
        low, high = min(numbers, default=0.0), max(numbers, default=1.0)
        pad = max((high - low) * 0.1, 10.0 ** (math.floor(math.log10(max(abs(high), abs(low), 1e-9))) - 3))
        linear = Scale(low - pad, high if metric in ("cosine", "top1") and high == 1.0 else high + pad, False)
        return linear if math.isfinite(linear.high - linear.low) else None
    positive = [math.log10(each) for each in numbers if each > 0]
    if not positive:
        return None
    low, high = math.floor(min(positive)), math.ceil(max(positive))
    return Scale(low, high if high > low else low + 1, True)


def nearness(figure: Measured) -> float:
    """The larger, the nearer to its bound or the further beyond it; comparable within one metric."""
    if figure.metric in phrases.RATIOS and figure.value is not None and figure.bound is not None:
        return figure.bound - figure.value
    return phrases.used(figure)
