"""The report as one HTML file that fetches nothing, and in which no string of a model is markup."""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files

from onnxgate.core.report import (
    Cell,
    Change,
    Drawing,
    DrawnNode,
    Finding,
    NotDone,
    Replay,
    Report,
    ReportedModel,
    ReportedRuntime,
)
from onnxgate.core.text import LONG_LIMIT, pluralize, truncate
from onnxgate.formats import wording
from onnxgate.formats.report.html import agreement
from onnxgate.formats.report.html.markup import (
    LEVEL_MARKS,
    STATE_MARKS,
    VERDICT_MARKS,
    Anchors,
    Child,
    Markup,
    collect_anchors,
    escape_html,
    join_lines,
    join_markup,
    render_code,
    render_prose,
    state_class,
    tag,
)

SECTION_TITLES = {
    "changes": "Changes",
    "matrix": "Matrix",
    "findings": "Findings",
    "undecided": "Undecided",
    "skipped": "Skipped",
    "agreement": "Agreement",
    "ignored": "Ignored",
    "replay": "Replay",
    "inventory": "Inventory",
}


def format(report: Report) -> str:
    """A page in HTML 5 that works without its script, in light and dark, on paper and on a phone."""
    parts = {name: part for name, part in _render_sections(report) if part is not None}
    style, script = _read_asset("page.css"), _read_asset("page.js")
    body = join_lines(
        tag("a", "To the findings", href="#main", class_="skip"),
        render_banner(report),
        _render_navigation(parts),
        tag("main", join_lines(parts.values()), id="main"),
        tag("footer", f"onnxgate {report.onnxgate}"),
        tag("script", Markup(script)),
    )
    page = tag("html", _render_head(report, style, script), tag("body", body), lang="en")
    return f"<!doctype html>\n{page}\n"


def _render_sections(report: Report) -> Iterator[tuple[str, Markup | None]]:
    places = collect_anchors(report)
    yield "changes", render_changes(report)
    yield "matrix", render_matrix(report, places)
    yield "findings", render_findings(report, places)
    yield "undecided", render_gaps("Could not be decided", "undecided", report.undecided, report)
    yield "skipped", render_gaps("Skipped", "skipped", report.skipped, report)
    yield "agreement", agreement.render_agreement(report)
    yield "ignored", render_ignored(report)
    yield "replay", render_replays(report)
    yield "inventory", render_inventory(report)


def _render_navigation(parts: dict[str, Markup]) -> Markup:
    links = (tag("a", SECTION_TITLES[name], href=f"#{name}") for name in parts)
    return tag("nav", join_markup(links, "\n"), aria_label="sections")


def _render_head(report: Report, style: str, script: str) -> Markup:
    policy = (
        f"default-src 'none'; style-src '{_csp_digest(style)}'; script-src '{_csp_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    title = f"{VERDICT_MARKS[report.verdict][1]}: {pluralize(len(report.models), 'model')} - onnxgate"
    return tag(
        "head",
        join_lines(
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=policy),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("meta", name="referrer", content="no-referrer"),
            tag("title", escape_html(title)),
            tag("style", Markup(style)),
        ),
    )


def _read_asset(name: str) -> str:
    text = files("onnxgate.formats.report.html").joinpath(name).read_text(encoding="utf-8")
    return f"\n{text.replace(chr(13), '')}"


def _csp_digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


STAGES = ("file", "lock", "support", "runtime", "parity", "export")
GATE_STAGE = "gate"
"""Stage of a gap that concerns all stages, such as models of a missing shard."""
MAX_DIFFERENCES = 40
"""Differences shown of one model."""


def render_banner(report: Report) -> Markup:
    """Render the verdict as a word and as a sentence, the stages, and the extent of the check."""
    mark, word = VERDICT_MARKS[report.verdict]
    return tag(
        "header",
        tag("p", "onnxgate", tag("button", "Theme", type="button", id="theme", hidden=True), class_="brand"),
        tag("h1", tag("span", mark, class_="mark", aria_hidden="true"), word),
        tag("p", render_prose(wording.render_verdict(report).partition(": ")[2]), class_="verdict"),
        tag("ul", (_render_stage(stage, report) for stage in _list_stages(report)), class_="stages"),
        tag("ul", (tag("li", item) for item in _render_extent(report)), class_="extent"),
        class_=f"banner {report.verdict}",
    )


