"""What an HTML report calls things: anchors that links lead to, and the mark of each state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnxgate.formats import phrases
from onnxgate.report import Cell, Drawing, Finding, Report

MARKS = {
    "pass": "✓",
    "warning": "!",
    "fail": "✕",
    "predicted": "◌",
    "not predicted": "?",
    "undecided": "…",
    "skipped": "»",
    "not asked": "·",
}
MEANINGS = {
    "pass": "pass",
    "warning": "warning",
    "fail": "fail",
    "predicted": "predicted, not run",
    "not predicted": "not predicted, not run",
    "undecided": "undecided",
    "skipped": "skipped",
    "not asked": "not asked for",
}
LEVELS = {"error": "✕", "warning": "!", "note": "i"}
VERDICTS = {"pass": ("✓", "Pass"), "fail": ("✕", "Fail"), "undecided": ("?", "Undecided")}


def css_class(state: str) -> str:
    """`not-asked`; only of words that are ours."""
    return state.replace(" ", "-") if state in MARKS else "not-asked"


@dataclass(frozen=True, slots=True)
class Anchors:
    """Where the findings of a page stand, and what belongs to each."""

    findings: Sequence[Finding]  # those that count, worst first
    by_model: Mapping[str, Sequence[int]]
    drawings: Mapping[tuple[str, str], Drawing]
    first: Mapping[tuple[str, str], int]  # by model and node

    def of_cell(self, cell: Cell) -> list[int]:
        """The findings that a cell's state comes from: of its runtime, or of none in particular."""
        about = self.by_model.get(cell.model, ())
        return [
            index
            for index in about
            if not self.findings[index].runtimes or cell.runtime in self.findings[index].runtimes
        ]

    def drawing_of(self, finding: Finding) -> Drawing | None:
        """The one that shows the node which a finding names."""
        return self.drawings.get(_drawn(finding))

    def drawn_first(self, finding: Finding) -> int:
        """The first finding that names the same node: it has the picture."""
        return self.first[_drawn(finding)]


def anchors(report: Report) -> Anchors:
    """Of one report."""
    findings = phrases.spoken(report)
    by_model: dict[str, list[int]] = {}
    for index, finding in enumerate(findings):
        by_model.setdefault(finding.model, []).append(index)
    drawings = {(drawing.model, drawing.node): drawing for drawing in report.drawings}
    first: dict[tuple[str, str], int] = {}
    for index, finding in enumerate(findings):
        first.setdefault(_drawn(finding), index)
    return Anchors(findings, by_model, drawings, first)


def _drawn(finding: Finding) -> tuple[str, str]:
    """A drawing's model and node; a node without a name is called by the value that the message says it makes."""
    made = finding.message.partition("that makes `")[2].partition("`")[0]
    return finding.model, finding.node or made
