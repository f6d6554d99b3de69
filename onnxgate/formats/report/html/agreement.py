"""Measurements: the plots of each model, and every figure in a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from onnxgate.core.report import Measured, Report
from onnxgate.core.text import pluralize, truncate
from onnxgate.formats import wording
from onnxgate.formats.report.html.markup import Markup, escape_html, join_lines, join_markup, render_code, tag

MAX_TABLE_ROWS = 10_000
"""Figures in tables; of more, those nearest to their bounds, and a count of the others."""
LEAD_TEXT = "Each mark is a figure, or several that look alike; the bars beside them are their bounds, case by case."
TABLE_HEAD = ("case", "metric", "value", "bound", "bound from")


def render_agreement(report: Report) -> Markup | None:
    """Render all measurements; None if there are none."""
    if not report.measured:
        return None
    tabled = {id(figure) for figure in _select_table_rows(report.measured)}
    left_out = len(report.measured) - len(tabled)
    models: dict[str, list[Measured]] = {}
    for figure in report.measured:
        models.setdefault(figure.model, []).append(figure)
    return tag(
        "section",
        tag("h2", "Agreement"),
        tag("p", LEAD_TEXT, class_="lead"),
        tag("p", f"tables leave {left_out} figures to the JSON report, those furthest from their bounds")
        if left_out
        else None,
        tag(
            "div",
            join_lines(_render_model(model, figures, tabled) for model, figures in models.items()),
            class_="models",
        ),
        id="agreement",
    )


def _select_table_rows(measured: Sequence[Measured]) -> Sequence[Measured]:
    return measured if len(measured) <= MAX_TABLE_ROWS else sorted(measured, key=_table_order)[:MAX_TABLE_ROWS]


def _table_order(figure: Measured) -> tuple[bool, float]:
    return figure.bound is None, -wording.bound_usage(figure)


def _render_model(model: str, figures: Sequence[Measured], tabled: Set[int]) -> Markup:
    outputs: dict[str, list[Measured]] = {}
    for figure in figures:
        if id(figure) in tabled:
            outputs.setdefault(figure.output, []).append(figure)
    shown = sum(map(len, outputs.values()))
    tables = join_lines(_render_table(output, of_output) for output, of_output in outputs.items())
    return tag(
        "section",
        tag("h3", render_code(truncate(model))),
        tag("div", render_plots(figures), class_="plots"),
        tag("details", tag("summary", pluralize(shown, "figure")), tables) if shown else None,
        class_="model",
    )


def _render_table(output: str, figures: Sequence[Measured]) -> Markup:
    pairs: dict[str, list[Measured]] = {}
    for figure in figures:
        pairs.setdefault(figure.pair, []).append(figure)
    table = tag(
        "table",
        tag("caption", "output ", render_code(truncate(output))) if output else tag("caption", "budgets"),
        tag("thead", tag("tr", (tag("th", head, scope="col") for head in TABLE_HEAD))),
        (_render_pair(pair, of_pair) for pair, of_pair in pairs.items()),
        class_="figures",
    )
    return tag("div", table, class_="scroll", tabindex=0, role="group", aria_label="figures")


def _render_pair(pair: str, figures: Sequence[Measured]) -> Markup:
    cases: dict[str, list[Measured]] = {}
    for figure in figures:
        cases.setdefault(figure.case, []).append(figure)
    head = tag("tr", tag("th", truncate(pair), scope="rowgroup", colspan=len(TABLE_HEAD)))
    return tag("tbody", head, join_lines(row for case in cases.values() for row in _render_table_rows(case)))


def _render_table_rows(figures: Sequence[Measured]) -> Iterator[Markup]:
    """Yield a row for each figure with a bound, and one row for all others of the case."""
    bounded = [figure for figure in figures if figure.bound is not None]
    unbounded = [figure for figure in figures if figure.bound is None]
    case = truncate(figures[0].case)
    for figure in bounded:
        cells = (
            case,
            truncate(figure.metric),
            _format_value(figure.value),
            _format_value(figure.bound),
            figure.bound_from,
        )
        yield tag("tr", (tag("td", cell) for cell in cells))
    if unbounded:
        values = " · ".join(f"{truncate(figure.metric)} {_format_value(figure.value)}" for figure in unbounded)
        yield tag("tr", tag("td", case), tag("td", values, colspan=len(TABLE_HEAD) - 1, class_="quiet"))


def _format_value(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"


MAX_PLOT_ROWS = 24
"""Pairs in one plot; of more, those nearest to their bounds."""
ROW_HEIGHT, ROW_BASELINE = 36, 24
"""Pixels: the height of a row, and the distance of its figures from its top."""
METRIC_NAMES = {
    "worst_abs": "largest difference",
    "sqnr_db": "signal to noise, dB",
    "cosine": "cosine",
    "top1": "agreement of the argmax",
    "time ratio": "time, as a multiple of the baseline's",
    "memory ratio": "peak memory, as a multiple of the baseline's",
}


def render_plots(measured: Sequence[Measured]) -> Iterator[Markup]:
    """Yield a plot for each output and metric of one model with a bound."""
    groups: dict[tuple[str, str], list[Measured]] = {}
    for figure in measured:
        if figure.bound is not None and figure.metric not in wording.BUDGET_INTERVAL_METRICS:
            groups.setdefault((figure.output, figure.metric), []).append(figure)
    spread = {
        (figure.pair, figure.case, figure.metric): figure.value
        for figure in measured
        if figure.metric in wording.BUDGET_INTERVAL_METRICS
    }
    return (_render_plot(figures, spread) for figures in groups.values())


def _render_plot(figures: Sequence[Measured], spread: dict[tuple[str, str, str], float | None]) -> Markup:
    first = figures[0]
    worst = max(figures, key=bound_nearness)
    metric = METRIC_NAMES.get(first.metric, truncate(first.metric, 60))
    title = join_markup((render_code(truncate(first.output, 80)), f" · {metric}") if first.output else metric)
    scale = fit_scale(figures)
    rows = _group_by_pair(figures)
    selected = _select_plot_rows(rows)
    more = len(rows) - len(selected)
    left_out = f"{pluralize(more, 'more pair')}, further below the bounds" if more else ""
    return tag(
        "figure",
        tag(
            "figcaption",
            tag("strong", title),
            tag("span", _describe_worst(worst), class_="bad" if _exceeds_bound(worst) else "quiet"),
        ),
        _render_axis(scale, selected, worst, spread) if scale is not None else None,
        tag("p", left_out, class_="quiet") if left_out else None,
        class_="plot",
    )


def _describe_worst(worst: Measured) -> str:
    """Describe the figure nearest to its bound, or furthest beyond it."""
    value = "not finite" if worst.value is None else f"{worst.value:.3g}"
    needed = "needed" if worst.metric in wording.RATIO_METRICS else "allowed"
    if worst.value == 0 and worst.bound == 0:
        return "no difference anywhere"
    return f"worst: {value} where {worst.bound:.3g} is {needed}"


def _exceeds_bound(figure: Measured) -> bool:
    """Return True for a figure on the wrong side of its bound."""
    if figure.value is None or figure.bound is None:
        return True
    return figure.value < figure.bound if figure.metric in wording.RATIO_METRICS else figure.value > figure.bound


def _group_by_pair(figures: Iterable[Measured]) -> list[list[Measured]]:
    rows: dict[str, list[Measured]] = {}
    for figure in figures:
        rows.setdefault(figure.pair, []).append(figure)
    return list(rows.values())


def _select_plot_rows(rows: Sequence[list[Measured]]) -> list[list[Measured]]:
    worst = sorted(range(len(rows)), key=lambda index: -max(map(bound_nearness, rows[index])))
    return [rows[index] for index in sorted(worst[:MAX_PLOT_ROWS])]


def _render_axis(
    scale: Scale,
    rows: Sequence[Sequence[Measured]],
    worst: Measured,
    spread: dict[tuple[str, str, str], float | None],
) -> Markup:
    height = len(rows) * ROW_HEIGHT
    figures = [figure for row in rows for figure in row]
    over = sum(map(_exceeds_bound, figures))
    extent = f"{pluralize(len(figures), 'figure')} of {pluralize(len(rows), 'pair')}; {over} beyond the bound"
    return tag(
        "svg",
        tag("title", f"{extent}; {_describe_worst(worst)}"),
        tag("g", (_render_tick(at, text, height) for at, text in _list_ticks(scale, figures)), class_="ticks"),
        (tag("g", marks, class_=kind) for kind, marks in _render_marks(scale, rows, spread).items()),
        _render_worst_label(scale, rows, worst),
        width="100%",
        height=height + 22,
        role="img",
    )


def _list_ticks(scale: Scale, figures: Sequence[Measured]) -> Iterator[tuple[float, str]]:
    yield from scale.ticks()
    places = {scale.at(figure.value) for figure in figures}
    if ZERO_POSITION in places:
        yield ZERO_POSITION, "0"
    if NOT_FINITE_POSITION in places:
        yield NOT_FINITE_POSITION, "∞"


def _render_tick(at: float, text: str, height: int) -> Markup:
    line = tag("rect", x=_percent_attribute(at), y=0, width=1, height=height)
    return join_markup((line, tag("text", text, x=_percent_attribute(at), y=height + 16)))


def _render_marks(
    scale: Scale, rows: Sequence[Sequence[Measured]], spread: dict[tuple[str, str, str], float | None]
) -> dict[str, list[Markup]]:
    """Return marks by their CSS class; figures at the same position share a mark."""
    marks: dict[str, list[Markup]] = {kind: [] for kind in ("base", "bound", "spread", "within", "over", "pair")}
    for top, row in enumerate(rows):
        y = top * ROW_HEIGHT + ROW_BASELINE
        within = {scale.at(figure.value) for figure in row if not _exceeds_bound(figure)}
        over = {scale.at(figure.value) for figure in row if _exceeds_bound(figure)}
        bounds = {scale.at(figure.bound) for figure in row}
        marks["pair"].append(tag("text", truncate(row[0].pair, 80), y=y - 11))
        marks["base"].append(tag("rect", y=y))
        marks["bound"] += (tag("rect", x=_percent_attribute(at), y=y - 7) for at in sorted(bounds))
        marks["spread"] += _render_whiskers(scale, row, y, spread)
        marks["within"] += (tag("circle", cx=_percent_attribute(at), cy=y) for at in sorted(within))
        marks["over"] += (_render_diamond(at, y) for at in sorted(over))
    return {kind: elements for kind, elements in marks.items() if elements}


def _render_diamond(at: float, y: int) -> Markup:
    return tag("svg", tag("path", d="M0-6 6 0 0 6-6 0Z"), x=_percent_attribute(at), y=y)


def _render_whiskers(
    scale: Scale, row: Sequence[Measured], y: int, spread: dict[tuple[str, str, str], float | None]
) -> Iterator[Markup]:
    """Yield the interval of each figure that has one."""
    for figure in row:
        ends = [spread.get((figure.pair, figure.case, f"{figure.metric}, {end}")) for end in ("low", "high")]
        if None not in ends:
            low, high = (min(max(scale.at(end), 0.0), 100.0) for end in ends)
            yield tag(
                "rect", x=_percent_attribute(low), y=y - 2, width=_percent_attribute(max(high - low, 0.0)), height=4
            )


def _render_worst_label(scale: Scale, rows: Sequence[Sequence[Measured]], worst: Measured) -> Markup | None:
    """Render the value of the worst figure next to its mark."""
    number = next((index for index, row in enumerate(rows) if worst in row), None)
    if number is None or worst.value is None:
        return None
    at, y = scale.at(worst.value), number * ROW_HEIGHT + ROW_BASELINE + 4
    left = at > 14 if worst.metric in wording.RATIO_METRICS else at > 86
    style, offset = ("worst left", -9) if left else ("worst", 9)
    return tag("text", f"{worst.value:.2g}", x=_percent_attribute(at), y=y, dx=offset, class_=style)


def _percent_attribute(at: float) -> str:
    return escape_html(f"{at:g}%")


AXIS_START, AXIS_END = 10.0, 90.0
"""Per cent: positions of the smallest and the largest figure; 0 and non-finite values lie outside."""
ZERO_POSITION, NOT_FINITE_POSITION = 2.0, 98.0
MAX_TICKS = 5
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis from `low` to `high`, both in decades if it is logarithmic."""

    low: float
    high: float
    logarithmic: bool

    def at(self, value: float | None) -> float:
        """Return the position in per cent, in steps of a half, so that marks can be merged."""
        if value is None or not math.isfinite(value):
            return NOT_FINITE_POSITION
        if self.logarithmic and value <= 0:
            return ZERO_POSITION
        return self._place(math.log10(value) if self.logarithmic else value)

    def _place(self, where: float) -> float:
        place = (where - self.low) / (self.high - self.low)
        return round((AXIS_START + place * (AXIS_END - AXIS_START)) * 2) / 2

    def ticks(self) -> list[tuple[float, str]]:
        """Return positions with their labels."""
        if self.logarithmic:
            step = max(1, math.ceil((self.high - self.low) / MAX_TICKS))
            return [
                (self._place(power), _format_power(power)) for power in range(int(self.low), int(self.high) + 1, step)
            ]
        step_size = (self.high - self.low) / (MAX_TICKS - 1)
        return [(self.at(value), f"{value:.4g}") for value in (self.low + step_size * n for n in range(MAX_TICKS))]


def _format_power(power: int) -> str:
    return "1" if power == 0 else f"10{str(power).translate(SUPERSCRIPTS)}"


def fit_scale(figures: Sequence[Measured]) -> Scale | None:
    """Return the axis of one metric's figures and bounds; None if all are 0 or not finite."""
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
    """Return a number that grows towards the bound and beyond it; comparable within one metric."""
    if figure.metric in wording.RATIO_METRICS and figure.value is not None and figure.bound is not None:
        return figure.bound - figure.value
    return wording.bound_usage(figure)
