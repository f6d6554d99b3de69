"""Section of the HTML report with the measured differences: plots for each model, and tables of the values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Literal

from onnxgate.core.report import Measured, Report
from onnxgate.core.text import pluralize, truncate
from onnxgate.formats import wording
from onnxgate.formats.html.markup import Markup, join_lines, join_markup, render_code, render_scrolled, tag

MAX_TABLE_ROWS = 10_000
"""Maximum number of measured values in all tables of an HTML report together.

If there are more, the values furthest from their limits are omitted, and the page states their number.
"""
LEAD_TEXT = "Marks show measured values; bars show their limits. Overlapping marks are merged."
TABLE_HEAD = ("case", "metric", "value", "limit", "origin of limit")


def render_agreement(report: Report) -> Markup | None:
    """Render the section with all measured values; None if nothing was measured."""
    if not report.measured:
        return None
    nearest = sorted(report.measured, key=lambda figure: (figure.bound is None, -wording.bound_usage(figure)))
    tabled = {id(figure) for figure in nearest[:MAX_TABLE_ROWS]}
    left_out = len(report.measured) - len(tabled)
    models = _group(report.measured, "model")
    return tag(
        "section",
        tag("h2", "Agreement"),
        tag("p", LEAD_TEXT, class_="lead"),
        tag("p", f"The tables omit the {pluralize(left_out, 'value')} furthest from the limit; see the JSON report.")
        if left_out
        else None,
        tag(
            "div",
            join_lines(_render_model(model, figures, tabled) for model, figures in models.items()),
            class_="models",
        ),
        id="agreement",
    )


def _group(figures: Iterable[Measured], key: Literal["model", "output", "pair", "case"]) -> dict[str, list[Measured]]:
    groups: dict[str, list[Measured]] = {}
    for figure in figures:
        groups.setdefault(getattr(figure, key), []).append(figure)
    return groups


def _render_model(model: str, figures: Sequence[Measured], tabled: Set[int]) -> Markup:
    shown = [figure for figure in figures if id(figure) in tabled]
    tables = join_lines(_render_table(output, of_output) for output, of_output in _group(shown, "output").items())
    return tag(
        "section",
        tag("h3", render_code(truncate(model))),
        tag("div", render_plots(figures), class_="plots"),
        tag("details", tag("summary", pluralize(len(shown), "value")), tables) if shown else None,
        class_="model",
    )


def _render_table(output: str, figures: Sequence[Measured]) -> Markup:
    bodies = []
    for pair, of_pair in _group(figures, "pair").items():
        head = tag("tr", tag("th", truncate(pair), scope="rowgroup", colspan=len(TABLE_HEAD)))
        rows = (row for of_case in _group(of_pair, "case").values() for row in _render_table_rows(of_case))
        bodies.append(tag("tbody", head, join_lines(rows)))
    table = tag(
        "table",
        tag("caption", "output ", render_code(truncate(output))) if output else tag("caption", "budgets"),
        tag("thead", tag("tr", (tag("th", head, scope="col") for head in TABLE_HEAD))),
        bodies,
        class_="figures",
    )
    return render_scrolled(table, "figures")


def _render_table_rows(figures: Sequence[Measured]) -> Iterator[Markup]:
    case = truncate(figures[0].case)
    unbounded = []
    for figure in figures:
        metric, value = truncate(figure.metric), _format_value(figure.value)
        if figure.bound is None:
            unbounded.append(f"{metric} {value}")
        else:
            cells = (case, metric, value, _format_value(figure.bound), figure.bound_from)
            yield tag("tr", (tag("td", cell) for cell in cells))
    if unbounded:
        values = " · ".join(unbounded)
        yield tag("tr", tag("td", case), tag("td", values, colspan=len(TABLE_HEAD) - 1, class_="quiet"))


def _format_value(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"


MAX_PLOT_ROWS = 24
"""Maximum number of rows in a plot. A row shows one pair of compared runs; the pairs furthest from their limits are
omitted.
"""
ROW_HEIGHT, ROW_BASELINE = 36, 24
"""Height of a row of a plot, and distance between the top of the row and its marks, both in pixels."""
METRIC_NAMES = {
    "worst_abs": "max difference",
    "sqnr_db": "SNR in dB",
    "cosine": "cosine",
    "top1": "top-1 agreement",
    "time ratio": "run time relative to the baseline",
    "memory ratio": "peak memory relative to the baseline",
}


Spread = dict[tuple[str, str, str], float | None]
"""Lower and upper ends of confidence intervals, by the pair of compared runs, input case and metric."""


def render_plots(measured: Sequence[Measured]) -> Iterator[Markup]:
    """Yield a plot for each output of one model and each metric of this output that has a limit."""
    groups: dict[tuple[str, str], list[Measured]] = {}
    spread: Spread = {}
    for figure in measured:
        if figure.metric.endswith((", low", ", high")):  # ends of the confidence interval of a ratio
            spread[figure.pair, figure.case, figure.metric] = figure.value
        elif figure.bound is not None:
            groups.setdefault((figure.output, figure.metric), []).append(figure)
    return (_render_plot(figures, spread) for figures in groups.values())


def _render_plot(figures: Sequence[Measured], spread: Spread) -> Markup:
    first = figures[0]
    worst = max(figures, key=bound_nearness)
    metric = METRIC_NAMES.get(first.metric, truncate(first.metric, 60))
    title = join_markup((render_code(truncate(first.output, 80)), f" · {metric}") if first.output else metric)
    scale = fit_scale(figures)
    rows = list(_group(figures, "pair").values())
    nearest = sorted(range(len(rows)), key=lambda index: -max(map(bound_nearness, rows[index])))[:MAX_PLOT_ROWS]
    selected = [rows[index] for index in sorted(nearest)]
    left_out = f"not shown: {pluralize(len(rows) - len(selected), 'pair')} further from the limits"
    return tag(
        "figure",
        tag(
            "figcaption",
            tag("strong", title),
            tag("span", _describe_worst(worst), class_="bad" if _exceeds_bound(worst) else "quiet"),
        ),
        _render_axis(scale, selected, worst, spread) if scale is not None else None,
        tag("p", left_out, class_="quiet") if len(selected) < len(rows) else None,
        class_="plot",
    )


def _describe_worst(worst: Measured) -> str:
    value = "not finite" if worst.value is None else f"{worst.value:.3g}"
    bound_name = "minimum" if worst.metric in wording.RATIO_METRICS else "limit"
    if worst.value == 0 and worst.bound == 0:
        return "no differences"
    return f"worst: {value} ({bound_name} {worst.bound:.3g})"


def _exceeds_bound(figure: Measured) -> bool:
    if figure.value is None or figure.bound is None:
        return True
    return figure.value < figure.bound if figure.metric in wording.RATIO_METRICS else figure.value > figure.bound


def _render_axis(scale: Scale, rows: Sequence[Sequence[Measured]], worst: Measured, spread: Spread) -> Markup:
    height = len(rows) * ROW_HEIGHT
    figures = [figure for row in rows for figure in row]
    over = sum(map(_exceeds_bound, figures))
    extent = f"{pluralize(len(figures), 'value')} of {pluralize(len(rows), 'pair')}; {over} beyond the limit"
    outside = {ZERO_POSITION: "0", NOT_FINITE_POSITION: "∞"}
    places = {scale.at(figure.value) for figure in figures}
    ticks = []
    for at, text in (*scale.ticks(), *((at, text) for at, text in outside.items() if at in places)):
        ticks.append(tag("rect", x=f"{at:g}%", y=0, width=1, height=height))
        ticks.append(tag("text", text, x=f"{at:g}%", y=height + 16))
    return tag(
        "svg",
        tag("title", f"{extent}; {_describe_worst(worst)}"),
        tag("g", ticks, class_="ticks"),
        (tag("g", marks, class_=kind) for kind, marks in _render_marks(scale, rows, spread).items() if marks),
        _render_worst_label(scale, rows, worst),
        width="100%",
        height=height + 22,
        role="img",
    )


def _render_marks(scale: Scale, rows: Sequence[Sequence[Measured]], spread: Spread) -> dict[str, list[Markup]]:
    marks: dict[str, list[Markup]] = {kind: [] for kind in ("base", "bound", "spread", "within", "over", "pair")}
    for top, row in enumerate(rows):
        y = top * ROW_HEIGHT + ROW_BASELINE
        within = {scale.at(figure.value) for figure in row if not _exceeds_bound(figure)}
        over = {scale.at(figure.value) for figure in row if _exceeds_bound(figure)}
        bounds = {scale.at(figure.bound) for figure in row}
        diamond = tag("path", d="M0-6 6 0 0 6-6 0Z")
        marks["pair"].append(tag("text", truncate(row[0].pair, 80), y=y - 11))
        marks["base"].append(tag("rect", y=y))
        marks["bound"] += (tag("rect", x=f"{at:g}%", y=y - 7) for at in sorted(bounds))
        for figure in row:
            ends = [spread.get((figure.pair, figure.case, f"{figure.metric}, {end}")) for end in ("low", "high")]
            if None not in ends:
                low, high = (min(max(scale.at(end), 0.0), 100.0) for end in ends)
                marks["spread"].append(
                    tag("rect", x=f"{low:g}%", y=y - 2, width=f"{max(high - low, 0.0):g}%", height=4)
                )
        marks["within"] += (tag("circle", cx=f"{at:g}%", cy=y) for at in sorted(within))
        marks["over"] += (tag("svg", diamond, x=f"{at:g}%", y=y) for at in sorted(over))
    return marks


def _render_worst_label(scale: Scale, rows: Sequence[Sequence[Measured]], worst: Measured) -> Markup | None:
    number = next((index for index, row in enumerate(rows) if worst in row), None)
    if number is None or worst.value is None:
        return None
    at, y = scale.at(worst.value), number * ROW_HEIGHT + ROW_BASELINE + 4
    is_left = at > 14 if worst.metric in wording.RATIO_METRICS else at > 86
    style, offset = ("worst left", -9) if is_left else ("worst", 9)
    return tag("text", f"{worst.value:.2g}", x=f"{at:g}%", y=y, dx=offset, class_=style)


AXIS_START, AXIS_END = 10.0, 90.0
"""Positions of the smallest and largest finite values on the axis of a plot, in percent of the plot's width.