def _list_stages(report: Report) -> tuple[str, ...]:
    return (*STAGES, *(stage for stage in report.stages if stage not in STAGES))


def _render_stage(stage: str, report: Report) -> Markup:
    mark, progress, style = _stage_progress(stage, report)
    shown = tag("span", mark, aria_hidden="true")
    return tag("li", shown, f" {stage} ", tag("span", progress, class_="how"), class_=style)


def _stage_progress(stage: str, report: Report) -> tuple[str, str, str]:
    """Return the mark, the words and the CSS class of a stage; with a missing shard no stage is complete."""
    if stage not in report.stages:
        return "–", "not asked for", "not-ran"
    left_open = {gap.stage for gap in (*report.undecided, *report.skipped)}
    return ("◐", "in part", "part") if left_open & {stage, GATE_STAGE} else ("✓", "checked", "ran")


def _render_extent(report: Report) -> Iterator[Markup]:
    """Yield comparisons, links to what was not done or is ignored, and remarks."""
    yield from map(render_prose, wording.describe_comparisons(report))
    for count, word, anchor in (
        (len(report.undecided), "could not be decided", "undecided"),
        (len(report.skipped), "skipped", "skipped"),
        (len(wording.list_ignored_findings(report)), "ignored by the config", "ignored"),
    ):
        if count:
            yield tag("a", f"{count} {word}", href=f"#{anchor}")
    yield from (render_prose(truncate(remark)) for remark in report.remarks)


def render_changes(report: Report) -> Markup | None:
    """Render the changes of models since the baseline."""
    title = wording.changes_title(report)
    if not title:
        return None
    return tag(
        "section",
        tag("h2", tag("span", f"{title[0].upper()}{title[1:]}")),
        tag("ul", join_lines(map(_render_change, wording.sort_changes(report))), class_="changes")
        if report.changes
        else None,
        id="changes",
    )


def _render_change(change: Change) -> Markup:
    differences = [render_prose(difference) for difference in wording.list_differences(change, MAX_DIFFERENCES)]
    return tag(
        "li",
        render_code(truncate(change.model)),
        f" {wording.describe_change(change)}",
        tag("ul", (tag("li", difference) for difference in differences)) if differences else None,
    )


def render_matrix(report: Report, anchors: Anchors) -> Markup | None:
    """Render the table of models x runtimes; a cell links to its finding or to the reasons."""
    runtimes = wording.list_runtimes(report)
    if not runtimes or not report.cells:
        return None
    rows = wording.cells_by_model(report)
    compared = any(cell.compared for row in rows.values() for cell in row.values())
    counts: Counter[str] = Counter(cell.state for row in rows.values() for cell in row.values())
    table = tag(
        "table",
        tag("caption", "models by runtimes", class_="unseen"),
        tag("thead", join_lines(_render_matrix_heads(runtimes))),
        tag(
            "tbody",
            join_lines(
                _render_matrix_row(model, [row.get(runtime) for runtime in runtimes], anchors)
                for model, row in rows.items()
            ),
        ),
        class_="matrix",
    )
    return tag(
        "section",
        tag("h2", "Models on runtimes"),
        tag("div", table, class_="scroll", tabindex=0, role="group", aria_label="models by runtimes"),
        tag(
            "ul",
            (_render_legend(state, counts[state]) for state in STATE_MARKS if counts[state]),
            tag("li", "• outputs compared with the source", class_="quiet") if compared else None,
            class_="legend",
        ),
        id="matrix",
    )


def _render_matrix_heads(runtimes: Sequence[str]) -> Iterator[Markup]:
    """Yield a row of engines and a row of their releases."""
    parts = [runtime.rpartition(" ")[::2] for runtime in runtimes]
    engines = [(engine, len(list(group))) for engine, group in itertools.groupby(part[0] for part in parts)]
    corner = tag("th", "model", scope="col", rowspan=2)
    yield tag("tr", corner, (tag("th", engine, scope="colgroup", colspan=count) for engine, count in engines))
    yield tag("tr", (tag("th", release, scope="col") for _, release in parts))


