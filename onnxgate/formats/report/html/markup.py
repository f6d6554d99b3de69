"""HTML and SVG as values that escape every other string on insertion, and the marks and anchors of the page."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from onnxgate.core.escape import escape_unprintable
from onnxgate.core.report import Cell, Drawing, Finding, Report
from onnxgate.formats import wording

VOID_ELEMENTS = frozenset({"meta", "input"})
SVG_SHAPES = frozenset({"circle", "rect", "path"})
"""Elements of SVG without content; unlike those of HTML they must be closed."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | Iterable[str] | None
AttributeValue = str | int | bool | None


def escape_html(text: str) -> Markup:
    """Escape a text for an element or a quoted attribute, and keep it from being a workflow command in a log."""
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(escape_unprintable(text)).replace("##[", "#&#35;["))


def tag(name: str, /, *children: Child, **attributes: AttributeValue) -> Markup:
    """Return an element. `class_` is `class`, `_` in other names is `-`; None and False omit the attribute."""
    start = f"<{name}{''.join(_render_attribute(key, value) for key, value in attributes.items())}"
    if name in SVG_SHAPES:
        return Markup(f"{start}/>")
    return Markup(f"{start}>" if name in VOID_ELEMENTS else f"{start}>{join_markup(children)}</{name}>")


def join_markup(children: Iterable[Child], between: str = "") -> Markup:
    """Join children, nested iterables included; text is escaped. A single text is one child."""
    return Markup(between.join(_flatten((children,) if isinstance(children, str) else children)))


def join_lines(*children: Child) -> Markup:
    """Join children by newlines, so that a page can be read and compared."""
    return join_markup(children, "\n")


def _flatten(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if isinstance(child, str):
            yield escape_html(child)
        elif child is not None:
            yield from _flatten(child)


def _render_attribute(key: str, value: AttributeValue) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape_html(str(value))}"'


def render_prose(text: str) -> Markup:
    """Render a sentence; literals in back-ticks become code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # an unpaired back-tick
        return escape_html(text)
    return join_markup(render_code(part) if index % 2 else part for index, part in enumerate(parts))


def render_code(text: str) -> Markup:
    """Render a literal."""
    return tag("code", text)


STATE_MARKS = {
    "pass": "✓",
    "warning": "!",
    "fail": "✕",
    "predicted": "◌",
    "not predicted": "?",
    "undecided": "…",
    "skipped": "»",
    "not asked": "·",
}
LEVEL_MARKS = {"error": "✕", "warning": "!", "note": "i"}
VERDICT_MARKS = {"pass": ("✓", "Pass"), "fail": ("✕", "Fail"), "undecided": ("?", "Undecided")}


def state_class(state: str) -> str:
    """Return the CSS class of a state, such as `not-asked`; unknown states get that one."""
    return state.replace(" ", "-") if state in STATE_MARKS else "not-asked"


@dataclass(frozen=True, slots=True)
class Anchors:
    """Numbers of the findings of a page, for links, and the drawings of their nodes."""

    findings: Sequence[Finding]  # those that count, worst first
    by_model: Mapping[str, Sequence[int]]
    drawings: Mapping[tuple[str, str], Drawing]
    first: Mapping[tuple[str, str], int]  # by model and node

    def of_cell(self, cell: Cell) -> list[int]:
        """Return the findings that explain a cell: those of its runtime, or without a runtime."""
        about = self.by_model.get(cell.model, ())
        return [
            index
            for index in about
            if not self.findings[index].runtimes or cell.runtime in self.findings[index].runtimes
        ]

    def drawing_of(self, finding: Finding) -> Drawing | None:
        """Return the drawing of the node that a finding names."""
        return self.drawings.get(_drawing_key(finding))

    def drawn_first(self, finding: Finding) -> int:
        """Return the first finding of the same node, which contains the drawing."""
        return self.first[_drawing_key(finding)]


def collect_anchors(report: Report) -> Anchors:
    """Number the active findings of a report."""
    findings = wording.list_active_findings(report)
    by_model: dict[str, list[int]] = {}
    for index, finding in enumerate(findings):
        by_model.setdefault(finding.model, []).append(index)
    drawings = {(drawing.model, drawing.node): drawing for drawing in report.drawings}
    first: dict[tuple[str, str], int] = {}
    for index, finding in enumerate(findings):
        first.setdefault(_drawing_key(finding), index)
    return Anchors(findings, by_model, drawings, first)


def _drawing_key(finding: Finding) -> tuple[str, str]:
    """Return model and node of a drawing; a node without a name is identified by its output, from the message."""
    output = finding.message.partition("that makes `")[2].partition("`")[0]
    return finding.model, finding.node or output
