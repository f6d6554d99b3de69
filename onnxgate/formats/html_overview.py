"""What a reader sees first: the verdict, what was and was not checked, what changed, and the matrix."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

from onnxgate.formats import changes, phrases
from onnxgate.formats.html_marks import MARKS, MEANINGS, VERDICTS, Anchors, css_class
from onnxgate.formats.html_markup import Markup, code, lines, prose, tag
from onnxgate.report import Cell, Change, Report

STAGES = ("file", "lock", "support", "runtime", "parity", "export")
GATE = "gate"
"""What is undecided of no stage alone: nobody judged some models."""
DIFFERENCES = 40
"""Differences that are said of one model."""


def banner(report: Report) -> Markup:
    """The verdict in one word and in one sentence, and what it rests on."""
    mark, word = VERDICTS[report.verdict]
    return tag(
        "header",
        tag("p", "onnxgate", tag("button", "Theme", type="button", id="theme", hidden=True), class_="brand"),
        tag("h1", tag("span", mark, class_="mark", aria_hidden="true"), word),
        tag("p", prose(phrases.verdict(report).partition(": ")[2]), class_="verdict"),
        tag("ul", (_stage(stage, report) for stage in _stages(report)), class_="stages"),
        tag("ul", (tag("li", said) for said in _extent(report)), class_="extent"),
        class_=f"banner {report.verdict}",
    )


def _stages(report: Report) -> tuple[str, ...]:
    return (*STAGES, *(stage for stage in report.stages if stage not in STAGES))


def _stage(stage: str, report: Report) -> Markup:
    mark, said, style = _how_far(stage, report)
    shown = tag("span", mark, aria_hidden="true")
    return tag("li", shown, f" {stage} ", tag("span", said, class_="how"), class_=style)


def _how_far(stage: str, report: Report) -> tuple[str, str, str]:
    """Of a lost shard no stage is whole."""
    if stage not in report.stages:
        return "–", "not asked for", "not-ran"
    left_open = {each.stage for each in (*report.undecided, *report.skipped)}
    return ("◐", "in part", "part") if left_open & {stage, GATE} else ("✓", "checked", "ran")


def _extent(report: Report) -> Iterator[Markup]:
    """What was and was not looked at, beyond the stages."""
    yield from map(prose, phrases.compared(report))
    for count, word, anchor in (
        (len(report.undecided), "could not be decided", "undecided"),
        (len(report.skipped), "skipped", "skipped"),
        (len(phrases.ignored(report)), "ignored by the config", "ignored"),
    ):
        if count:
            yield tag("a", f"{count} {word}", href=f"#{anchor}")
    yield from (prose(phrases.short(remark)) for remark in report.remarks)


def changed(report: Report) -> Markup | None:
    """What became of models since the baseline."""
    title = changes.title(report)
    if not title:
        return None
    return tag(
        "section",
        tag("h2", tag("span", f"{title[0].upper()}{title[1:]}")),
        tag("ul", lines(map(_change, changes.ordered(report))), class_="changes") if report.changes else None,
        id="changes",
    )


def _change(change: Change) -> Markup:
    said = [prose(each) for each in changes.differences(change, DIFFERENCES)]
    return tag(
        "li",
        code(phrases.short(change.model)),
        f" {changes.what(change)}",
        tag("ul", (tag("li", each) for each in said)) if said else None,
    )


def matrix(report: Report, anchors: Anchors) -> Markup | None:
    """Models x runtimes; a cell leads to what is wrong there."""
    runtimes = phrases.runtime_names(report)
    if not runtimes or not report.cells:
        return None
    rows = phrases.matrix(report)
    compared = any(cell.compared for row in rows.values() for cell in row.values())
    counts: Counter[str] = Counter(cell.state for row in rows.values() for cell in row.values())
    table = tag(
        "table",
        tag("caption", "models by runtimes", class_="unseen"),
        tag("thead", lines(_heads(runtimes))),
        tag("tbody", lines(_row(model, [row.get(each) for each in runtimes], anchors) for model, row in rows.items())),
        class_="matrix",
    )
    return tag(
        "section",
        tag("h2", "Models on runtimes"),
        tag("div", table, class_="scroll", tabindex=0, role="group", aria_label="models by runtimes"),
        tag(
            "ul",
            (_legend(state, counts[state]) for state in MARKS if counts[state]),
            tag("li", "• outputs compared with the source", class_="quiet") if compared else None,
            class_="legend",
        ),
        id="matrix",
    )


def _heads(runtimes: Sequence[str]) -> Iterator[Markup]:
    """Engines, and below them their releases."""
    parts = [runtime.rpartition(" ")[::2] for runtime in runtimes]
    engines = [(engine, len(list(group))) for engine, group in itertools.groupby(part[0] for part in parts)]
    corner = tag("th", "model", scope="col", rowspan=2)
    yield tag("tr", corner, (tag("th", engine, scope="colgroup", colspan=count) for engine, count in engines))
    yield tag("tr", (tag("th", release, scope="col") for _, release in parts))


def _row(model: str, cells: Sequence[Cell | None], anchors: Anchors) -> Markup:
    first = next(iter(anchors.by_model.get(model, ())), None)
    name = code(phrases.short(model))
    head = tag("a", name, href=f"#finding-{first}") if first is not None else name
    return tag("tr", tag("th", head, scope="row"), (_cell(cell, anchors) for cell in cells))


def _cell(cell: Cell | None, anchors: Anchors) -> Markup:
    state = cell.state if cell else "not asked"
    said = MEANINGS[state]
    found = anchors.of_cell(cell) if cell and state in ("fail", "warning") else []
    where = f"finding-{found[0]}" if found else state if state in ("undecided", "skipped") else ""
    named = f"{said}; {phrases.count(len(found), 'finding')}" if found else said
    if not where:
        return tag("td", MARKS[state], class_=_style(cell, state), aria_label=named)
    return tag(
        "td", tag("a", MARKS[state], href=f"#{where}", aria_label=named, title=named), class_=_style(cell, state)
    )


def _style(cell: Cell | None, state: str) -> str:
    return f"{css_class(state)} compared" if cell and cell.compared else css_class(state)


def _legend(state: str, count: int) -> Markup:
    mark = tag("span", MARKS[state], class_=f"sign {css_class(state)}", aria_hidden="true")
    return tag("li", mark, f" {MEANINGS[state]} ", tag("span", str(count), class_="quiet"))