On a logarithmic axis, zero lies to the left of this range. Values that are not finite lie to the right of it.
"""
ZERO_POSITION, NOT_FINITE_POSITION = 2.0, 98.0
MAX_TICKS = 5
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class Scale:
    """The axis of a plot, from `low` to `high`. On a logarithmic axis, both are exponents of 10."""

    low: float
    high: float
    logarithmic: bool

    def at(self, value: float | None) -> float:
        """Return the position of a value on the axis, in percent of the plot's width.

        Positions are multiples of 0.5, so that marks of almost equal values overlap and can be merged.
        """
        if value is None or not math.isfinite(value):
            return NOT_FINITE_POSITION
        if self.logarithmic and value <= 0:
            return ZERO_POSITION
        return self._place(math.log10(value) if self.logarithmic else value)

    def _place(self, where: float) -> float:
        place = (where - self.low) / (self.high - self.low)
        return round((AXIS_START + place * (AXIS_END - AXIS_START)) * 2) / 2

    def ticks(self) -> list[tuple[float, str]]:
        """Return the ticks of the axis: their positions in percent of the plot's width, and their labels."""
        if self.logarithmic:
            step = max(1, math.ceil((self.high - self.low) / MAX_TICKS))
            powers = range(int(self.low), int(self.high) + 1, step)
            return [(self._place(n), f"10{str(n).translate(SUPERSCRIPTS)}" if n else "1") for n in powers]
        step_size = (self.high - self.low) / (MAX_TICKS - 1)
        return [(self.at(value), f"{value:.4g}") for value in (self.low + step_size * n for n in range(MAX_TICKS))]


