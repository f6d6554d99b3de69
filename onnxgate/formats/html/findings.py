"""Section of the HTML report with the findings, and diagrams of the nodes that they are about."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnxgate.core.report import Cell, Drawing, DrawnNode, Finding, Report
from onnxgate.core.text import LONG_LIMIT, pluralize, truncate
from onnxgate.formats import wording
from onnxgate.formats.html.markup import (
    LEVEL_MARKS,
    Child,
    Markup,
    join_lines,
    join_markup,
    link_rule,
    render_aside,
    render_code,
    render_prose,
    tag,
)


@dataclass(frozen=True, slots=True)
class Anchors:
    """Numbers of the findings in an HTML report, which are used in links, and the diagrams of the affected nodes."""

    findings: Sequence[Finding]  # active ones, worst first
    by_model: Mapping[str, Sequence[int]]
    drawings: Mapping[tuple[str, str], Drawing]  # by model and node
    first: Mapping[tuple[str, str], int]  # the first finding of a node, which shows the drawing

    def of_cell(self, cell: Cell) -> list[int]:
        """Return the numbers of the findings that explain a table cell: those about its model that affect its runtime.

        A finding that names no runtime affects all runtimes.
        """
        return [
            index
            for index in self.by_model.get(cell.model, ())
            if not self.findings[index].runtimes or cell.runtime in self.findings[index].runtimes
        ]


def collect_anchors(report: Report) -> Anchors:
    """Number the findings of a report that are not ignored, worst first."""
    findings = wording.list_active_findings(report)
    by_model: dict[str, list[int]] = {}
    first: dict[tuple[str, str], int] = {}
    for index, finding in enumerate(findings):
        by_model.setdefault(finding.model, []).append(index)
        first.setdefault(_drawing_key(finding), index)
    return Anchors(findings, by_model, {(drawing.model, drawing.node): drawing for drawing in report.drawings}, first)


def _drawing_key(finding: Finding) -> tuple[str, str]:
    """Return the key of the diagram that shows the node of a finding: the model and the node.

    A node without a name is identified by its output, which is taken from the finding's message.
    """
    output = finding.message.partition("that makes `")[2].partition("`")[0]
    return finding.model, finding.node or output


def render_findings(report: Report, anchors: Anchors) -> Markup | None:
    """Render the findings that are not ignored, worst first, with diagrams of the nodes that they are about."""
    if not anchors.findings:
        return None
    shown, folded = anchors.findings[:MAX_OPEN_FINDINGS], anchors.findings[MAX_OPEN_FINDINGS:]
    summary = tag("summary", pluralize(len(folded), "more finding"))
    return tag(
        "section",
        tag("h2", "Findings"),
        _render_controls(anchors.findings) if len(anchors.findings) >= MIN_FILTERED else None,
        _render_groups(shown, report, anchors),
        tag("details", summary, _render_groups(folded, report, anchors), class_="more") if folded else None,
        id="findings",
    )


MAX_OPEN_FINDINGS = 20
"""Maximum number of findings that are not collapsed."""
MIN_FILTERED = 5
"""Minimum number of findings for which the page has a filter."""


def _render_groups(findings: Sequence[Finding], report: Report, anchors: Anchors) -> Markup:
    """Render findings, which are sorted by level and then by model or file, in groups of the same level and subject."""
    numbers = {id(finding): index for index, finding in enumerate(anchors.findings)}
    groups = itertools.groupby(findings, key=lambda it: (it.level, wording.finding_subject(it)))
    return join_lines(
        tag(
            "section",
            tag("h3", render_code(truncate(subject))),
            join_lines(_render_finding(numbers[id(finding)], finding, report, anchors) for finding in group),
            class_="group",
        )
        for (_, subject), group in groups
    )


def _render_controls(findings: Sequence[Finding]) -> Markup:
    counts: Counter[str] = Counter(finding.level for finding in findings)
    boxes = (
        tag(
            "label",
            tag("input", type="checkbox", checked=True, data_level=level),
            f" {pluralize(counts[level], level)}",
        )
        for level in wording.LEVELS
        if counts[level]
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


def _render_finding(index: int, finding: Finding, report: Report, anchors: Anchors) -> Markup:
    head = tag(
        "h4",
        tag("span", tag("span", LEVEL_MARKS[finding.level], aria_hidden="true"), f" {finding.level}", class_="level"),
        " ",
        link_rule(finding.rule),
    )
    drawing = anchors.drawings.get(_drawing_key(finding))
    first = anchors.first[_drawing_key(finding)]
    link = tag("p", tag("a", "See the diagram of this node above", href=f"#finding-{first}"))
    return tag(
        "article",
        head,
        tag("p", render_prose(wording.render_message(finding)), class_="message"),
        render_aside("Fix", finding.fix),
        tag("dl", (tag("div", tag("dt", name), tag("dd", value)) for name, value in _finding_facts(finding, report))),
        None if drawing is None else render_drawing(drawing) if first == index else link,
        id=f"finding-{index}",
        class_=f"finding {finding.level}",
        data_level=finding.level,
    )


def _finding_facts(finding: Finding, report: Report) -> Iterator[tuple[str, Child]]:
    yield "location", render_code(truncate(wording.format_place(finding.place)))
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


MAX_BOXES = 49
"""Maximum number of nodes in a diagram. The diagrams that onnxgate creates have fewer nodes."""

BoxSources = dict[int, dict[int, list[str]]]
"""Names of the values that pass between two nodes of a diagram, by the numbers of the consumer and the producer."""


def render_drawing(drawing: Drawing) -> Markup:
    """Render a diagram as a list of nodes in data-flow order. Each node names the nodes that its inputs come from."""
    nodes = drawing.nodes[:MAX_BOXES]
    sources: BoxSources = {number: {} for number in range(len(nodes))}
    for edge in drawing.edges:
        if edge.source in sources and edge.target in sources and edge.source != edge.target:
            sources[edge.target].setdefault(edge.source, []).append(edge.value)
    boxes = (_render_box(number, nodes, sources[number]) for number in _sort_boxes(sources))
    caption = tag("figcaption", _describe_drawing(drawing, nodes, sources))
    return tag("figure", caption, tag("ol", join_lines(boxes)), class_="drawing", aria_label="drawing")


def _sort_boxes(sources: BoxSources) -> list[int]:
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
    """Return the caption of a diagram, such as `conv in m.onnx; inputs from: input x; outputs to: Relu relu`."""
    pairs = [(nodes[source], nodes[target]) for target, feeding in sources.items() for source in feeding]
    feeding = [_box_label(source) for source, target in pairs if target.kind == "failing"]
    fed = [_box_label(target) for source, target in pairs if source.kind == "failing"]
    parts = [f"{truncate(drawing.node)} in {truncate(drawing.model)}"]
    parts += [f"inputs from: {', '.join(feeding)}"] if feeding else []
    parts += [f"outputs to: {', '.join(fed)}"] if fed else []
    return "; ".join(parts)


def _box_label(node: DrawnNode) -> str:
    return truncate(" ".join(filter(None, (_box_title(node), node.name))))


def _box_title(node: DrawnNode) -> str:
    return node.operator or (node.kind if node.kind in ("input", "output", "weight") else "")


def _render_box(number: int, nodes: Sequence[DrawnNode], sources: dict[int, list[str]]) -> Markup:
    title, name = truncate(_box_title(nodes[number])), truncate(nodes[number].name)
    arrows = (
        tag("span", _box_label(nodes[source]), class_="arrow", title=", ".join(filter(None, values)) or None)
        for source, values in sources.items()
    )
    parts = [tag("strong", title) if title else None, render_code(name) if name else None]
    parts += [join_markup(("from ", join_markup(arrows, ", ")))] if sources else []
    return tag("li", join_markup(filter(None, parts), " ") or "unnamed", class_=f"box {nodes[number].kind}")
