"""What was measured: for each model its plots, and every figure in a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from onnxgate.formats import phrases
from onnxgate.formats.html_markup import Markup, code, lines, tag
from onnxgate.formats.html_plots import plots
from onnxgate.report import Measured, Report

MOST = 10_000
"""Figures in tables; of more those that come nearest to their bounds, and the rest is counted."""
LEAD = "Each mark is a figure, or several that look alike; the bars beside them are their bounds, case by case."
HEAD = ("case", "metric", "value", "bound", "bound from")


def section(report: Report) -> Markup | None:
    """Agreement; None where nothing was measured."""
    if not report.measured:
        return None
    tabled = {id(figure) for figure in _tabled(report.measured)}
    left_out = len(report.measured) - len(tabled)
    models: dict[str, list[Measured]] = {}
    for figure in report.measured:
        models.setdefault(figure.model, []).append(figure)
    return tag(
        "section",
        tag("h2", "Agreement"),
        tag("p", LEAD, class_="lead"),
        tag("p", f"tables leave {left_out} figures to the JSON report, those furthest from their bounds")
        if left_out
        else None,
        tag("div", lines(_model(model, figures, tabled) for model, figures in models.items()), class_="models"),
        id="agreement",
    )


def _tabled(measured: Sequence[Measured]) -> Sequence[Measured]:
    return measured if len(measured) <= MOST else sorted(measured, key=_weight)[:MOST]


def _weight(figure: Measured) -> tuple[bool, float]:
    return figure.bound is None, -phrases.used(figure)


def _model(model: str, figures: Sequence[Measured], tabled: Set[int]) -> Markup:
    outputs: dict[str, list[Measured]] = {}
    for figure in figures:
        if id(figure) in tabled:
            outputs.setdefault(figure.output, []).append(figure)
    shown = sum(map(len, outputs.values()))
    tables = lines(_table(output, of_output) for output, of_output in outputs.items())
    return tag(
        "section",
        tag("h3", code(phrases.short(model))),
        tag("div", plots(figures), class_="plots"),
        tag("details", tag("summary", phrases.count(shown, "figure")), tables) if shown else None,
        class_="model",
    )


def _table(output: str, figures: Sequence[Measured]) -> Markup:
    pairs: dict[str, list[Measured]] = {}
    for figure in figures:
        pairs.setdefault(figure.pair, []).append(figure)
    table = tag(
        "table",
        tag("caption", "output ", code(phrases.short(output))) if output else tag("caption", "budgets"),
        tag("thead", tag("tr", (tag("th", each, scope="col") for each in HEAD))),
        (_pair(pair, of_pair) for pair, of_pair in pairs.items()),
        class_="figures",
    )
    return tag("div", table, class_="scroll", tabindex=0, role="group", aria_label="figures")


def _pair(pair: str, figures: Sequence[Measured]) -> Markup:
    cases: dict[str, list[Measured]] = {}
    for figure in figures:
        cases.setdefault(figure.case, []).append(figure)
    head = tag("tr", tag("th", phrases.short(pair), scope="rowgroup", colspan=len(HEAD)))
    return tag("tbody", head, lines(row for each in cases.values() for row in _rows(each)))


def _rows(figures: Sequence[Measured]) -> Iterator[Markup]:
    """What was held against a bound has a row; what is told beside it is one more."""
    held = [figure for figure in figures if figure.bound is not None]
    told = [figure for figure in figures if figure.bound is None]
    case = phrases.short(figures[0].case)
    for figure in held:
        cells = (case, phrases.short(figure.metric), _number(figure.value), _number(figure.bound), figure.bound_from)
        yield tag("tr", (tag("td", cell) for cell in cells))
    if told:
        said = " · ".join(f"{phrases.short(figure.metric)} {_number(figure.value)}" for figure in told)
        yield tag("tr", tag("td", case), tag("td", said, colspan=len(HEAD) - 1, class_="quiet"))


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"