def _render_matrix_row(model: str, cells: Sequence[Cell | None], anchors: Anchors) -> Markup:
    first = next(iter(anchors.by_model.get(model, ())), None)
    name = render_code(truncate(model))
    head = tag("a", name, href=f"#finding-{first}") if first is not None else name
    return tag("tr", tag("th", head, scope="row"), (_render_matrix_cell(cell, anchors) for cell in cells))


def _render_matrix_cell(cell: Cell | None, anchors: Anchors) -> Markup:
    state = cell.state if cell else "not asked"
    meaning = wording.STATE_MEANINGS[state]
    findings = anchors.of_cell(cell) if cell and state in ("fail", "warning") else []
    where = f"finding-{findings[0]}" if findings else state if state in ("undecided", "skipped") else ""
    named = f"{meaning}; {pluralize(len(findings), 'finding')}" if findings else meaning
    if not where:
        return tag("td", STATE_MARKS[state], class_=_cell_class(cell, state), aria_label=named)
    return tag(
        "td",
        tag("a", STATE_MARKS[state], href=f"#{where}", aria_label=named, title=named),
        class_=_cell_class(cell, state),
    )


def _cell_class(cell: Cell | None, state: str) -> str:
    return f"{state_class(state)} compared" if cell and cell.compared else state_class(state)


def _render_legend(state: str, count: int) -> Markup:
    mark = tag("span", STATE_MARKS[state], class_=f"sign {state_class(state)}", aria_hidden="true")
    return tag("li", mark, f" {wording.STATE_MEANINGS[state]} ", tag("span", str(count), class_="quiet"))


def render_findings(report: Report, anchors: Anchors) -> Markup | None:
    """Render the active findings by model, each with the drawing of its node."""
    if not anchors.findings:
        return None
    numbers = {id(finding): index for index, finding in enumerate(anchors.findings)}
    return tag(
        "section",
        tag("h2", "Findings"),
        _render_controls(anchors.findings),
        join_lines(
            _render_group(subject, [(numbers[id(finding)], finding) for finding in group], report, anchors)
            for subject, group in wording.group_by_subject(anchors.findings)
        ),
        id="findings",
    )


def _render_controls(findings: Sequence[Finding]) -> Markup:
    """Render the filter; hidden without the script, which it needs."""
    boxes = (
        tag(
            "label",
            tag("input", type="checkbox", checked=True, data_level=level),
            f" {pluralize(count, level)}",
        )
        for level in wording.LEVELS
        if (count := sum(finding.level == level for finding in findings))
    )
    search = tag("input", type="search", id="search", placeholder="model, rule, node, runtime", autocomplete="off")
    return tag(
        "form",
        tag("label", "Filter ", search),
        boxes,
        tag("output", class_="quiet", aria_live="polite"),
        class_="controls",
        hidden=True,
    )


def _render_group(subject: str, numbered: Sequence[tuple[int, Finding]], report: Report, anchors: Anchors) -> Markup:
    cards = join_lines(_render_finding(index, finding, report, anchors) for index, finding in numbered)
    return tag("section", tag("h3", render_code(truncate(subject))), cards, class_="group")


def _render_finding(index: int, finding: Finding, report: Report, anchors: Anchors) -> Markup:
    head = tag(
        "h4",
        tag("span", tag("span", LEVEL_MARKS[finding.level], aria_hidden="true"), f" {finding.level}", class_="level"),
        " ",
        tag("a", render_code(finding.rule), href=f"#finding-{index}"),
    )
    return tag(
        "article",
        head,
        tag("p", render_prose(wording.render_message(finding)), class_="message"),
        tag("p", tag("strong", "Fix "), render_prose(truncate(finding.fix, LONG_LIMIT)), class_="fix")
        if finding.fix
        else None,
        tag("dl", (tag("div", tag("dt", name), tag("dd", value)) for name, value in _finding_facts(finding, report))),
        _render_finding_drawing(index, finding, anchors),
        id=f"finding-{index}",
        class_=f"finding {finding.level}",
        data_level=finding.level,
    )


