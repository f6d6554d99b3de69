"""Agreement as pictures: for each output the figures of every pair of runtimes on one axis, beside their bounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from onnxgate.formats import phrases
from onnxgate.formats.html_markup import Markup, code, escaped, joined, tag
from onnxgate.formats.html_scale import NOT_FINITE, ZERO, Scale, nearness, scale_of
from onnxgate.report import Measured

ROWS = 24
"""Pairs of one plot; those that come nearest to their bounds."""
ROW, LINE = 36, 24
"""Pixels: the height of a row, and how far below its top its figures stand."""
WORDS = {
    "worst_abs": "largest difference",
    "sqnr_db": "signal to noise, dB",
    "cosine": "cosine",
    "top1": "agreement of the argmax",
    "time ratio": "time, as a multiple of the baseline's",
    "memory ratio": "peak memory, as a multiple of the baseline's",
}


def plots(measured: Sequence[Measured]) -> Iterator[Markup]:
    """One for each output and metric of one model that was held against a bound."""
    groups: dict[tuple[str, str], list[Measured]] = {}
    for figure in measured:
        if figure.bound is not None and figure.metric not in phrases.SPREAD:
            groups.setdefault((figure.output, figure.metric), []).append(figure)
    spread = {(each.pair, each.case, each.metric): each.value for each in measured if each.metric in phrases.SPREAD}
    return (_plot(figures, spread) for figures in groups.values())


def _plot(figures: Sequence[Measured], spread: dict[tuple[str, str, str], float | None]) -> Markup:
    first = figures[0]
    worst = max(figures, key=nearness)
    metric = WORDS.get(first.metric, phrases.short(first.metric, 60))
    title = joined((code(phrases.short(first.output, 80)), f" · {metric}") if first.output else metric)
    scale = scale_of(figures)
    rows = _rows(figures)
    kept = _nearest(rows)
    more = len(rows) - len(kept)
    left_out = f"{phrases.count(more, 'more pair')}, further below the bounds" if more else ""
    return tag(
        "figure",
        tag("figcaption", tag("strong", title), tag("span", _worst(worst), class_="bad" if _over(worst) else "quiet")),
        _axis(scale, kept, worst, spread) if scale is not None else None,
        tag("p", left_out, class_="quiet") if left_out else None,
        class_="plot",
    )


def _worst(worst: Measured) -> str:
    """What came nearest to its bound, or went beyond it."""
    value = "not finite" if worst.value is None else f"{worst.value:.3g}"
    needed = "needed" if worst.metric in phrases.RATIOS else "allowed"
    if worst.value == 0 and worst.bound == 0:
        return "no difference anywhere"
    return f"worst: {value} where {worst.bound:.3g} is {needed}"


def _over(figure: Measured) -> bool:
    """Whether a figure is on the wrong side of its bound."""
    if figure.value is None or figure.bound is None:
        return True
    return figure.value < figure.bound if figure.metric in phrases.RATIOS else figure.value > figure.bound


def _rows(figures: Iterable[Measured]) -> list[list[Measured]]:
    rows: dict[str, list[Measured]] = {}
    for figure in figures:
        rows.setdefault(figure.pair, []).append(figure)
    return list(rows.values())


def _nearest(rows: Sequence[list[Measured]]) -> list[list[Measured]]:
    worst = sorted(range(len(rows)), key=lambda index: -max(map(nearness, rows[index])))
    return [rows[index] for index in sorted(worst[:ROWS])]


def _axis(
    scale: Scale,
    rows: Sequence[Sequence[Measured]],
    worst: Measured,
    spread: dict[tuple[str, str, str], float | None],
) -> Markup:
    height = len(rows) * ROW
    figures = [figure for row in rows for figure in row]
    over = sum(map(_over, figures))
    said = f"{phrases.count(len(figures), 'figure')} of {phrases.count(len(rows), 'pair')}; {over} beyond the bound"
    return tag(
        "svg",
        tag("title", f"{said}; {_worst(worst)}"),
        tag("g", (_tick(at, text, height) for at, text in _ticks(scale, figures)), class_="ticks"),
        (tag("g", marks, class_=kind) for kind, marks in _marks(scale, rows, spread).items()),
        _label(scale, rows, worst),
        width="100%",
        height=height + 22,
        role="img",
    )


def _ticks(scale: Scale, figures: Sequence[Measured]) -> Iterator[tuple[float, str]]:
    yield from scale.ticks()
    places = {scale.at(figure.value) for figure in figures}
    if ZERO in places:
        yield ZERO, "0"
    if NOT_FINITE in places:
        yield NOT_FINITE, "∞"


def _tick(at: float, text: str, height: int) -> Markup:
    line = tag("rect", x=_percent(at), y=0, width=1, height=height)
    return joined((line, tag("text", text, x=_percent(at), y=height + 16)))


def _marks(
    scale: Scale, rows: Sequence[Sequence[Measured]], spread: dict[tuple[str, str, str], float | None]
) -> dict[str, list[Markup]]:
    """By their kind, which says how they look; those that look alike are one."""
    marks: dict[str, list[Markup]] = {kind: [] for kind in ("base", "bound", "spread", "within", "over", "pair")}
    for top, row in enumerate(rows):
        y = top * ROW + LINE
        within = {scale.at(figure.value) for figure in row if not _over(figure)}
        over = {scale.at(figure.value) for figure in row if _over(figure)}
        bounds = {scale.at(figure.bound) for figure in row}
        marks["pair"].append(tag("text", phrases.short(row[0].pair, 80), y=y - 11))
        marks["base"].append(tag("rect", y=y))
        marks["bound"] += (tag("rect", x=_percent(at), y=y - 7) for at in sorted(bounds))
        marks["spread"] += _whiskers(scale, row, y, spread)
        marks["within"] += (tag("circle", cx=_percent(at), cy=y) for at in sorted(within))
        marks["over"] += (_diamond(at, y) for at in sorted(over))
    return {kind: found for kind, found in marks.items() if found}


def _diamond(at: float, y: int) -> Markup:
    return tag("svg", tag("path", d="M0-6 6 0 0 6-6 0Z"), x=_percent(at), y=y)


def _whiskers(
    scale: Scale, row: Sequence[Measured], y: int, spread: dict[tuple[str, str, str], float | None]
) -> Iterator[Markup]:
    """How far a figure is certain, where that is known."""
    for figure in row:
        ends = [spread.get((figure.pair, figure.case, f"{figure.metric}, {end}")) for end in ("low", "high")]
        if None not in ends:
            low, high = (min(max(scale.at(end), 0.0), 100.0) for end in ends)
            yield tag("rect", x=_percent(low), y=y - 2, width=_percent(max(high - low, 0.0)), height=4)


def _label(scale: Scale, rows: Sequence[Sequence[Measured]], worst: Measured) -> Markup | None:
    """The worst figure in numbers, beside its mark."""
    row = next((index for index, each in enumerate(rows) if worst in each), None)
    if row is None or worst.value is None:
        return None
    at, y = scale.at(worst.value), row * ROW + LINE + 4
    left = at > 14 if worst.metric in phrases.RATIOS else at > 86
    style, beside = ("worst left", -9) if left else ("worst", 9)
    return tag("text", f"{worst.value:.2g}", x=_percent(at), y=y, dx=beside, class_=style)


def _percent(at: float) -> str:
    return escaped(f"{at:g}%")