def fit_scale(figures: Sequence[Measured]) -> Scale | None:
    """Return an axis that covers the values and limits of one metric.

    Return None if no axis can show them, for example because all are 0.
    """
    metric = figures[0].metric
    numbers = [number for figure in figures for number in (figure.value, figure.bound) if number is not None]
    numbers = [number for number in numbers if math.isfinite(number)]
    if metric in wording.RATIO_METRICS or metric in wording.BUDGET_METRICS:
        low, high = min(numbers, default=0.0), max(numbers, default=1.0)
        pad = max((high - low) * 0.1, 10.0 ** (math.floor(math.log10(max(abs(high), abs(low), 1e-9))) - 3))
        linear = Scale(low - pad, high if metric in ("cosine", "top1") and high == 1.0 else high + pad, False)
        return linear if math.isfinite(linear.high - linear.low) else None
    positive = [math.log10(number) for number in numbers if number > 0]
    if not positive:
        return None
    low, high = math.floor(min(positive)), math.ceil(max(positive))
    return Scale(low, high if high > low else low + 1, True)


def bound_nearness(figure: Measured) -> float:
    """Return a sort key for measured values of one metric.

    The closer a value is to its limit, the larger is its key. Values beyond their limits have the largest keys.
    """
    if figure.metric in wording.RATIO_METRICS and figure.value is not None and figure.bound is not None:
        return figure.bound - figure.value
    return wording.bound_usage(figure)