def _render_finding_drawing(index: int, finding: Finding, anchors: Anchors) -> Markup | None:
    """Render the drawing of a finding's node; further findings of the same node link to the first one."""
    drawing = anchors.drawing_of(finding)
    if drawing is None:
        return None
    first = anchors.drawn_first(finding)
    return (
        render_drawing(drawing)
        if first == index
        else tag("p", tag("a", "its node is drawn above", href=f"#finding-{first}"))
    )


MAX_BOXES = 49
"""Boxes shown of a drawing that another program wrote; onnxgate's own have fewer."""

BoxSources = dict[int, dict[int, list[str]]]
"""Box -> boxes that feed it, by number -> names of the values that flow."""


def render_drawing(drawing: Drawing) -> Markup:
    """Return the nodes around a failing one as a list in the order of the data flow, each with its sources."""
    nodes = drawing.nodes[:MAX_BOXES]
    sources: BoxSources = {number: {} for number in range(len(nodes))}
    for edge in drawing.edges:
        if edge.source in sources and edge.target in sources and edge.source != edge.target:
            sources[edge.target].setdefault(edge.source, []).append(edge.value)
    boxes = (_render_box(number, nodes, sources[number]) for number in _sort_boxes(sources))
    caption = tag("figcaption", _describe_drawing(drawing, nodes, sources))
    return tag("figure", caption, tag("ol", join_lines(boxes)), class_="drawing", aria_label="drawing")


def _sort_boxes(sources: BoxSources) -> list[int]:
    """Return the boxes' numbers, sources right before the first box that they feed; a cycle is cut anywhere."""
    order: list[int] = []
    visited: set[int] = set()

    def visit(number: int) -> None:
        if number not in visited:
            visited.add(number)
            for source in sources[number]:
                visit(source)
            order.append(number)

    for number in sources:
        visit(number)
    return order


def _describe_drawing(drawing: Drawing, nodes: Sequence[DrawnNode], sources: BoxSources) -> str:
    """Return the drawing in one sentence, such as `conv in m.onnx; fed by input x; feeds Relu relu`."""
    pairs = [(nodes[source], nodes[target]) for target, feeding in sources.items() for source in feeding]
    feeding = [_box_label(source) for source, target in pairs if target.kind == "failing"]
    fed = [_box_label(target) for source, target in pairs if source.kind == "failing"]
    parts = [f"{truncate(drawing.node)} in {truncate(drawing.model)}"]
    parts += [f"fed by {', '.join(feeding)}"] if feeding else []
    parts += [f"feeds {', '.join(fed)}"] if fed else []
    return "; ".join(parts)


def _box_label(node: DrawnNode) -> str:
    return truncate(" ".join(filter(None, _box_texts(node))))


def _box_texts(node: DrawnNode) -> tuple[str, str]:
    """Return a box's operator, or its kind if it is a value, and its name."""
    return node.operator or (node.kind if node.kind in ("input", "output", "weight") else ""), node.name


def _render_box(number: int, nodes: Sequence[DrawnNode], sources: dict[int, list[str]]) -> Markup:
    title, name = map(truncate, _box_texts(nodes[number]))
    arrows = (
        tag("span", _box_label(nodes[source]), class_="arrow", title=", ".join(filter(None, values)) or None)
        for source, values in sources.items()
    )
    parts = [tag("strong", title) if title else None, render_code(name) if name else None]
    parts += [join_markup(("from ", join_markup(arrows, ", ")))] if sources else []
    return tag("li", join_markup(filter(None, parts), " ") or "unnamed", class_=f"box {nodes[number].kind}")


def _render_aside(word: str, text: str) -> Markup | None:
    """Render a line that a word introduces; None for an empty text."""
    if not text:
        return None
    return tag("p", tag("strong", f"{word} "), render_prose(truncate(text, LONG_LIMIT)), class_="fix")


def _finding_facts(finding: Finding, report: Report) -> Iterator[tuple[str, Child]]:
    """Yield label and value of a finding's place, node, runtimes, releases, stage and fingerprint."""
    yield "at", render_code(truncate(wording.format_place(finding.place)))
    if finding.node:
        yield "node", render_code(truncate(finding.node))
    if finding.runtimes:
        yield "runtimes", truncate(wording.describe_runtimes(finding.runtimes, report), LONG_LIMIT)
    if finding.works_since:
        yield "works since", finding.works_since
    if finding.works_until:
        yield "works until", finding.works_until
    yield "stage", finding.stage
    if finding.fingerprint:
        yield "fingerprint", render_code(finding.fingerprint)


def render_gaps(title: str, anchor: str, items: Sequence[NotDone], report: Report) -> Markup | None:
    """Render undecided or skipped checks, each reason once."""
    if not items:
        return None
    return tag(
        "section", tag("h2", title), tag("ul", join_lines(_render_gap_items(items, report)), class_="gaps"), id=anchor
    )


def _render_gap_items(items: Iterable[NotDone], report: Report) -> Iterator[Markup]:
    for gap in wording.merge_gaps(items):
        about, reason = gap.about(report), truncate(gap.reason, LONG_LIMIT)
        yield tag(
            "li",
            tag("p", render_prose(about), class_="about"),
            tag("p", render_prose(reason)),
            _render_aside("Hint", gap.hint),
        )


def render_ignored(report: Report) -> Markup | None:
    """Render the ignored findings with their reasons."""
    accepted = wording.list_ignored_findings(report)
    if not accepted:
        return None
    return tag(
        "section",
        tag("h2", "Ignored"),
        tag("ul", join_lines(map(_render_ignored_finding, accepted)), class_="gaps"),
        id="ignored",
    )


def _render_ignored_finding(finding: Finding) -> Markup:
    rule = join_markup((render_code(finding.rule), " in ", render_code(truncate(wording.finding_subject(finding)))))
    message = tag("p", render_prose(wording.render_message(finding)))
    return tag("li", tag("p", rule, class_="about"), message, _render_aside("Reason", finding.ignored))


def render_replays(report: Report) -> Markup | None:
    """Render the commands that reproduce findings."""
    if not report.replays:
        return None
    where = join_markup(("in ", render_code(report.folder))) if report.folder else "in the repository's folder"
    return tag(
        "section",
        tag("h2", "Replay"),
        tag("p", "Each command shows again what was found when a model ran; type it ", where, class_="lead"),
        join_lines(map(_render_replay, report.replays)),
        id="replay",
    )


def _render_replay(replay: Replay) -> Markup:
    rules = join_markup((render_code(rule) for rule in replay.rules), ", ")
    command = tag("pre", render_code(replay.command), tabindex=0)
    return tag("div", tag("p", render_code(truncate(replay.model)), ": ", rules), command, class_="replay")


def render_inventory(report: Report) -> Markup:
    """Render all models with their hashes, and all runtimes."""
    return tag(
        "section",
        tag("h2", "Models and runtimes"),
        tag("details", tag("summary", pluralize(len(report.models), "model")), _render_models(report.models)),
        tag(
            "details",
            tag("summary", pluralize(len(report.runtimes), "runtime")),
            _render_runtimes(report.runtimes),
        ),
        id="inventory",
    )


def _render_models(models: Sequence[ReportedModel]) -> Markup:
    rows = ((render_code(truncate(model.path)), render_code(model.sha256 or "-")) for model in models)
    return _render_table(("model", "sha256"), rows)


def _render_runtimes(runtimes: Sequence[ReportedRuntime]) -> Markup:
    return _render_table(
        ("target", "runtime", "Python", "providers"),
        (
            (
                runtime.target,
                f"{runtime.engine} {runtime.version}",
                runtime.python or "its own",
                ", ".join(runtime.providers),
            )
            for runtime in runtimes
        ),
    )


def _render_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    body = join_lines(tag("tr", (tag("td", cell) for cell in row)) for row in rows)
    head = tag("thead", tag("tr", (tag("th", head, scope="col") for head in heads)))
    table = tag("table", head, tag("tbody", body), class_="figures")
    return tag("div", table, class_="scroll", tabindex=0, role="group", aria_label=heads[0])
